// Every shader: what is written, and what it becomes for each target. #adam opens one, #adam/advance one of its kernels.
import { getJson } from "./lib/api.js";
import { copyButton, create, find, setText } from "./lib/dom.js";
import { highlight } from "./lib/editor.js";

const FOLDERS = {
  optimizers: "Optimizers",
  schedules: "Schedules",
  transforms: "Gradient transforms",
  arena: "Averages and projections",
  elementwise: "Map functions",
  kernels: "Cooperative kernels",
  lib: "Library",
};
const SOURCE = "source";
const LANGUAGES = {
  [SOURCE]: { title: "As written", language: "wgsl" },
  wgsl: { title: "WGSL that runs", language: "wgsl" },
  numpy: { title: "Python for NumPy", language: "python" },
  opencl: { title: "OpenCL C", language: "wgsl" }, // near enough for its colours
  cuda: { title: "CUDA C++", language: "wgsl" },
};

const shaders = await getJson("/api/shaders").catch((error) => {
  setText(find("#name"), `The shaders could not be loaded: ${error.message}`);
  throw error;
});
const texts = new Map(); // what was fetched, by folder and name
let shown = null; // {info, shader, variant, language, beside}

/** What stands after the # for a shader: its name, if no other has it. */
function hashOf({ folder, name }) {
  return shaders.filter((one) => one.name === name).length === 1 ? name : `${folder}/${name}`;
}

function fromHash() {
  const hash = decodeURIComponent(location.hash.slice(1));
  for (const info of shaders) {
    if (hash === hashOf(info)) return { info };
    if (hash.startsWith(`${hashOf(info)}/`)) return { info, variant: hash.slice(hashOf(info).length + 1) };
  }
  return { info: shaders.find(({ name }) => name === "adam") ?? shaders[0] };
}

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
  setText(find("#count"), words.length ? `${matching.length} of ${shaders.length} shaders` : `${shaders.length} shaders`);
}

async function show({ info, variant: wanted }) {
  const key = `${info.folder}/${info.name}`;
  const article = find("#shader");
  article.setAttribute("aria-busy", "true");
  if (!texts.has(key)) texts.set(key, await getJson(`/api/shaders/${key}`));
  const shader = texts.get(key);
  const variant = shader.variants.find(({ name }) => name === wanted) ?? shader.variants[0];
  shown = { info, shader, variant, language: shown?.language ?? SOURCE, beside: shown?.beside ?? "" };
  setText(find("#name"), info.name);
  setText(find("#kind"), info.kind);
  setText(find("#formula"), info.formula);
  find("#formula").hidden = !info.formula;
  const about = [];
  if (info.flags.length) about.push(`Flags: ${info.flags.join(", ")}.`);
  if (shader.imports.length) about.push(`Uses ${shader.imports.join(", ")}.`);
  setText(find("#about"), about.join(" "));
  find("#about").hidden = about.length === 0;
  find("#variant").replaceChildren(...shader.variants.map(({ name }) =>
    create("option", { value: name, selected: name === variant.name }, name)));
  find("#variant-field").hidden = shader.variants.length < 2;
  document.title = `${info.name} · Shaders · OptiRS-Web`;
  list(find("#filter").value);
  showTabs();
  article.setAttribute("aria-busy", "false");
}

/** The languages that there are for this kernel; array targets call a library in place of a cooperative kernel. */
function showTabs() {
  const { shader, variant } = shown;
  const available = { [SOURCE]: shader.source, ...variant.targets };
  const languages = Object.keys(available).filter((one) => available[one] !== null);
  if (!languages.includes(shown.language)) shown.language = SOURCE;
  find("#tabs").replaceChildren(...languages.map((one) => {
    const selected = one === shown.language;
    return create("button", {
      class: "tab", type: "button", role: "tab", id: `tab-${one}`, "aria-selected": String(selected),
      "aria-controls": "panel", tabindex: selected ? "0" : "-1", data: { language: one }, onclick: () => choose(one),
    }, titleOf(one));
  }));
  find("#panel").setAttribute("aria-labelledby", `tab-${shown.language}`);
  fill("", shown.language, available[shown.language]);
  showBeside(languages.filter((one) => one !== shown.language), available);
}

/** A second language in a panel of its own, if one was chosen that this kernel has. */
function showBeside(languages, available) {
  const beside = languages.includes(shown.beside) ? shown.beside : "";
  find("#beside").replaceChildren(...["", ...languages].map((one) =>
    create("option", { value: one, selected: one === beside }, one ? `Beside it: ${titleOf(one)}` : "Nothing beside it")));
  find("#panel-beside").hidden = !beside;
  if (beside) fill("-beside", beside, available[beside]);
}

function titleOf(language) {
  return LANGUAGES[language]?.title ?? language;
}

function fill(panel, language, text) {
  const { shader, variant } = shown;
  const origin = language === SOURCE ? `shaders/${shader.folder}/${shader.name}.wgsl` : `${variant.name}, generated`;
  setText(find(`#file${panel}`), panel ? `${titleOf(language)}: ${origin}` : origin);
  highlight(find(`#code${panel}`), text, LANGUAGES[language]?.language ?? "wgsl");
}

function choose(language, focus = false) {
  shown.language = language;
  showTabs();
  if (focus) find(`#tab-${language}`).focus();
}

find("#tabs").addEventListener("keydown", (event) => {
  const tabs = [...find("#tabs").children].map((tab) => tab.dataset.language);
  const at = tabs.indexOf(shown.language);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  choose(tabs[(next + tabs.length) % tabs.length], true);
});
find("#variant").addEventListener("change", ({ target }) => {
  location.hash = target.selectedIndex === 0 ? hashOf(shown.info) : `${hashOf(shown.info)}/${target.value}`;
});
find("#beside").addEventListener("change", ({ target }) => {
  shown.beside = target.value;
  showTabs();
});
find("#filter").addEventListener("input", ({ target }) => list(target.value));
addEventListener("hashchange", async () => {
  await show(fromHash());
  const { top } = find("#shader").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) find("#shader").scrollIntoView();
});
for (const panel of ["", "-beside"]) copyButton(find(`#copy${panel}`), () => find(`#code${panel}`).textContent);
await show(fromHash());
