// Python in a worker, as the pages use it. Messages:
//   to the worker:   {type: "start"|"run", id, …}, {type: "control", kind, value}
//   to the page:     {type: "result", id, value},
//                    {type: "error", id, message, traceback, line, fatal, download: {address, status}?},
//                    {type: "event", kind, payload, buffer?}, {type: "output", stream, text}
import { address, site } from "./api.js";

/** Seconds without a sign of life after which starting is given up: while downloading, and while anything else happens. */
const PATIENCE = { downloading: 30, other: 120 };

/**
 * An error of Python: `message` is its last line, `line` the line of the program that was run, or null.
 * `download` is {address, status} where a file could not be loaded; `stalled` is true where nothing more arrived.
 */
export class PythonError extends Error {
  constructor({ message, traceback = "", line = null, download = null, stalled = false }) {
    super(message);
    Object.assign(this, { traceback, line, download, stalled });
  }
}

/**
 * One Python interpreter in a worker of its own.
 *
 * Options:
 *   programs     names of files in demo_site/programs that Python can import: ["digits"]
 *   device       open the WebGPU device first (default true); `info.device` is then {name, description, software}
 *   onEvent      (kind, payload, buffer) for page.emit and page.emit_buffer; while it starts "loading"
 *                {step, loaded, total, pending}, bytes and requests where it downloads
 *   onOutput     (text, "stdout"|"stderr")
 */
export class PythonWorker {
  #options;
  #worker = null;
  #waiting = new Map();
  #next = 0;
  #interrupts = self.crossOriginIsolated ? new Uint8Array(new SharedArrayBuffer(1)) : null;
  #watch = 0; // the timer that sees to it that starting goes on
  #listeners = new Set(); // of the event "loading"

  constructor({ programs = [], device = true, onEvent = () => {}, onOutput = () => {} } = {}) {
    this.#options = { programs, device, onEvent, onOutput };
    this.#start();
  }

  /** Whether there is no Python any more: it could not be started, crashed, or was terminated. */
  get isDead() {
    return this.#worker === null;
  }

  /** Ends what there is and starts a new Python; returns the new `ready`. */
  restart() {
    this.terminate();
    this.#start();
    return this.ready;
  }

  #start() {
    const { programs, device, onEvent, onOutput } = this.#options;
    const worker = new Worker(address("static/worker.js"), { type: "module", name: "python" });
    this.#worker = worker;
    worker.onmessage = ({ data }) => {
      if (worker !== this.#worker) return;
      if (data.type === "event" && data.kind === "loading") this.#tellLoading(data.payload);
      if (data.type === "event") onEvent(data.kind, data.payload, data.buffer);
      else if (data.type === "output") onOutput(data.text, data.stream);
      else this.#settle(data);
    };
    worker.onerror = (event) => this.#end(worker, { message: event.message || "The worker could not be started." });
    if (this.#interrupts) this.#interrupts[0] = 0;
    this.#keepWatch({ step: "Python", pending: 1 });
    /** Resolves to {pyodide, python, jspi, device, seconds}. */
    this.ready = this.#ask({ type: "start", site, programs, device, interruptBuffer: this.#interrupts });
    this.ready.then(
      () => clearInterval(this.#watch),
      () => this.#end(worker, { message: "Python could not be started." }), // why is reported where it is awaited
    );
  }

  /** Calls back with each event "loading"; returns a function that ends that. */
  onLoading(callback) {
    this.#listeners.add(callback);
    return () => this.#listeners.delete(callback);
  }

  #tellLoading(report) {
    this.#keepWatch(report);
    for (const callback of this.#listeners) callback(report);
  }

  /** Gives up after seconds without news. They are counted one by one: a computer that sleeps wakes with one more. */
  #keepWatch({ step, pending = 0 }) {
    const worker = this.#worker;
    const patience = pending > 0 ? PATIENCE.downloading : PATIENCE.other;
    let seconds = 0;
    clearInterval(this.#watch);
    this.#watch = setInterval(() => {
      seconds += 1;
      if (seconds >= patience) this.#end(worker, { message: `Loading ${step}: no progress for ${patience} seconds.`, stalled: true });
    }, 1000);
  }

  /** Runs a program as __main__, top-level await allowed, and resolves to the value of its last expression. */
  async run(source, { name = "program.py", globals = {} } = {}) {
    await this.ready;
    if (this.#interrupts) this.#interrupts[0] = 0;
    return this.#ask({ type: "run", source, name, globals });
  }

  /** Puts a message where the running program finds it with page.take(). */
  send(kind, value = null) {
    this.#worker?.postMessage({ type: "control", kind, value });
  }

  /** Raises KeyboardInterrupt in the program. False if the page is not isolated, so that only terminate() helps. */
  interrupt() {
    if (!this.#interrupts) return false;
    this.#interrupts[0] = 2; // SIGINT
    return true;
  }

  /** Ends the worker at once; what was waited for is rejected. */
  terminate() {
    this.#end(this.#worker, { message: "stopped" });
  }

  #ask(message) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      if (this.isDead) {
        reject(new PythonError({ message: "Python is no longer running." }));
        return;
      }
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ ...message, id });
    });
  }

  #settle({ type, id, value, fatal, ...error }) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (type === "result") waiting?.resolve(value);
    else waiting?.reject(new PythonError(error));
    if (fatal) this.#end(this.#worker, error);
  }

  #end(worker, error) {
    if (worker === null || worker !== this.#worker) return;
    clearInterval(this.#watch);
    worker.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(new PythonError(error));
    this.#waiting.clear();
  }
}
