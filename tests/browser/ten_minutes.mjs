// The first ten minutes: is it healthy, create a topic, send a message, see it decoded; hostile messages; every page for axe.
import { check, journey } from "./driver.mjs";

const base = process.argv[2];
const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>';

/** To another page of the dashboard as a link goes there, until its data is there. */
async function go(page, path) {
  await page.evaluate((to) => {
    history.pushState({}, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
  }, path);
  await page.waitForTimeout(300);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.getByLabel(/is loading/).waitFor({ state: "detached" });
}

await journey(async ({ open, say }) => {
  const page = await open({ colorScheme: "light" });
  say("the overview says that the cluster is healthy, and what to do next");
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.getByText("drmq topic create orders").waitFor();

  say("a topic is created");
  await page.getByRole("link", { name: "Topics", exact: true }).first().click();
  await page.getByRole("button", { name: "Create topic" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("journey");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("heading", { name: "journey" }).waitFor();
  await page.getByText("No messages yet").waitFor();

  say("a message is sent");
  await page.getByRole("tab", { name: "Produce" }).click();
  await page.getByRole("textbox", { name: "Key" }).fill("alice");
  await page.getByRole("textbox", { name: "Value" }).fill('{"total":10,"deep":{"list":[1,2]}}');
  await page.getByRole("textbox", { name: "Headers" }).fill("source=journey");
  await page.getByRole("button", { name: "Send to journey" }).click();
  await page.getByText("Committed").waitFor();
  await page.getByRole("textbox", { name: "Key" }).fill("<b>mallory</b>");
  await page.getByRole("textbox", { name: "Value" }).fill(HOSTILE);
  await page.getByRole("button", { name: "Send to journey" }).click();
  await page.getByText("offset", { exact: false }).first().waitFor();

  say("it is seen, decoded, with its command");
  await page.getByRole("tab", { name: "Messages" }).click();
  const rows = page.locator("button.message-row");
  await rows.nth(1).waitFor();
  await page.getByRole("button", { name: /Message \d+:\d+/ }).filter({ hasText: "alice" }).click();
  const drawer = page.getByRole("dialog");
  await drawer.getByText('"total": 10,').waitFor();
  await drawer.getByText("journey", { exact: true }).waitFor();
  const command = await drawer.locator("code").innerText();
  if (!/drmq consume journey --from \d+:0 -p \d+ -n 1/.test(command)) throw new Error(command);
  await page.keyboard.press("Escape");

  say("a hostile message is text");
  await page.getByRole("button", { name: /Message/ }).filter({ hasText: "mallory" }).click();
  const text = await page.getByRole("dialog").getByLabel("Value", { exact: true }).innerText();
  if (text !== HOSTILE) throw new Error(text);
  await page.keyboard.press("Escape");

  say("a search lives in the address");
  await page.getByRole("textbox", { name: "Text" }).fill("total");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.waitForURL(/text=total/);
  await page.getByText("1 message found, 2 scanned, all of them").waitFor();
  await page.reload();
  await page.getByText("1 message found").waitFor();

  say("the palette goes to a page by keyboard only");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).fill("consen");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Consensus" }).waitFor();

  say("a topic is deleted only by its name");
  await page.goto(`${base}/topics/journey`);
  await page.getByRole("button", { name: "Delete" }).click();
  const confirm = page.getByRole("button", { name: "Delete the topic" });
  if (await confirm.isEnabled()) throw new Error("it did not ask for the name");
  await check(page, "the question");
  await page.getByRole("button", { name: "Cancel" }).click();

  const pages = ["/", "/topics", "/topics?create=1", "/topics/journey", "/topics/journey/partitions", "/topics/journey/settings",
    "/topics/journey/produce", "/groups", "/raft", "/raft?view=placement", "/brokers", "/brokers/1", "/events", "/settings", "/nothing"];
  await page.emulateMedia({ reducedMotion: "reduce" });
  for (const each of pages) {
    say(`axe: ${each}`);
    await go(page, each);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await check(page, `${each} (${colorScheme})`);
    }
  }
  say("a narrow page does not scroll to the side");
  await page.setViewportSize({ width: 400, height: 800 });
  for (const each of ["/", "/topics/journey", "/raft", "/brokers/1"]) {
    await go(page, each);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (over > 0) throw new Error(`${each} is ${over} pixels too wide`);
  }
});
