import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { GraphIcon, TableIcon } from "@primer/octicons-react";
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../lib/format";
import { live, ring, WINDOW_MS } from "../lib/live";
import type { ClusterEvent } from "../lib/types";

export interface Line {
  series: string;
  label: string;
}

const TABLE_ROWS = 20;
/** Steps of an axis in bytes: its labels are whole KiB and MiB. */
const BINARY = Array.from({ length: 40 }, (_, power) => 2 ** power);

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Series of the last ten minutes, drawn from the ring without React. Has a summary in words, and a table. */
export function Chart(props: { title: string; lines: Line[]; format: (value: number | null | undefined) => string; events: ClusterEvent[]; isBinary?: boolean }) {
  const { title, lines, format } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marks = useRef<ClusterEvent[]>([]);
  marks.current = props.events;
  const [isTable, setIsTable] = useState(false);
  const [, setTick] = useState(0);
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const names = lines.map((each) => each.series);
  const key = names.join();

  useEffect(() => {
    if (isTable || box.current === null) return undefined;
    const target = box.current;
    const size = () => ({ width: Math.max(120, target.clientWidth), height: target.clientHeight });
    const axis = {
      stroke: variable("--chart-text"),
      grid: { stroke: variable("--chart-grid"), width: 1 },
      ticks: { show: false },
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
    };
    const drawn = new uPlot(
      {
        ...size(),
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        padding: [8, 8, 0, 0],
        scales: {
          x: { time: true, range: () => [(Date.now() - WINDOW_MS) / 1000, Date.now() / 1000] },
          y: { range: (_plot, _low, high) => [0, Math.max(high || 0, 1) * 1.1] },
        },
        axes: [
          { ...axis, size: 26, space: 70, values: (_plot, splits) => splits.map((each) => clock(each * 1000).slice(0, 5)) },
          { ...axis, size: 68, space: 34, incrs: props.isBinary ? BINARY : undefined, values: (_plot, splits) => splits.map((each) => format(each)) },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: variable(`--chart-${index + 1}`),
            width: 1.75,
            dash: index === 1 ? [5, 3] : undefined,
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: { draw: [(each) => drawMarks(each, marks.current)] },
      },
      ring.view(names, Date.now() - WINDOW_MS) as uPlot.AlignedData,
      target,
    );
    plot.current = drawn;
    const watcher = new ResizeObserver(() => drawn.setSize(size()));
    watcher.observe(target);
    return () => {
      watcher.disconnect();
      drawn.destroy();
      plot.current = null;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [isTable, scheme, key]);

  useEffect(
    () =>
      live.onSample(() => {
        plot.current?.setData(ring.view(names, Date.now() - WINDOW_MS) as uPlot.AlignedData);
        setTick((tick) => tick + 1);
      }),
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [key],
  );

  const [times, ...columns] = ring.view(names, Date.now() - WINDOW_MS);
  const last = columns.map((column) => column.findLast((value) => value !== null));
  const summary = lines.map((line, index) => describe(line.label, columns[index]!, format)).join(" ");
  return (
    <section className="card chart" aria-label={title}>
      <div className="row between">
        <h2 style={{ fontSize: "1rem" }}>{title}</h2>
        <Tooltip label={isTable ? "View as chart" : "View as table"}>
          <ActionIcon
            variant="subtle"
            color="gray"
            onClick={() => setIsTable(!isTable)}
            aria-label={`${title}: view as ${isTable ? "chart" : "table"}`}
          >
            {isTable ? <GraphIcon size={16} /> : <TableIcon size={16} />}
          </ActionIcon>
        </Tooltip>
      </div>
      <div className="chart-legend">
        {lines.map((line, index) => (
          <span key={line.series}>
            <span className={`swatch ${index === 1 ? "dashed" : ""}`} style={{ color: `var(--chart-${index + 1})` }} />
            {line.label} <strong>{format(last[index])}</strong>
          </span>
        ))}
      </div>
      {isTable ? (
        <div className="chart-table" tabIndex={0} role="region" aria-label={`${title} as a table`}>
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Time</th>
                {lines.map((line) => (
                  <th scope="col" className="num" key={line.series}>
                    {line.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times
                .map((time, index) => [time, index] as const)
                .slice(-TABLE_ROWS)
                .reverse()
                .map(([time, index]) => (
                  <tr key={time}>
                    <td>{clock(time * 1000)}</td>
                    {columns.map((column, at) => (
                      <td className="num" key={lines[at]!.series}>
                        {format(column[index])}
                      </td>
                    ))}
                  </tr>
                ))}
            </tbody>
          </table>
        </div>
      ) : (
        <div ref={box} className="chart-box" role="img" aria-label={`${title}, the last ten minutes. ${summary}`} />
      )}
    </section>
  );
}

function describe(label: string, values: (number | null)[], format: (value: number) => string): string {
  const numbers = values.filter((value) => value !== null);
  if (numbers.length === 0) return `${label}: no data yet.`;
  return `${label}: now ${format(numbers.at(-1)!)}, highest ${format(Math.max(...numbers))}.`;
}

/** Warnings and elections as thin lines, so that a dip has its cause beside it. */
function drawMarks(plot: uPlot, events: ClusterEvent[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = 1;
  for (const event of events) {
    const x = plot.valToPos(event.time_ms / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = variable(event.level === "info" ? "--chart-text" : "--warn");
    ctx.setLineDash([2, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x - 4, bbox.top - 1);
    ctx.lineTo(x + 4, bbox.top - 1);
    ctx.lineTo(x, bbox.top + 6);
    ctx.fill();
  }
  ctx.restore();
}
