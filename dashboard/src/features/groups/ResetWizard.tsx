import { Button, Modal, Radio, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { CommandLine } from "../../components/CommandLine";
import { ProblemBox } from "../../components/Page";
import { Banner } from "../../components/Status";
import { call, path } from "../../lib/api";
import { count, plural, quoted } from "../../lib/format";
import { client } from "../../lib/query";
import type { GroupDetail, Page as Listed, ResetRow } from "../../lib/types";

/** Moves a group: choose a place, look at what would change, then do it. */
export function ResetWizard(props: { group: string; detail: GroupDetail | undefined; opened: boolean; onClose: () => void }) {
  const { group, detail } = props;
  const [kind, setKind] = useState("earliest");
  const [detailText, setDetailText] = useState("");
  const [rows, setRows] = useState<ResetRow[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const members = detail?.members.length ?? 0;
  useEffect(() => {
    setRows(null);
    setError(null);
  }, [props.opened, kind, detailText]);
  const to = kind === "earliest" || kind === "latest" ? kind : kind === "back" ? `-${detailText}` : kind === "time" ? `@${Date.parse(detailText)}` : detailText;
  const run = async (dryRun: boolean) => {
    setIsBusy(true);
    setError(null);
    try {
      const answer = await call<Listed<ResetRow>>("POST", path`/groups/${group}/reset`, { to, dry_run: dryRun });
      if (dryRun) setRows(answer.items);
      else {
        await client.invalidateQueries();
        props.onClose();
      }
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  const word = { earliest: "begin", latest: "end", back: `-${detailText || "N"}`, time: `@${detailText || "TIME"}`, offset: detailText || "OFFSET" }[kind] ?? "";
  return (
    <Modal opened={props.opened} onClose={props.onClose} title={`Move group ${group}`} size="lg" centered closeButtonProps={{ "aria-label": "Close" }}>
      <div className="stack">
        {members > 0 && (
          <Banner tone="warn">
            <strong>The group has {plural(members, "member")}.</strong> Stop its consumers first: they would go on at their own positions. A preview is possible.
          </Banner>
        )}
        <Radio.Group label="To" value={kind} onChange={setKind}>
          <div className="stack" style={{ gap: 8, marginTop: 8 }}>
            <Radio value="earliest" label="The beginning: everything is read again" />
            <Radio value="latest" label="The end: what is there now is skipped" />
            <Radio value="back" label="A number of records before the end" />
            <Radio value="time" label="The first record at or after a time" />
            <Radio value="offset" label="An offset, the same in all partitions" />
          </div>
        </Radio.Group>
        {kind !== "earliest" && kind !== "latest" && (
          <TextInput
            label={kind === "time" ? "Time" : kind === "back" ? "Records before the end of each partition" : "Offset"}
            placeholder={kind === "time" ? "2026-11-18 12:00" : "100"} value={detailText} onChange={(event) => setDetailText(event.currentTarget.value)}
          />
        )}
        {error !== null && <ProblemBox error={error} />}
        {rows && (
          <div className="table-scroll" style={{ maxHeight: 260 }} tabIndex={0} role="region" aria-label="What would change">
            <table className="table">
              <thead><tr><th scope="col">Partition</th><th scope="col" className="num">Now</th><th scope="col" className="num">Then</th><th scope="col" className="num">Change</th></tr></thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={`${row.topic}-${row.partition}`}>
                    <td>{row.topic}-{row.partition}</td>
                    <td className="num">{count(row.before)}</td>
                    <td className="num">{count(row.after)}</td>
                    <td className="num">{row.before === null ? "new" : row.after - row.before > 0 ? `+${count(row.after - row.before)}` : count(row.after - row.before)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        <CommandLine command={`drmq group reset ${quoted(group)} --to ${quoted(word)} --dry-run`} />
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <Button variant="default" onClick={props.onClose}>Cancel</Button>
          {rows === null ? (
            <Button loading={isBusy} onClick={() => void run(true)}>Preview</Button>
          ) : (
            <Button loading={isBusy} color="red.9" disabled={members > 0} onClick={() => void run(false)}>Move {plural(rows.length, "position")}</Button>
          )}
        </div>
      </div>
    </Modal>
  );
}
