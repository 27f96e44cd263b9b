// The runs that are saved: checkpoints by name, on the server.
import { getBytes, getJson, request } from "./api.js";

const place = (name) => `api/runs/${encodeURIComponent(name)}`;

export const savedRuns = {
  /** {name, size, updated, epoch, optimizer, …} of each, the last written first. */
  list: () => getJson("api/runs"),
  /** The file of a run, an ArrayBuffer. */
  get: (name) => getBytes(`${place(name)}/checkpoint`),
  /** Saves a file under a name, in place of what was saved there. */
  put: (name, body) => request("PUT", `${place(name)}/checkpoint`, { body, authorize: true }),
  delete: (name) => request("DELETE", place(name), { authorize: true }),
};
