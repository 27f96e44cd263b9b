// Python in a module worker: Pyodide, the library's wheel, and the module `page` through which programs talk to the
// page. The other side is lib/runtime.js, which also says what the messages are.

import { DownloadError, Downloads } from "./lib/downloads.js";

const controls = []; // messages of the page that Python has not taken yet
let wake = () => {}; // ends the wait for one
let pyodide = null;

const post = (message, transfer = []) => self.postMessage(message, transfer);

/** The JavaScript module that Python imports as `page`. */
const page = {
  emit(kind, json) {
    post({ type: "event", kind, payload: JSON.parse(json) });
  },
  emit_buffer(kind, json, buffer) {
    const view = buffer.getBuffer();
    const bytes = new Uint8Array(view.data.buffer, view.data.byteOffset, view.nbytes).slice().buffer;
    view.release();
    post({ type: "event", kind, payload: JSON.parse(json), buffer: bytes }, [bytes]);
  },
  /** The next control message as JSON, or None. */
  take() {
    return controls.length ? JSON.stringify(controls.shift()) : undefined;
  },
  /** Resolves when there is a message to take. */
  wait() {
    return new Promise((resolve) => {
      wake = resolve;
      if (controls.length) resolve();
    });
  },
  /** Lets the messages of the page arrive. A message channel has no least delay, as setTimeout has. */
  pause() {
    return new Promise((resolve) => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        channel.port1.close();
        resolve();
      };
      channel.port2.postMessage(null);
    });
  },
};

// Files of Pyodide that are loaded, whatever the program is.
const PYODIDE_FILES = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"];

async function start({ site, programs, device, interruptBuffer }) {
  const began = performance.now();
  const progress = (step, bytes = null) => post({ type: "event", kind: "loading", payload: { step, ...bytes } });
  const downloads = new Downloads(site.sizes ?? {}, (bytes) => progress("Python", bytes));
  const programAddresses = programs.map((name) => `${site.root}programs/${name}.py`);
  downloads.expect(PYODIDE_FILES.map((name) => site.pyodide + name));
  const read = async (address, as) => (await downloads.fetch(address))[as]();
  const [loaded, wheel, transport, sources] = await Promise.race([
    downloads.failed,
    Promise.all([
      loadPyodideFrom(site.pyodide, site.packages, downloads),
      read(site.wheel, "arrayBuffer"),
      downloads.import(site.transport),
      Promise.all(programAddresses.map((address) => read(address, "text"))),
    ]),
  ]);
  pyodide = loaded;
  for (const stream of ["stdout", "stderr"]) {
    const decoder = new TextDecoder();
    const write = (bytes) => {
      post({ type: "output", stream, text: decoder.decode(bytes, { stream: true }) });
      return bytes.length;
    };
    pyodide[stream === "stdout" ? "setStdout" : "setStderr"]({ write });
  }
  if (interruptBuffer) pyodide.setInterruptBuffer(interruptBuffer);
  pyodide.registerJsModule("page", page);
  // The helper of the WebGPU device: the page's CSP allows no eval, so it comes as a module.
  pyodide.registerJsModule("optirs_web_transport", { request: transport.default });
  pyodide.runPython(EXPLAIN_MISSING, { locals: pyodide.toPy({ _packages: site.packages }) });
  progress("the library");
  pyodide.unpackArchive(wheel, "wheel");
  sources.forEach((source, number) => pyodide.FS.writeFile(`/home/pyodide/${programs[number]}.py`, source));
  const info = {
    pyodide: pyodide.version,
    python: pyodide.runPython("import sys; sys.path.insert(0, '/home/pyodide'); sys.version.split()[0]"),
    jspi: "Suspending" in WebAssembly,
    device: null,
  };
  if (device) {
    progress("the GPU");
    info.device = JSON.parse(await pyodide.runPythonAsync(OPEN_DEVICE, { filename: "<start>" }));
  }
  info.seconds = (performance.now() - began) / 1000;
  return info;
}

/** Pyodide, whose files are all asked for at once. It calls the global fetch, so that has to count while it loads. */
async function loadPyodideFrom(base, packages, downloads) {
  const [loader, module] = ["pyodide.mjs", "pyodide.asm.mjs"].map((name) => downloads.import(base + name));
  const early = new Map(PYODIDE_FILES.filter((name) => !name.endsWith(".mjs")).map((name) => [base + name, downloads.fetch(base + name)]));
  for (const download of [module, ...early.values()]) download.catch(() => {}); // the first failure is known already
  const uncounted = self.fetch;
  self.fetch = (resource, options) => {
    const address = new URL(resource.url ?? resource, self.location.href).href;
    const started = early.get(address);
    early.delete(address);
    return started ?? downloads.fetch(resource, options);
  };
  try {
    const { loadPyodide } = await loader;
    const createPyodideModule = async (settings) => (await module).default(settings);
    return await loadPyodide({ indexURL: base, packageBaseUrl: packages, createPyodideModule });
  } finally {
    self.fetch = uncounted;
  }
}

const OPEN_DEVICE = `
import json
import optirs_web as ow
_device = await ow.device_async("webgpu")
json.dumps({"name": _device.name, "description": _device.info.description, "software": _device.info.software})
`;

/** What Python's value is in the page: proxies are converted, and those that cannot be become their repr. */
function plain(value) {
  if (!(value instanceof pyodide.ffi.PyProxy)) return value;
  try {
    const converted = value.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
    return converted instanceof pyodide.ffi.PyProxy ? String(value) : converted;
  } catch {
    return String(value);
  } finally {
    value.destroy();
  }
}

// What Pyodide says of a package of its distribution that is not there names micropip, which is not there either.
const EXPLAIN_MISSING = `
import _pyodide._importhook as _hook
_hook.YOU_CAN_INSTALL_IT_BY = f" It could not be loaded from {_packages}: this computer may be offline."
_hook.SEE_PACKAGE_LOADING = (
    " To provide it, serve the site with OPTIRS_PYODIDE_DIST set to the folder of a full Pyodide distribution. "
    "The library itself needs no packages: it accepts lists and buffers, and returns lists and memoryviews."
)
`;

/** Loads the packages of Pyodide's distribution that a program imports: NumPy, for example. A failure is reported by the import. */
async function loadImports(source) {
  const quiet = () => {};
  await pyodide.loadPackagesFromImports(source, { messageCallback: quiet, errorCallback: quiet }).catch(quiet);
}

async function run({ source, name, globals }) {
  await loadImports(source);
  const namespace = pyodide.toPy({ __name__: "__main__", ...globals });
  try {
    return plain(await pyodide.runPythonAsync(source, { globals: namespace, filename: name }));
  } finally {
    namespace.destroy();
  }
}

/** A traceback without Pyodide's own frames; the last line is the message, the last frame in `name` the line. */
function described(error, name) {
  if (error?.constructor?.name !== "PythonError") {
    const download = error instanceof DownloadError ? { address: error.address, status: error.status } : null;
    return { message: String(error?.message ?? error), traceback: "", line: null, download };
  }
  const kept = [];
  let skipping = false;
  let line = null;
  for (const text of error.message.trimEnd().split("\n")) {
    const frame = /^ {2}File "(.*?)", line (\d+)/.exec(text);
    if (frame) {
      skipping = frame[1].includes("/_pyodide/");
      if (frame[1] === name) line = Number(frame[2]);
    } else if (!/^ {3,}/.test(text)) {
      skipping = false;
    }
    if (!skipping) kept.push(text);
  }
  return { message: kept.findLast((text) => text.trim()) ?? error.type, traceback: kept.join("\n"), line };
}

self.onmessage = async ({ data }) => {
  if (data.type === "control") {
    controls.push({ kind: data.kind, value: data.value ?? null });
    wake();
    return;
  }
  try {
    if (data.type === "run") controls.length = 0; // what was meant for an earlier program
    const value = data.type === "start" ? await start(data) : await run(data);
    post({ type: "result", id: data.id, value });
  } catch (error) {
    // After some errors, as when memory is exhausted, this Pyodide cannot be used again.
    post({ type: "error", id: data.id, ...described(error, data.name), fatal: Boolean(error?.pyodide_fatal_error) });
  }
};
