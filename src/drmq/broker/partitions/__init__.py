"""Partitions: offsets, producers and waiting requests on top of a replicated log.

`Partition` is a partition as clients see it. `PartitionTable` holds all partitions of the node and creates, opens and
removes their files through a `LogStore`. `derived_state` is the state that follows from a log: the producer table of a
message partition, or the state machine of an internal one. `writer_bridge` passes the writer thread's reports to the
event loop.

Not here: consensus (`replication`), and which partitions the node is assigned (`cluster.assignments`).
"""
