// What is saved on the server.
import { getBytes, getJson, request, sessionToken, site } from "../api.js";
import { quoted } from "../commands.js";

const place = (name) => `api/runs/${encodeURIComponent(name)}`;

export const savedRuns = {
  /** {name, size, updated, epoch, optimizer} of each, the last written first. */
  list: () => getJson("api/runs"),
  /** The file of a run, an ArrayBuffer. */
  get: (name) => getBytes(`${place(name)}/checkpoint`),
  /** Saves a file under a name, in place of what was saved there. */
  put: (name, body) => request("PUT", `${place(name)}/checkpoint`, { body, authorize: true }),
  delete: (name) => request("DELETE", place(name), { authorize: true }),
  /** Commands that bring the run to a file of this machine, and from there back: {there, back}, lists of lines. */
  async commands(name, file) {
    const token = await sessionToken().catch(() => "TOKEN");
    const url = quoted(site.root.replace(/\/$/, ""));
    return {
      there: [`.venv/bin/optirs-web runs pull ${quoted(name)} ${file} --url ${url}`],
      back: [`.venv/bin/optirs-web runs push ${file} ${quoted(name)} --url ${url} --token ${quoted(token)}`],
    };
  },
};

export const savedResults = {
  /** {created, result} of each, the newest first. */
  list: () => getJson("api/bench"),
  /** Saves a result: any object that is JSON. */
  add: (result) => request("POST", "api/bench", { json: result, authorize: true }),
};
