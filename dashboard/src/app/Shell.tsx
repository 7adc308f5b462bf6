import { ActionIcon, AppShell, Burger, Button, Kbd, Loader, Tooltip, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { MoonIcon, PlayIcon, SearchIcon, SunIcon, SyncIcon } from "@primer/octicons-react";
import { Component, lazy, Suspense, useEffect, useState, type ReactNode } from "react";
import { Link, NavLink, Route, Routes, useLocation } from "react-router";
import { Pill } from "../components/Status";
import { Banner } from "../components/Status";
import { useNow } from "../components/Page";
import { gateways } from "../lib/api";
import { duration } from "../lib/format";
import { live, useLive } from "../lib/live";
import { usePrefs } from "../lib/prefs";
import { loadAllPages, ROUTES, SECTIONS } from "./pages";

const Palette = lazy(() => import("./Palette"));
const KeyHelp = lazy(() => import("./KeyHelp"));

export function Shell() {
  const [isOpen, setIsOpen] = useState(false);
  const [asked, setAsked] = useState<"" | "palette" | "keys">("");
  const { density } = usePrefs();
  const place = useLocation();
  useEffect(() => setIsOpen(false), [place.pathname]);
  useEffect(() => {
    // theme.js set it for the first paint. From now on the style sheet does, also when the theme is changed.
    document.documentElement.style.removeProperty("background-color");
    const timer = setTimeout(loadAllPages, 3000);
    const onKey = (event: KeyboardEvent) => {
      const inField = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setAsked("palette");
      } else if (!inField && event.key === "?") setAsked("keys");
      else if (!inField && event.key === "/" && !event.ctrlKey) {
        const field = document.querySelector<HTMLInputElement>("[data-search]");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      }
    };
    window.addEventListener("keydown", onKey);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("keydown", onKey);
    };
  }, []);
  return (
    <AppShell
      className={density}
      header={{ height: 56 }}
      navbar={{ width: 216, breakpoint: "sm", collapsed: { mobile: !isOpen } }}
      padding={{ base: "md", sm: "lg" }}
    >
      <a className="skip-link" href="#main">
        Skip to the content
      </a>
      <AppShell.Header className="shell-header">
        <div className="row between" style={{ height: "100%", padding: "0 16px", flexWrap: "nowrap" }}>
          <div className="row" style={{ flexWrap: "nowrap" }}>
            <Burger opened={isOpen} onClick={() => setIsOpen(!isOpen)} hiddenFrom="sm" size="sm" aria-label="Pages" />
            <Link to="/" className="brand">
              <img src="/favicon.svg" alt="" width={26} height={26} />
              DRMQ
            </Link>
          </div>
          <div className="row" style={{ flexWrap: "nowrap" }}>
            <Button
              variant="default" size="xs" leftSection={<SearchIcon size={14} />} rightSection={<Kbd size="xs">Ctrl K</Kbd>}
              visibleFrom="sm" onClick={() => setAsked("palette")}
            >
              Go to
            </Button>
            <ConnectionState />
            <ThemeButton />
          </div>
        </div>
      </AppShell.Header>
      <AppShell.Navbar className="shell-nav" p="sm">
        <nav aria-label="Pages" className="nav">
          {SECTIONS.map((section, index) => (
            <div key={index} className="nav-section" role="group" aria-label={section.name || undefined}>
              {section.name && <div className="nav-head" aria-hidden>{section.name}</div>}
              {section.items.map(({ to, label, icon: Found }) => (
                <NavLink key={to} to={to} end={to === "/"} className={({ isActive }) => `nav-link ${isActive ? "active" : ""}`}>
                  <Found size={16} aria-hidden />
                  {label}
                </NavLink>
              ))}
            </div>
          ))}
        </nav>
        <ServedBy />
      </AppShell.Navbar>
      <AppShell.Main id="main" tabIndex={-1} data-path={place.pathname}>
        <StatusNews />
        <Moved />
        <LoadBoundary key={place.pathname.split("/")[1]}>
          <Suspense fallback={<Loader size="sm" role="status" aria-label="The page is loading" />}>
            <Routes>
              {ROUTES.map(({ path, Page }) => <Route key={path} path={path} element={<Page />} />)}
              <Route path="*" element={<NotFound />} />
            </Routes>
          </Suspense>
        </LoadBoundary>
      </AppShell.Main>
      <Suspense fallback={null}>
        {asked === "palette" && <Palette onClose={() => setAsked("")} />}
        {asked === "keys" && <KeyHelp onClose={() => setAsked("")} />}
      </Suspense>
    </AppShell>
  );
}

function NotFound() {
  return (
    <div className="page">
      <h1>There is no such page</h1>
      <p>
        <Link to="/">The overview</Link> has the state of the cluster.
      </p>
    </div>
  );
}

const TONES = { healthy: "good", degraded: "warn", down: "bad" } as const;

/** Whether the numbers are live, with a button to hold them still. */
function ConnectionState() {
  const { connection, receivedAt, overview } = useLive();
  const now = useNow();
  const age = now - receivedAt;
  const isPaused = connection === "paused";
  let shown: ReactNode;
  if (isPaused) shown = <Pill tone="none">Paused {duration(age)}</Pill>;
  else if (overview === null) shown = <Pill tone="none">Connecting</Pill>;
  else if (connection === "lost" || age > 10_000) shown = <Pill tone="warn">No data for {duration(age)}</Pill>;
  else shown = <Pill tone={TONES[overview.cluster.status]}>{overview.cluster.status.replace(/^./, (each) => each.toUpperCase())}</Pill>;
  return (
    <>
      {shown}
      <Tooltip label={isPaused ? "Go on" : "Hold the live numbers"}>
        <ActionIcon variant="subtle" color="gray" onClick={() => live.setPaused(!isPaused)} aria-label={isPaused ? "Go on with live data" : "Pause live data"} aria-pressed={isPaused}>
          {isPaused ? <PlayIcon size={16} /> : <PauseGlyph />}
        </ActionIcon>
      </Tooltip>
    </>
  );
}

function PauseGlyph() {
  return (
    <svg width={16} height={16} viewBox="0 0 16 16" fill="currentColor" aria-hidden>
      <rect x={4} y={3} width={2.5} height={10} rx={1} />
      <rect x={9.5} y={3} width={2.5} height={10} rx={1} />
    </svg>
  );
}

function ThemeButton() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const other = scheme === "dark" ? "light" : "dark";
  return (
    <Tooltip label={`Change to ${other}`}>
      <ActionIcon variant="subtle" color="gray" onClick={() => setColorScheme(other)} aria-label={`Change to the ${other} theme`}>
        {scheme === "dark" ? <SunIcon size={16} /> : <MoonIcon size={16} />}
      </ActionIcon>
    </Tooltip>
  );
}

function ServedBy() {
  const { overview, gateway } = useLive();
  const node = overview?.cluster.gateways.find((each) => each.http === gateway)?.node_id;
  return (
    <div className="small muted" style={{ marginTop: "auto", padding: "8px 12px" }}>
      {overview && <div>DRMQ {overview.cluster.version}</div>}
      <div>
        {node === undefined ? "Gateway" : `Node ${node} at`} {gateway}
      </div>
    </div>
  );
}

/** Says changes of the status to screen readers; ticks of numbers are not news. */
function StatusNews() {
  const { overview, connection } = useLive();
  const text = connection === "lost" ? "The connection is lost." : overview ? `The cluster is ${overview.cluster.status}.` : "";
  return (
    <div className="visually-hidden" aria-live="polite" role="status">
      {text}
    </div>
  );
}

function Moved() {
  const { connection, gateway } = useLive();
  if (gateway === gateways.own || connection === "connecting") return null;
  return (
    <div style={{ maxWidth: 1240, margin: "0 auto 16px" }}>
      <Banner tone="warn">
        <strong>Moved on.</strong> The node that served this page ({gateways.own}) does not answer. The data now comes from {gateway}.{" "}
        <a href={`${location.protocol}//${gateway}${location.pathname}${location.search}`}>Open the page there</a>
      </Banner>
    </div>
  );
}

/** A chunk that cannot be loaded: its gateway is gone or has another version, so the page is opened anew where one answers. */
class LoadBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  state = { error: null as Error | null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  render() {
    if (this.state.error === null) return this.props.children;
    const target = `${location.protocol}//${gateways.current}${location.pathname}${location.search}`;
    return (
      <div className="page">
        <h1>This page could not be shown</h1>
        <Banner tone="bad">{this.state.error.message}</Banner>
        <div>
          <Button component="a" href={target} leftSection={<SyncIcon size={16} />}>
            Open it again at {gateways.current}
          </Button>
        </div>
      </div>
    );
  }
}
