// Whether this browser has WebGPU, what to tell people if it has not, and what its adapter is.
import { create } from "./dom.js";

/** Adapters in software, by what their descriptions hold. */
const SOFTWARE = [[/swiftshader/i, "SwiftShader"], [/llvmpipe|lavapipe/i, "llvmpipe"], [/basic render/i, "Microsoft Basic Render Driver"]];

/** What a device, {description, software}, is called in a sentence. */
export function deviceName({ description, software }) {
  if (!software) return description;
  const [, name = description] = SOFTWARE.find(([pattern]) => pattern.test(description)) ?? [];
  return `software adapter (${name})`;
}

/** "Training on your GPU", or the truth about an adapter in software. */
export function runningOn(device, doing = "Training") {
  return device.software ? `${doing} on a ${deviceName(device)}, on your processor` : `${doing} on your GPU`;
}

const PATIENCE = 10_000; // milliseconds for the browser to name an adapter

/**
 * null if a GPU can be used, otherwise why not: "absent" (no WebGPU), "insecure" (not https), "adapter" (no GPU). A
 * browser that does not answer counts as one with a GPU: loading Python has a time limit and Retry.
 */
export async function webgpuProblem() {
  if (!self.isSecureContext) return "insecure";
  if (!navigator.gpu) return "absent";
  const late = new Promise((resolve) => setTimeout(resolve, PATIENCE, true));
  const adapter = await Promise.race([navigator.gpu.requestAdapter().catch(() => null), late]);
  return adapter ? null : "adapter";
}

const REASONS = {
  absent: "This browser does not support WebGPU, which pages need to compute on the GPU.",
  insecure: "Browsers allow WebGPU only on pages served over HTTPS or from this computer.",
  adapter: "This browser supports WebGPU but found no GPU: hardware acceleration may be off, or the driver blocked.",
};

/** The explanation, as an element. */
export function explainMissing(problem) {
  return create(
    "section",
    { class: "notice notice-warn", "aria-labelledby": "no-webgpu", data: { problem } },
    create("h2", { id: "no-webgpu" }, "No GPU available"),
    create("p", {}, REASONS[problem]),
    create(
      "ul",
      {},
      create("li", {}, "Chrome and Edge 113 or newer on Windows, macOS and ChromeOS; 121 or newer on Android."),
      create("li", {}, "Safari 26 or newer, on Mac, iPhone and iPad."),
      create("li", {}, "Firefox 141 or newer on Windows, 145 or newer on Macs with Apple silicon."),
      create("li", {}, "On Linux, Chrome and Edge 144 or newer; in older versions, enable it at ",
        create("code", {}, "chrome://flags/#enable-unsafe-webgpu"), "."),
    ),
    create("p", {}, "The browser’s GPU report is at ", create("code", {}, "chrome://gpu"), " or ", create("code", {}, "about:support"),
      "; hardware acceleration must be enabled in its settings. The same Python also runs without a browser: ",
      create("code", {}, "make train"), " in a clone of the repository."),
  );
}

/** Puts the explanation before `element`, and returns true, if there is no WebGPU: the page shows what it can without. */
export async function explainWithoutWebgpu(element) {
  const problem = await webgpuProblem();
  if (problem) element.before(explainMissing(problem));
  return problem !== null;
}

/** Shows the explanation in place of `container`'s content and returns true, if there is no WebGPU. */
export async function stopWithoutWebgpu(container) {
  const problem = await webgpuProblem();
  if (problem) container.replaceChildren(explainMissing(problem));
  return problem !== null;
}
