import { Button, Progress } from "@mantine/core";
import { SquareFillIcon } from "@primer/octicons-react";
import { useState } from "react";
import { call, path } from "../../lib/api";
import { count, duration, plural } from "../../lib/format";
import { client } from "../../lib/query";
import type { Redrive } from "../../lib/types";
import { Card, ProblemBox, useNow } from "../Page";
import { Pill, type Tone } from "../Status";

export function isRunning(redrive: Redrive | null): boolean {
  return redrive !== null && (redrive.state === "running" || redrive.state === "stopping");
}

const TONES: Record<string, Tone> = { running: "none", stopping: "warn", finished: "good", stopped: "warn" };

/** How the redrive that runs or ran last goes, with a button to stop it. */
export function RedriveProgress({ topic, redrive, waiting }: { topic: string; redrive: Redrive; waiting: number }) {
  const now = useNow();
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const runs = isRunning(redrive);
  const seen = redrive.redriven + redrive.skipped + redrive.failed;
  const total = redrive.count_max > 0 ? Math.min(redrive.count_max, seen + waiting) : seen + waiting;
  const share = runs ? (total === 0 ? 0 : Math.min(1, seen / total)) : 1;
  const stop = async () => {
    setIsBusy(true);
    setError(null);
    try {
      await call("DELETE", path`/dead-letters/${topic}/redrive`);
      await client.invalidateQueries();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Card
      title={runs ? "Redrive" : "Last redrive"}
      extra={
        <span className="row">
          <Pill tone={redrive.failed > 0 ? "warn" : (TONES[redrive.state] ?? "none")}>{redrive.state}</Pill>
          {runs && <Button size="xs" variant="default" leftSection={<SquareFillIcon size={12} />} loading={isBusy} disabled={redrive.state === "stopping"} onClick={() => void stop()}>Stop</Button>}
        </span>
      }
    >
      <div className="stack" style={{ gap: 10 }} aria-live="polite">
        <Progress value={share * 100} animated={runs} aria-label="Letters that the redrive has looked at" color={redrive.failed > 0 ? "orange.8" : undefined} />
        <span>
          <strong>{plural(redrive.redriven, "letter")} moved back</strong>
          {redrive.skipped > 0 && `, ${count(redrive.skipped)} did not match`}
          {redrive.failed > 0 && `, ${count(redrive.failed)} could not be moved`}. {runs ? "Running for" : "It took"}{" "}
          {duration((redrive.ended_ms ?? now) - redrive.started_ms)}{!runs && redrive.ended_ms !== null && `, and ended ${duration(now - redrive.ended_ms)} ago`}.
        </span>
        {redrive.filter && <span className="small muted">Only letters with <span className="mono">{redrive.filter}</span>{redrive.count_max > 0 && `, at most ${count(redrive.count_max)}`}</span>}
        {redrive.reason && <Pill tone="warn">{redrive.reason}</Pill>}
        {error !== null && <ProblemBox error={error} />}
      </div>
    </Card>
  );
}
