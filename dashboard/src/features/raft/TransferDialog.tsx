import { Button, Modal, Radio } from "@mantine/core";
import { useEffect, useState } from "react";
import { CommandLine } from "../../components/CommandLine";
import { ProblemBox } from "../../components/Page";
import { Banner } from "../../components/Status";
import { call, path } from "../../lib/api";
import { count, quoted } from "../../lib/format";
import { client } from "../../lib/query";
import type { RaftGroup, Transfer } from "../../lib/types";

/** Moves the leadership of one partition to another replica. A replica that gets in sync meanwhile can be chosen. */
export function TransferDialog({ group, onClose }: { group: RaftGroup | null; onClose: () => void }) {
  const [shown, setShown] = useState<RaftGroup | null>(null);
  const [to, setTo] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [done, setDone] = useState<Transfer | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    // The last one stays while the dialog fades out.
    if (group !== null) setShown(group);
  }, [group]);
  useEffect(() => {
    if (group === null) return;
    const other = group.replicas.find((each) => each.node_id !== group.leader && group.in_sync.includes(each.node_id));
    setTo(String(other?.node_id ?? ""));
    setDone(null);
    setError(null);
    // The list is asked for again every few seconds: what was chosen and answered stays.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [group?.topic, group?.partition]);
  const run = async () => {
    setIsBusy(true);
    setError(null);
    try {
      setDone(await call<Transfer>("POST", path`/raft/${shown!.topic}/${shown!.partition}/transfer`, { to: Number(to) }));
      await client.invalidateQueries();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Modal opened={group !== null} onClose={onClose} title="Move the leadership?" centered closeButtonProps={{ "aria-label": "Close" }}>
      {shown && (
        <div className="stack">
          <div>
            <strong>{shown.topic}-{shown.partition}</strong> is led by {shown.leader === null ? "nobody" : `node ${shown.leader}`} in term {count(shown.term)}. The new leader also becomes the preferred one. Clients
            find it by themselves, and nothing is lost.
          </div>
          {!done && (
            <Radio.Group label="To" value={to} onChange={setTo}>
              <div className="stack" style={{ gap: 8, marginTop: 8 }}>
                {shown.replicas.filter((each) => each.node_id !== shown.leader).map((each) => (
                  <Radio key={each.node_id} value={String(each.node_id)} disabled={!shown.in_sync.includes(each.node_id)}
                    label={`Node ${each.node_id}${shown.in_sync.includes(each.node_id) ? `, ${count(each.lag)} behind` : ", not in sync"}`} />
                ))}
              </div>
            </Radio.Group>
          )}
          {error !== null && <ProblemBox error={error} />}
          <div aria-live="polite">
            {done && <Banner tone="good"><strong>{done.moved ? "Moved" : "Nothing to do"}:</strong> node {done.leader} leads in term {count(done.term)}.</Banner>}
          </div>
          <CommandLine command={`drmq raft transfer ${quoted(shown.topic)} ${shown.partition} --to ${to || "NODE"}`} />
          <div className="row" style={{ justifyContent: "flex-end" }}>
            <Button variant="default" onClick={onClose}>{done ? "Close" : "Cancel"}</Button>
            {!done && <Button loading={isBusy} disabled={to === ""} onClick={() => void run()}>Move to node {to}</Button>}
          </div>
        </div>
      )}
    </Modal>
  );
}
