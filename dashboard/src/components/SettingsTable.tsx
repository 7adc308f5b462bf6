import { TextInput } from "@mantine/core";
import { SearchIcon } from "@primer/octicons-react";
import { useState, type ReactNode } from "react";
import type { Setting } from "../lib/types";
import { DataTable, type Column } from "./DataTable";
import { Name } from "./Name";
import { Card } from "./Page";
import { Prose } from "./Prose";

/** Settings with where each value comes from. `action` adds a column. */
export function SettingsTable({ title, settings, action }: { title: string; settings: Setting[]; action?: (setting: Setting) => ReactNode }) {
  const [text, setText] = useState("");
  const rows = settings.filter((each) => each.name.includes(text.trim()));
  const columns: Column<Setting>[] = [
    {
      name: "Name",
      sort: (each) => each.name,
      cell: (each) => (
        <div>
          <span className="mono"><Name text={each.name} /></span>
          {each.documentation && <div className="small muted setting-text"><Prose text={each.documentation} /></div>}
        </div>
      ),
    },
    { name: "Value", cell: (each) => <span className="mono">{each.value ?? "–"}</span> },
    {
      name: "From",
      sort: (each) => each.source,
      cell: (each) => <span className={each.is_default ? "muted" : ""}>{each.source.toLowerCase().replaceAll("_", " ").replace(" config", "")}</span>,
    },
  ];
  if (action) columns.push({ name: "Change", head: <span className="visually-hidden">Change</span>, right: true, cell: action });
  return (
    <Card
      title={title}
      flush
      extra={
        <TextInput
          size="xs" aria-label="Find a setting" placeholder="Find a setting" leftSection={<SearchIcon size={14} />} value={text} data-search
          onChange={(event) => setText(event.currentTarget.value)}
        />
      }
    >
      <DataTable label={title} columns={columns} rows={rows} rowKey={(each) => each.name} sortBy="Name" />
    </Card>
  );
}
