// What every page does: an error that nothing else has caught is said, so that a button is never silently without effect.
import { toast } from "./lib/dom.js";

const PATIENCE = 10_000; // milliseconds that an error is shown
let latest = "";

function say(error) {
  const message = String(error?.message ?? error ?? "unknown");
  if (message === latest || message.startsWith("ResizeObserver loop")) return; // once, and nothing that browsers say of layout
  latest = message;
  setTimeout(() => {
    latest = "";
  }, PATIENCE);
  toast(`Something went wrong: ${message}`, { milliseconds: PATIENCE });
}

addEventListener("error", ({ error, message }) => say(error ?? message));
addEventListener("unhandledrejection", ({ reason }) => say(reason));
