"""Work queues: messages are leased, and acknowledged one by one.

`python -m bench queues` measures how fast groups of workers empty a queue, on DRMQ and on the systems that people use
as queues, with one node and with three:

- `throughput`: 1, 4 and 16 workers, 100 B and 1 KB, each with the clients that a system has;
- `latency`: from the moment a message is due to be sent until a worker has it, at a fixed rate;
- `memory`: what a broker keeps of a million messages that are done, and of those that wait for a retry.

`systems` is what all queues have in common, and `kafka` (DRMQ and Apache Kafka), `nats`, `redis` and `rabbitmq` are
the queues. `workers` runs the programs `bench.clients.lease_*` and measures both sides; `throughput`, `latency` and
`memory` are the sections; `targets` judges, `report` prints and writes, `command` is the command line.
"""
