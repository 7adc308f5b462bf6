// An empty cluster: each page says what to do next; then themes and settings, and the first steps by keys only.
import { checkThemes, go, isNotTooWide, journey, shoot, tabTo } from "./driver.mjs";

const base = process.argv[2];
const PAGES = ["/", "/topics", "/tail", "/topology", "/topology?view=list", "/groups", "/dead-letters", "/transactions", "/pipelines", "/brokers", "/brokers/1", "/raft",
  "/raft?view=placement", "/raft?view=elections", "/explore", "/events", "/lab", "/settings", "/topics/nothing", "/groups/nothing", "/brokers/99"];

const theme = (page) => page.evaluate(() => document.documentElement.getAttribute("data-mantine-color-scheme"));

await journey(async ({ open, say }) => {
  const page = await open({ colorScheme: "light" });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  for (const each of PAGES) {
    say(`empty: ${each}`);
    await page.setViewportSize({ width: 1280, height: 900 });
    await go(page, each);
    await page.locator(".command").first().waitFor();
    await checkThemes(page, each);
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 400, height: 800 });
    await isNotTooWide(page, each);
    await shoot(page, `empty-${each.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "overview"}`);
  }

  say("what does not exist is said once");
  await page.setViewportSize({ width: 1280, height: 900 });
  await go(page, "/topics/nothing");
  await page.getByRole("alert").waitFor();
  await page.waitForTimeout(1000);
  if ((await page.getByRole("alert").count()) !== 1) throw new Error("the same problem is shown more than once");

  say("the theme is kept, and is set before the application is loaded");
  await page.getByRole("button", { name: "Change to the dark theme" }).click();
  if ((await theme(page)) !== "dark") throw new Error("the theme did not change");
  const behind = await page.evaluate(() => [document.documentElement, document.body].map((each) => getComputedStyle(each).backgroundColor));
  if (behind[0] !== behind[1]) throw new Error(`the page is ${behind[1]} on ${behind[0]}`);
  await page.route("**/assets/*.js", (route) => route.abort());
  await page.reload();
  if ((await theme(page)) !== "dark") throw new Error("the page flashes in the other theme");
  await page.unroute("**/assets/*.js");
  await page.reload();
  await page.getByRole("button", { name: "Change to the light theme" }).waitFor();

  say("settings apply at once and are kept");
  await go(page, "/settings");
  await page.getByRole("radiogroup", { name: "Theme" }).getByText("System").click();
  await page.getByRole("radiogroup", { name: "Sizes" }).getByText("kB, MB").click();
  await page.getByRole("radiogroup", { name: "Density" }).getByText("Compact").click();
  await page.getByRole("radiogroup", { name: "Times" }).getByText("UTC").click();
  await page.goto(`${base}/brokers`);
  await page.getByRole("cell", { name: /\d MB/ }).first().waitFor();
  await page.locator(".compact").first().waitFor();
  if ((await theme(page)) !== "light") throw new Error("the theme does not follow the system");
  await page.goto(`${base}/settings`);
  await page.getByRole("radiogroup", { name: "Sizes" }).getByText("KiB, MiB").click();

  say("keys only: a topic is created");
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).waitFor();
  await page.keyboard.type("create");
  await page.getByRole("option", { name: /Create a topic/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByRole("textbox", { name: "Name" }).and(page.locator(":focus")).waitFor();
  await page.keyboard.type("by-keys");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "by-keys" }).waitFor();

  say("keys only: a message is sent, found and opened");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).waitFor();
  await page.keyboard.type("send by-keys");
  await page.getByRole("option", { name: /Send a message to by-keys/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("textbox", { name: "Value" }).waitFor();
  await tabTo(page, page.getByRole("textbox", { name: "Value" }));
  await page.keyboard.type("typed");
  await tabTo(page, page.getByRole("button", { name: "Send to by-keys" }));
  await page.keyboard.press("Enter");
  await page.getByText("Committed").waitFor();
  await tabTo(page, page.getByRole("link", { name: "See the messages" }));
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /Message \d/ }).waitFor();
  await tabTo(page, page.getByRole("button", { name: /Message \d/ }));
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("typed").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("/");
  await page.getByRole("textbox", { name: "Text" }).and(page.locator(":focus")).waitFor();
});
