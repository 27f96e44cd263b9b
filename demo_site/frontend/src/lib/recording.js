// Recorded runs: what a program reported when scripts/record_runs.py ran it, played to the page that shows the program
// live. One file a page, in src/recorded: {made: {version, device}, events: [[milliseconds, kind, payload, packed?]]}.
import { create } from "./dom.js";

/** Numbers that were packed as a power of whole numbers of at most 8 or 16 bits times a scale, `data` in base64. */
function unpack({ bits, scale, power, data }) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const whole = bits <= 8 ? new Int8Array(bytes.buffer) : new Int16Array(bytes.buffer);
  return Float32Array.from(whole, (value) => (value * scale) ** power).buffer;
}

/** The recorded run of a page: "home", "digits", "gpt", "race", "playground". */
export async function loadRecording(name) {
  return (await import(`../recorded/${name}.json`)).default;
}

/** The words "Recorded run", and where it was recorded. */
export function recordedBadge({ made }) {
  return create("span", { class: "badge recorded", title: `OptiRS-Web ${made.version}, natively on ${made.device}` }, "Recorded run");
}

/**
 * Plays a recording to `onEvent(kind, payload, buffer)`, as a PythonWorker would call it, and puts a badge "Recorded
 * run" into `place`. Who prefers reduced motion sees the end at once. `stop()` ends it and removes the badge: call it
 * before the first event of the live program. `ended` resolves when it is over, either way.
 */
export function playRecording(recording, place, onEvent) {
  const badge = recordedBadge(recording);
  place.append(badge);
  const atOnce = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let timer = 0;
  let finish;
  const ended = new Promise((resolve) => {
    finish = resolve;
  });
  const began = performance.now();
  const play = (from) => {
    for (let at = from; at < recording.events.length; at++) {
      const [due, kind, payload, packed] = recording.events[at];
      const late = performance.now() - began - due;
      if (!atOnce && late < 0) {
        timer = setTimeout(play, -late, at);
        return;
      }
      onEvent(kind, payload, packed && unpack(packed));
    }
    finish();
  };
  play(0);
  return {
    ended,
    stop() {
      clearTimeout(timer);
      badge.remove();
      finish();
    },
  };
}
