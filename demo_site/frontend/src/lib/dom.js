// Small helpers around the DOM.

/** The first element that matches; an error if there is none, so that a typo does not go unnoticed. */
export function find(selector, root = document) {
  const element = root.querySelector(selector);
  if (!element) throw new Error(`no element matches ${selector}`);
  return element;
}

/** An element: create("p", { class: "soft", hidden: true, onclick: f, data: { state: "busy" } }, "text", child). */
export function create(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Sets the text only if it changed, which keeps screen readers and layout quiet. */
export function setText(element, text) {
  const string = String(text);
  if (element.textContent !== string) element.textContent = string;
}

/** Options of a <select> for optimizers, {name, value?, common}, in the order that they come in. */
export function optionGroups(optimizers) {
  return [["Common", true], ["All others, A to Z", false]].map(([label, common]) =>
    create("optgroup", { label }, ...optimizers.filter((one) => one.common === common).map(({ name, value }) => new Option(name, value ?? name))));
}

/** Writes a line of class "status"; state is idle, busy, running, done or failed (the dot's colour). */
export function setStatus(element, state, text) {
  element.dataset.state = state;
  setText(element, text);
}

/**
 * A short message in the corner, announced politely. With `action`, { label, run }, it has a button, which takes it away,
 * and stays for longer: as long as the pointer or the focus is on it.
 */
export function toast(text, { action = null, milliseconds = action ? 12_000 : 4000 } = {}) {
  const element = create("div", { class: "toast" }, create("span", {}, text));
  let timer;
  const stay = () => clearTimeout(timer);
  const leave = () => {
    stay();
    timer = setTimeout(() => element.remove(), milliseconds);
  };
  if (action) {
    const run = () => {
      element.remove();
      action.run();
    };
    element.append(create("button", { class: "toast-action", type: "button", onclick: run }, action.label));
    for (const event of ["pointerenter", "focusin"]) element.addEventListener(event, stay);
    for (const event of ["pointerleave", "focusout"]) element.addEventListener(event, leave);
  }
  find("#toasts").append(element);
  leave();
}

/** A message as a sentence: a capital at its head, a period at its end, and no class of an error before it. */
export function sentence(text) {
  const plain = text.replace(/^optirs_web\.[\w.]+: /, "");
  return plain && plain[0].toUpperCase() + plain.slice(1) + (/[.…!?'"”)]$/.test(plain) ? "" : ".");
}

/** Makes a button copy what `text()` returns. */
export function copyButton(button, text) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      toast("Copied");
    } catch {
      toast("The browser did not allow copying; select the text instead");
    }
  });
}

/** Offers bytes or text as a download. */
export function download(name, content, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob([content], { type }));
  create("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** The colours of the current theme for canvases: color("series-1"). They change with the event "themechange". */
export function color(name) {
  const probe = create("span", { hidden: true });
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Calls back now and after each change of the theme. */
export function onTheme(callback) {
  callback();
  addEventListener("themechange", callback);
}

/** At most one call a frame, with the latest arguments. */
export function everyFrame(callback) {
  let latest = null;
  return (...values) => {
    if (latest === null) {
      requestAnimationFrame(() => {
        const given = latest;
        latest = null;
        callback(...given);
      });
    }
    latest = values;
  };
}
