// Programs of pages as files for `python`, outside a browser.

const IMPORT_HOME = /^from home import /m;
const IMPORT_PLOT = /^from playground import plot\n+/m;
const PLOT = `import matplotlib.pyplot as plt


def plot(*values, label=""):
    plt.plot(*values, label=label)


`;
const SHOW_PLOT = `
plt.legend()
plt.show()
`;

// At the top of a program: not indented, and not in a comment.
const TOP_AWAIT = /^(?! |\t|#)[^#\n]*\bawait\b/gm;
const AWAIT_STATEMENT = /^await (.+)$/m;
const DOCSTRING = /^(?:"""[\s\S]*?"""\n\s*)?/;

/**
 * The program as a file: modules of the page come from the package, plots are Matplotlib's, and what is awaited at the
 * top, where only pages and notebooks can await, is run by asyncio.
 */
export function natively(program) {
  let text = program.trimEnd() + "\n";
  text = text.replace(IMPORT_HOME, "from optirs_web.demo_site.programs.home import ");
  if (IMPORT_PLOT.test(text)) text = text.replace(IMPORT_PLOT, PLOT) + SHOW_PLOT;
  const awaits = text.match(TOP_AWAIT)?.length ?? 0;
  if (awaits === 0) return text;
  const [docstring] = DOCSTRING.exec(text);
  const body = text.slice(docstring.length);
  if (awaits === 1 && AWAIT_STATEMENT.test(body)) {
    return `${docstring}import asyncio\n\n${body.replace(AWAIT_STATEMENT, "asyncio.run($1)")}`;
  }
  const inside = body.trimEnd().replace(/^(?=.)/gm, "    ");
  return `${docstring}import asyncio\n\n\nasync def main():\n${inside}\n\n\nasyncio.run(main())\n`;
}
