// Isolates the pages of a site that is only files, where the server may not send the headers for it: a service worker
// adds them, from the second load on, so the first visit loads the page twice. Only an isolated page has shared memory,
// with which a running program is interrupted; without it Stop ends its Python. `isolation.js` is the worker.
(() => {
  const TRIED = "isolation tried"; // in this tab, so that a browser that refuses is not asked for ever
  const PATIENCE = 3000; // milliseconds until the page goes on without
  if (self.crossOriginIsolated || !self.isSecureContext || !navigator.serviceWorker) return;
  const worker = new URL("../isolation.js", document.currentScript.src);

  async function isolate() {
    if (sessionStorage.getItem(TRIED)) return;
    await navigator.serviceWorker.register(worker);
    await navigator.serviceWorker.ready;
    sessionStorage.setItem(TRIED, "yes");
    location.reload();
    await new Promise(() => {}); // this page ends here
  }

  /** Resolves when it is known that this page goes on; scripts wait for it. */
  self.isolation = Promise.race([isolate().catch(() => {}), new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
})();
