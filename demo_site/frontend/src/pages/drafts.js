// Programs that a visitor has changed, kept in this browser until they are reset.
import { toast } from "../lib/dom.js";

const KEY = "optirs-web.playground";

/** What is saved, by name. Other tabs save there too. */
function saved() {
  const content = localStorage.getItem(KEY) ?? "{}";
  try {
    return new Map(Object.entries(JSON.parse(content)).filter(([, text]) => typeof text === "string"));
  } catch {
    return new Map(); // it is not ours
  }
}

/** The changed texts of programs, by name; "" is the name of one that is no example. */
export class Drafts {
  #texts = new Map();
  #unsaved = new Map(); // by name, null for what is removed
  #hasFailed = false;

  constructor() {
    try {
      this.#texts = saved();
    } catch {
      this.failed(); // the browser gives the page no storage
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
    this.#save(name, text);
  }

  remove(name) {
    if (this.#texts.delete(name)) this.#save(name, null);
  }

  #save(name, text) {
    this.#unsaved.set(name, text);
    try {
      const texts = saved();
      for (const [name, text] of this.#unsaved) {
        if (text === null) texts.delete(name);
        else texts.set(name, text);
      }
      localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(texts)));
      this.#texts = texts;
      this.#unsaved.clear();
    } catch {
      this.failed();
    }
  }

  /** Says once that nothing is kept. */
  failed() {
    if (!this.#hasFailed) toast("This browser blocks storage for this page: reloading it discards your changes");
    this.#hasFailed = true;
  }
}
