// What a worker downloads while it starts: bytes are counted as they arrive, and the first failure is kept, since
// Pyodide only warns of a file that it could not get and then waits for ever.

/** A download that failed: `address` is what was asked for, `status` the server's answer, or null if there was none. */
export class DownloadError extends Error {
  constructor(address, status, reason) {
    super(reason);
    Object.assign(this, { name: "DownloadError", address, status });
  }
}

/**
 * Counts downloads and tells how far they are: `report({loaded, total, pending})`, bytes and requests. A file whose
 * size is not known counts when it is there; `total` is null while no size is known. `sizes` gives the bytes of files,
 * decompressed, by the ends of their addresses.
 */
export class Downloads {
  #files = new Map(); // by address: {loaded, total, pending}
  #sizes;
  #report;
  #fail;
  #fetch = self.fetch.bind(self); // which others may replace

  constructor(sizes, report) {
    this.#sizes = sizes;
    this.#report = report;
    /** Rejects with the first DownloadError; never resolves. */
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => {}); // reported where it is awaited
  }

  /** Names what will be asked for, so that the total is known from the start. */
  expect(addresses) {
    for (const address of addresses) this.#file(address);
    this.#tell();
  }

  /** fetch, counted; an answer that is not 2xx is an error. */
  async fetch(resource, options) {
    const address = new URL(resource.url ?? resource, self.location.href).href;
    const file = this.#begin(address);
    try {
      const response = await this.#fetch(resource, options).catch((error) => {
        throw new DownloadError(address, null, error.message);
      });
      if (!response.ok) throw new DownloadError(address, response.status, response.statusText);
      // Without this header the length is that of the content; with it, that of the packed one.
      if (!response.headers.get("Content-Encoding")) file.total ??= Number(response.headers.get("Content-Length")) || null;
      this.#count(address, file, response.clone().body); // the other half stays as the network gave it, cached code and all
      return response;
    } catch (error) {
      this.#end(file, error);
      throw error;
    }
  }

  /** import(), which counts when it is there. */
  async import(address) {
    const file = this.#begin(address);
    try {
      const module = await import(address);
      file.loaded = file.total ?? 0;
      this.#end(file);
      return module;
    } catch (error) {
      const failure = new DownloadError(address, null, error.message);
      this.#end(file, failure);
      throw failure;
    }
  }

  async #count(address, file, body) {
    try {
      for (const reader = body.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        file.loaded += value.byteLength;
        this.#tell();
      }
      file.total = file.loaded;
      this.#end(file);
    } catch (error) {
      this.#end(file, new DownloadError(address, null, error.message));
    }
  }

  #file(address) {
    if (!this.#files.has(address)) {
      const [, total = null] = Object.entries(this.#sizes).find(([end]) => address.endsWith(end)) ?? [];
      this.#files.set(address, { loaded: 0, total, pending: false });
    }
    return this.#files.get(address);
  }

  #begin(address) {
    const file = this.#file(address);
    file.pending = true;
    this.#tell();
    return file;
  }

  #end(file, error = null) {
    file.pending = false;
    this.#tell();
    if (error) this.#fail(error);
  }

  #tell() {
    const files = [...this.#files.values()];
    const measured = files.filter((file) => file.total !== null);
    const sum = (some, of) => some.reduce((bytes, file) => bytes + file[of], 0);
    this.#report({
      loaded: sum(measured.length ? measured : files, "loaded"),
      total: measured.length ? sum(measured, "total") : null,
      pending: files.filter((file) => file.pending).length,
    });
  }
}
