"""The endpoints of the HTTP API, a module for each part of it. A module registers its endpoints when it is imported."""

from drmq.gateway.endpoint import ENDPOINTS
from drmq.gateway.routes import cluster, groups, raft, records, topics

__all__ = ["ENDPOINTS", "cluster", "groups", "raft", "records", "topics"]
