// What is wrong with a field, said below it.
import { create } from "./dom.js";

/** Whether a field is as its attributes (min, max, step, pattern, required) want it. If not, `message` stands below it. */
export function isValid(field, message) {
  const isOk = field.checkValidity();
  let error = document.getElementById(`${field.id}-error`);
  if (!error) {
    error = create("span", { class: "error", id: `${field.id}-error`, role: "alert" });
    field.after(error);
    field.setAttribute("aria-describedby", [field.getAttribute("aria-describedby"), error.id].filter(Boolean).join(" "));
  }
  field.setAttribute("aria-invalid", String(!isOk));
  error.textContent = isOk ? "" : message;
  error.hidden = isOk;
  return isOk;
}
