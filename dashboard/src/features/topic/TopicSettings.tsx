import { Button, TextInput } from "@mantine/core";
import { PencilIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Confirm } from "../../components/Confirm";
import { ProblemBox } from "../../components/Page";
import { SettingsTable } from "../../components/SettingsTable";
import { call, path } from "../../lib/api";
import { client, useApi } from "../../lib/query";
import type { Page as Listed, Setting } from "../../lib/types";

export function TopicSettings({ topic }: { topic: string }) {
  const query = useApi<Listed<Setting>>(path`/topics/${topic}/settings`, 10);
  const [setting, setSetting] = useState<Setting | null>(null);
  const [value, setValue] = useState("");
  const change = async (body: { set?: Record<string, string>; unset?: string[] }) => {
    await call("PATCH", path`/topics/${topic}/settings`, body);
    await client.invalidateQueries();
  };
  return (
    <>
      {query.error && <ProblemBox error={query.error} />}
      <SettingsTable
        title="Settings"
        settings={query.data?.items ?? []}
        action={(each) =>
          each.read_only ? null : (
            <Button size="compact-xs" variant="subtle" leftSection={<PencilIcon size={12} />} aria-label={`Change ${each.name}`}
              onClick={() => {
                setSetting(each);
                setValue(each.value ?? "");
              }}>
              Change
            </Button>
          )
        }
      />
      <Confirm
        opened={setting !== null} onClose={() => setSetting(null)} title="Change a setting?" action="Change"
        run={() => change(value === "" ? { unset: [setting!.name] } : { set: { [setting!.name]: value } })}
      >
        <TextInput label={setting?.name} description={setting?.documentation} value={value} onChange={(event) => setValue(event.currentTarget.value)} mb="sm" data-autofocus />
        This changes <strong className="mono">{setting?.name}</strong> of topic <strong>{topic}</strong>, at once and on all nodes. An empty value goes back to the default.
      </Confirm>
    </>
  );
}
