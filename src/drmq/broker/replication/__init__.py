"""Replication: one Raft replica per partition, driven on a log, a ledger and the network.

`Replica` carries out what the pure core (`drmq.raft`) decides: it persists entries through the writer thread, sends
messages, and reports commits to its partition. `EntryLog` translates between Raft indexes and Kafka offsets, and is
the only module that knows both. `GroupHost` has what all replicas of a node share: ticks, messages, quiesced groups,
leader announcements.

The other modules: `pending_writes` (writes on their way to the disk), `recent_entries` (the latest entries in memory,
for followers), `incoming_snapshot` and `outgoing_snapshot`, `learner_catch_up` (bandwidth for new replicas),
`campaign_backoff` (after disk failures).

Not here: the meaning of the entries. `partitions` handles records and `coordination` handles state machines.
"""
