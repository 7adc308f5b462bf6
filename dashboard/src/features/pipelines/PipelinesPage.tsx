import { ZapIcon } from "@primer/octicons-react";
import { Empty, Page } from "../../components/Page";

/** Pipelines are declared and run outside the cluster. Until one reports to it, the page says how to read a topic with Spark. */
export default function PipelinesPage() {
  return (
    <Page title="Pipelines" name="Pipelines">
      <section className="card" aria-label="Pipelines">
        <Empty icon={ZapIcon} title="No pipeline reports to this cluster" command="drmq spark shell">
          Spark reads and writes topics with the data source “drmq”. This command opens a shell that is connected to this cluster; drmq spark doctor says what is missing if it does not start.
        </Empty>
      </section>
    </Page>
  );
}
