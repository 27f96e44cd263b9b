// Every shader: what is written, and what it becomes for each target, two of them side by side. In the address #adam is
// a shader, #adam/advance one of its kernels, and ?left=cuda&right=ptx the languages, once a visitor has chosen some.
import { getShaderData } from "./lib/api.js";
import { copyButton, create, find, sentence, setText, toast } from "./lib/dom.js";
import { highlight } from "./lib/editor.js";
import { bindUrl, fragment, oneOf } from "./lib/url.js";

const FOLDERS = {
  optimizers: "Optimizers",
  schedules: "Schedules",
  transforms: "Gradient transforms",
  arena: "Averages and projections",
  elementwise: "Map functions",
  rows: "Row kernels",
  kernels: "Cooperative kernels",
  lib: "Library",
};
const KERNELS = ["optimizers", "elementwise", "rows", "kernels"]; // what the command line prints, too
const SIDES = ["left", "right"];
const SOURCE = "source";
const NOTHING = "none";
// `colours` is a language that is near enough for them; without one a text has none.
const LANGUAGES = {
  [SOURCE]: { title: "WGSL, as written", colours: "wgsl" },
  wgsl: { title: "WGSL, complete", colours: "wgsl" },
  spirv: { title: "SPIR-V" },
  msl: { title: "MSL (Metal)", colours: "wgsl" },
  hlsl: { title: "HLSL (DirectX)", colours: "wgsl" },
  cuda: { title: "CUDA C++", colours: "wgsl" },
  ptx: { title: "PTX" },
  opencl: { title: "OpenCL C", colours: "wgsl" },
  numpy: { title: "Python for NumPy", colours: "python" },
  numba: { title: "Python for Numba", colours: "python" },
  jax: { title: "Python for JAX", colours: "python" },
  stablehlo: { title: "StableHLO" },
};
const PATIENCE = 300; // milliseconds until a text that is awaited is said to be
const AGAIN = 1000; // until a server that is busy with others is asked again

const [shaders, targets] = await Promise.all([getShaderData(""), getShaderData("/targets")]).catch((error) => {
  setText(find("#name"), `The shaders could not be loaded: ${error.message}`);
  throw error;
});
const texts = new Map(); // what was fetched, by address
let asked = null; // the info of the shader that was asked for last
let shown = null; // {info, shader, variant}
let languages = {}; // by side, where a visitor has chosen one
let isNamed = false; // the address says which shader

/** What the server has at an address. It is fetched once, unless it is not to be had now. */
async function fetched(address) {
  if (!texts.has(address)) {
    const answer = await getShaderData(address);
    if (answer.text === null) return answer;
    texts.set(address, answer);
  }
  return texts.get(address);
}

/** What stands after the # for a shader: its name, if it is the first that has it. */
function hashOf(info) {
  return shaders.find(({ name }) => name === info.name) === info ? info.name : `${info.folder}/${info.name}`;
}

/** The shader, and its kernel, that a place names. An error if there is none. */
function atPlace(place) {
  for (const info of shaders) {
    for (const one of [hashOf(info), `${info.folder}/${info.name}`]) {
      if (place === one) return { info };
      if (place.startsWith(`${one}/`)) return { info, variant: place.slice(one.length + 1) };
    }
  }
  throw new RangeError(`there is no shader ${place}`);
}

const FIRST = { info: shaders.find(({ name }) => name === "adam") ?? shaders[0] };

const placeOf = ({ info, variant }) => (!variant || variant === shown?.shader.variants[0] ? hashOf(info) : `${hashOf(info)}/${variant}`);

function list(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = shaders.filter(({ name, folder, kind, formula, flags }) => {
    const text = [name, folder, kind, formula, ...flags].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const parts = [];
  for (const [folder, title] of Object.entries(FOLDERS)) {
    const inside = matching.filter((one) => one.folder === folder);
    if (inside.length === 0) continue;
    parts.push(create("h3", {}, title), create("ul", {}, ...inside.map((one) =>
      create("li", {}, create("a", { href: `#${hashOf(one)}`, "aria-current": one === shown?.info && "true" }, one.name)))));
  }
  find("#list").replaceChildren(...parts);
  setText(find("#list-count"), words.length ? `${matching.length} of ${shaders.length} shaders` : `${shaders.length} shaders`);
}

async function show({ info, variant: wanted }) {
  const article = find("#shader");
  article.setAttribute("aria-busy", "true");
  asked = info;
  const shader = await fetched(`/${info.folder}/${info.name}`).catch((error) => {
    toast(`“${info.name}” could not be loaded. ${sentence(error.message)}`);
    return null;
  });
  if (asked !== info) return;
  if (shader === null) { // what is shown stays, in the address too
    asked = shown?.info ?? null;
    article.setAttribute("aria-busy", "false");
    return;
  }
  const variant = shader.variants.includes(wanted) ? wanted : shader.variants[0];
  shown = { info, shader, variant };
  setText(find("#name"), info.name);
  setText(find("#kind"), info.kind);
  setText(find("#formula"), info.formula);
  find("#formula").hidden = !info.formula;
  const about = [];
  if (info.flags.length) about.push(`Flags: ${info.flags.join(", ")}.`);
  if (shader.imports.length) about.push(`Uses ${shader.imports.join(", ")}.`);
  setText(find("#about"), about.join(" "));
  find("#about").hidden = about.length === 0;
  find("#variant").replaceChildren(...shader.variants.map((name) =>
    create("option", { value: name, selected: name === variant }, name)));
  find("#variant-field").hidden = shader.variants.length < 2;
  document.title = `${info.name} · Shaders · OptiRS-Web`;
  list(find("#filter").value);
  await Promise.all(SIDES.map(fill));
  article.setAttribute("aria-busy", "false");
}

/** The language of a side: what was chosen, or else what was written and, of a kernel, CUDA C++. */
function chosen(side) {
  if (languages[side]) return languages[side];
  if (side === "left") return SOURCE;
  return KERNELS.includes(shown.info.folder) ? "cuda" : "wgsl";
}

/** Shows a side. Its text may come when another one has been asked for: then it is not shown. */
async function fill(side) {
  const language = chosen(side);
  const { info, shader, variant } = shown;
  const pane = find(`#${side}`);
  const address = `/${info.folder}/${info.name}/${variant}/${language}`;
  const putHere = (answer) => pane.dataset.address === address && put(side, language, answer);
  pane.dataset.address = address;
  pane.setAttribute("aria-busy", "true");
  find(`#${side}-target`).value = language;
  const isEmpty = language === NOTHING;
  for (const part of ["copy", "origin"]) find(`#${side}-${part}`).hidden = isEmpty;
  if (side === "right") find("#panes").classList.toggle("shader-alone", isEmpty);
  const isWritten = language === SOURCE;
  find(`#${side}-origin`).replaceChildren(...(isWritten ? [`shaders/${info.folder}/${info.name}.wgsl`] : command(language)));
  if (isEmpty || isWritten) return putHere({ text: isWritten ? shader.source : "", note: "" });
  const waiting = setTimeout(putHere, PATIENCE, { text: null, note: "Compiling on the server…" });
  const answer = await fetched(address).catch((error) => {
    if (error.status === 503) setTimeout(() => pane.dataset.address === address && fill(side), AGAIN);
    return { text: null, note: error.message };
  });
  clearTimeout(waiting);
  return putHere(answer);
}

/** How the command line prints it, in pieces; of a file that is no kernel, which it does not print, what it is. */
function command(language) {
  const { info, variant } = shown;
  if (!KERNELS.includes(info.folder)) return [`${info.name} with its imports`];
  const name = info.folder === "elementwise" ? variant : info.name;
  const options = [`--target ${language}`];
  if (info.folder === "optimizers" && variant !== "update") options.unshift(`--part ${variant}`);
  return [`optirs-web shader ${name}`, ...options.flatMap((one) => [" ", create("span", {}, one)])];
}

function put(side, language, { text, note }) {
  const pane = find(`#${side}`);
  const code = find(`#${side}-code`);
  const { colours } = LANGUAGES[language] ?? {};
  if (text !== null && colours) highlight(code, text, colours);
  else setText(code, text ?? "");
  code.parentElement.hidden = !text;
  code.parentElement.scrollTop = 0;
  find(`#${side}-copy`).disabled = !text;
  setText(find(`#${side}-note`), sentence(note));
  find(`#${side}-note`).hidden = !note;
  pane.setAttribute("aria-busy", "false");
}

/** The languages of both sides, and below the panes which of them need a compiler that the server lacks. */
function listTargets() {
  const known = Object.keys(LANGUAGES).filter((one) => one === SOURCE || targets.some(({ name }) => name === one));
  for (const side of SIDES) {
    const options = known.map((one) => {
      const isMissing = targets.find(({ name }) => name === one)?.missing;
      return new Option(`${LANGUAGES[one].title}${isMissing ? ", not installed" : ""}`, one);
    });
    find(`#${side}-target`).replaceChildren(...options, ...(side === "right" ? [new Option("None", NOTHING)] : []));
  }
  const reasons = new Map(); // titles by what is missing
  for (const { name, missing } of targets.filter((one) => one.missing)) {
    reasons.set(missing, [...(reasons.get(missing) ?? []), LANGUAGES[name].title]);
  }
  find("#missing").replaceChildren("Not installed where this code was generated:", ...[...reasons].map(([reason, titles]) =>
    create("span", { class: "shader-missing" }, create("strong", {}, titles.join(", ")), `: ${sentence(reason)}`)));
  find("#missing").hidden = reasons.size === 0;
}

for (const side of SIDES) {
  find(`#${side}-target`).addEventListener("change", async ({ target }) => {
    languages[side] = target.value;
    if (shown === null) return;
    await fill(side);
    setText(find("#said"), find(`#${side}-note`).textContent || `${target.selectedOptions[0].text} of ${shown.variant}`);
  });
  copyButton(find(`#${side}-copy`), () => find(`#${side}-code`).textContent);
}
find("#variant").addEventListener("change", ({ target }) => {
  location.hash = placeOf({ info: shown.info, variant: target.value });
});
find("#filter").addEventListener("input", ({ target }) => list(target.value));
listTargets();

async function open({ shader, left, right }) {
  const isFirst = shown === null;
  isNamed = Boolean(shader);
  languages = { left, right };
  await show(shader ?? FIRST);
  if (isFirst || shown === null) return;
  setText(find("#said"), `${shown.info.name}, ${shown.variant}`);
  const { top } = find("#shader").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) find("#shader").scrollIntoView();
}

await bindUrl(
  {
    shader: fragment({ parse: atPlace, format: placeOf }),
    left: oneOf(Object.keys(LANGUAGES)),
    right: oneOf([...Object.keys(LANGUAGES), NOTHING]),
  },
  { state: () => ({ shader: isNamed && asked ? { info: asked, variant: shown?.info === asked ? shown.variant : undefined } : undefined, ...languages }), open },
);
