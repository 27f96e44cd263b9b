// A service worker that answers as the network does, with the headers that isolate a page. See isolate.js.
const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (new URL(request.url).origin !== self.location.origin) return; // the network answers
  if (request.cache === "only-if-cached" && request.mode !== "same-origin") return; // as the standard demands
  event.respondWith(
    fetch(request).then((response) => {
      if (response.type === "opaqueredirect" || response.status === 0 || response.status === 304) return response;
      const headers = new Headers(response.headers);
      for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
      return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
    }),
  );
});
