// Produces messages and takes them as work over one Lease stream, with a client made from proto/drmq/v1.
//
//   node worker.mjs ADDRESS PROTO_DIRECTORY TOPIC GROUP COUNT
//
// Half of the messages go by Append, half by AppendStream. The first delivery of the message 0 is refused with a delay;
// everything else is acknowledged. Prints one line of JSON: which messages came, how often, and what was confirmed.
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, directory, topic, group, total] = process.argv.slice(2);
const count = Number(total);

const options = { includeDirs: [directory], longs: Number, enums: String, oneofs: true, keepCase: true, arrays: true };
const files = ["drmq/v1/log.proto", "drmq/v1/leases.proto", "drmq/v1/topics.proto"];
const { v1 } = grpc.loadPackageDefinition(loader.loadSync(files, options)).drmq;
const credentials = grpc.credentials.createInsecure();
const topics = new v1.TopicService(address, credentials);
const log = new v1.LogService(address, credentials);
const leases = new v1.LeaseService(address, credentials);

const call = (client, method, request) =>
  new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + 60_000);
    client[method](request, { deadline }, (error, response) => (error ? reject(error) : resolve(response)));
  });

const records = (from, to) =>
  Array.from({ length: to - from }, (_, index) => ({
    value: Buffer.from(JSON.stringify({ n: from + index })),
    headers: [{ name: "sent-by", value: Buffer.from("node") }],
  }));

async function produce() {
  const half = Math.floor(count / 2);
  const { results } = await call(log, "Append", { topic, records: records(0, half) });
  const stream = log.AppendStream();
  let appended = results.length;
  const ended = new Promise((resolve, reject) => {
    stream.on("data", (response) => (appended += response.results.filter((each) => !each.error).length));
    stream.on("end", resolve);
    stream.on("error", reject);
  });
  for (let at = half; at < count; at += 10) {
    stream.write({ topic: at === half ? topic : "", records: records(at, Math.min(at + 10, count)) });
  }
  stream.end();
  await ended;
  return appended;
}

function work() {
  return new Promise((resolve, reject) => {
    const stream = leases.Lease();
    const found = { seen: {}, headers: 0, confirmed: 0, refused: 0, held_max: 0, member_id: "" };
    let held = 0;
    stream.on("error", reject);
    stream.on("end", () => resolve(found));
    stream.on("data", (response) => {
      if (response.response === "subscribed") {
        found.member_id = response.subscribed.member_id;
      } else if (response.response === "deliveries") {
        for (const { delivery_id, record, attempt } of response.deliveries.deliveries) {
          held += 1;
          found.held_max = Math.max(found.held_max, held);
          found.headers += record.headers.filter((each) => each.name === "sent-by").length;
          const { n } = JSON.parse(record.value.toString());
          (found.seen[n] ??= []).push(attempt);
          if (n === 0 && attempt === 1) {
            stream.write({ settle: { delivery_ids: [delivery_id], outcome: "OUTCOME_NACK", delay_ms: 0 } });
          } else {
            stream.write({ settle: { delivery_ids: [delivery_id], outcome: "OUTCOME_ACK" } });
          }
        }
      } else {
        held -= response.settled.delivery_ids.length;
        found.confirmed += response.settled.delivery_ids.length;
        found.refused += response.settled.failures.length;
        if (found.confirmed === count + 1) stream.end();
      }
    });
    stream.write({ subscribe: { group, topics: [topic], credits: 20, start: "GROUP_START_EARLIEST" } });
  });
}

// The gateway may still be starting.
await new Promise((resolve, reject) => {
  topics.waitForReady(Date.now() + 60_000, (error) => (error ? reject(error) : resolve()));
});
await call(topics, "CreateTopic", { name: topic, partitions: 2 });
const appended = await produce();
const found = await work();
console.log(JSON.stringify({ appended, ...found }));
process.exit(0);
