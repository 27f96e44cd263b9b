// Makes the wheel ready for Pyodide: the folder named by the second argument, which holds the wheel, gets a compiled
// copy of it and Pyodide's lock file with the package in it. The first argument names the folder with pyodide-build and
// pyodide-lock. They run in Pyodide itself, because bytecode is only valid for the very Python that compiled it.
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const [tools, folder] = process.argv.slice(2);
const module = new URL("../demo_site/frontend/node_modules/pyodide/pyodide.mjs", import.meta.url);
const { loadPyodide } = await import(module);

const program = `
import sys
from pathlib import Path

sys.path.insert(0, "/tools")
from pyodide_build.cli.py_compile import main as py_compile
from pyodide_lock import PyodideLockSpec
from pyodide_lock.utils import add_wheels_to_spec

folder = Path("/folder")
lock = PyodideLockSpec.from_json(Path("/distribution/pyodide-lock.json"))
add_wheels_to_spec(lock, sorted(folder.glob("*.whl"))).to_json(folder / "pyodide-lock.json")
py_compile([str(folder), "--keep", "--silent"], standalone_mode=False)  # enters the compiled wheel into the lock file
`;

try {
  const pyodide = await loadPyodide();
  pyodide.mountNodeFS("/tools", tools);
  pyodide.mountNodeFS("/folder", folder);
  pyodide.mountNodeFS("/distribution", dirname(fileURLToPath(module)));
  pyodide.runPython(program);
} catch (error) {
  console.error(error.message); // without the stack, which quotes a minified megabyte
  process.exit(1);
}
