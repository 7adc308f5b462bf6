"""The permissions that each API needs, in one table.

A request needs permissions as a whole (for a group, or for the cluster), or one for each entry of a list (topics,
groups, resources). An entry without its permission is refused, and the other entries are carried out. The rules are
those of Apache Kafka. Where Kafka accepts one of two permissions (CREATE on the topic or on the cluster), this table
has the narrower one, and the check may accept the wider one instead.

Requests that list everything (Metadata without names) need none: their handlers leave out what the caller may not
see (`Context.may`).

Not here, and what that costs: OffsetFetch needs a permission for the group only, not for each topic. A caller that may
describe a group therefore sees its committed offsets in all topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from drmq.broker.services.cluster_view import ClusterView
from drmq.broker.services.gate import Operation, Permission, ResourceType, on_cluster, on_group, on_topic
from drmq.kafka.config_resources import ResourceType as ConfigResourceType
from drmq.model import NO_TOPIC_ID
from drmq.wire import ApiKey

Each = Callable[[ClusterView, Any], Permission | None]
Whole = Callable[[Any], Iterable[Permission]]


def _none(request: Any) -> Iterable[Permission]:
    return ()


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions that the requests of one API need."""

    whole: Whole = _none
    """Permissions without which the whole request is refused."""
    lists: tuple[str, ...] = ()
    """The lists of the request whose entries need a permission each."""
    each: Each = lambda view, entry: None
    """The permission that an entry needs; None for an unknown resource, such as an unknown topic id."""

    def needs(self, view: ClusterView, request: Any) -> Iterator[Permission]:
        """All permissions that a request needs."""
        yield from self.whole(request)
        for entry in self._entries(request):
            permission = self.each(view, entry)
            if permission is not None:
                yield permission

    def split(self, view: ClusterView, request: Any, refused: frozenset[Permission]) -> tuple[Any, Any]:
        """Split a request into two: one with the allowed entries, one with the refused entries.

        Either is None if it would have no entries. A request that is refused as a whole is the second of the two.
        """
        if any(permission in refused for permission in self.whole(request)):
            return None, request
        kept, dropped = {}, {}
        for name in self.lists:
            entries = getattr(request, name) or ()
            kept[name] = [entry for entry in entries if self.each(view, entry) not in refused]
            dropped[name] = [entry for entry in entries if self.each(view, entry) in refused]
        if not any(dropped.values()):
            return request, None
        return (replace(request, **kept) if any(kept.values()) else None), replace(request, **dropped)

    def refused_whole(self, request: Any, refused: frozenset[Permission]) -> Permission | None:
        """The missing permission because of which a request is refused as a whole, or None."""
        return next((permission for permission in self.whole(request) if permission in refused), None)

    def _entries(self, request: Any) -> Iterator[Any]:
        for name in self.lists:
            yield from getattr(request, name) or ()


# ---- building blocks of the table -------------------------------------------------------------------


def _topics(operation: Operation, name: str = "name", lists: tuple[str, ...] = ("topics",)) -> Rule:
    """A permission for each topic. An entry has the topic's name or id in a field, or is itself the name.

    An entry with both is about the topic with the id.
    """

    def each(view: ClusterView, entry: Any) -> Permission | None:
        topic = entry if isinstance(entry, str) else getattr(entry, name)
        topic_id = getattr(entry, "topic_id", NO_TOPIC_ID)
        known = view.name_of(topic if topic_id == NO_TOPIC_ID and topic is not None else topic_id)
        return None if known is None else on_topic(operation, known)

    return Rule(lists=lists, each=each)


def _group(operation: Operation) -> Rule:
    return Rule(whole=lambda request: (on_group(operation, request.group_id),))


def _groups(operation: Operation, name: str) -> Rule:
    return Rule(lists=(name,), each=lambda view, entry: on_group(operation, entry))


def _cluster(operation: Operation) -> Rule:
    return Rule(whole=lambda request: (on_cluster(operation),))


def _resources(operation: Operation) -> Rule:
    """A permission for each resource that has settings: on a topic or group itself, otherwise on the cluster."""

    def each(view: ClusterView, entry: Any) -> Permission:
        if entry.resource_type == ConfigResourceType.TOPIC:
            return on_topic(operation, entry.resource_name)
        if entry.resource_type == ConfigResourceType.GROUP:
            return on_group(operation, entry.resource_name)
        return on_cluster(operation)

    return Rule(lists=("resources",), each=each)


def _coordinators(request: Any) -> Iterable[Permission]:
    return () if request.coordinator_keys else (_of_key(request.key_type, request.key),)


def _of_key(key_type: int, key: str) -> Permission:
    return Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID if key_type == 1 else ResourceType.GROUP, key)


def _share_group(request: Any) -> Iterable[Permission]:
    return (on_group(Operation.READ, request.group_id or ""),)


_PURGE: Final = 3
"""As `action` of Redrive."""


def _redrive(request: Any) -> Iterable[Permission]:
    """Writing to the origins of letters is checked when these are moved."""
    return (on_topic(Operation.DELETE if request.action == _PURGE else Operation.READ, request.topic),)


def _producer(request: Any) -> Iterable[Permission]:
    if request.transactional_id is None:
        return (on_cluster(Operation.IDEMPOTENT_WRITE),)
    return (Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id),)


def _offset_fetch_groups(request: Any) -> Iterable[Permission]:
    return () if request.groups else (on_group(Operation.DESCRIBE, request.group_id),)


RULES: Final[dict[ApiKey, Rule]] = {
    ApiKey.PRODUCE: _topics(Operation.WRITE, "topic", lists=("partitions",)),
    ApiKey.FETCH: _topics(Operation.READ, "topic", lists=("partitions",)),
    ApiKey.LIST_OFFSETS: _topics(Operation.DESCRIBE),
    ApiKey.METADATA: _topics(Operation.DESCRIBE),
    ApiKey.OFFSET_COMMIT: replace(_topics(Operation.READ), whole=_group(Operation.READ).whole),
    ApiKey.OFFSET_FETCH: Rule(
        _offset_fetch_groups, ("groups",), lambda view, entry: on_group(Operation.DESCRIBE, entry.group_id)
    ),
    ApiKey.FIND_COORDINATOR: Rule(
        _coordinators, ("coordinator_keys",), lambda view, entry: on_group(Operation.DESCRIBE, entry)
    ),
    ApiKey.JOIN_GROUP: _group(Operation.READ),
    ApiKey.HEARTBEAT: _group(Operation.READ),
    ApiKey.LEAVE_GROUP: _group(Operation.READ),
    ApiKey.SYNC_GROUP: _group(Operation.READ),
    ApiKey.DESCRIBE_GROUPS: _groups(Operation.DESCRIBE, "groups"),
    ApiKey.LIST_GROUPS: Rule(),
    ApiKey.SASL_HANDSHAKE: Rule(),
    ApiKey.API_VERSIONS: Rule(),
    ApiKey.CREATE_TOPICS: _topics(Operation.CREATE),
    ApiKey.DELETE_TOPICS: _topics(Operation.DELETE, lists=("topics", "topic_names")),
    ApiKey.DELETE_RECORDS: _topics(Operation.DELETE),
    ApiKey.INIT_PRODUCER_ID: Rule(_producer),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics(Operation.DESCRIBE, "topic"),
    ApiKey.DESCRIBE_CONFIGS: _resources(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _resources(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(Operation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(Operation.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: Rule(),
    ApiKey.CREATE_PARTITIONS: _topics(Operation.ALTER),
    ApiKey.DELETE_GROUPS: _groups(Operation.DELETE, "groups_names"),
    ApiKey.ELECT_LEADERS: _cluster(Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _resources(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(Operation.DESCRIBE),
    ApiKey.OFFSET_DELETE: replace(_topics(Operation.READ), whole=_group(Operation.DELETE).whole),
    ApiKey.DESCRIBE_QUORUM: _cluster(Operation.DESCRIBE),
    ApiKey.UPDATE_FEATURES: _cluster(Operation.ALTER),
    ApiKey.DESCRIBE_CLUSTER: _cluster(Operation.DESCRIBE),
    ApiKey.DESCRIBE_PRODUCERS: _topics(Operation.READ),
    ApiKey.UNREGISTER_BROKER: _cluster(Operation.ALTER),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topics(Operation.DESCRIBE),
    ApiKey.SHARE_GROUP_HEARTBEAT: _group(Operation.READ),
    ApiKey.SHARE_GROUP_DESCRIBE: _groups(Operation.DESCRIBE, "group_ids"),
    ApiKey.SHARE_FETCH: replace(_topics(Operation.READ, "topic_id"), whole=_share_group),
    ApiKey.SHARE_ACKNOWLEDGE: replace(_topics(Operation.READ, "topic_id"), whole=_share_group),
    ApiKey.ADD_RAFT_VOTER: _cluster(Operation.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(Operation.ALTER),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(
        lists=("groups",), each=lambda view, entry: on_group(Operation.DESCRIBE, entry.group_id)
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: replace(
        _topics(Operation.READ, "topic_name"), whole=_group(Operation.READ).whole
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: replace(
        _topics(Operation.READ, "topic_name"), whole=_group(Operation.DELETE).whole
    ),
    ApiKey.DESCRIBE_COUNTERS: _cluster(Operation.DESCRIBE),
    ApiKey.LEASE_FETCH: replace(_topics(Operation.READ, "topic_id"), whole=_share_group),
    ApiKey.REDRIVE: Rule(_redrive),
    ApiKey.DESCRIBE_LEASES: replace(_topics(Operation.DESCRIBE), whole=_group(Operation.DESCRIBE).whole),
    ApiKey.DESCRIBE_EVENTS: _cluster(Operation.DESCRIBE),
    ApiKey.FAULT_LAB: _cluster(Operation.CLUSTER_ACTION),
    ApiKey.DESCRIBE_BACKLOG: _topics(Operation.DESCRIBE),
}
