// Programs of pages as files that run outside a browser, and the tabs that show one or the other.

const PLOT_IMPORT = /^from playground import plot\n/m;
const PLOT = `import matplotlib.pyplot as plt  # pip install matplotlib


def plot(*values, label=""):
    plt.plot(*values, label=label)


`;
const SHOW = `
plt.legend()
plt.show()
`;

const DOCUMENTED = /^(?:"""[\s\S]*?"""\n\s*)?/;

/**
 * A program of the playground as a file for `python`: where it plots, with Matplotlib, and where it awaits at its top,
 * inside a coroutine, since only pages and notebooks can await there.
 */
export function natively(program) {
  let text = program;
  if (PLOT_IMPORT.test(text)) text = text.replace(PLOT_IMPORT, PLOT) + SHOW;
  if (!/^(?:\S.*)?\bawait\b/m.test(text)) return text;
  const [head] = DOCUMENTED.exec(text);
  const body = text.slice(head.length).trimEnd().replace(/^(?=.)/gm, "    ");
  return `${head}import asyncio\n\n\nasync def main():\n${body}\n\n\nasyncio.run(main())\n`;
}
