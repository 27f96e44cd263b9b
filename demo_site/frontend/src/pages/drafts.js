// Programs that a visitor has changed, kept in this browser until they are reset.
import { toast } from "../lib/dom.js";

const KEY = "optirs-web.playground";

/** The changed texts of programs, by name; "" is the name of one that is no example. */
export class Drafts {
  #texts = new Map();
  #hasFailed = false;

  constructor() {
    try {
      const saved = JSON.parse(localStorage.getItem(KEY) ?? "{}");
      this.#texts = new Map(Object.entries(saved).filter(([, text]) => typeof text === "string"));
    } catch {
      this.failed(); // what is there is not ours, or the browser gives the page no storage
    }
  }

  get(name) {
    return this.#texts.get(name) ?? null;
  }

  /** The name of the draft with this text, or null. */
  nameOf(text) {
    return [...this.#texts].find(([, draft]) => draft === text)?.[0] ?? null;
  }

  set(name, text) {
    if (this.#texts.get(name) === text) return;
    this.#texts.set(name, text);
    this.#save();
  }

  remove(name) {
    if (this.#texts.delete(name)) this.#save();
  }

  #save() {
    try {
      localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(this.#texts)));
    } catch {
      this.failed();
    }
  }

  /** Says once that nothing is kept. */
  failed() {
    if (!this.#hasFailed) toast("This browser saves nothing for this page: your changes are lost when it is reloaded");
    this.#hasFailed = true;
  }
}
