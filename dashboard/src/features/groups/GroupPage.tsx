import { Button } from "@mantine/core";
import { HistoryIcon, PeopleIcon, TrashIcon } from "@primer/octicons-react";
import { useEffect, useRef, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { Bar } from "../../components/Bar";
import { Confirm } from "../../components/Confirm";
import { DataTable, type Column } from "../../components/DataTable";
import { Card, Empty, Page } from "../../components/Page";
import { Pill, toneOfGroup } from "../../components/Status";
import { call, path } from "../../lib/api";
import { count, duration, plural, quoted, short } from "../../lib/format";
import { forecast, type LagPoint } from "../../lib/lag";
import { useApi } from "../../lib/query";
import type { GroupDetail, GroupPartition, Member } from "../../lib/types";
import { ResetWizard } from "./ResetWizard";

export default function GroupPage() {
  const { group = "" } = useParams();
  const query = useApi<GroupDetail>(path`/groups/${group}`, 2);
  const navigate = useNavigate();
  const [asked, setAsked] = useState<"" | "delete" | "reset">("");
  const found = query.data;
  const trend = useTrend(found);
  const isActive = (found?.members.length ?? 0) > 0;
  const most = Math.max(1, ...(found?.partitions ?? []).map((each) => each.lag ?? 0));
  const partitions: Column<GroupPartition>[] = [
    { name: "Topic", sort: (each) => each.topic, cell: (each) => <Link to={path`/topics/${each.topic}`}>{each.topic}</Link> },
    { name: "Partition", right: true, sort: (each) => each.partition, cell: (each) => each.partition },
    { name: "Position", right: true, sort: (each) => each.committed, cell: (each) => count(each.committed) },
    { name: "End", right: true, sort: (each) => each.end_offset, cell: (each) => count(each.end_offset) },
    { name: "Lag", sort: (each) => each.lag, cell: (each) => (each.lag === null ? "–" : <Bar share={each.lag / most} text={count(each.lag)} />) },
    { name: "Member", cell: (each) => <span className="mono muted">{each.member === null ? "nobody" : short12(each.member)}</span> },
  ];
  const members: Column<Member>[] = [
    { name: "Member", sort: (each) => each.member_id, cell: (each) => <span className="mono">{each.member_id}</span> },
    { name: "Client", cell: (each) => each.client_id },
    { name: "Address", cell: (each) => <span className="mono">{each.host}</span> },
    { name: "Partitions", right: true, sort: (each) => each.assignments.length, cell: (each) => <span title={each.assignments.map(([topic, index]) => `${topic}-${index}`).join(", ")}>{each.assignments.length}</span> },
  ];
  return (
    <Page
      title={group} name={group} command={`drmq group describe ${quoted(group)}`} query={query}
      actions={
        <>
          <Button variant="default" leftSection={<HistoryIcon size={16} />} onClick={() => setAsked("reset")}>Move</Button>
          <Button variant="default" leftSection={<TrashIcon size={16} />} onClick={() => setAsked("delete")} disabled={isActive}
            title={isActive ? "A group with members cannot be deleted" : undefined}>Delete</Button>
        </>
      }
    >
      {found && (
        <div className="tiles">
          <div className="tile"><div className="tile-label">State</div><div style={{ marginTop: 6 }}><Pill tone={toneOfGroup(found.group.state)}>{found.group.state}</Pill></div></div>
          <div className="tile"><div className="tile-label">Members</div><div className="tile-value">{found.members.length}</div></div>
          <div className="tile"><div className="tile-label">Lag in records</div><div className="tile-value">{short(found.group.lag)}</div></div>
          <div className="tile"><div className="tile-label">Caught up in</div><div className="tile-value">{trend}</div></div>
        </div>
      )}
      {found && (
        <Card title="Positions" flush>
          {found.partitions.length === 0 ? (
            <Empty icon={PeopleIcon} title="No positions yet">The group has not committed an offset, and has no partitions.</Empty>
          ) : (
            <DataTable label="Positions" columns={partitions} rows={found.partitions} rowKey={(each) => `${each.topic}-${each.partition}`} />
          )}
        </Card>
      )}
      {found && (
        <Card title="Members" flush>
          {found.members.length === 0 ? (
            <Empty icon={PeopleIcon} title="Nobody reads now" command={`drmq consume ${quoted(found.partitions[0]?.topic ?? "orders")} --follow --group ${quoted(group)}`}>
              Lag grows until a consumer of this group runs again.
            </Empty>
          ) : (
            <DataTable label="Members" columns={members} rows={found.members} rowKey={(each) => each.member_id} />
          )}
        </Card>
      )}
      <ResetWizard group={group} detail={found} opened={asked === "reset"} onClose={() => setAsked("")} />
      <Confirm
        opened={asked === "delete"} onClose={() => setAsked("")} title="Delete this group?" action="Delete the group" danger repeat={group}
        run={async () => {
          await call("DELETE", path`/groups/${group}`);
          await navigate("/groups");
        }}
      >
        Group <strong>{group}</strong> and its positions in {plural(found?.partitions.length ?? 0, "partition")} are deleted. Consumers that come back begin anew.
      </Confirm>
    </Page>
  );
}

function short12(text: string): string {
  return text.length > 24 ? `${text.slice(0, 23)}…` : text;
}

/** How long it takes to catch up, from the change of lag while the page is open. */
function useTrend(found: GroupDetail | undefined): string {
  const points = useRef<LagPoint[]>([]);
  const [text, setText] = useState("–");
  useEffect(() => {
    if (!found || found.group.lag === null) return;
    const done = found.partitions.reduce((sum, each) => sum + (each.committed ?? 0), 0);
    points.current = [...points.current.slice(-59), { atMs: Date.now(), lag: found.group.lag, done }];
    const result = forecast(points.current);
    setText(result.kind === "done" ? "now" : result.kind === "in" ? duration(result.ms) : result.kind === "stuck" ? "stuck" : result.kind === "never" ? "not at this rate" : "–");
  }, [found]);
  return text;
}
