// Programs that listen to the page for as long as it is open.
import { setStatus } from "./dom.js";
import { loadPython } from "./loading.js";

/**
 * Runs a program that takes the page's messages, and runs it again when there is a message after it ended with an
 * error, so that no button is without effect.
 *
 *   const program = serve(python, status, { source: "import digits\nawait digits.run_in_page(data)", name: "digits", globals: { data } });
 *   program.send("pause");
 *
 * Options: source, name, globals as for `python.run`; onReady(info) before each run; onError(error) after the status
 * line has said it. `send(kind, value)` as that of PythonWorker.
 */
export function serve(python, status, { source, name, globals = {}, onReady = () => {}, onError = () => {} }) {
  let isRunning = false;
  let unsent = null; // messages for a program that is not listening yet

  async function run() {
    isRunning = true;
    unsent = [];
    try {
      if (python.isDead) python.restart();
      onReady(await loadPython(python, status));
      const done = python.run(source, { name, globals });
      await python.ready; // by now `run` has sent the program, and messages come after it
      for (const [kind, value] of unsent) python.send(kind, value);
      unsent = null;
      await done;
    } catch (error) {
      setStatus(status, "failed", `Stopped by an error: ${error.message}`);
      console.error(error.traceback || error);
      onError(error);
    } finally {
      isRunning = false;
      unsent = null;
    }
  }

  run();
  return {
    send(kind, value = null) {
      if (!isRunning) run();
      if (unsent) unsent.push([kind, value]);
      else python.send(kind, value);
    },
  };
}
