// What a visitor saves: runs, which are files by name, and benchmark results. A server keeps them, or, where the site is
// only files, this browser does. Both have the same functions, and the pages do not know which they have.
import { site } from "./api.js";
import * as browser from "./storage/browser.js";
import * as server from "./storage/server.js";

export const { savedRuns, savedResults } = site.api ? server : browser;
