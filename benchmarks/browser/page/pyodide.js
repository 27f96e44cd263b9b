// Pyodide, the library's wheel in it, and the Python programs of this folder.

import { loadPyodide } from "/npm/pyodide/pyodide.mjs";

export const startPyodide = () => loadPyodide({ indexURL: "/npm/pyodide/" });

export async function installWheel(pyodide, name = "wheel") {
  const wheel = await fetch(`/${name}`);
  if (!wheel.ok) throw new Error(`the server has no ${name}`);
  pyodide.unpackArchive(await wheel.arrayBuffer(), "wheel");
}

// Makes `/page/<name>.py` importable.
export async function writeProgram(pyodide, name) {
  const program = await fetch(`/page/${name}.py`);
  pyodide.FS.writeFile(`${name}.py`, await program.text());
}

// Pyodide with the wheel, and the module of a program that may import others.
export async function startProgram(name, ...others) {
  const pyodide = await startPyodide();
  await installWheel(pyodide);
  for (const program of [name, ...others]) await writeProgram(pyodide, program);
  return { pyodide, program: pyodide.pyimport(name) };
}
