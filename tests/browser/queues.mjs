// A work queue: leases, dead letters and their redrive; the live tail; then every page for axe, in both themes, and narrow.
import { ask, check, checkThemes, go, isNotTooWide, journey, shoot } from "./driver.mjs";

const base = process.argv[2];

await journey(async ({ open, say }) => {
  const page = await open({ colorScheme: "light" });
  await page.emulateMedia({ reducedMotion: "reduce" });
  say("leases and dead letters are on the overview");
  await page.goto(base);
  await page.locator(".tile", { hasText: "Leases out" }).getByText("2", { exact: true }).waitFor();
  await page.locator(".tile", { hasText: "Dead letters" }).getByText("3", { exact: true }).waitFor();
  await page.getByRole("region", { name: "Groups with most lag" }).last().getByRole("link", { name: "workers" }).click();

  say("the group shows what is out: with whom, until when, at which attempt");
  await page.getByText("Lease group").waitFor();
  await page.getByRole("tab", { name: "Leases" }).click();
  const leases = page.getByRole("region", { name: "Leases" }).last();
  await leases.getByRole("link", { name: /orders-0/ }).first().waitFor();
  await leases.getByText("a-slow-worker").first().waitFor();

  say("dead letters have their reasons, and a search");
  await page.getByRole("tab", { name: "Dead letters" }).click();
  const letters = page.getByRole("region", { name: "Dead letters" }).last();
  await letters.getByText("it was rejected").nth(2).waitFor();
  await page.getByRole("textbox", { name: "Text in the value" }).fill("poison-1");
  await page.getByRole("button", { name: "Find", exact: true }).click();
  await page.getByText("1 letter shown").waitFor();
  await letters.getByRole("button", { name: /Dead letter/ }).click();
  await page.getByRole("dialog").getByText("poison-1").first().waitFor();
  await check(page, "a dead letter");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });

  say("those that match are moved back, after a question that says how many");
  await page.getByRole("button", { name: "Redrive" }).click();
  await page.getByRole("button", { name: "Move 1 letter back" }).waitFor();
  await check(page, "the question about a redrive");
  await page.getByRole("button", { name: "Move 1 letter back" }).click();
  await page.getByText("1 letter moved back").waitFor();
  await page.getByText("finished").waitFor();
  await page.getByText("No dead letter matches").waitFor();

  say("a number of the others is moved back from the page of the topic");
  await page.getByRole("link", { name: "Dead letters", exact: true }).first().click();
  await page.getByRole("link", { name: "dlq.workers" }).click();
  await page.getByText("2 letters shown").waitFor();
  await page.getByRole("button", { name: "Redrive" }).click();
  await page.getByRole("radio", { name: /A number of them/ }).check();
  await page.getByRole("textbox", { name: "Letters, at most" }).fill("1");
  await page.getByRole("button", { name: "Move 1 letter back" }).click();
  await page.getByText("1 letter shown").waitFor();

  say("the live tail shows what arrives, and holds still when told");
  await go(page, "/tail?topics=orders,other");
  await page.getByText("Waiting for messages").waitFor();
  await page.waitForTimeout(2500);
  await ask("produce");
  await page.getByRole("log").getByText("tail-1", { exact: false }).first().waitFor();
  await page.getByRole("log").getByText("other", { exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await ask("produce");
  await page.getByText(/[1-9]\d* dropped/).waitFor();
  await shoot(page, "tail");

  say("the topology shows who reads what, as a graph and as a list");
  await go(page, "/topology");
  await page.getByRole("button", { name: /^workers/ }).click();
  await page.getByText(/upstream and downstream/).waitFor();
  await page.getByText("List", { exact: true }).click();
  await page.getByRole("cell", { name: "is read by" }).first().waitFor();

  say("a setting of the group is changed, after a question");
  await go(page, "/groups/workers/settings");
  await page.getByRole("button", { name: "Change share.delivery.count.limit" }).click();
  await page.getByRole("textbox", { name: "share.delivery.count.limit" }).fill("3");
  await page.getByRole("button", { name: "Change", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByRole("row").filter({ hasText: "share.delivery.count.limit" }).getByRole("cell", { name: "3", exact: true }).waitFor();

  const pages = ["/", "/topics", "/topics?create=1", "/topics/orders", "/topics/orders/partitions", "/topics/orders/consumers", "/topics/orders/throughput",
    "/topics/orders/config", "/topics/orders/produce", "/tail?topics=orders", "/topology", "/topology?view=list", "/groups", "/groups/workers", "/groups/workers/members",
    "/groups/workers/leases", "/groups/workers/letters", "/groups/workers/settings", "/dead-letters", "/dead-letters/dlq.workers", "/transactions", "/pipelines", "/raft",
    "/raft?view=placement", "/raft?view=elections", "/brokers", "/brokers/1", "/brokers/1/settings", "/brokers/1/counters", "/explore", "/events", "/lab", "/settings", "/nothing"];
  for (const each of pages) {
    say(`axe: ${each}`);
    await page.setViewportSize({ width: 1280, height: 900 });
    await go(page, each);
    const name = each.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "overview";
    await page.emulateMedia({ colorScheme: "dark" });
    await shoot(page, `${name}-dark`);
    await checkThemes(page, each);
    await page.emulateMedia({ colorScheme: "light" });
    await shoot(page, `${name}-light`);
    await page.setViewportSize({ width: 400, height: 800 });
    await isNotTooWide(page, each);
    await shoot(page, `${name}-narrow`);
  }
});
