import { Checkbox, TextInput } from "@mantine/core";
import { GraphIcon, SearchIcon } from "@primer/octicons-react";
import { useState } from "react";
import { useSearchParams } from "react-router";
import { Chart, COLOURS } from "../../components/Chart";
import { isMark } from "../../components/Events";
import { Empty, Page } from "../../components/Page";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import type { History } from "../../lib/types";
import { HeatMap } from "./HeatMap";
import { byUnit, labelOf, TITLES, unitOf, UNITS } from "./series";

const DEFAULT = "produce_rate,consume_rate,commit_p99_ms,fsync_p99_ms";

/** Any series of the last ten minutes. Those with one unit share a chart, so that they can be compared. */
export default function ExplorePage() {
  const [params, setParams] = useSearchParams();
  const [text, setText] = useState("");
  const { overview } = useLive();
  const history = useApi<History>("/metrics/history?seconds=60", 30);
  const chosen = (params.get("series") ?? DEFAULT).split(",").filter(Boolean);
  const names = [...new Set([...Object.keys(overview?.series ?? {}), ...Object.keys(history.data?.series ?? {}), ...chosen])].sort((left, right) => labelOf(left).localeCompare(labelOf(right)));
  const marks = (overview?.events ?? []).filter(isMark);
  const toggle = (name: string) => {
    const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    setParams({ series: next.join() }, { replace: true });
  };
  const word = text.trim().toLowerCase();
  return (
    <Page title="Explore" name="Explore" command="drmq debug counters" query={history}>
      <div className="explore">
        <section className="card" aria-label="Series">
          <TextInput aria-label="Find a series" placeholder="Find a series" leftSection={<SearchIcon size={14} />} value={text} data-search onChange={(event) => setText(event.currentTarget.value)} mb="sm" />
          <div className="stack" style={{ gap: 10 }}>
            {names.filter((each) => `${labelOf(each)} ${each}`.toLowerCase().includes(word)).map((each) => (
              <Checkbox key={each} size="sm" checked={chosen.includes(each)} onChange={() => toggle(each)} label={labelOf(each)} description={unitOf(each)} />
            ))}
          </div>
        </section>
        <div className="stack">
          {chosen.length === 0 && (
            <section className="card"><Empty icon={GraphIcon} title="No series chosen" command="drmq debug counters">Choose one or more series beside this, or all counters of a node in a terminal.</Empty></section>
          )}
          {byUnit(chosen).flatMap(([unit, series]) =>
            // A chart has as many colours as can be told apart.
            Array.from({ length: Math.ceil(series.length / COLOURS) }, (_, index) => series.slice(index * COLOURS, (index + 1) * COLOURS)).map((part) => (
              <Chart key={part.join()} title={part.length === 1 ? labelOf(part[0]!) : TITLES[unit]} lines={part.map((each) => ({ series: each, label: labelOf(each) }))}
                format={UNITS[unit]} isBinary={unit.startsWith("bytes")} isWhole={unit === "number" && !part.includes("cpu_cores")} events={marks} isTall />
            )),
          )}
          <HeatMap />
        </div>
      </div>
    </Page>
  );
}
