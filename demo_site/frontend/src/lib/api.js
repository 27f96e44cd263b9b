// Where things are, and the server's JSON API. The site may be served under any prefix: addresses are relative to its
// root, which is the folder of the pages.

await self.isolation; // where isolate.js is there: the page may have to be loaded again

/** The whole address of what lies at `path` relative to the site's root: address("data/book.txt"). */
export const address = (path) => new URL(path, document.baseURI).href;

const facts = JSON.parse(document.getElementById("site").textContent);

/**
 * What the site says about itself: version; api, whether there is a server's API; whole addresses: root, wheel, pyodide,
 * packages (of Pyodide's distribution), transport, pages {name: address}; and sizes {name: bytes} of Pyodide's files, as a
 * reader of their streams counts.
 */
export const site = {
  ...facts,
  root: address("./"),
  ...Object.fromEntries(["wheel", "pyodide", "packages", "transport"].map((name) => [name, address(facts[name])])),
  pages: Object.fromEntries(Object.entries(facts.pages).map(([name, path]) => [name, address(path)])),
};

/** What is known of shaders, by the path of the API: "", "/targets", "/FOLDER/NAME", "/FOLDER/NAME/VARIANT/LANGUAGE". */
export const getShaderData = (path) => getJson(site.api ? `api/shaders${path}` : `data/shaders${path || "/index"}.json`);

/** An answer that is not 2xx; `code` and the message are the server's. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let token = null;

/** The token of this page, which writing needs. */
export function sessionToken() {
  token ??= request("GET", "api/session").then((response) => response.json()).then((answer) => answer.token);
  token.catch(() => {
    token = null; // the next call asks again
  });
  return token;
}

/**
 * fetch, with errors of the server raised as ApiError, and a sentence where nothing answers. The path is relative to the
 * root. Options: body (bytes), json (object), authorize.
 */
export async function request(method, path, { body, json, authorize = false } = {}) {
  const headers = {};
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(json);
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/octet-stream";
  }
  if (authorize) headers.Authorization = `Bearer ${await sessionToken()}`;
  const response = await fetch(address(path), { method, headers, body }).catch((error) => {
    throw new Error("The server cannot be reached: you may be offline, or it has stopped", { cause: error });
  });
  if (!response.ok) {
    const error = await response.json().then((answer) => answer.error).catch(() => null);
    throw new ApiError(response.status, error?.code ?? "http", error?.message ?? `${method} ${path}: ${response.status}`);
  }
  return response;
}

/** GET as JSON. */
export async function getJson(path) {
  return (await request("GET", path)).json();
}

/** GET as text. */
export async function getText(path) {
  return (await request("GET", path)).text();
}

/** GET as an ArrayBuffer. */
export async function getBytes(path) {
  return (await request("GET", path)).arrayBuffer();
}
