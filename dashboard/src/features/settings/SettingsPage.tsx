import { SegmentedControl, useMantineColorScheme } from "@mantine/core";
import type { ReactNode } from "react";
import { Card, Page } from "../../components/Page";
import { Pill } from "../../components/Status";
import { gateways } from "../../lib/api";
import { useLive } from "../../lib/live";
import { setPrefs, usePrefs, type Prefs } from "../../lib/prefs";

export default function SettingsPage() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const prefs = usePrefs();
  const { overview, gateway, dropped, connection } = useLive();
  return (
    <Page title="Settings" name="Settings" command="drmq cluster features">
      <Card title="This browser">
        <div className="stack">
          <Choice label="Theme">
            <SegmentedControl
              aria-label="Theme" value={colorScheme} onChange={(value) => setColorScheme(value as typeof colorScheme)}
              data={[{ value: "auto", label: "System" }, { value: "light", label: "Light" }, { value: "dark", label: "Dark" }]}
            />
          </Choice>
          <Choice label="Density">
            <SegmentedControl
              aria-label="Density" value={prefs.density} onChange={(value) => setPrefs({ density: value as Prefs["density"] })}
              data={[{ value: "comfortable", label: "Comfortable" }, { value: "compact", label: "Compact" }]}
            />
          </Choice>
          <Choice label="Times">
            <SegmentedControl
              aria-label="Times" value={prefs.time} onChange={(value) => setPrefs({ time: value as Prefs["time"] })}
              data={[{ value: "local", label: "Local" }, { value: "utc", label: "UTC" }, { value: "relative", label: "Relative" }]}
            />
          </Choice>
          <Choice label="Sizes">
            <SegmentedControl
              aria-label="Sizes" value={prefs.sizes} onChange={(value) => setPrefs({ sizes: value as Prefs["sizes"] })}
              data={[{ value: "binary", label: "KiB, MiB" }, { value: "decimal", label: "kB, MB" }]}
            />
          </Choice>
        </div>
      </Card>
      <Card title="Connection" extra={<Pill tone={connection === "live" ? "good" : "warn"}>{connection}</Pill>}>
        <p style={{ marginTop: 0 }}>
          Data comes from <span className="mono">{gateway}</span>. If it stops answering, the page goes on with the next of these gateways:
        </p>
        <ul style={{ margin: 0 }}>
          {gateways.all.map((each) => (
            <li key={each}>
              <a className="mono" href={`${location.protocol}//${each}/`}>{each}</a> {each === gateways.own && <span className="muted">served this page</span>}
            </li>
          ))}
        </ul>
        {dropped > 0 && <p>The gateway left out {dropped} snapshots because this page was too slow.</p>}
      </Card>
      {overview && (
        <Card title="Cluster">
          <dl className="facts">
            <div><dt>Cluster</dt><dd className="mono">{overview.cluster.cluster_id}</dd></div>
            <div><dt>Version</dt><dd>{overview.cluster.version}</dd></div>
            {overview.cluster.features.map((each) => (
              <div key={each.name}><dt>{each.name}</dt><dd>level {each.level}</dd></div>
            ))}
          </dl>
        </Card>
      )}
    </Page>
  );
}

function Choice({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="row between">
      <span>{label}</span>
      {children}
    </div>
  );
}
