import { Title } from "@mantine/core";
import { AlertIcon, ClockIcon, type Icon } from "@primer/octicons-react";
import type { UseQueryResult } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";
import { ApiError } from "../lib/api";
import { duration } from "../lib/format";
import { CommandLine } from "./CommandLine";
import { Prose } from "./Prose";
import { Banner } from "./Status";

/** The frame of a page: its name, the age of its data, its actions, and the command that prints the same. */
export function Page(props: {
  title: ReactNode;
  name: string;
  command?: string;
  /** The command is about this machine, so it needs no address. */
  isLocal?: boolean;
  query?: UseQueryResult<unknown>;
  /** When live data arrived last, on a page without a query. */
  updatedAt?: number;
  actions?: ReactNode;
  /** A link to the list that this is one of. */
  up?: ReactNode;
  children: ReactNode;
}) {
  useEffect(() => {
    document.title = `${props.name} · DRMQ`;
  }, [props.name]);
  return (
    <div className="page">
      <div className="row between" style={{ rowGap: 12 }}>
        <div className="row" style={{ gap: 12, minWidth: 0 }}>
          {props.up && <span className="up">{props.up}<span aria-hidden> /</span></span>}
          <Title order={1} className="page-title">{props.title}</Title>
          {(props.query ?? props.updatedAt) && <Age at={props.query?.dataUpdatedAt ?? props.updatedAt ?? 0} />}
        </div>
        {props.actions && <div className="row">{props.actions}</div>}
      </div>
      {props.query?.error && <ProblemBox error={props.query.error} />}
      {props.children}
      {props.command && (
        <section aria-label="The same in a terminal">
          <CommandLine command={props.command} isLocal={props.isLocal} />
        </section>
      )}
    </div>
  );
}

export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** How old the numbers are. Old ones say so. */
export function Age({ at }: { at: number }) {
  const now = useNow();
  if (at === 0) return null;
  const age = Math.max(0, now - at);
  const isOld = age > 20_000;
  return (
    <span className={`row tight small ${isOld ? "tone-warn" : "muted"}`}>
      {isOld ? <AlertIcon size={14} /> : <ClockIcon size={14} />}
      {age < 10_000 ? "up to date" : `${isOld ? "old: " : ""}${duration(age)} ago`}
    </span>
  );
}

export function ProblemBox({ error }: { error: unknown }) {
  if (!(error instanceof ApiError)) {
    return (
      <Banner tone="bad">
        <strong>Something went wrong.</strong> {String(error)}
      </Banner>
    );
  }
  const { title, detail, code, advice } = error.problem;
  return (
    <div role="alert">
      <Banner tone="bad">
        <strong>{title}.</strong> <Prose text={detail.charAt(0).toUpperCase() + detail.slice(1)} />
        {code && <span className="mono muted"> {code}</span>}
        {advice && <div className="small" style={{ marginTop: 4 }}><Prose text={advice} /></div>}
      </Banner>
    </div>
  );
}

export function Empty(props: { icon: Icon; title: string; children?: ReactNode; command?: string; isLocal?: boolean; action?: ReactNode }) {
  const Found = props.icon;
  return (
    <div className="empty">
      <Found size={32} aria-hidden />
      <strong>{props.title}</strong>
      {props.children && <p>{props.children}</p>}
      {props.action}
      {props.command && <CommandLine command={props.command} isLocal={props.isLocal} />}
    </div>
  );
}

export function Card(props: { title: string; extra?: ReactNode; children: ReactNode; flush?: boolean }) {
  return (
    <section className={props.flush ? "card flush" : "card"} aria-label={props.title}>
      <div className="card-head" style={props.flush ? undefined : { padding: "0 0 12px" }}>
        <Title order={2}>{props.title}</Title>
        {props.extra}
      </div>
      {props.children}
    </section>
  );
}
