"""The cluster: catalog, controller, membership and assignments.

`Metadata` is the catalog on its Raft log. The node that leads that log is the controller (`Controller`). `Membership`
is this node's identity and its connections to peers; `Registrations` handles nodes that join. `Assignments` carries
out what the catalog says about this node's replicas. `partition_reports` is what a node reports to the controller, and
`metadata_voters` changes the voters of the metadata log.
"""
