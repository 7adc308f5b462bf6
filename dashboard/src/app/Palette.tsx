import { Modal, TextInput, UnstyledButton, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { MoonIcon, PaperAirplaneIcon, PeopleIcon, PlayIcon, PlusIcon, SearchIcon, ServerIcon, StackIcon, SunIcon, type Icon } from "@primer/octicons-react";
import { useMemo, useState } from "react";
import { useNavigate } from "react-router";
import { path } from "../lib/api";
import { live, useLive } from "../lib/live";
import { useApi } from "../lib/query";
import type { Group, Page, Topic } from "../lib/types";
import { NAVIGATION } from "./pages";
import { ranked } from "./ranked";

const SHOWN_MAX = 12;

interface Target {
  label: string;
  kind: string;
  to: string | (() => void);
  icon: Icon;
}

export default function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const navigate = useNavigate();
  const topics = useApi<Page<Topic>>("/topics");
  const groups = useApi<Page<Group>>("/groups");
  const { overview, connection } = useLive();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const isPaused = connection === "paused";
  const targets = useMemo<Target[]>(() => {
    const other = scheme === "dark" ? "light" : "dark";
    return [
      ...NAVIGATION.map((each) => ({ label: each.label, kind: "page", to: each.to, icon: each.icon })),
      { label: "Create a topic", kind: "action", to: "/topics?create=1", icon: PlusIcon },
      { label: isPaused ? "Go on with live data" : "Pause live data", kind: "action", to: () => live.setPaused(!isPaused), icon: PlayIcon },
      { label: `Change to the ${other} theme`, kind: "action", to: () => setColorScheme(other), icon: other === "dark" ? MoonIcon : SunIcon },
      ...(topics.data?.items ?? []).map((each) => ({ label: each.name, kind: "topic", to: path`/topics/${each.name}`, icon: StackIcon })),
      ...(groups.data?.items ?? []).map((each) => ({ label: each.group_id, kind: "group", to: path`/groups/${each.group_id}`, icon: PeopleIcon })),
      ...(overview?.brokers ?? []).map((each) => ({ label: `Node ${each.node_id}`, kind: "broker", to: `/brokers/${each.node_id}`, icon: ServerIcon })),
      ...(topics.data?.items ?? []).map((each) => ({ label: `Send a message to ${each.name}`, kind: "action", to: path`/topics/${each.name}/produce`, icon: PaperAirplaneIcon })),
    ];
  }, [topics.data, groups.data, overview?.brokers, isPaused, scheme, setColorScheme]);
  const found = ranked(targets, text).slice(0, SHOWN_MAX);
  const go = (target: Target | undefined) => {
    if (typeof target?.to === "string") void navigate(target.to);
    else target?.to();
    onClose();
  };
  return (
    <Modal opened onClose={onClose} withCloseButton={false} padding="sm" yOffset="12vh" title={undefined} aria-label="Go to">
      <TextInput
        data-autofocus
        aria-label="Go to a page, topic, group or broker, or run an action"
        placeholder="Page, topic, group, broker or action"
        leftSection={<SearchIcon size={16} />}
        value={text}
        role="combobox"
        aria-expanded
        aria-controls="palette-list"
        aria-activedescendant={found[at] ? `palette-${at}` : undefined}
        onChange={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
          else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
          else if (event.key === "Enter") go(found[at]);
          else return;
          event.preventDefault();
        }}
      />
      <div role="listbox" id="palette-list" aria-label="Found" style={{ marginTop: 8 }}>
        {found.map((target, index) => (
          <UnstyledButton
            key={target.kind + target.label}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            tabIndex={-1}
            className={`nav-link ${index === at ? "active" : ""}`}
            style={{ width: "100%" }}
            onClick={() => go(target)}
          >
            <target.icon size={16} />
            <span style={{ flex: 1, minWidth: 0, overflowWrap: "anywhere" }}>{target.label}</span>
            <span className="muted small">{target.kind}</span>
          </UnstyledButton>
        ))}
      </div>
      {found.length === 0 && <p className="muted">Nothing has this name.</p>}
    </Modal>
  );
}
