// Opens Debian's Chromium for the journeys. Each journey prints what it does, and ends with status 1 where it fails.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../../dashboard/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const AXE = require.resolve("axe-core/axe.min.js");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
export const PATIENCE_MS = 60_000;

export async function journey(run) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });
  let step = "start";
  let last = null;
  const problems = [];
  try {
    const open = async (options = {}) => {
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
      context.setDefaultTimeout(PATIENCE_MS);
      const page = (last = await context.newPage());
      page.on("pageerror", (error) => problems.push(`error on the page: ${error.message}`));
      page.on("dialog", (dialog) => {
        problems.push(`a message opened a dialog: ${dialog.message()}`);
        void dialog.dismiss();
      });
      return page;
    };
    await run({ open, say: (text) => console.log((step = text)) });
    if (problems.length) throw new Error(problems.join("\n"));
    console.log("done");
  } catch (error) {
    if (last) console.error(`the page at ${last.url()} says:\n${(await last.locator("#main").innerText().catch(() => "")).slice(0, 2000)}\n`);
    console.error(`failed after: ${step}\n${error.stack.slice(0, 3000)}\n${problems.join("\n")}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
    lines.close();
  }
}

const lines = createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();

/** Lets the test do something outside the browser, and waits until it is done. Returns what the test answers. */
export async function ask(name) {
  console.log(`@${name}`);
  const { value, done } = await answers.next();
  if (done) throw new Error("the test has ended");
  return value;
}

/** To another page of the dashboard as a link goes there, until its data is there. */
export async function go(page, path) {
  await page.evaluate((to) => {
    history.pushState({}, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
  }, path);
  // Until it is rendered, the heading is that of the page before.
  await page.waitForFunction((wanted) => document.getElementById("main")?.dataset.path === wanted, new URL(path, page.url()).pathname);
  await page.waitForTimeout(200);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.getByLabel(/is loading/).waitFor({ state: "detached" });
}

/** Presses Tab until this has the focus, as a person without a mouse does. */
export async function tabTo(page, wanted) {
  for (let presses = 0; presses < 150; presses += 1) {
    if (await wanted.evaluateAll((found) => found.includes(document.activeElement))) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${wanted}`);
}

/** The serious violations of WCAG 2.2 AA on a page. Its policy forbids foreign scripts, so axe is evaluated. */
export async function check(page, name, { onlyColours = false } = {}) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(`${readFileSync(AXE, "utf8")};undefined`);
  const options = onlyColours ? { runOnly: { type: "rule", values: ["color-contrast"] } } : { runOnly: STANDARDS };
  const found = await page.evaluate((wanted) => window.axe.run(document, { ...wanted, resultTypes: ["violations"] }), options);
  const serious = found.violations.filter((each) => ["serious", "critical"].includes(each.impact));
  if (serious.length) {
    const told = serious.map((each) => `${each.id}: ${each.help}\n${each.nodes.slice(0, 4).map((node) => `    ${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`).join("\n")}`);
    throw new Error(`${name} is not accessible:\n${told.join("\n")}`);
  }
}

/** axe in both themes. Only the colours differ between them. */
export async function checkThemes(page, name) {
  await page.emulateMedia({ colorScheme: "light" });
  await check(page, `${name} (light)`);
  await page.emulateMedia({ colorScheme: "dark" });
  await check(page, `${name} (dark)`, { onlyColours: true });
}

/** Keeps a picture, if a directory is given in SCREENSHOTS. */
export async function shoot(page, name) {
  if (!process.env.SCREENSHOTS) return;
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`) });
}

/** Nothing may be wider than the window. After a change of its size, charts and the menu follow a moment later. */
export async function isNotTooWide(page, name) {
  const over = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  for (let tries = 0; tries < 50; tries += 1) {
    if ((await over()) <= 0) return;
    await page.waitForTimeout(200);
  }
  throw new Error(`${name} is ${await over()} pixels too wide`);
}
