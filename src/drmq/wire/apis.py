"""The APIs that DRMQ speaks: their versions, and where their messages are.

`APIS` lists what a broker serves and advertises. `KNOWN_APIS` is the table for reading and writing frames: the same
APIs, and those that our client may use with other brokers although ours does not serve them. The tables refer to the
message classes by name only. `Api.request` and `Api.response` import the module of an API at its first use, so that a
process starts fast and loads only what it uses.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, Final

from drmq.wire.api_key import ApiKey

NEVER: Final = 32767
"""As `flexible_from`: no version of this API is flexible."""


class Api:
    """One API. `version_min` to `version_max` are served; a client is told `advertised_min` to `version_max`."""

    def __init__(
        self,
        key: ApiKey,
        version_min: int,
        version_max: int,
        flexible_from: int,
        advertised_min: int | None = None,
    ) -> None:
        self.key = key
        self.version_min = version_min
        self.version_max = version_max
        self.flexible_from = flexible_from
        self.advertised_min = version_min if advertised_min is None else advertised_min

    def __repr__(self) -> str:
        return f"<Api {self.key.name} {self.version_min}-{self.version_max}>"

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields, in its body and its headers."""
        return version >= self.flexible_from

    @cached_property
    def request(self) -> type[Any]:
        """The class of the request body; its module is imported at the first use."""
        return self._load("Request")

    @cached_property
    def response(self) -> type[Any]:
        """The class of the response body; its module is imported at the first use."""
        return self._load("Response")

    def _load(self, suffix: str) -> type[Any]:
        module = import_module(f"drmq.wire.messages.{self.key.name.lower()}")
        camel = "".join(word.capitalize() for word in self.key.name.split("_"))
        found: type[Any] = getattr(module, camel + suffix)
        return found


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        # librdkafka up to 2.11 compresses only if the broker advertises Produce 0, which no client has sent for years.
        Api(ApiKey.PRODUCE, 3, 13, flexible_from=9, advertised_min=0),
        Api(ApiKey.FETCH, 4, 18, flexible_from=12),
        Api(ApiKey.LIST_OFFSETS, 1, 10, flexible_from=6),
        Api(ApiKey.METADATA, 0, 13, flexible_from=9),
        Api(ApiKey.OFFSET_COMMIT, 2, 10, flexible_from=8),
        Api(ApiKey.OFFSET_FETCH, 1, 10, flexible_from=6),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, flexible_from=3),
        Api(ApiKey.JOIN_GROUP, 0, 9, flexible_from=6),
        Api(ApiKey.HEARTBEAT, 0, 4, flexible_from=4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, flexible_from=4),
        Api(ApiKey.SYNC_GROUP, 0, 5, flexible_from=4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, flexible_from=5),
        Api(ApiKey.LIST_GROUPS, 0, 5, flexible_from=3),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, flexible_from=NEVER),
        Api(ApiKey.API_VERSIONS, 0, 5, flexible_from=3),
        Api(ApiKey.CREATE_TOPICS, 2, 7, flexible_from=5),
        Api(ApiKey.DELETE_TOPICS, 1, 6, flexible_from=4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, flexible_from=2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, flexible_from=2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, flexible_from=4),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, flexible_from=4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, flexible_from=2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, flexible_from=2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, flexible_from=2),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, flexible_from=2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, flexible_from=2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, flexible_from=2),
        Api(ApiKey.ELECT_LEADERS, 0, 2, flexible_from=2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, flexible_from=1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, flexible_from=0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, flexible_from=0),
        Api(ApiKey.OFFSET_DELETE, 0, 0, flexible_from=NEVER),
        Api(ApiKey.DESCRIBE_QUORUM, 0, 2, flexible_from=0),
        Api(ApiKey.UPDATE_FEATURES, 0, 2, flexible_from=0),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, flexible_from=0),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, flexible_from=0),
        Api(ApiKey.UNREGISTER_BROKER, 0, 0, flexible_from=0),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, flexible_from=0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, flexible_from=0),
        Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, flexible_from=0),
        Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, flexible_from=0),
        Api(ApiKey.SHARE_FETCH, 1, 2, flexible_from=0),
        Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, flexible_from=0),
        Api(ApiKey.ADD_RAFT_VOTER, 0, 1, flexible_from=0),
        Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, flexible_from=0),
        Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, flexible_from=0),
        Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_COUNTERS, 0, 0, flexible_from=0),
        Api(ApiKey.LEASE_FETCH, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_LEASES, 0, 0, flexible_from=0),
        Api(ApiKey.REDRIVE, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_EVENTS, 0, 1, flexible_from=0),
        Api(ApiKey.FAULT_LAB, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_BACKLOG, 0, 0, flexible_from=0),
    )
}
"""By key. Plain integers find their row too, so a key from the wire needs no conversion first."""

KNOWN_APIS: Final[dict[int, Api]] = APIS | {}
"""By key: the rows of `APIS`, and those that our client asks of other brokers only: none, now."""
