import { Button, Modal, NumberInput, Radio } from "@mantine/core";
import { useEffect, useState } from "react";
import { call, path } from "../../lib/api";
import { plural } from "../../lib/format";
import { client } from "../../lib/query";
import type { Letter, PurgeAnswer, PurgeRequest, RedriveAnswer, RedriveRequest } from "../../lib/types";
import { CommandLine } from "../CommandLine";
import { Confirm } from "../Confirm";
import { ProblemBox } from "../Page";
import { Banner } from "../Status";
import { isAll, letterCommand, letterFilter, type LetterSearch } from "./search";

function meant(search: LetterSearch): string {
  return Object.entries(letterFilter(search)).map(([name, value]) => `${name.replaceAll("_", " ")} “${value}”`).join(", ");
}

/** Asks how many letters are moved back, names where they go, and starts it. */
export function RedriveDialog(props: { opened: boolean; onClose: () => void; topic: string; search: LetterSearch; examples: Letter[] }) {
  const { topic, search } = props;
  const [amount, setAmount] = useState("all");
  const [limit, setLimit] = useState<number | string>(10);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [matching, setMatching] = useState<number | null>(null);
  useEffect(() => {
    if (!props.opened) return;
    setError(null);
    setMatching(null);
    const body: RedriveRequest = { filter: letterFilter(search), dry_run: true };
    call<RedriveAnswer>("POST", path`/dead-letters/${topic}/redrive`, body).then((answer) => setMatching(answer.matching), setError);
    // What matches is counted when the question is asked, not again and again.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [props.opened]);
  const targets = [...new Set(props.examples.map((each) => each.origin_topic))];
  const most = amount === "some" ? Number(limit) : null;
  const run = async () => {
    setIsBusy(true);
    setError(null);
    try {
      const body: RedriveRequest = { filter: letterFilter(search), max: most ?? 0 };
      await call<RedriveAnswer>("POST", path`/dead-letters/${topic}/redrive`, body);
      await client.invalidateQueries();
      props.onClose();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Modal opened={props.opened} onClose={props.onClose} title="Move dead letters back?" size="lg" centered closeButtonProps={{ "aria-label": "Close" }}>
      <div className="stack">
        <div>
          <span aria-live="polite">{matching === null ? "Letters" : <strong>{plural(matching, "letter")}</strong>}</span> of <strong>{topic}</strong>{isAll(search) ? "" : ` with ${meant(search)}`} {matching === 1 ? "goes" : "go"} back to{" "}
          <strong>{targets.slice(0, 4).join(", ")}{targets.length > 4 ? ` and ${targets.length - 4} more topics` : ""}</strong>, each exactly once, to the partition that it came from.
        </div>
        <Banner tone="warn">
          <strong>Every group that reads {targets.length === 1 ? "this topic" : "these topics"} sees the records again,</strong> not only the one that gave them up. Repair the cause first, or they come back here.
        </Banner>
        <Radio.Group label="How many" value={amount} onChange={setAmount}>
          <div className="stack" style={{ gap: 8, marginTop: 8 }}>
            <Radio value="all" label={isAll(search) ? "All letters that wait now" : "All letters that match now"} />
            <Radio value="some" label="A number of them, to try it" />
          </div>
        </Radio.Group>
        {amount === "some" && <NumberInput label="Letters, at most" min={1} max={1_000_000} allowDecimal={false} value={limit} onChange={setLimit} style={{ maxWidth: 200 }} />}
        {error !== null && <ProblemBox error={error} />}
        <CommandLine command={`${letterCommand("redrive", topic, search, most)} --dry-run`} />
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <Button variant="default" onClick={props.onClose}>Cancel</Button>
          <Button loading={isBusy} disabled={matching === 0 || (most !== null && !(most >= 1))} onClick={() => void run()}>
            {most === null ? (matching === null ? "Move them back" : `Move ${plural(matching, "letter")} back`) : `Move ${plural(most, "letter")} back`}
          </Button>
        </div>
      </div>
    </Modal>
  );
}

export function PurgeDialog(props: { opened: boolean; onClose: () => void; topic: string; search: LetterSearch }) {
  const { topic, search } = props;
  return (
    <Confirm
      opened={props.opened} onClose={props.onClose} title="Purge dead letters?" action="Purge for good" danger repeat={topic}
      run={async () => {
        const body: PurgeRequest = { filter: letterFilter(search) };
        await call<PurgeAnswer>("POST", path`/dead-letters/${topic}/purge`, body);
        await client.invalidateQueries();
      }}
    >
      <div className="stack">
        <div>
          {isAll(search) ? "All letters" : `The letters with ${meant(search)}`} of <strong>{topic}</strong> are given up for good: they are neither shown nor moved back any more.
          This cannot be undone.
        </div>
        <CommandLine command={`${letterCommand("purge", topic, search)} --dry-run`} />
      </div>
    </Confirm>
  );
}
