import { SegmentedControl, TextInput } from "@mantine/core";
import { LogIcon, SearchIcon } from "@primer/octicons-react";
import { useState } from "react";
import { EventList } from "../../components/Events";
import { Empty, Page } from "../../components/Page";
import { useApi } from "../../lib/query";
import type { ClusterEvent, Page as Listed } from "../../lib/types";

export default function EventsPage() {
  const [level, setLevel] = useState("info");
  const [text, setText] = useState("");
  const query = useApi<Listed<ClusterEvent>>(`/events?limit=500&level=${level}`, 3);
  const wanted = text.trim().toLowerCase();
  const rows = (query.data?.items ?? []).filter((each) => `${each.text} node ${each.node_id} ${each.source}`.toLowerCase().includes(wanted));
  return (
    <Page title="Events" name="Events" command="drmq status --watch" query={query}>
      <section className="card flush" aria-label="Events of all nodes">
        <div className="card-head">
          <TextInput
            aria-label="Find in events" placeholder="Find text, a node or a source" leftSection={<SearchIcon size={14} />} value={text} data-search
            onChange={(event) => setText(event.currentTarget.value)} style={{ flex: "1 1 200px", maxWidth: 360 }}
          />
          <SegmentedControl
            aria-label="Level" value={level} onChange={setLevel}
            data={[{ value: "info", label: "All" }, { value: "warning", label: "Warnings and errors" }]}
          />
        </div>
        {query.data && rows.length === 0 ? (
          <Empty icon={LogIcon} title={level === "warning" ? "No warnings" : "No such events"}>
            Elections, joins, changes of settings and failures appear here, from the last 1,000 events of each node.
          </Empty>
        ) : (
          <EventList events={rows} />
        )}
      </section>
    </Page>
  );
}
