"""The endpoints of the HTTP API, a module for each part of it. A module registers its endpoints when it is imported."""

from drmq.gateway.endpoint import ENDPOINTS
from drmq.gateway.routes import cluster, dead_letters, groups, lab, leases, raft, records, topics, topology

__all__ = ["ENDPOINTS", "cluster", "dead_letters", "groups", "lab", "leases", "raft", "records", "topics", "topology"]
