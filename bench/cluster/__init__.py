"""Clusters: what three nodes cost, and what a crash costs them.

`python -m bench cluster` starts every system as three processes on this machine (and DRMQ and
the bare limit as one as well, to compare with), and takes five sections:

- `throughput`: producing and consuming at full speed, then latencies at fixed rates;
- `idle`: a thousand partitions without traffic, and how long a cold start of them takes;
- `failover`: the leader is killed again and again while programs write, and stopped in order;
- `restart`: a node that has a gigabyte comes back;
- `scale`: thousands of partitions are created, lose a node and start, also when the nodes get too little CPU.

`nodes` is what all systems have in common, and `drmq`, `limit`, `nats` and `kafka` are the
systems; each section has a module, `report` judges, prints and writes. The clients are those of
`bench.clients`.
"""
