// Files of the visitor's: chosen by a button, or dropped anywhere on the page.
import { create } from "../lib/dom.js";

/** Calls `take(file)` with one that was chosen or dropped; `accept` is what the browser's dialog offers. */
export function takeFiles(button, accept, take) {
  const input = create("input", { type: "file", accept, hidden: true });
  button.after(input);
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = ""; // the same file can be chosen again
    if (file) take(file);
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (isOver) => document.body.classList.toggle("takes-drop", isOver);
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // else the browser would leave the page for the file
    mark(true);
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) mark(false);
  });
  addEventListener("drop", (event) => {
    mark(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) take(file);
  });
}
