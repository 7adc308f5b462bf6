// Opens Debian's Chromium for the journeys. Each journey prints what it does, and ends with status 1 where it fails.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../../dashboard/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const AXE = require.resolve("axe-core/axe.min.js");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
export const PATIENCE_MS = 60_000;

export async function journey(run) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });
  let step = "start";
  const problems = [];
  try {
    const open = async (options = {}) => {
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
      context.setDefaultTimeout(PATIENCE_MS);
      const page = await context.newPage();
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
    console.error(`failed after: ${step}\n${error.stack}\n${problems.join("\n")}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

/** The serious violations of WCAG 2.2 AA on a page. Its policy forbids foreign scripts, so axe is evaluated. */
export async function check(page, name) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(`${readFileSync(AXE, "utf8")};undefined`);
  const found = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
  );
  const serious = found.violations.filter((each) => ["serious", "critical"].includes(each.impact));
  if (serious.length) {
    const lines = serious.map((each) => `${each.id}: ${each.help}\n${each.nodes.slice(0, 4).map((node) => `    ${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`).join("\n")}`);
    throw new Error(`${name} is not accessible:\n${lines.join("\n")}`);
  }
}

/** The next line that the test writes. */
export async function heard() {
  for await (const line of createInterface({ input: process.stdin })) return line;
  throw new Error("the test has ended");
}
