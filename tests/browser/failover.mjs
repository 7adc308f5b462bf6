// A leader is killed while it is watched; then the node that serves the page. Nothing stops, and the page says what happens.
import { ask, journey } from "./driver.mjs";

const base = process.argv[2];

await journey(async ({ open, say }) => {
  const page = await open();
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.locator(".tile-value", { hasText: "3 of 3" }).waitFor();
  await page.waitForTimeout(4000); // until the other pages are loaded

  say("the leader of a partition is killed while it is watched");
  await page.getByRole("link", { name: "Consensus", exact: true }).first().click();
  const row = page.getByRole("row", { name: /watched-0/ });
  await row.waitFor();
  const killed = await ask("kill-leader");
  await row.getByRole("link", { name: new RegExp(`^Node (?!${killed}$)`) }).waitFor();
  await page.getByText("Elections", { exact: true }).click();
  await page.locator(".timeline li", { hasText: /watched-0/ }).first().waitFor();
  await page.getByRole("link", { name: "Overview", exact: true }).first().click();
  await page.getByText("Degraded:").waitFor();

  say("it comes back, and leadership is moved by a button");
  await ask("start-killed");
  await page.getByText("Healthy:").waitFor();
  // The dialog is opened on a list in which nobody is in sync, as one from before the node came back.
  let isOld = true;
  await page.route(/\/api\/v1\/raft\?/, async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    if (isOld) for (const each of json.items) each.in_sync = [each.leader];
    await route.fulfill({ response, json });
  });
  await page.getByRole("link", { name: "Consensus", exact: true }).first().click();
  await page.getByRole("button", { name: "Move the leadership of watched-0" }).click();
  const dialog = page.getByRole("dialog"); // the page behind it has radios too
  await dialog.getByRole("radio", { disabled: true }).first().waitFor();
  isOld = false;
  // To any of the others that is in sync: the node that came back may have got the leadership by itself meanwhile.
  await dialog.getByRole("radio", { disabled: false }).first().check();
  await page.getByRole("button", { name: /^Move to node/ }).click();
  await page.getByText(/Moved:|Nothing to do:/).waitFor();
  await page.getByRole("button", { name: "Close" }).last().click();

  say("the node that serves the page is killed");
  await page.getByRole("link", { name: "Overview", exact: true }).first().click();
  await ask("kill-own");
  await page.getByText("Moved on.").waitFor();
  await page.getByText("Degraded:").waitFor();
  await page.locator(".tile-value", { hasText: "2 of 3" }).waitFor();
  await page.getByRole("link", { name: "Brokers", exact: true }).first().click();
  await page.getByRole("link", { name: "Node 2" }).waitFor();
  await page.getByText("up to date").waitFor();

  say("it comes back: the page notices, and its charts go on");
  await ask("start-own");
  await page.getByRole("link", { name: "Overview", exact: true }).first().click();
  await page.getByText("Healthy:").waitFor();
});
