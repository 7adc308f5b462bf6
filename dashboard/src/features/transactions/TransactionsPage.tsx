import { ArrowSwitchIcon } from "@primer/octicons-react";
import { Link } from "react-router";
import { DataTable, type Column } from "../../components/DataTable";
import { Empty, Page, useNow } from "../../components/Page";
import { Tile } from "../../components/Tile";
import { path } from "../../lib/api";
import { count, duration } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Transaction, Transactions } from "../../lib/types";

/** Transactions that are open, and what they hold back. */
export default function TransactionsPage() {
  const query = useApi<Transactions>("/transactions", 2);
  const now = useNow(2000);
  const rows = query.data?.items ?? [];
  const columns: Column<Transaction>[] = [
    { name: "Producer", sort: (each) => each.producer_id, cell: (each) => <span className="mono">{each.producer_id}</span> },
    { name: "Epoch", right: true, sort: (each) => each.producer_epoch, cell: (each) => each.producer_epoch },
    { name: "Partition", sort: (each) => `${each.topic}-${each.partition}`, cell: (each) => <Link to={path`/topics/${each.topic}/partitions`}>{each.topic}-{each.partition}</Link> },
    { name: "Holds back from", right: true, sort: (each) => each.start_offset, cell: (each) => count(each.start_offset) },
    { name: "Last written", right: true, sort: (each) => each.last_ms, cell: (each) => `${duration(now - each.last_ms)} ago` },
  ];
  return (
    <Page title="Transactions" name="Transactions" command={rows.length > 0 ? "drmq topic ls" : undefined} query={query}>
      {rows.length > 0 && (
        <div className="tiles">
          <Tile label="Open" value={count(rows.length)} />
          <Tile label="Oldest" value={duration(now - Math.min(...rows.map((each) => each.last_ms)))} hint="since it last wrote" />
        </div>
      )}
      <section className="card flush" aria-label="Open transactions">
        {query.data && rows.length === 0 ? (
          <Empty icon={ArrowSwitchIcon} title="No open transaction" command="drmq cluster features">
            {query.data.note ? query.data.note.replace(/^./, (each) => each.toUpperCase()).replace(/\.?$/, ".") : "A transaction writes to several partitions at once, or to none. One that is open holds back what comes after it."}
          </Empty>
        ) : (
          <DataTable label="Open transactions" columns={columns} rows={rows} rowKey={(each) => `${each.topic}-${each.partition}-${each.producer_id}`} />
        )}
      </section>
    </Page>
  );
}
