import { Button, Tabs } from "@mantine/core";
import { BroadcastIcon, TrashIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { Confirm } from "../../components/Confirm";
import { Page } from "../../components/Page";
import { Pill } from "../../components/Status";
import { ApiError, call, path } from "../../lib/api";
import { bytes, count, plural, quoted } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Topic } from "../../lib/types";
import { Consumers } from "./Consumers";
import { Messages } from "./Messages";
import { Partitions } from "./Partitions";
import { Produce } from "./Produce";
import { Throughput } from "./Throughput";
import { TopicSettings } from "./TopicSettings";

const COMMANDS: Record<string, (name: string) => string> = {
  messages: (name) => `drmq consume ${name} --from -10`,
  partitions: (name) => `drmq topic describe ${name}`,
  consumers: () => "drmq group ls --lag",
  throughput: (name) => `drmq offsets ${name}`,
  config: (name) => `drmq topic describe ${name}`,
};

export default function TopicPage() {
  const { topic = "", tab: wanted = "messages" } = useParams();
  const tab = wanted in COMMANDS || wanted === "produce" ? wanted : "messages";
  const navigate = useNavigate();
  const query = useApi<Topic>(path`/topics/${topic}`, 3);
  const [isDeleting, setIsDeleting] = useState(false);
  const found = query.data?.name === topic ? query.data : undefined;
  const isMissing = !found && query.error instanceof ApiError && query.error.problem.status === 404;
  const go = (next: string | null) => void navigate(next === "messages" ? path`/topics/${topic}` : path`/topics/${topic}/${next ?? ""}`);
  return (
    <Page
      title={topic} name={topic} query={query} command={isMissing ? "drmq topic ls" : COMMANDS[tab]?.(quoted(topic))} up={<Link to="/topics">Topics</Link>}
      actions={found && !found.is_internal && (
        <>
          <Button variant="default" leftSection={<BroadcastIcon size={16} />} component={Link} to={`/tail?topics=${encodeURIComponent(topic)}`}>Live tail</Button>
          <Button variant="default" leftSection={<TrashIcon size={16} />} onClick={() => setIsDeleting(true)}>Delete</Button>
        </>
      )}
    >
      {found && (
        <div className="row" style={{ marginTop: -8 }}>
          <Pill tone="none">{plural(found.partitions, "partition")}</Pill>
          <Pill tone="none">{plural(found.replicas, "replica")}</Pill>
          {!found.is_internal && <Pill tone="none">{plural(found.records, "record")}</Pill>}
          <Pill tone="none">{bytes(found.size_bytes)} on all nodes</Pill>
          {found.leaderless > 0 && <Pill tone="bad">{count(found.leaderless)} without leader</Pill>}
          {found.under_replicated > 0 && <Pill tone="warn">{count(found.under_replicated)} under-replicated</Pill>}
        </div>
      )}
      {!isMissing && <Tabs value={tab} onChange={go} keepMounted={false}>
        <Tabs.List>
          <Tabs.Tab value="messages">Messages</Tabs.Tab>
          <Tabs.Tab value="partitions">Partitions</Tabs.Tab>
          <Tabs.Tab value="consumers">Consumers</Tabs.Tab>
          <Tabs.Tab value="throughput">Throughput</Tabs.Tab>
          <Tabs.Tab value="config">Config</Tabs.Tab>
          <Tabs.Tab value="produce">Produce</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="messages" pt="md"><Messages topic={topic} partitions={found?.partitions ?? 0} /></Tabs.Panel>
        <Tabs.Panel value="partitions" pt="md"><Partitions topic={topic} /></Tabs.Panel>
        <Tabs.Panel value="consumers" pt="md"><Consumers topic={topic} /></Tabs.Panel>
        <Tabs.Panel value="throughput" pt="md"><Throughput topic={topic} /></Tabs.Panel>
        <Tabs.Panel value="config" pt="md"><TopicSettings topic={topic} /></Tabs.Panel>
        <Tabs.Panel value="produce" pt="md"><Produce topic={topic} partitions={found?.partitions ?? 0} /></Tabs.Panel>
      </Tabs>}
      <Confirm
        opened={isDeleting} onClose={() => setIsDeleting(false)} title="Delete this topic?" action="Delete the topic" danger repeat={topic}
        run={async () => {
          await call("DELETE", path`/topics/${topic}`);
          await navigate("/topics");
        }}
      >
        Topic <strong>{topic}</strong> with {plural(found?.records ?? 0, "record")} in {plural(found?.partitions ?? 0, "partition")} is deleted on all
        nodes. This cannot be undone. Groups lose their positions in it.
      </Confirm>
    </Page>
  );
}
