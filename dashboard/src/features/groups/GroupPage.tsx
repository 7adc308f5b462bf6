import { Button, Tabs } from "@mantine/core";
import { HistoryIcon, TrashIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { Confirm } from "../../components/Confirm";
import { Letters } from "../../components/letters/Letters";
import { readLetters, writeLetters } from "../../components/letters/search";
import { Page } from "../../components/Page";
import { Banner, Pill, toneOfGroup } from "../../components/Status";
import { Tile } from "../../components/Tile";
import { call, path } from "../../lib/api";
import { count, duration, plural, quoted, rate, short } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { GroupDetail } from "../../lib/types";
import { GroupSettings } from "./GroupSettings";
import { isLeaseGroup, kindOf } from "./kinds";
import { LeasesPanel } from "./LeasesPanel";
import { MembersPanel } from "./MembersPanel";
import { ProgressPanel } from "./ProgressPanel";
import { ResetWizard } from "./ResetWizard";
import { useTrend, type Trend } from "./trend";

const COMMANDS: Record<string, (group: string) => string> = {
  progress: (group) => `drmq group lag ${group}`,
  members: (group) => `drmq group members ${group}`,
  leases: (group) => `drmq group leases ${group}`,
  letters: (group) => `drmq dlq show ${group}`,
  settings: (group) => `drmq group describe ${group} --all`,
};

export default function GroupPage() {
  const { group = "", tab: wanted = "progress" } = useParams();
  const query = useApi<GroupDetail>(path`/groups/${group}`, 2);
  const navigate = useNavigate();
  const [params, setParams] = useSearchParams();
  const [asked, setAsked] = useState<"" | "delete" | "reset">("");
  const found = query.data?.group.group_id === group ? query.data : undefined;
  const trend = useTrend(group, found, query.dataUpdatedAt);
  const isActive = (found?.members.length ?? 0) > 0;
  const isLease = found !== undefined && isLeaseGroup(found.group);
  const tab = wanted in COMMANDS && (isLease || wanted === "members") ? wanted : "progress";
  const letters = found?.group.dead_letter_topic ?? null;
  const go = (next: string | null) => void navigate(next === "progress" ? path`/groups/${group}` : path`/groups/${group}/${next ?? ""}`);
  return (
    <Page
      title={group} name={group} command={query.error && !found ? "drmq group ls" : COMMANDS[tab]?.(quoted(group))} query={query} up={<Link to="/groups">Groups</Link>}
      actions={found && (
        <>
          <Button variant="default" leftSection={<HistoryIcon size={16} />} onClick={() => setAsked("reset")}>Move</Button>
          <Button variant="default" leftSection={<TrashIcon size={16} />} onClick={() => setAsked("delete")} disabled={isActive}
            title={isActive ? "A group with members cannot be deleted" : undefined}>Delete</Button>
        </>
      )}
    >
      {found && (
        <>
          <div className="row" style={{ marginTop: -8 }}>
            <Pill tone="none">{kindOf(found.group)}</Pill>
            <Pill tone={toneOfGroup(found.group.state)}>{found.group.state}</Pill>
          </div>
          <StuckBanner detail={found} trend={trend} />
          <GroupTiles detail={found} trend={trend} />
          <Tabs value={tab} onChange={go} keepMounted={false}>
            <Tabs.List>
              <Tabs.Tab value="progress">Progress</Tabs.Tab>
              <Tabs.Tab value="members">Members</Tabs.Tab>
              {isLease && <Tabs.Tab value="leases">Leases</Tabs.Tab>}
              {isLease && <Tabs.Tab value="letters">Dead letters</Tabs.Tab>}
              {isLease && <Tabs.Tab value="settings">Settings</Tabs.Tab>}
            </Tabs.List>
            <Tabs.Panel value="progress" pt="md"><ProgressPanel detail={found} trend={trend} /></Tabs.Panel>
            <Tabs.Panel value="members" pt="md"><MembersPanel detail={found} /></Tabs.Panel>
            <Tabs.Panel value="leases" pt="md"><LeasesPanel group={group} detail={found} /></Tabs.Panel>
            <Tabs.Panel value="letters" pt="md">
              {letters === null ? (
                <Banner tone="warn">
                  <strong>This group keeps no dead letters.</strong> Records that it gives up are dropped: see{" "}
                  <Link to={path`/groups/${group}/settings`}>its settings</Link>.
                </Banner>
              ) : (
                <Letters topic={letters} group={group} search={{ ...readLetters(params), group }} onSearch={(next) => setParams(writeLetters({ ...next, group: "" }))} />
              )}
            </Tabs.Panel>
            <Tabs.Panel value="settings" pt="md"><GroupSettings group={group} /></Tabs.Panel>
          </Tabs>
        </>
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

function GroupTiles({ detail, trend }: { detail: GroupDetail; trend: Trend }) {
  const { group, members } = detail;
  const { forecast } = trend;
  const isStuck = forecast.kind === "stuck";
  const next =
    forecast.kind === "done" || forecast.kind === "pace" ? "now" : forecast.kind === "in" ? duration(forecast.ms) : isStuck ? "Stuck" : forecast.kind === "never" ? "never" : "–";
  const why =
    forecast.kind === "unknown" ? "measuring …" : trend.rates === null ? undefined : forecast.kind === "pace" ? "it keeps pace" : `${rate(trend.rates.done)}${forecast.kind === "never" ? ` of ${rate(trend.rates.arrived)}` : " done"}`;
  return (
    <div className="tiles">
      <Tile label="Lag in records" value={short(group.lag)} hint={group.lag === 0 ? "caught up" : "not done yet"} />
      <Tile label="Lag in time" value={group.lag === 0 ? "0 s" : duration(group.lag_ms)} hint="of the oldest" />
      <Tile label="Caught up in" value={next} hint={why} loud={isStuck} />
      <Tile label="Members" value={count(members.length)} hint={members.length === 0 ? "none is running" : "running"} />
      {isLeaseGroup(group) && (
        <>
          <Tile label="Leased now" value={count(group.held)} hint="with workers" to={path`/groups/${group.group_id}/leases`} />
          <Tile label="To be retried" value={count(group.parked)} hint="after a failure" />
          <Tile label="Dead letters" value={count(group.dead_letters)} hint={(group.dead_letters ?? 0) > 0 ? "waiting" : "none"} to={path`/groups/${group.group_id}/letters`} />
        </>
      )}
    </div>
  );
}

/** A group whose lag does not shrink although nothing moves: what it means, and what to do next. */
function StuckBanner({ detail, trend }: { detail: GroupDetail; trend: Trend }) {
  if (trend.forecast.kind !== "stuck") return null;
  const { members, group } = detail;
  return (
    <div role="status">
      <Banner tone="bad">
        <strong>Stuck:</strong> no position has moved for {duration(trend.forecast.forMs)}, and {plural(group.lag ?? 0, "record")} wait.{" "}
        {members.length === 0
          ? "The group has no members: start a consumer of this group."
          : isLeaseGroup(group) && (group.held ?? 0) > 0
            ? `Workers hold ${plural(group.held ?? 0, "record")} and acknowledge none: look at the leases.`
            : `${plural(members.length, "member")} ${members.length === 1 ? "is" : "are"} alive but commit nothing: look at what they do.`}
      </Banner>
    </div>
  );
}
