import { MailIcon } from "@primer/octicons-react";
import { Link } from "react-router";
import { Bar } from "../../components/Bar";
import { DataTable, type Column } from "../../components/DataTable";
import { Empty, Page, useNow } from "../../components/Page";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { count, duration } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { LetterTopic, Page as Listed } from "../../lib/types";

export default function LetterTopicsPage() {
  const query = useApi<Listed<LetterTopic>>("/dead-letters", 3);
  const now = useNow(5000);
  const rows = query.data?.items ?? [];
  const most = Math.max(1, ...rows.map((each) => each.waiting));
  const columns: Column<LetterTopic>[] = [
    { name: "Topic", sort: (each) => each.topic, cell: (each) => <Link to={path`/dead-letters/${each.topic}`}>{each.topic}</Link> },
    { name: "Waiting", sort: (each) => each.waiting, cell: (each) => <Bar share={each.waiting / most} text={count(each.waiting)} tone={each.waiting > 0 ? "warn" : ""} /> },
    {
      name: "Groups",
      cell: (each) => (each.groups.length === 0 ? <span className="muted">–</span> : each.groups.map((group, index) => (
        <span key={group}>{index > 0 && ", "}<Link to={path`/groups/${group}/letters`}>{group}</Link></span>
      ))),
    },
    { name: "Oldest failed", right: true, sort: (each) => each.oldest?.last_failed_ms ?? null, cell: (each) => (each.oldest === null ? "–" : `${duration(now - each.oldest.last_failed_ms)} ago`) },
    { name: "Last reason", sort: (each) => each.newest?.reason ?? null, cell: (each) => <span className="reason">{each.newest?.reason ?? "–"}</span> },
    { name: "Redrive", cell: (each) => (each.redrive === null ? <span className="muted">never</span> : <Pill tone={each.redrive.state === "running" ? "warn" : "none"}>{each.redrive.state}</Pill>) },
  ];
  return (
    <Page title="Dead letters" name="Dead letters" command="drmq dlq ls" query={query}>
      <section className="card flush" aria-label="Topics with dead letters">
        {query.data && rows.length === 0 ? (
          <Empty icon={MailIcon} title="No dead letters" command="drmq consume orders --lease --group billing">
            A lease group gives a record up when a worker rejects it, or when it failed too often. It keeps waiting here, with its reason, until it is moved back or purged.
          </Empty>
        ) : (
          <DataTable label="Topics with dead letters" columns={columns} rows={rows} rowKey={(each) => each.topic} sortBy="Waiting" descending />
        )}
      </section>
    </Page>
  );
}
