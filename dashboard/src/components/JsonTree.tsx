import { useState } from "react";

/** A number as it was written: JavaScript would round large ones. */
class Written {
  constructor(readonly text: string) {}
}

const CHILDREN_SHOWN = 100;

/** Reads JSON and keeps every digit; undefined if it is none. */
export function readTree(text: string): unknown {
  try {
    return (JSON.parse as (text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown) => unknown)(text, (_key, value, context) =>
      typeof value === "number" && context?.source !== undefined ? new Written(context.source) : value,
    );
  } catch {
    return undefined;
  }
}

/** JSON to open and close, branch by branch. Only what is open is drawn, so depth and size do no harm. */
export function JsonTree({ value }: { value: unknown }) {
  return (
    <div className="content mono tree" tabIndex={0} role="region" aria-label="Value as a tree">
      <Branch value={value} name={null} isOpen />
    </div>
  );
}

function Branch({ value, name, isOpen = false }: { value: unknown; name: string | null; isOpen?: boolean }) {
  const [open, setOpen] = useState(isOpen);
  const [limit, setLimit] = useState(CHILDREN_SHOWN);
  const label = name === null ? null : <span className="tree-name">{name}: </span>;
  if (value === null || typeof value !== "object" || value instanceof Written) return <div className="tree-leaf">{label}<Leaf value={value} /></div>;
  const isList = Array.isArray(value);
  const entries = Object.entries(value as Record<string, unknown>);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0) return <div className="tree-leaf">{label}{isList ? "[]" : "{}"}</div>;
  return (
    <div>
      <button type="button" className="tree-fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden>{open ? "▾" : "▸"}</span> {label}<span className="muted">{size}</span>
      </button>
      {open && (
        <div className="tree-children">
          {entries.slice(0, limit).map(([key, child]) => <Branch key={key} name={key} value={child} />)}
          {entries.length > limit && <button type="button" className="link" onClick={() => setLimit(limit + 1000)}>{entries.length - limit} more</button>}
        </div>
      )}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (value instanceof Written) return <span className="tree-number">{value.text}</span>;
  if (typeof value === "string") return <span className="tree-text">{JSON.stringify(value)}</span>;
  return <span className="tree-word">{String(value)}</span>;
}
