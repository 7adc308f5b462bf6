// The node that serves the page is killed: the page goes on with another one, and says so.
import { heard, journey } from "./driver.mjs";

const base = process.argv[2];

await journey(async ({ open, say }) => {
  const page = await open();
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.locator(".tile-value", { hasText: "3 of 3" }).waitFor();
  await page.waitForTimeout(4000); // until the other pages are loaded
  say("ready");
  await heard();
  await page.getByText("Moved on.").waitFor();
  await page.getByText("Degraded:").waitFor();
  await page.locator(".tile-value", { hasText: "2 of 3" }).waitFor();
  say("moved");
  await page.getByRole("link", { name: "Brokers", exact: true }).first().click();
  await page.getByRole("link", { name: "Node 2" }).waitFor();
  await page.getByText("up to date").waitFor();
});
