// A loss that is NaN or infinite: the message of every page.
import { short } from "./chart.js";
import { setStatus } from "./dom.js";

/**
 * The sentence for it: divergedSentence({ when: "in epoch 3", optimizer: "SGD", lr: 10 }). `advice` is what to do; all
 * of them may be left out.
 */
export function divergedSentence({ when = "", optimizer = null, lr = null, advice = "Choose a smaller learning rate and start over." } = {}) {
  const cause = optimizer && lr !== null ? `: learning rate ${short(lr)} is too large for ${optimizer}` : "";
  return `The loss became NaN or infinite${when && ` ${when}`}${cause}. ${advice}`;
}

/**
 * Whether a loss that a program has reported is not a finite number (JSON has null for it). If so the status line says
 * it, and `stop()` is called, which ends the program.
 */
export function stopIfNotFinite(loss, status, { stop, ...what }) {
  if (Number.isFinite(loss)) return false;
  stop();
  setStatus(status, "failed", divergedSentence(what));
  return true;
}
