import { AlertFillIcon } from "@primer/octicons-react";
import type { ReactNode } from "react";
import { Link } from "react-router";

const LONG = 8;

/** One number with its name. A loud one has an icon and says so in words, too. */
export function Tile(props: { label: string; value: ReactNode; hint?: ReactNode; loud?: boolean; to?: string }) {
  const { label, value, hint, loud = false } = props;
  return (
    <div className={`tile ${loud ? "loud" : ""}`}>
      <div className="tile-label">
        {loud && <AlertFillIcon size={12} className="tone-bad" />} {props.to ? <Link to={props.to}>{label}</Link> : label}
      </div>
      <div className={`tile-value ${typeof value === "string" && value.length > LONG ? "long" : ""}`}>
        {value}
        {loud && <span className="visually-hidden"> (needs attention)</span>}
      </div>
      {hint && <div className="tile-hint">{hint}</div>}
    </div>
  );
}
