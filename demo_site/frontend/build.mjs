// Bundles every src/*.js (one entry a page, and the worker) and src/style.css into ../static.
// `node build.mjs --watch` rebuilds on change.
import { readdir, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
const target = join(here, "..", "static");

const entries = (await readdir(source)).filter((name) => /\.(js|css)$/.test(name)).map((name) => join(source, name));

const context = await esbuild.context({
  entryPoints: entries,
  outdir: target,
  bundle: true,
  format: "esm",
  splitting: true, // pages share one copy of the editor and the charts
  chunkNames: "chunks/[name]-[hash]",
  assetNames: "assets/[name]-[hash]",
  target: ["chrome113", "firefox141", "safari26"], // the first releases with WebGPU on by default
  loader: { ".woff2": "file", ".svg": "file" },
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
