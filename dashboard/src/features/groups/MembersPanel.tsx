import { PeopleIcon } from "@primer/octicons-react";
import { DataTable, type Column } from "../../components/DataTable";
import { Card, Empty } from "../../components/Page";
import { count, quoted } from "../../lib/format";
import type { GroupDetail, Member } from "../../lib/types";
import { isLeaseGroup } from "./kinds";

const CHIPS = 12;

export function MembersPanel({ detail }: { detail: GroupDetail }) {
  const lag = new Map(detail.partitions.map((each) => [`${each.topic}-${each.partition}`, each.lag ?? 0]));
  const places = (member: Member) => member.assignments.map(([topic, index]) => `${topic}-${index}`);
  const lagOf = (member: Member) => places(member).reduce((sum, place) => sum + (lag.get(place) ?? 0), 0);
  const isLease = isLeaseGroup(detail.group);
  const columns: Column<Member>[] = [
    { name: "Client", sort: (each) => each.client_id, cell: (each) => each.client_id || <span className="muted">no name</span> },
    { name: "Address", sort: (each) => each.host, cell: (each) => <span className="mono">{each.host.replace(/^\//, "")}</span> },
    {
      name: "Partitions", sort: (each) => places(each).length,
      cell: (each) => (
        <span className="chips">
          {places(each).slice(0, CHIPS).map((place) => <span key={place} className="pill">{place}</span>)}
          {places(each).length > CHIPS && <span className="muted">and {places(each).length - CHIPS} more</span>}
        </span>
      ),
    },
    ...(isLease ? [] : [{ name: "Lag", right: true, sort: lagOf, cell: (each: Member) => count(lagOf(each)) }]),
    { name: "Member", sort: (each) => each.member_id, cell: (each) => <span className="mono muted" title={each.member_id}>{each.member_id.length > 28 ? `${each.member_id.slice(0, 27)}…` : each.member_id}</span> },
  ];
  return (
    <Card title="Members" flush>
      {detail.members.length === 0 ? (
        <Empty icon={PeopleIcon} title="No members" command={`drmq consume ${quoted(detail.partitions[0]?.topic ?? "orders")} --follow ${isLease ? "--lease " : ""}--group ${quoted(detail.group.group_id)}`}>
          Lag grows until a consumer of this group runs again.
        </Empty>
      ) : (
        <DataTable label="Members" columns={columns} rows={detail.members} rowKey={(each) => each.member_id} sortBy="Client" />
      )}
    </Card>
  );
}
