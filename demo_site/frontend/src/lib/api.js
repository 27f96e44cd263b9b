// The server's JSON API.

/** What the server says about itself: version, wheel, more (the second wheel), pyodide, transport. */
export const site = JSON.parse(document.getElementById("site").textContent);

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
  token ??= request("GET", "/api/session").then((response) => response.json()).then((answer) => answer.token);
  token.catch(() => {
    token = null; // the next call asks again
  });
  return token;
}

/** fetch, with errors of the server raised as ApiError. Options: body (bytes), json (object), authorize. */
export async function request(method, path, { body, json, authorize = false } = {}) {
  const headers = {};
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(json);
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/octet-stream";
  }
  if (authorize) headers.Authorization = `Bearer ${await sessionToken()}`;
  const response = await fetch(path, { method, headers, body });
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

/** GET as an ArrayBuffer. */
export async function getBytes(path) {
  return (await request("GET", path)).arrayBuffer();
}
