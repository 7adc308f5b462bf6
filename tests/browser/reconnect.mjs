// The only node goes away and comes back, and live data is paused: the page says how old its data is, and loses none of it.
import { ask, journey } from "./driver.mjs";

const base = process.argv[2];
const PAUSE_MS = 13_000; // the gateway samples every five seconds while nobody looks

/** The times of the samples in the table of a chart, the newest first, as seconds of the day. */
const times = (page) =>
  page.getByRole("region", { name: "Messages as a table" }).locator("tbody tr td:first-child").evaluateAll((cells) =>
    cells.map((each) => each.textContent.split(":").reduce((sum, part) => 60 * sum + Number(part), 0)));

await journey(async ({ open, say }) => {
  const page = await open({ timezoneId: "UTC" });
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.evaluate(() => { window.isSamePage = true; });
  await page.getByRole("button", { name: "Messages: view as table" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".chart-table tbody tr").length > 2);

  say("paused: the numbers stand still, and say how old they are");
  await page.getByRole("button", { name: "Pause live data" }).click();
  await page.getByText(/^Paused/).waitFor();
  const held = await times(page);
  await page.waitForTimeout(PAUSE_MS);
  if ((await times(page))[0] !== held[0]) throw new Error("the numbers went on");
  await page.getByText(/\d+ s ago/).waitFor();

  say("it goes on, and what it missed is there");
  await page.getByRole("button", { name: "Go on with live data" }).click();
  await page.getByText("up to date").waitFor();
  const resumed = (held[0] + PAUSE_MS / 1000) % 86_400;
  await page.waitForFunction((since) => {
    const [first] = document.querySelector(".chart-table tbody tr td").textContent.split(":").reduce((sum, part) => [60 * sum[0] + Number(part)], [0]);
    return first >= since || first < since - 43_200;
  }, resumed);
  const missed = (await times(page)).filter((each) => each > held[0] && each < resumed);
  if (missed.length === 0) throw new Error(`no sample between ${held[0]} and ${resumed}: ${await times(page)}`);

  say("the node goes away: the data is old, and the page says so");
  await ask("kill");
  await page.getByText(/^No data for/).waitFor();
  await page.getByText("The connection is lost.").waitFor({ state: "attached" });
  await page.getByText(/old: .* ago/).waitFor();
  await page.getByRole("link", { name: "Topics", exact: true }).first().click();
  await page.getByRole("heading", { name: "Topics" }).waitFor();

  say("it comes back: the same page goes on by itself");
  await ask("start");
  await page.getByText("Healthy", { exact: true }).waitFor();
  await page.getByText("No topic yet").waitFor();
  await page.getByRole("link", { name: "Overview", exact: true }).first().click();
  await page.getByText("up to date").waitFor();
  if (!(await page.evaluate(() => window.isSamePage))) throw new Error("the page was loaded anew");
});
