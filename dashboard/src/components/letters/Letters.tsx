import { Button, Drawer, NumberInput, TextInput } from "@mantine/core";
import { CheckCircleIcon, ReplyIcon, SearchIcon, TrashIcon } from "@primer/octicons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link } from "react-router";
import { get, path } from "../../lib/api";
import { shown } from "../../lib/decode";
import { count, duration, plural, time } from "../../lib/format";
import { usePrefs } from "../../lib/prefs";
import { useApi } from "../../lib/query";
import type { Letter, Page as Listed, RedriveAnswer } from "../../lib/types";
import { CommandLine } from "../CommandLine";
import { ContentPart, HeaderTable } from "../Content";
import { DataTable, type Column } from "../DataTable";
import { Name } from "../Name";
import { Empty, ProblemBox, useNow } from "../Page";
import { Pill } from "../Status";
import { PurgeDialog, RedriveDialog } from "./dialogs";
import { isRunning, RedriveProgress } from "./RedriveProgress";
import { ALL_LETTERS, isAll, letterCommand, letterQuery, type LetterSearch } from "./search";

const PAGE = 100;

/** The dead letters of a topic, or of one group in it: why each failed, and what can be done about it. */
export function Letters(props: { topic: string; search: LetterSearch; onSearch: (search: LetterSearch) => void; group?: string }) {
  const { topic, search, group } = props;
  const [asked, setAsked] = useState<"" | "redrive" | "purge">("");
  const [opened, setOpened] = useState<Letter | null>(null);
  const status = useApi<RedriveAnswer>(path`/dead-letters/${topic}/redrive`, 1.5);
  const filter = letterQuery(search);
  const query = useInfiniteQuery({
    queryKey: ["letters", topic, filter],
    queryFn: ({ pageParam, signal }) =>
      get<Listed<Letter>>(`${path`/dead-letters/${topic}`}?limit=${PAGE}${filter && `&${filter}`}${pageParam === null ? "" : `&cursor=${encodeURIComponent(pageParam)}`}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: 5000,
  });
  const rows = query.data?.pages.flatMap((page) => page.items) ?? [];
  const redrive = status.data?.redrive ?? null;
  const waiting = status.data?.waiting;
  return (
    <div className="stack">
      {status.error && <ProblemBox error={status.error} />}
      {redrive && <RedriveProgress topic={topic} redrive={redrive} waiting={waiting ?? 0} />}
      <section className="card flush" aria-label="Dead letters">
        <div style={{ padding: 16 }}>
          <Filters key={filter} search={search} onSearch={props.onSearch} isOfGroup={group !== undefined} />
        </div>
        {query.error && <div style={{ padding: 16 }}><ProblemBox error={query.error} /></div>}
        <div className="card-head" style={{ borderTop: "1px solid var(--line)", borderBottom: "1px solid var(--line)" }}>
          <span className="small muted" role="status">{plural(rows.length, "letter")} shown{query.hasNextPage ? ", there are more" : ""}{waiting === undefined ? "" : `, ${count(waiting)} waiting in ${topic}`}</span>
          <span className="row">
            <Button size="xs" variant="default" leftSection={<TrashIcon size={14} />} disabled={rows.length === 0 || isRunning(redrive)} onClick={() => setAsked("purge")}>Purge</Button>
            <Button size="xs" leftSection={<ReplyIcon size={14} />} disabled={rows.length === 0 || isRunning(redrive)} onClick={() => setAsked("redrive")}>Redrive</Button>
          </span>
        </div>
        {query.data && rows.length === 0 ? (
          <Empty icon={CheckCircleIcon} title={isAll({ ...search, group: "" }) ? "No dead letters wait" : "No dead letter matches"} command={letterCommand("show", topic, search)}>
            {isAll({ ...search, group: "" })
              ? "A record comes here when a worker rejects it, or when it failed as often as its group allows."
              : "Other letters may wait: empty the fields above to see all."}
          </Empty>
        ) : (
          <LetterTable rows={rows} onOpen={setOpened} isOfGroup={group !== undefined} />
        )}
        {query.hasNextPage && (
          <div className="card-head" style={{ borderTop: "1px solid var(--line)", justifyContent: "flex-end" }}>
            <Button size="xs" variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>More</Button>
          </div>
        )}
      </section>
      <RedriveDialog opened={asked === "redrive"} onClose={() => setAsked("")} topic={topic} search={search} examples={rows} />
      <PurgeDialog opened={asked === "purge"} onClose={() => setAsked("")} topic={topic} search={search} />
      <LetterDrawer topic={topic} letter={opened} onClose={() => setOpened(null)} />
    </div>
  );
}

function Filters({ search, onSearch, isOfGroup }: { search: LetterSearch; onSearch: (search: LetterSearch) => void; isOfGroup: boolean }) {
  const [draft, setDraft] = useState(search);
  const change = (part: Partial<LetterSearch>) => setDraft({ ...draft, ...part });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSearch(draft);
  };
  return (
    <form className="filters" onSubmit={submit} role="search" aria-label="Search for dead letters">
      <TextInput label="Reason" placeholder="Any reason" leftSection={<SearchIcon size={14} />} value={draft.reason} data-search onChange={(event) => change({ reason: event.currentTarget.value })} />
      <TextInput label="Text in the value" placeholder="Any text" value={draft.value_contains} onChange={(event) => change({ value_contains: event.currentTarget.value })} />
      <TextInput label="Key" placeholder="Any key" value={draft.key} onChange={(event) => change({ key: event.currentTarget.value })} />
      <TextInput label="From topic" placeholder="Any topic" value={draft.topic} onChange={(event) => change({ topic: event.currentTarget.value })} />
      {!isOfGroup && <TextInput label="Group" placeholder="Any group" value={draft.group} onChange={(event) => change({ group: event.currentTarget.value })} />}
      <NumberInput label="Attempts from" placeholder="1" min={1} max={1000} allowDecimal={false} value={draft.attempts_min} onChange={(value) => change({ attempts_min: String(value) })} />
      <div className="row tight">
        <Button type="submit">Find</Button>
        {!isAll(isOfGroup ? { ...search, group: "" } : search) && (
          <Button variant="subtle" color="gray" onClick={() => onSearch(isOfGroup ? { ...ALL_LETTERS, group: search.group } : ALL_LETTERS)}>All</Button>
        )}
      </div>
    </form>
  );
}

function LetterTable({ rows, onOpen, isOfGroup }: { rows: Letter[]; onOpen: (letter: Letter) => void; isOfGroup: boolean }) {
  const now = useNow(5000);
  const columns: Column<Letter>[] = [
    {
      name: "From",
      sort: (each) => `${each.origin_topic}-${each.origin_partition}-${each.origin_offset}`,
      cell: (each) => (
        <button className="link mono" onClick={() => onOpen(each)}>
          <span className="visually-hidden">Dead letter from </span>{each.origin_topic}-{each.origin_partition}:{each.origin_offset}
        </button>
      ),
    },
    { name: "Reason", sort: (each) => each.reason, cell: (each) => <span className="reason">{each.reason}</span> },
    { name: "Attempts", right: true, sort: (each) => each.attempts, cell: (each) => count(each.attempts) },
    { name: "Failed", right: true, sort: (each) => each.last_failed_ms, cell: (each) => `${duration(now - each.last_failed_ms)} ago` },
    { name: "Key", cell: (each) => <span className="mono clip-cell">{each.key ?? "–"}</span> },
    { name: "Value", cell: (each) => <span className="mono clip-cell wide">{each.value === null ? "–" : shown({ text: each.value.slice(0, 300), format: each.value_format }, "auto", false)}</span> },
    ...(isOfGroup ? [] : [{ name: "Group", sort: (each: Letter) => each.group, cell: (each: Letter) => <Link to={path`/groups/${each.group}`}><Name text={each.group} /></Link> }]),
    { name: "Moved back", right: true, sort: (each) => each.redrive_count, cell: (each) => (each.redrive_count === 0 ? "never" : `${count(each.redrive_count)}×`) },
  ];
  return <DataTable label="Dead letters" columns={columns} rows={rows} rowKey={(each) => `${each.partition}-${each.offset}`} />;
}

function LetterDrawer({ topic, letter, onClose }: { topic: string; letter: Letter | null; onClose: () => void }) {
  const { time: style } = usePrefs();
  return (
    <Drawer opened={letter !== null} onClose={onClose} position="right" size="lg" closeButtonProps={{ "aria-label": "Close" }}
      title={letter && <strong>Dead letter {letter.partition}:{letter.offset}</strong>}>
      {letter && (
        <div className="stack">
          <div><Pill tone="warn">{letter.reason}</Pill></div>
          <dl className="facts">
            <div><dt>Came from</dt><dd><Link to={`${path`/topics/${letter.origin_topic}`}?partition=${letter.origin_partition}&order=oldest&from=${letter.origin_offset}`}>{letter.origin_topic}-{letter.origin_partition} offset {letter.origin_offset}</Link></dd></div>
            <div><dt>Given up by</dt><dd><Link to={path`/groups/${letter.group}`}>{letter.group}</Link></dd></div>
            <div><dt>Attempts</dt><dd>{count(letter.attempts)}</dd></div>
            <div><dt>First failure</dt><dd>{time(letter.first_failed_ms, style)}</dd></div>
            <div><dt>Last failure</dt><dd>{time(letter.last_failed_ms, style)}</dd></div>
            <div><dt>Moved back before</dt><dd>{letter.redrive_count === 0 ? "never" : plural(letter.redrive_count, "time")}</dd></div>
          </dl>
          {!letter.has_record && <div><Pill tone="warn">The record was not copied, so it cannot be moved back</Pill></div>}
          <ContentPart name="Key" text={letter.key ?? ""} isNull={letter.key === null} format={letter.key_format} />
          <ContentPart name="Value" text={shown({ text: letter.value, format: letter.value_format }, "auto")} isNull={letter.value === null} format={letter.value_format} />
          <HeaderTable headers={letter.headers} />
          <CommandLine command={letterCommand("show", topic, { ...ALL_LETTERS, topic: letter.origin_topic, key: letter.key_format === "text" ? (letter.key ?? "") : "" })} />
        </div>
      )}
    </Drawer>
  );
}
