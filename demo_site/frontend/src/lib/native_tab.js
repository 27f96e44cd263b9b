// Tabs of a program: as it runs on the page, and as a file that runs natively.
import { copyButton, create, download, setText } from "./dom.js";
import { highlight } from "./editor.js";
import { natively } from "./natively.js";

/**
 * Gives an element of class "code" the tabs "In this tab" and "Natively". `program()` returns the text of the page's
 * program when the second is chosen; `file` is its name there.
 */
export function nativeTab(code, program, file = "program.py") {
  const here = create("div", { role: "tabpanel", id: `${file}-here` }, ...code.childNodes);
  const text = create("code");
  const copy = create("button", { class: "button button-small", type: "button" }, "Copy");
  const save = create("button", { class: "button button-small", type: "button" }, "Download");
  const there = create("div", { role: "tabpanel", id: `${file}-natively`, hidden: true },
    create("div", { class: "code-head" }, create("span", { title: "In a clone of the repository, after make setup" }, `.venv/bin/python ${file}`), create("span", { class: "row" }, copy, save)),
    create("pre", { tabindex: "0", "aria-label": "The program to run natively" }, text));
  copyButton(copy, () => text.textContent);
  save.addEventListener("click", () => download(file, text.textContent, "text/x-python"));

  const panels = [["In this tab", here], ["Natively", there]];
  const tabs = panels.map(([title, panel], number) => create("button", {
    role: "tab", type: "button", class: "tab", "aria-controls": panel.id, onclick: () => choose(number), onkeydown: move,
  }, title));
  panels.forEach(([title, panel]) => panel.setAttribute("aria-label", title));

  function choose(chosen) {
    tabs.forEach((tab, number) => {
      tab.setAttribute("aria-selected", String(number === chosen));
      tab.tabIndex = number === chosen ? 0 : -1;
      panels[number][1].hidden = number !== chosen;
    });
    if (chosen === 1) highlight(text, natively(program()), "python");
    else setText(text, "");
  }

  function move(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = (tabs.indexOf(event.target) + 1) % tabs.length;
    choose(other);
    tabs[other].focus();
  }

  code.append(create("div", { class: "tabs", role: "tablist", "aria-label": "Where the program runs" }, ...tabs), here, there);
  choose(0);
}
