import { BrokerTable } from "../../components/BrokerTable";
import { Page } from "../../components/Page";
import { useApi } from "../../lib/query";
import type { Broker, Page as Listed } from "../../lib/types";

export default function BrokersPage() {
  const query = useApi<Listed<Broker>>("/brokers", 2);
  return (
    <Page title="Brokers" name="Brokers" command="drmq cluster members" query={query}>
      <section className="card flush">
        <BrokerTable brokers={query.data?.items ?? []} />
      </section>
      <p className="muted small" style={{ margin: 0 }}>
        Processor is the share of one core over the last sample. The bar of memory is relative to the largest node, that of the disk to its size.
      </p>
    </Page>
  );
}
