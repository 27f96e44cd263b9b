// What is saved in this browser, in IndexedDB. Other copies of the site at the same host have databases of their own.
import { site } from "../api.js";
import { quoted } from "../commands.js";

const NAME = `optirs-web ${new URL(site.root).pathname}`;
const MOST_RESULTS = 200; // the oldest make room

const settled = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

let database = null;
const forget = () => {
  database = null; // the next call opens it again
};

function opened() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("runs", { keyPath: "name" });
      request.result.createObjectStore("files");
      request.result.createObjectStore("results", { autoIncrement: true });
    };
    request.onsuccess = () => {
      request.result.onclose = forget; // the visitor has cleared what the site saved
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
  });
  database.catch(forget);
  return database;
}

/** Runs `action(store, …)` in one transaction over these stores; all that it wrote is there in the end, or nothing. */
async function within(names, mode, action) {
  try {
    const transaction = (await opened()).transaction(names, mode, { durability: "strict" });
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    const [result] = await Promise.all([action(...names.map((name) => transaction.objectStore(name))), done]);
    return result;
  } catch (error) {
    throw new Error(reason(error), { cause: error });
  }
}

function reason(error) {
  if (error?.name === "QuotaExceededError") return "This browser’s storage is full: delete a run, or download the file instead";
  return `This browser does not let the page save: ${error?.message ?? error}. You can still download and open files`;
}

/** What a file says about itself, of its own notes: {epoch, optimizer}, null where it does not. */
function described(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const { extra, optimizer } = JSON.parse(header.__metadata__.optirs_web);
  return { epoch: Array.isArray(extra?.history) ? extra.history.length : null, optimizer: optimizer?.type ?? null };
}

export const savedRuns = {
  async list() {
    const runs = await within(["runs"], "readonly", (store) => settled(store.getAll()));
    return runs.sort((one, other) => (one.updated < other.updated ? 1 : -1));
  },
  async get(name) {
    const file = await within(["files"], "readonly", (store) => settled(store.get(name)));
    if (!file) throw new Error(`There is no run “${name}” in this browser`);
    return file;
  },
  async put(name, body) {
    const bytes = new Uint8Array(body).slice(); // of memory that is not shared
    const run = { name, size: bytes.length, updated: new Date().toISOString(), ...described(bytes) };
    await within(["runs", "files"], "readwrite", (runs, files) =>
      Promise.all([settled(runs.put(run)), settled(files.put(bytes.buffer, name))]));
  },
  async delete(name) {
    await within(["runs", "files"], "readwrite", (runs, files) =>
      Promise.all([settled(runs.delete(name)), settled(files.delete(name))]));
  },
  /** The run is fetched with “Download file” and returned with “Open a file…”. */
  commands: async (name, file) => ({ there: [`mv ~/Downloads/${quoted(`${name}.safetensors`)} ${file}`], back: [] }),
};

export const savedResults = {
  async list() {
    const results = await within(["results"], "readonly", (store) => settled(store.getAll()));
    return results.reverse();
  },
  async add(result) {
    const saved = { created: new Date().toISOString(), result: structuredClone(result) };
    await within(["results"], "readwrite", async (store) => {
      await settled(store.add(saved));
      const keys = await settled(store.getAllKeys());
      await Promise.all(keys.slice(0, -MOST_RESULTS).map((key) => settled(store.delete(key))));
    });
  },
};
