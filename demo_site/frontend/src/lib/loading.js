// Loading Python before people's eyes: how many bytes have arrived, and where that fails, why, and another try.
import { create, setStatus, setText } from "./dom.js";

const MEGABYTE = 1e6;
const megabytes = (bytes) => (bytes / MEGABYTE).toFixed(1);

/** "3.1 of 13.5 MB" for what the worker says of its downloads. */
export function sizeSentence({ loaded, total }) {
  return `${megabytes(loaded)}${total ? ` of ${megabytes(total)}` : ""} MB`;
}

/** Why Python could not be loaded, in a sentence, and what to do. */
export function explainFailure({ message, download, stalled }) {
  if (stalled) return ["Loading Python stalled.", "The connection is too slow or was interrupted. Check it, and try again."];
  if (!download) return ["Python could not be started.", "If retrying does not help, reload the page or use another browser."];
  const { host } = new URL(download.address);
  if (download.status !== null) {
    return ["Python could not be loaded.", `${host} answered ${download.status} for a required file.`];
  }
  const elsewhere = host !== location.host;
  return [
    "Python could not be loaded.",
    `${host} cannot be reached. ${elsewhere
      ? "You may be offline, or a firewall or extension may be blocking it: this page loads Python from there."
      : "You may be offline, or the server has stopped."}`,
  ];
}

/**
 * Waits for `python`, however many tries it takes, and resolves to what `python.ready` does.
 *
 * The status line says what is being loaded, and a bar after it, or after what has `data-loading` around it, how many
 * bytes have arrived. Where loading fails, a notice with the cause and a button Retry takes the place of the bar.
 */
export async function loadPython(python, status) {
  const anchor = status.closest("[data-loading]") ?? status;
  const bar = create("progress", { class: "progress", hidden: true, "aria-label": "Bytes of Python loaded" });
  const figures = create("span", { class: "soft small mono" });
  const loading = create("div", { class: "loading" }, bar, figures);
  const stopListening = python.onLoading(({ step, loaded = 0, total = null }) => {
    setStatus(status, "busy", `Loading ${step}`);
    if (!loaded) return;
    setText(figures, sizeSentence({ loaded, total }));
    bar.hidden = total === null;
    if (total) [bar.max, bar.value] = [total, Math.min(loaded, total)];
  });
  try {
    for (;;) {
      setStatus(status, "busy", "Loading Python");
      anchor.after(loading);
      try {
        return await python.ready;
      } catch (error) {
        loading.remove();
        await askToRetry(error, status, anchor);
        python.restart();
      }
    }
  } finally {
    stopListening();
    loading.remove();
  }
}

/** Shows what failed, and resolves when another try is asked for. */
function askToRetry(error, status, anchor) {
  const [what, why] = explainFailure(error);
  setStatus(status, "failed", what);
  return new Promise((resolve) => {
    const button = create("button", { class: "button button-primary", type: "button" }, "Retry");
    const notice = create("div", { class: "notice notice-bad load-failure", role: "alert" },
      create("p", {}, why),
      create("p", { class: "soft small mono" }, [error.download?.address, error.message].filter(Boolean).join(": ")),
      create("div", { class: "row" }, button));
    button.addEventListener("click", () => {
      notice.remove();
      resolve();
    });
    anchor.after(notice);
  });
}
