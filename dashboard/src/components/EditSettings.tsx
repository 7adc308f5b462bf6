import { Button, TextInput } from "@mantine/core";
import { PencilIcon } from "@primer/octicons-react";
import { useState, type ReactNode } from "react";
import { call } from "../lib/api";
import { client, useApi } from "../lib/query";
import type { Page as Listed, Setting, SettingsChange } from "../lib/types";
import { Confirm } from "./Confirm";
import { ProblemBox } from "./Page";
import { SettingsTable } from "./SettingsTable";

/** Settings of a topic or a group, each with a question before it is changed. `of` names what they belong to. */
export function EditSettings({ at, of }: { at: string; of: ReactNode }) {
  const query = useApi<Listed<Setting>>(at, 10);
  const [setting, setSetting] = useState<Setting | null>(null);
  const [value, setValue] = useState("");
  const change = async (body: SettingsChange) => {
    await call("PATCH", at, body);
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
        This changes <strong className="mono">{setting?.name}</strong> of {of}, at once and on all nodes. An empty value goes back to the default.
      </Confirm>
    </>
  );
}
