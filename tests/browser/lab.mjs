// The fault lab: a node is cut off, healed, killed and started again, and the page shows what the cluster does.
import { checkThemes, isNotTooWide, journey, shoot } from "./driver.mjs";

const [base, id] = process.argv.slice(2);

await journey(async ({ open, say }) => {
  const page = await open({ colorScheme: "light" });
  await page.goto(`${base}/lab`);
  const node = page.getByRole("region", { name: `Node ${id}`, exact: true });
  await node.getByText("Running").waitFor();
  const act = async (word, state) => {
    say(`${word} node ${id}`);
    await node.getByRole("button", { name: `${word} node ${id}` }).click();
    await page.getByRole("dialog").getByRole("button", { name: word, exact: true }).click();
    await node.getByText(state, { exact: true }).waitFor();
  };
  await act("Cut off", "Cut off");
  await act("Heal", "Running");
  await act("Kill", "Dead");
  await page.getByText("Degraded:").waitFor();
  await shoot(page, "lab-killed");
  await checkThemes(page, "the fault lab");
  await page.setViewportSize({ width: 400, height: 800 });
  await isNotTooWide(page, "the fault lab");
  await shoot(page, "lab-on-narrow");
  await page.setViewportSize({ width: 1280, height: 900 });
  await act("Start", "Running");
  await page.getByText("Healthy:").waitFor();
});
