import { Button, Title } from "@mantine/core";
import { BeakerIcon, PlayIcon, PlugIcon, SkipIcon, StopIcon, UnlinkIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Chart } from "../../components/Chart";
import { Confirm } from "../../components/Confirm";
import { EventList, isFirstLeader, isMark } from "../../components/Events";
import { Card, Empty, Page } from "../../components/Page";
import { Banner, Pill, type Tone } from "../../components/Status";
import { ApiError, call, path } from "../../lib/api";
import { bytes, duration, milliseconds, percent, plural, rate } from "../../lib/format";
import { useLive } from "../../lib/live";
import { client, useApi } from "../../lib/query";
import type { Cluster, Lab, LabNode } from "../../lib/types";

type Verb = "kill" | "pause" | "resume" | "start" | "cut" | "heal";

const STATES: Record<string, { tone: Tone; word: string; offers: Verb[] }> = {
  running: { tone: "good", word: "Running", offers: ["kill", "pause", "cut"] },
  paused: { tone: "warn", word: "Paused", offers: ["resume", "kill"] },
  cut: { tone: "warn", word: "Cut off", offers: ["heal", "kill"] },
  dead: { tone: "bad", word: "Dead", offers: ["start"] },
};
const VERBS = {
  kill: { word: "Kill", icon: StopIcon, says: "Its process gets SIGKILL, as in a crash: nothing is written or said before it ends." },
  pause: { word: "Pause", icon: SkipIcon, says: "Its process gets SIGSTOP: it keeps its connections and answers nothing, like a machine that hangs." },
  resume: { word: "Resume", icon: PlayIcon, says: "The process goes on where it was stopped." },
  start: { word: "Start", icon: PlayIcon, says: "The node starts again with its data, and catches up." },
  cut: { word: "Cut off", icon: UnlinkIcon, says: "The other nodes and this one no longer reach each other; clients still reach it." },
  heal: { word: "Heal", icon: PlugIcon, says: "The nodes reach each other again." },
} as const;
const TONES: Record<Cluster["status"], Tone> = { healthy: "good", degraded: "warn", down: "bad" };
const MESSAGES = [{ series: "produce_rate", label: "Produced" }, { series: "consume_rate", label: "Consumed" }];
const LATENCY = [{ series: "produce_p99_ms", label: "p99" }, { series: "produce_p50_ms", label: "p50" }];

/** Kill, pause or cut off a local node, and watch what the cluster does. */
export default function LabPage() {
  const query = useApi<Lab>("/lab", 2);
  const { overview } = useLive();
  const [asked, setAsked] = useState<{ node: LabNode; verb: Verb } | null>(null);
  const isOff = query.data?.enabled === false || (query.error instanceof ApiError && [403, 404].includes(query.error.problem.status));
  const marks = (overview?.events ?? []).filter(isMark);
  const question = asked && VERBS[asked.verb];
  if (isOff) {
    return (
      <Page title="Fault lab" name="Fault lab">
        <section className="card">
          <Empty icon={BeakerIcon} title="The fault lab is off" command="drmq up --nodes 3 --lab" isLocal>
            Here you can kill, pause or cut off a node of a local cluster, and watch that nothing is lost. It is offered on the loopback interface only, by a cluster that was started with this option.
          </Empty>
        </section>
      </Page>
    );
  }
  return (
    <Page title="Fault lab" name="Fault lab" command="drmq node ls" isLocal query={query}>
      {overview && (
        <Banner tone={TONES[overview.cluster.status]}>
          <strong>{overview.cluster.status.replace(/^./, (each) => each.toUpperCase())}:</strong> {overview.cluster.reason}.
        </Banner>
      )}
      <div className="lab">
        {(query.data?.nodes ?? []).map((node) => {
          const state = STATES[node.state] ?? { tone: "none" as const, word: node.state, offers: [] };
          const broker = overview?.brokers.find((each) => each.node_id === node.node_id);
          return (
            <section key={node.node_id} className="card lab-node" aria-label={`Node ${node.node_id}`}>
              <div className="row between">
                <Title order={2}>Node {node.node_id}</Title>
                <Pill tone={state.tone}>{state.word}</Pill>
              </div>
              <p className="small muted" style={{ margin: "6px 0 14px", flex: 1 }}>
                {node.is_self && "It serves this page, which moves on without it. "}
                {broker?.is_controller && "It is the controller. "}
                {broker?.is_up && node.state === "running" && `Leads ${plural(broker.leaders ?? 0, "partition")}, up for ${duration(broker.uptime_ms)}, ${percent(broker.cpu_share)} of a core, ${bytes(broker.resident_bytes)}.`}
              </p>
              <div className="row">
                {state.offers.map((verb) => {
                  const { icon: Found, word } = VERBS[verb];
                  return <Button key={verb} size="xs" variant="default" leftSection={<Found size={14} />} onClick={() => setAsked({ node, verb })} aria-label={`${word} node ${node.node_id}`}>{word}</Button>;
                })}
              </div>
            </section>
          );
        })}
      </div>
      <div className="grid-2">
        <Chart title="Messages" lines={MESSAGES} format={(value) => rate(value)} events={marks} />
        <Chart title="Latency of produce requests" lines={LATENCY} format={milliseconds} events={marks} />
      </div>
      <Card title="Last events" flush>
        <EventList events={(overview?.events ?? []).filter((each) => !isFirstLeader(each)).slice(0, 12)} />
      </Card>
      <Confirm
        opened={asked !== null} onClose={() => setAsked(null)} title={asked && question ? `${question.word} node ${asked.node.node_id}?` : ""} action={question?.word ?? ""} danger={asked?.verb === "kill"}
        run={async () => {
          await call("POST", path`/lab/${asked!.node.node_id}/${asked!.verb}`);
          await client.invalidateQueries();
        }}
      >
        {question?.says}
      </Confirm>
    </Page>
  );
}
