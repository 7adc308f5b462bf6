// Screenshots of the pages of a live dashboard: node screenshots.mjs ADDRESS DIRECTORY. Prints the names of the files.
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(new URL("../dashboard/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const [base, directory] = process.argv.slice(2);
const PAGES = {
  overview: "/",
  topics: "/topics",
  messages: "/topics/flights",
  groups: "/groups",
  group: "/groups/arrivals",
  consensus: "/raft",
  brokers: "/brokers",
  topology: "/topology",
  events: "/events",
  "fault-lab": "/lab",
};
const LIVE_MS = 2_500; // for two snapshots, so that there are rates

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"],
});
try {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme });
    const page = await context.newPage();
    for (const [name, path] of Object.entries(PAGES)) {
      await page.goto(base + path, { waitUntil: "load", timeout: 60_000 });
      await page.locator("main").first().waitFor({ timeout: 60_000 });
      await page.waitForTimeout(LIVE_MS);
      const file = `${name}-${colorScheme}.png`;
      await page.screenshot({ path: join(directory, file) });
      console.log(file);
    }
    await context.close();
  }
} finally {
  await browser.close();
}
