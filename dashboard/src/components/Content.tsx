/** Keys, values and headers of a record as text. Markup in them has no effect. */
import type { ReactNode } from "react";
import type { RecordHeader } from "../lib/types";
import { CopyButton } from "./CommandLine";

/** `children` is another view of the same, which `extra` chooses. */
export function ContentPart(props: { name: string; text: string; isNull: boolean; format: string; extra?: ReactNode; children?: ReactNode }) {
  const { name, text, isNull, format } = props;
  return (
    <div>
      <div className="row between">
        <span className="row tight">
          <h2 style={{ fontSize: "1rem" }}>{name}</h2>
          <span className="pill">{format}</span>
        </span>
        <span className="row tight">
          {props.extra}
          {!isNull && <CopyButton text={text} label={`Copy the ${name.toLowerCase()}`} />}
        </span>
      </div>
      {isNull ? (
        <p className="muted" style={{ margin: "4px 0 0" }}>There is none.</p>
      ) : (
        props.children || <pre className="content mono" tabIndex={0} role="region" aria-label={name}>{text}</pre>
      )}
    </div>
  );
}

export function HeaderTable({ headers }: { headers: RecordHeader[] }) {
  return (
    <div>
      <h2 style={{ fontSize: "1rem" }}>Headers</h2>
      {headers.length === 0 ? (
        <p className="muted" style={{ margin: "4px 0 0" }}>None.</p>
      ) : (
        <table className="table wrap">
          <tbody>
            {headers.map((header, index) => (
              <tr key={index}>
                <th scope="row" className="mono">{header.name}</th>
                <td className="mono">{header.value ?? <em className="muted">null</em>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
