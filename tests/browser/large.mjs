// Many topics, partitions and groups: lists draw only what is seen. Prints the long tasks and slow frames of each page.
import { go, journey, shoot } from "./driver.mjs";

const base = process.argv[2];
const ELEMENTS_MAX = 4000;

/** Long tasks, and the gaps between frames while the largest list is scrolled. */
async function measure(page) {
  return page.evaluate(async () => {
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => Math.round(each.duration))));
    observer.observe({ type: "longtask" });
    const lists = [...document.querySelectorAll("*")].filter((each) => each.scrollHeight > each.clientHeight + 50 && /auto|scroll/.test(getComputedStyle(each).overflowY));
    const target = lists.sort((one, other) => other.scrollHeight - one.scrollHeight)[0] ?? document.scrollingElement;
    const gaps = [];
    let before = performance.now();
    for (let frame = 0; frame < 60; frame += 1) {
      target.scrollTop += target.scrollHeight / 60;
      const now = await new Promise((done) => requestAnimationFrame(done));
      gaps.push(now - before);
      before = now;
    }
    await new Promise((done) => setTimeout(done, 1200)); // with a sample
    observer.disconnect();
    gaps.sort((one, other) => one - other);
    return { tasks, median: Math.round(gaps[30]), p95: Math.round(gaps[57]), elements: document.querySelectorAll("*").length };
  });
}

await journey(async ({ open, say }) => {
  const page = await open({ colorScheme: "light" });
  await page.goto(base);
  await page.getByText("Healthy:").waitFor();
  for (const [each, ready] of [
    ["/topics", "topic-000"], ["/groups", "group-00"], ["/raft", "topic-000-0"], ["/topology", "topic-000"], ["/topology?view=list", "topic-000"], ["/", "Last events"],
  ]) {
    await go(page, each);
    await page.getByText(ready).first().waitFor();
    const { tasks, median, p95, elements } = await measure(page);
    say(`${each}: ${elements} elements, frames ${median} ms (p95 ${p95}), long tasks ${tasks.length === 0 ? "none" : tasks.join(", ")}`);
    await shoot(page, `large${each.replace(/[^a-z0-9]+/gi, "-")}`);
    if (elements > ELEMENTS_MAX) throw new Error(`${each} draws ${elements} elements`);
  }
});
