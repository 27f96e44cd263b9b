// The state of a page in its address, and the button that shares it.
//
// A page has one table: for each key of its state what a value may be and how it is written. Short values are in the
// query (?seed=7&surface=beale), long ones behind the # and packed. What is as it was at first is left out. An address
// is written by anyone: a value that the table does not allow is left out too, and said, and the page goes by its default.
import { find, toast } from "./dom.js";
import { LONGEST_PACKED, pack, unpack } from "./packed.js";

const VERSION = "1"; // of what tables mean; an address without `v` is of the first
const LONGEST = 2000; // characters of a value in the query
const SETTLED = 300; // milliseconds after an event until the state is written

// What a value may be. `parse` takes text or throws; `format` gives text. With `push`, a change is a step of the history.

const refuse = () => {
  throw new RangeError("not allowed");
};

const toNumber = (text, low, high) => {
  const value = /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
  return value >= low && value <= high ? value : refuse();
};

/** One of these words; `words` may be a function, for those that are not known at once. */
export const oneOf = (words, options = {}) => ({
  ...options,
  parse: (text) => ([...(typeof words === "function" ? words() : words)].includes(text) ? text : refuse()),
  format: String,
});

/** A number within bounds. */
export const number = (low, high, options = {}) => ({ ...options, parse: (text) => toNumber(text, low, high), format: String });

/** A whole number within bounds. */
export const whole = (low, high, options = {}) => ({
  ...options,
  parse: (text) => (/^-?\d+$/.test(text) ? toNumber(text, low, high) : refuse()),
  format: String,
});

/** Numbers with commas between them, so many. */
export const numbers = (count, low, high, options = {}) => ({
  ...options,
  parse(text) {
    const parts = text.split(",");
    return parts.length === count ? parts.map((one) => toNumber(one, low, high)) : refuse();
  },
  format: (values) => values.join(","),
});

/** Numbers by words: adam:0.05,sgd:0.001. An object without a prototype's names. */
export const numbersOf = (words, low, high, options = {}) => ({
  ...options,
  parse(text) {
    const pairs = text.split(",").map((one) => one.split(":"));
    const known = [...(typeof words === "function" ? words() : words)];
    if (pairs.some((pair) => pair.length !== 2 || !known.includes(pair[0]))) refuse();
    return new Map(pairs.map(([word, value]) => [word, toNumber(value, low, high)]));
  },
  format: (values) => Array.from(values, ([word, value]) => `${word}:${value}`).join(","),
});

/** Text behind the #, packed: a program, a prompt. At most so many bytes; `parse` and `format` make another value of it. */
export const text = (most, { parse = String, format = String, ...options } = {}) => ({ ...options, isLong: true, most, parse, format });

/** What alone is behind the #: #adam. */
export const fragment = (kind) => ({ ...kind, isFragment: true });

// Reading.

const isPlace = (hash) => hash.length > 1 && document.getElementById(hash.slice(1)) !== null;

/** What an address has for a key, as it is written there; null if nothing. A place on the page, as #main, is no value. */
function found(key, kind, url) {
  if (!kind.isLong && !kind.isFragment) return new URLSearchParams(url.search).get(key);
  const hash = isPlace(url.hash) ? "" : url.hash.slice(1);
  if (kind.isFragment) return hash && !hash.includes("=") ? hash : null;
  return hash.split("&").find((one) => one.startsWith(`${key}=`))?.slice(key.length + 1) ?? null;
}

/** What an address says: values by key, and the keys whose values were refused. */
async function read(table, url) {
  const values = {};
  const refused = [];
  if ((new URLSearchParams(url.search).get("v") ?? VERSION) !== VERSION) return { values, refused: Object.keys(table) };
  for (const [key, kind] of Object.entries(table)) {
    try {
      const text = found(key, kind, url);
      if (text === null) continue;
      if (!kind.isLong && text.length > LONGEST) refuse();
      values[key] = kind.parse(kind.isLong ? await unpack(text, kind.most) : kind.isFragment ? decodeURIComponent(text) : text);
    } catch {
      refused.push(key);
    }
  }
  return { values, refused };
}

// Writing.

/** The parts of a query whose keys `isKept` takes, as they are written. */
const partsOf = (url, isKept) => url.search.slice(1).split("&").filter((one) => one && isKept(one.split("=", 1)[0]));

const escaped = (value) => encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");

/** The address with these values in it, and the keys of those that are too long for one. */
async function written(table, values, url) {
  const others = partsOf(url, (key) => !Object.hasOwn(table, key) && key !== "v");
  const query = [];
  const behind = [];
  const tooLong = [];
  let hasFragment = false;
  for (const [key, kind] of Object.entries(table)) {
    hasFragment ||= Boolean(kind.isLong || kind.isFragment);
    if (values[key] === undefined) continue;
    const value = kind.format(values[key]);
    if (kind.isFragment) behind.push(escaped(value));
    else if (!kind.isLong) query.push(`${key}=${escaped(value)}`);
    else {
      const packed = await pack(value);
      if (packed.length > LONGEST_PACKED) tooLong.push(key);
      else behind.push(`${key}=${packed}`);
    }
  }
  const result = new URL(url);
  result.search = [...query, ...others].join("&");
  if (hasFragment) result.hash = behind.join("&");
  return { address: result.href, tooLong };
}

// The page.

let write = async () => []; // brings the address up to date; resolves to what is too long for it

/**
 * Binds a page to its address.
 *
 *   await bindUrl(
 *     { seed: whole(0, 99), code: text(200_000) },
 *     {
 *       state: () => ({ seed: seed === 0 ? undefined : seed, code: isOriginal() ? undefined : editor.text }),
 *       open: async ({ seed = 0, code = original }) => …, // now, and after Back and Forward
 *     },
 *   );
 *
 * `state()` is asked after what a visitor does; undefined leaves a key out. A program that `open` is given came from
 * whoever wrote the address: it is shown, and not run.
 */
export async function bindUrl(table, { state, open }) {
  let seen = location.href;
  let turn = Promise.resolve(); // one after the other
  const inTurn = (action) => {
    turn = turn.then(action, action);
    return turn;
  };
  const travel = () => inTurn(async () => {
    seen = location.href;
    const { values, refused } = await read(table, new URL(seen));
    if (refused.length) toast(`Ignored invalid parts of the address: ${refused.join(", ")}`, { milliseconds: 8000 });
    await open(values);
  });
  write = () => inTurn(async () => {
    if (location.href !== seen) return []; // on the way to another state
    const before = new URL(seen);
    const { address, tooLong } = await written(table, state(), before);
    if (address === seen || location.href !== seen) return tooLong;
    const after = new URL(address);
    const isStep = Object.entries(table).some(([key, kind]) => kind.push && found(key, kind, before) !== found(key, kind, after));
    history[isStep ? "pushState" : "replaceState"](null, "", address);
    seen = address;
    showFullPage();
    return tooLong;
  });
  for (const event of ["popstate", "hashchange"]) {
    addEventListener(event, () => {
      if (isPlace(location.hash)) history.replaceState(null, "", seen); // a link within the page
      if (location.href !== seen) travel();
    });
  }
  await travel();
  let timer;
  for (const event of ["input", "change", "click", "pointerup"]) {
    document.addEventListener(event, () => {
      clearTimeout(timer);
      timer = setTimeout(write, SETTLED);
    });
  }
  await write();
}

/** Brings the address up to date after a change that is no event of the page: a program says what it trains. */
export const updateUrl = () => write();

/** The address that is given to others. */
function shared() {
  const url = new URL(location.href);
  url.search = partsOf(url, (key) => key !== "embed").join("&");
  return url.href;
}

/** In a frame (?embed), the link to the page as a whole. */
function showFullPage() {
  const link = document.getElementById("full-page");
  if (link) link.href = shared();
}

async function share() {
  const tooLong = await write();
  if (tooLong.length) return toast(`Too long for a link: ${tooLong.join(", ")}`);
  if (navigator.share) {
    try {
      return await navigator.share({ title: document.title, url: shared() });
    } catch (error) {
      if (error.name === "AbortError") return undefined; // the visitor thought better of it
    }
  }
  try {
    await navigator.clipboard.writeText(shared());
    return toast("Link copied");
  } catch {
    return toast("Copy the link from the address bar");
  }
}

find("#share").addEventListener("click", share);
find("#share").hidden = false;
showFullPage();
