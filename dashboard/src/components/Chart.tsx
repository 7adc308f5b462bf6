import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { GraphIcon, TableIcon } from "@primer/octicons-react";
import { useEffect, useRef, useState, type ReactNode } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { chosen, clock } from "../lib/format";
import { live, ring, WINDOW_MS } from "../lib/live";
import type { SeriesRing } from "../lib/ring";
import type { ClusterEvent } from "../lib/types";

export interface Line {
  series: string;
  label: string;
}

/** Where a chart takes its samples from: by default those of the live connection. */
export interface Source {
  ring: SeriesRing;
  onSample: (listener: () => void) => () => void;
}

const LIVE: Source = { ring, onSample: (listener) => live.onSample(listener) };
const NO_EVENTS: ClusterEvent[] = [];
const TABLE_ROWS = 20;
const NEAR_PX = 8;
const YOUNG_MS = 60_000;
export const COLOURS = 6;
/** Lines differ by more than their colour. */
const DASHES = [undefined, [5, 3], [2, 3], [9, 4], [9, 3, 2, 3], [1, 4]];
/** Steps of an axis in bytes: its labels are whole KiB and MiB. */
const BINARY = Array.from({ length: 40 }, (_, power) => 2 ** power);
/** Steps of an axis that counts: there is no half of a record. */
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const SECONDS_BELOW_S = 200;

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const colour = (index: number) => `--chart-${(index % COLOURS) + 1}`;

/** Series of the last ten minutes, drawn from the ring without React. Has a summary in words, and a table. */
export function Chart(props: {
  title: string;
  lines: Line[];
  format: (value: number | null | undefined) => string;
  events?: ClusterEvent[];
  isBinary?: boolean;
  /** Its values are counts. */
  isWhole?: boolean;
  source?: Source;
  extra?: ReactNode;
  isTall?: boolean;
}) {
  const { title, lines, format, source = LIVE } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marks = useRef<ClusterEvent[]>(NO_EVENTS);
  marks.current = props.events ?? NO_EVENTS;
  const [isTable, setIsTable] = useState(false);
  const [at, setAt] = useState<{ index: number; event: ClusterEvent | null } | null>(null);
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
        cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
        padding: [8, 22, 0, 0],
        scales: {
          x: { time: true, range: () => [(Date.now() - span(source)) / 1000, Date.now() / 1000] },
          y: { range: (_plot, _low, high) => [0, Math.max(high || 0, 1) * 1.1] },
        },
        axes: [
          { ...axis, size: 26, space: (_plot, _axis, low, high) => (high - low < SECONDS_BELOW_S ? 70 : 48), values: (_plot, splits) => splits.map((each) => (splits.length > 1 && splits[1]! - splits[0]! < 60 ? clock(each * 1000) : clock(each * 1000).slice(0, 5))) },
          { ...axis, size: 68, space: 34, incrs: props.isWhole ? WHOLE : props.isBinary && !chosen.isDecimal ? BINARY : undefined, values: (_plot, splits) => splits.map((each) => format(each)) },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: variable(colour(index)),
            fill: lines.length <= 2 && index === 0 ? `color-mix(in srgb, ${variable(colour(0))} 10%, transparent)` : undefined,
            width: 1.75,
            dash: DASHES[index % DASHES.length],
            // A value without neighbours has no line: it is a dot.
            points: { show: true, size: 4, width: 0, fill: variable(colour(index)), filter: (each: uPlot, at: number) => alone(each.data[at]!) },
            spanGaps: false,
          })),
        ],
        hooks: {
          draw: [(each) => drawMarks(each, marks.current)],
          setCursor: [
            (each) => {
              const { idx, left } = each.cursor;
              setAt(idx == null || left == null || left < 0 ? null : { index: idx, event: nearest(each, left, marks.current) });
            },
          ],
        },
      },
      source.ring.view(names, Date.now() - WINDOW_MS) as uPlot.AlignedData,
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
  }, [isTable, scheme, key, source]);

  useEffect(
    () =>
      source.onSample(() => {
        plot.current?.setData(source.ring.view(names, Date.now() - WINDOW_MS) as uPlot.AlignedData);
        setTick((tick) => tick + 1);
      }),
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [key, source],
  );

  const [times, ...columns] = source.ring.view(names, Date.now() - WINDOW_MS);
  const pointed = at !== null && times[at.index] !== undefined ? at : null;
  const values = columns.map((column) => (pointed ? column[pointed.index] : column.findLast((value) => value !== null)));
  const summary = lines.map((line, index) => describe(line.label, columns[index]!, format)).join(" ");
  return (
    <section className="card chart" aria-label={title}>
      <div className="row between">
        <h2 style={{ fontSize: "1rem" }}>{title}</h2>
        <span className="row tight">
          {props.extra}
          <Tooltip label={isTable ? "View as chart" : "View as table"}>
            <ActionIcon variant="subtle" color="gray" onClick={() => setIsTable(!isTable)} aria-label={`${title}: view as ${isTable ? "chart" : "table"}`}>
              {isTable ? <GraphIcon size={16} /> : <TableIcon size={16} />}
            </ActionIcon>
          </Tooltip>
        </span>
      </div>
      <div className="chart-legend">
        {lines.map((line, index) => (
          <span key={line.series}>
            <Swatch index={index} />
            {line.label} <strong>{format(values[index])}</strong>
          </span>
        ))}
        {pointed && <span className="muted">at {clock(times[pointed.index]! * 1000)}</span>}
      </div>
      {isTable ? (
        <div className={`chart-table ${props.isTall ? "tall" : ""}`} tabIndex={0} role="region" aria-label={`${title} as a table`}>
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
                .slice(-TABLE_ROWS * (props.isTall ? 5 : 1))
                .reverse()
                .map(([time, index]) => (
                  <tr key={time}>
                    <td>{clock(time * 1000)}</td>
                    {columns.map((column, line) => (
                      <td className="num" key={lines[line]!.series}>
                        {format(column[index])}
                      </td>
                    ))}
                  </tr>
                ))}
            </tbody>
          </table>
        </div>
      ) : (
        <div className="chart-frame">
          <div ref={box} className={`chart-box ${props.isTall ? "tall" : ""}`} role="img" aria-label={`${title}, the last ten minutes. ${summary}`} />
          {columns.every((column) => column.every((value) => value === null)) && <span className="chart-note muted small">No data yet</span>}
          {pointed?.event && (
            <div className="chart-event small">
              {clock(pointed.event.time_ms)} {pointed.event.text}
            </div>
          )}
        </div>
      )}
    </section>
  );
}

export function Swatch({ index }: { index: number }) {
  return (
    <svg className="swatch" width={18} height={6} aria-hidden style={{ color: `var(${colour(index)})` }}>
      <line x1={0} y1={3} x2={18} y2={3} stroke="currentColor" strokeWidth={3} strokeDasharray={DASHES[index % DASHES.length]?.join(" ")} />
    </svg>
  );
}

function describe(label: string, values: (number | null)[], format: (value: number) => string): string {
  const numbers = values.filter((value) => value !== null);
  if (numbers.length === 0) return `${label}: no data yet.`;
  return `${label}: now ${format(numbers.at(-1)!)}, highest ${format(Math.max(...numbers))}.`;
}

/** A young cluster has little to show: its curve gets more room. */
function span(source: Source): number {
  return Math.min(WINDOW_MS, Math.max(YOUNG_MS, Date.now() - source.ring.firstTime));
}

function alone(values: ArrayLike<number | null | undefined>): number[] {
  const found: number[] = [];
  for (let index = 0; index < values.length; index += 1) if (values[index] != null && values[index - 1] == null && values[index + 1] == null) found.push(index);
  return found;
}

function nearest(plot: uPlot, left: number, events: ClusterEvent[]): ClusterEvent | null {
  let found: ClusterEvent | null = null;
  let best = NEAR_PX;
  for (const event of events) {
    const distance = Math.abs(plot.valToPos(event.time_ms / 1000, "x") - left);
    if (distance < best) [found, best] = [event, distance];
  }
  return found;
}

/** Warnings and elections as thin lines, so that a dip has its cause beside it. */
function drawMarks(plot: uPlot, events: ClusterEvent[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = 1;
  let last = Infinity;
  for (const event of events) {
    const x = plot.valToPos(event.time_ms / 1000, "x", true);
    // What happened at once is one mark.
    if (x < bbox.left || x > bbox.left + bbox.width || Math.abs(x - last) < NEAR_PX / 2) continue;
    last = x;
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
