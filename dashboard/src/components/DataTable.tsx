import { useVirtualizer } from "@tanstack/react-virtual";
import { TriangleDownIcon, TriangleUpIcon } from "@primer/octicons-react";
import { useMemo, useRef, useState, type ReactNode } from "react";
import { usePrefs } from "../lib/prefs";

export interface Column<T> {
  name: string;
  head?: ReactNode;
  cell: (row: T) => ReactNode;
  sort?: (row: T) => string | number | null;
  right?: boolean;
}

const VIRTUAL_FROM = 120;
const COLLATOR = new Intl.Collator("en", { numeric: true });

/** A table that sorts by its heads. A long one only draws the rows that are seen. */
export function DataTable<T>(props: {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  sortBy?: string;
  descending?: boolean;
}) {
  const [order, setOrder] = useState<{ by: string | undefined; down: boolean }>({ by: props.sortBy, down: props.descending ?? false });
  const box = useRef<HTMLDivElement>(null);
  const { density } = usePrefs();
  const rows = useMemo(() => {
    const key = props.columns.find((each) => each.name === order.by)?.sort;
    if (!key) return props.rows;
    const sign = order.down ? -1 : 1;
    return [...props.rows].sort((left, right) => sign * compare(key(left), key(right)));
  }, [props.rows, props.columns, order]);
  const isLong = rows.length > VIRTUAL_FROM;
  const virtual = useVirtualizer({
    count: rows.length,
    enabled: isLong,
    getScrollElement: () => box.current,
    estimateSize: () => (density === "compact" ? 37 : 47),
    overscan: 8,
  });
  const shown = isLong ? virtual.getVirtualItems() : [];
  const above = shown[0]?.start ?? 0;
  const below = isLong ? virtual.getTotalSize() - (shown.at(-1)?.end ?? 0) : 0;
  const render = (row: T) => (
    <tr key={props.rowKey(row)}>
      {props.columns.map((column) => (
        <td key={column.name} className={column.right ? "num" : undefined}>
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
  return (
    <div
      className="table-scroll"
      ref={box}
      style={isLong ? { maxHeight: "70vh" } : undefined}
      tabIndex={0}
      role="region"
      aria-label={props.label}
    >
      <table className="table" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {props.columns.map((column) => {
              const isSorted = order.by === column.name && column.sort;
              return (
                <th
                  key={column.name}
                  scope="col"
                  className={column.right ? "num" : undefined}
                  aria-sort={isSorted ? (order.down ? "descending" : "ascending") : undefined}
                >
                  {column.sort ? (
                    <button className="sort" onClick={() => setOrder({ by: column.name, down: isSorted ? !order.down : false })}>
                      {column.head ?? column.name}
                      {isSorted && (order.down ? <TriangleDownIcon size={12} /> : <TriangleUpIcon size={12} />)}
                    </button>
                  ) : (
                    (column.head ?? column.name)
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {above > 0 && <tr aria-hidden style={{ height: above }}><td className="spacer" colSpan={props.columns.length} /></tr>}
          {isLong ? shown.map((item) => render(rows[item.index]!)) : rows.map(render)}
          {below > 0 && <tr aria-hidden style={{ height: below }}><td className="spacer" colSpan={props.columns.length} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

function compare(left: string | number | null, right: string | number | null): number {
  if (left === right) return 0;
  if (left === null) return -1;
  if (right === null) return 1;
  if (typeof left === "string" && typeof right === "string") return COLLATOR.compare(left, right);
  return left < right ? -1 : 1;
}
