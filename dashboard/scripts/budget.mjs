// Prints what a first visit of the overview loads, gzipped, and fails above the budget.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const BUDGET_KB = 250;
const root = fileURLToPath(new URL("../../src/drmq/gateway/static/", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, ".vite/manifest.json"), "utf8"));
const FIRST = ["index.html", "src/features/overview/OverviewPage.tsx"];

const files = new Set(["index.html", "theme.js"]);
const seen = new Set();
function take(key) {
  if (seen.has(key)) return;
  seen.add(key);
  const chunk = manifest[key];
  if (!chunk) throw new Error(`no ${key} in the manifest`);
  files.add(chunk.file);
  for (const css of chunk.css ?? []) files.add(css);
  for (const each of chunk.imports ?? []) take(each);
}
FIRST.forEach(take);

const size = (name) => gzipSync(readFileSync(join(root, name)), { level: 9 }).length;
let total = 0;
for (const name of [...files].sort()) {
  const bytes = size(name);
  total += bytes;
  console.log(`${(bytes / 1000).toFixed(1).padStart(8)} kB  ${name}`);
}
console.log(`${(total / 1000).toFixed(1).padStart(8)} kB  first load, gzipped (budget ${BUDGET_KB} kB)`);
if (total > BUDGET_KB * 1000) {
  console.error("The first load is above its budget: move something into a page of its own.");
  process.exit(1);
}
