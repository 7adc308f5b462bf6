import { Button, Modal, NumberInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useNavigate } from "react-router";
import { CommandLine } from "../../components/CommandLine";
import { ProblemBox } from "../../components/Page";
import { call, path } from "../../lib/api";
import { quoted } from "../../lib/format";
import { useLive } from "../../lib/live";
import type { Topic } from "../../lib/types";

export function CreateTopic({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState<number | string>(3);
  const { overview } = useLive();
  const nodes = overview?.cluster.brokers_total ?? 1;
  const [replicas, setReplicas] = useState<number | string>("");
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const navigate = useNavigate();
  const client = useQueryClient();
  const chosen = replicas === "" ? Math.min(3, nodes) : Number(replicas);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      await call<Topic>("POST", "/topics", { name: name.trim(), partitions: Number(partitions), replicas: chosen });
      await client.invalidateQueries({ queryKey: ["/topics"] });
      void navigate(path`/topics/${name.trim()}`);
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  const command = `drmq topic create ${quoted(name.trim() || "NAME")} --partitions ${partitions} --replicas ${chosen}`;
  return (
    <Modal opened={opened} onClose={onClose} title="Create a topic" centered closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={(event) => void submit(event)} className="stack">
        <TextInput
          label="Name" description="Letters, digits, dot, dash and underscore" required value={name} data-autofocus
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <div className="row" style={{ alignItems: "flex-start" }}>
          <NumberInput label="Partitions" description="How many can be read at once" min={1} max={10_000} value={partitions} onChange={setPartitions} style={{ flex: "1 1 160px" }} />
          <NumberInput label="Replicas" description={`Copies, on ${nodes} nodes`} min={1} max={nodes} value={chosen} onChange={setReplicas} style={{ flex: "1 1 160px" }} />
        </div>
        {error !== null && <ProblemBox error={error} />}
        <CommandLine command={command} />
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <Button variant="default" onClick={onClose}>Cancel</Button>
          <Button type="submit" loading={isBusy} disabled={name.trim() === ""}>Create</Button>
        </div>
      </form>
    </Modal>
  );
}
