// The first ten minutes: is it healthy, create a topic, send a message, see it decoded; a group that reads, stops, and is moved.
import { ask, check, journey } from "./driver.mjs";

const base = process.argv[2];
const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const DEEP = "[".repeat(3000) + "]".repeat(3000);
const HUGE = `{"text":"${"x".repeat(200_000)}"}`;

async function send(page, records) {
  const status = await page.evaluate(async (body) => {
    const answer = await fetch("/api/v1/topics/journey/records", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    return answer.status;
  }, JSON.stringify({ records }));
  if (status !== 200) throw new Error(`HTTP ${status}`);
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

  say("it is seen, decoded, with its command");
  await page.getByRole("tab", { name: "Messages" }).click();
  await page.getByRole("button", { name: /Message \d+:\d+/ }).filter({ hasText: "alice" }).click();
  const drawer = page.getByRole("dialog");
  await drawer.getByText('"total": 10,').waitFor();
  await drawer.getByRole("cell", { name: "journey" }).waitFor();
  const command = await drawer.locator("code").innerText();
  if (!/drmq consume journey --from \d+:0 -p \d+ -n 1/.test(command)) throw new Error(command);
  await drawer.getByText("Tree", { exact: true }).click();
  await drawer.getByRole("button", { name: /deep/ }).click();
  await drawer.getByText("list:").waitFor();
  await page.keyboard.press("Escape");

  say("hostile messages are text");
  await send(page, [
    { key: "<b>mallory</b>", value: HOSTILE },
    { key: "deep", value: DEEP },
    { key: "huge", value: HUGE },
    { key: "binary", value: "/wD+gICA", value_format: "base64" },
    { key: "utf8", value: "wyg=", value_format: "base64" },
    { key: "none", value: null },
  ]);
  await page.getByRole("button", { name: "Look again" }).click();
  await page.getByText("7 messages found").waitFor();
  for (const [key, wanted] of [["mallory", HOSTILE], ["binary", "/wD+gICA"], ["utf8", "wyg="]]) {
    await page.getByRole("button", { name: /Message/ }).filter({ hasText: key }).click();
    const text = await page.getByRole("dialog").getByLabel("Value", { exact: true }).innerText();
    if (text !== wanted) throw new Error(`${key}: ${text}`);
    await page.keyboard.press("Escape");
  }
  for (const key of ["deep", "huge"]) {
    await page.getByRole("button", { name: /Message/ }).filter({ hasText: key }).first().click();
    const size = (await page.getByRole("dialog").getByLabel("Value", { exact: true }).innerText()).length;
    if (size < 3000) throw new Error(`${key} is shown with ${size} characters`);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }

  say("a search lives in the address");
  await page.getByRole("textbox", { name: "Text" }).fill("total");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.waitForURL(/text=total/);
  await page.getByText("1 message found, 7 scanned, all of them").waitFor();
  await page.reload();
  await page.getByText("1 message found").waitFor();

  say("a search by fields of JSON; what is no condition is refused");
  await page.goto(`${base}/topics/journey?json=total+%3E%3D+10`);
  await page.getByText("1 message found, 7 scanned, all of them").waitFor();
  await page.getByRole("textbox", { name: "JSON fields" }).fill("total >=");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.getByRole("alert").getByText(/not a condition about JSON|joined by/).waitFor();

  say("a group appears, and reads to the end");
  await ask("consume");
  await page.getByRole("link", { name: "Groups", exact: true }).first().click();
  await page.getByRole("link", { name: "billing" }).click();
  await page.getByText("Classic group").waitFor();
  await page.locator(".tile", { hasText: "Caught up in" }).getByText("now").waitFor();
  await page.getByRole("tab", { name: "Members" }).click();
  await page.getByRole("cell", { name: /journey-0/ }).waitFor();

  say("it cannot be moved while it has members; a preview is possible");
  await page.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByText("The group has 1 member.").waitFor();
  await page.getByRole("button", { name: "Preview" }).click();
  await page.getByRole("region", { name: "What would change" }).waitFor();
  if (await page.getByRole("button", { name: /Move \d+ position/ }).isEnabled()) throw new Error("an active group can be moved");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });

  say("it is stopped: lag grows, and the page says that it is stuck");
  await ask("stop");
  await page.goto(`${base}/topics/journey/produce`);
  await page.getByRole("textbox", { name: "Key" }).fill("alice"); // to a partition that the group has read
  await page.getByRole("textbox", { name: "Value" }).fill("order {n}");
  await page.getByRole("textbox", { name: "Repeat" }).fill("40");
  await page.getByRole("button", { name: "Send 40 to journey" }).click();
  await page.getByText("Committed 40 messages").waitFor();
  await page.getByRole("link", { name: "Groups", exact: true }).first().click();
  await page.getByRole("link", { name: "billing" }).click();
  await page.locator(".tile", { hasText: "Lag in records" }).getByText("40", { exact: true }).waitFor();
  await page.waitForTimeout(3000);
  await send(page, [{ key: "alice", value: "one more" }]);
  await page.getByText("The group has no members").waitFor();

  say("it is moved: a preview first, then the change");
  await page.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByRole("button", { name: "Preview" }).click();
  await page.getByRole("region", { name: "What would change" }).waitFor();
  await check(page, "the reset wizard");
  await page.getByRole("button", { name: /Move 3 positions/ }).click();
  await page.locator(".tile", { hasText: "Lag in records" }).getByText("48", { exact: true }).waitFor();

  say("keys only: the skip link, the palette, a tab, a message");
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.keyboard.press("Tab");
  await page.getByRole("link", { name: "Skip to the content" }).and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).waitFor();
  await page.keyboard.type("journey topic");
  await page.getByRole("option", { name: /journey/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("tab", { name: "Messages" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("button", { name: "Add partitions" }).waitFor();
  await page.keyboard.press("ArrowLeft");
  await page.getByRole("region", { name: "Messages found" }).focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("Partition").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");

  say("a topic is deleted only by its name");
  await page.goto(`${base}/topics/journey`);
  await page.getByRole("button", { name: "Delete" }).click();
  const confirm = page.getByRole("button", { name: "Delete the topic" });
  if (await confirm.isEnabled()) throw new Error("it did not ask for the name");
  await page.getByRole("textbox", { name: /Type journey/ }).fill("journey");
  await confirm.click();
  await page.getByRole("heading", { name: "Topics" }).waitFor();
  await page.getByText("No topic yet").waitFor();
});
