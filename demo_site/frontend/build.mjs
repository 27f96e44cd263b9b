// Bundles every src/*.js (one entry a page, and the worker) and src/style.css into ../static, and copies src/cards/*.png,
// which scripts/make_cards.py made.
// `node build.mjs --watch` rebuilds on change.
import { readdir, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
const target = join(here, "..", "static");

const named = async (folder, pattern) =>
  (await readdir(folder)).filter((name) => pattern.test(name)).map((name) => join(folder, name));
const entries = [...(await named(source, /\.(js|css)$/)), ...(await named(join(source, "cards"), /\.png$/))];

const context = await esbuild.context({
  entryPoints: entries,
  outdir: target,
  bundle: true,
  format: "esm",
  splitting: true, // pages share one copy of the editor and the charts
  chunkNames: "chunks/[name]-[hash]",
  entryNames: "[dir]/[name]",
  assetNames: "assets/[name]-[hash]",
  target: ["chrome113", "firefox141", "safari26"], // the first releases with WebGPU on by default
  loader: { ".woff2": "file", ".svg": "file", ".png": "copy" },
  minify: true,
  sourcemap: true,
  legalComments: "linked",
  metafile: true,
  logLevel: "warning",
});
const { metafile } = await context.rebuild();

// What earlier builds have left is removed last, so that a server that is running always finds what it serves.
const built = new Set(Object.keys(metafile.outputs).map((path) => resolve(path)));
for (const entry of await readdir(target, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath ?? entry.path, entry.name);
  if (entry.isFile() && !entry.name.startsWith(".") && !built.has(path)) await rm(path);
}

if (process.argv.includes("--watch")) {
  await context.watch();
} else {
  await context.dispose();
}
