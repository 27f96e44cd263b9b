// Python in a worker, as the pages use it. Messages:
//   to the worker:   {type: "start"|"run", id, …}, {type: "control", kind, value}
//   to the page:     {type: "result", id, value}, {type: "error", id, message, traceback, line},
//                    {type: "event", kind, payload, buffer?}, {type: "output", stream, text}
import { address, site } from "./api.js";

/** An error of Python: `message` is its last line, `line` the line of the program that was run, or null. */
export class PythonError extends Error {
  constructor({ message, traceback, line }) {
    super(message);
    this.traceback = traceback;
    this.line = line;
  }
}

/**
 * One Python interpreter in a worker of its own.
 *
 * Options:
 *   programs     names of files in demo_site/programs that Python can import: ["digits"]
 *   more         load the second wheel too: modules, convolutions, attention, the profiler (default false)
 *   device       open the WebGPU device first (default true); `info.device` is then {name, description}
 *   onEvent      (kind, payload, buffer) for page.emit and page.emit_buffer; "loading" {step} while it starts
 *   onOutput     (text, "stdout"|"stderr")
 */
export class PythonWorker {
  #worker;
  #waiting = new Map();
  #next = 0;
  #interrupts = self.crossOriginIsolated ? new Uint8Array(new SharedArrayBuffer(1)) : null;

  constructor({ programs = [], more = false, device = true, onEvent = () => {}, onOutput = () => {} } = {}) {
    this.#worker = new Worker(address("static/worker.js"), { type: "module", name: "python" });
    this.#worker.onmessage = ({ data }) => {
      if (data.type === "event") onEvent(data.kind, data.payload, data.buffer);
      else if (data.type === "output") onOutput(data.text, data.stream);
      else this.#settle(data);
    };
    this.#worker.onerror = (event) => this.#fail(event.message || "the worker could not be started");
    /** Resolves to {pyodide, python, jspi, device, seconds}. */
    this.ready = this.#ask({ type: "start", site, programs, more, device, interruptBuffer: this.#interrupts });
    this.ready.catch(() => {}); // reported where it is awaited
  }

  /** Runs a program as __main__, top-level await allowed, and resolves to the value of its last expression. */
  async run(source, { name = "program.py", globals = {} } = {}) {
    await this.ready;
    if (this.#interrupts) this.#interrupts[0] = 0;
    return this.#ask({ type: "run", source, name, globals });
  }

  /** Puts a message where the running program finds it with page.take(). */
  send(kind, value = null) {
    this.#worker.postMessage({ type: "control", kind, value });
  }

  /** Raises KeyboardInterrupt in the program. False if the page is not isolated, so that only terminate() helps. */
  interrupt() {
    if (!this.#interrupts) return false;
    this.#interrupts[0] = 2; // SIGINT
    return true;
  }

  /** Ends the worker at once; what was waited for is rejected. */
  terminate() {
    this.#worker.terminate();
    this.#fail("stopped");
  }

  #ask(message) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ ...message, id });
    });
  }

  #settle({ type, id, value, ...error }) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (type === "result") waiting?.resolve(value);
    else waiting?.reject(new PythonError(error));
  }

  #fail(message) {
    for (const { reject } of this.#waiting.values()) reject(new PythonError({ message, traceback: "", line: null }));
    this.#waiting.clear();
  }
}
