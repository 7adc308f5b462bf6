"""The replicated facts of a group, and their encoding in `__consumer_offsets`.

A fact is a key and a value. The key says what the fact is about (a group, or one partition's offset in a group), so the
last value per key is the state, and the topic can be compacted. A fact without a value (a tombstone) means that the
group or offset was removed.

    key    {"kind":"group","group":G}                             value: GroupMetadata, or none: GroupDeleted
    key    {"kind":"offset","group":G,"topic":T,"partition":P}    value: OffsetCommitted, or none: OffsetDeleted
    key    {"kind":"share-group","group":G}                       value: ShareGroupMetadata, or none: ShareGroupDeleted
    key    {"kind":"share-member","group":G,"member":M}           value: ShareMember, or none: ShareMemberLeft

Both are JSON in ASCII, so that a dump of the log is readable; opaque bytes are base64. A key has no version, because
two encodings of one key would both survive compaction; a value starts with `"v"`. An unknown kind or version raises
`UnknownRecordKind`, because a replica that skipped a fact would differ from the others.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drmq.groups.errors import RecordMalformed, UnknownRecordKind
from drmq.groups.state import STORED_STATES, GroupState
from drmq.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition

VALUE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Protocol:
    """One assignment protocol that a member supports, with the metadata that it sends to the group's leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member as it is stored. All its protocols are kept, so that a new coordinator can detect whether
    a member that joins again has changed."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Everything about a group that must survive the coordinator. The last record of a group is its state."""

    group_id: str
    state: GroupState
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    """Wall time of the last change of state. The offsets of an empty group expire counted from here."""
    members: tuple[MemberMetadata, ...]

    def __post_init__(self) -> None:
        assert self.state in STORED_STATES, self.state

    def key(self) -> bytes:
        return _group_key(self.group_id)

    def to_bytes(self) -> bytes:
        return _dump(
            {
                "v": VALUE_VERSION,
                "state": self.state.value,
                "type": self.protocol_type,
                "generation": self.generation,
                "protocol": self.protocol_name,
                "leader": self.leader,
                "since_ms": self.state_since_ms,
                "members": [_member_to_json(member) for member in self.members],
            }
        )


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group was removed. Its offsets have records of their own."""

    group_id: str

    def key(self) -> bytes:
        return _group_key(self.group_id)

    def to_bytes(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """How far a group has read one partition."""

    group_id: str
    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_ms: int = field(default=0, kw_only=True)
    expire_ms: int | None = field(default=None, kw_only=True)
    """Wall time after which the offset may be removed, if the (old) client set it; otherwise retention decides."""
    topic_id: TopicId | None = field(default=None, kw_only=True)
    """Identifies the topic, because another one may get its name later. None if an older version wrote the record."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def key(self) -> bytes:
        return _offset_key(self.group_id, self.topic, self.partition)

    def to_bytes(self) -> bytes:
        content = {
            "v": VALUE_VERSION,
            "offset": self.offset,
            "epoch": self.leader_epoch,
            "metadata": self.metadata,
            "commit_ms": self.commit_ms,
            "expire_ms": self.expire_ms,
        }
        if self.topic_id is not None:
            # Not part of the key: one partition has one offset. Older versions ignore it, so the version does not
            # change.
            content["topic_id"] = self.topic_id.hex()
        return _dump(content)


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """The group has no committed offset for this partition any more."""

    group_id: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def key(self) -> bytes:
        return _offset_key(self.group_id, self.topic, self.partition)

    def to_bytes(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """A share group exists. Its epoch grows with every change of its members."""

    group_id: str
    epoch: int
    is_deleting: bool = False
    """It is being deleted: it takes no members, and is gone when its queues are."""

    def key(self) -> bytes:
        return _dump({"kind": "share-group", "group": self.group_id})

    def to_bytes(self) -> bytes:
        deleting = {"deleting": True} if self.is_deleting else {}
        return _dump({"v": VALUE_VERSION, "epoch": self.epoch, **deleting})


@dataclass(frozen=True, slots=True)
class ShareGroupDeleted:
    """The share group was removed, with its members."""

    group_id: str

    def key(self) -> bytes:
        return _dump({"kind": "share-group", "group": self.group_id})

    def to_bytes(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group, with the topics that it reads."""

    group_id: str
    member_id: str
    epoch: int
    """The epoch of the group when the member joined or changed its topics."""
    topics: tuple[str, ...]
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None

    def key(self) -> bytes:
        return _dump({"kind": "share-member", "group": self.group_id, "member": self.member_id})

    def to_bytes(self) -> bytes:
        return _dump(
            {
                "v": VALUE_VERSION,
                "epoch": self.epoch,
                "topics": list(self.topics),
                "client": self.client_id,
                "host": self.client_host,
                "rack": self.rack_id,
            }
        )


@dataclass(frozen=True, slots=True)
class ShareMemberLeft:
    """The share group has no such member any more."""

    group_id: str
    member_id: str

    def key(self) -> bytes:
        return _dump({"kind": "share-member", "group": self.group_id, "member": self.member_id})

    def to_bytes(self) -> None:
        return None


GroupRecord = (
    GroupMetadata
    | GroupDeleted
    | OffsetCommitted
    | OffsetDeleted
    | ShareGroupMetadata
    | ShareGroupDeleted
    | ShareMember
    | ShareMemberLeft
)


def record_to_bytes(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The record as a key and a value, the value None for a tombstone."""
    return record.key(), record.to_bytes()


def record_from_bytes(key: bytes, value: bytes | None) -> GroupRecord:
    """The record that was written as this key and value. Raises `RecordUnreadable` for anything else."""
    names = _load(key)
    kind = names.get("kind")
    reader = _READERS.get(str(kind))
    if reader is None:
        raise UnknownRecordKind(
            f"a group record of kind {kind!r}, which this version does not know; start the version that wrote it"
        )
    content = None if value is None else _load(value)
    if content is not None and content.get("v") != VALUE_VERSION:
        raise UnknownRecordKind(
            f"a {kind} record of version {content.get('v')!r}, and this version of DRMQ knows {VALUE_VERSION}; start "
            "the version that wrote it"
        )
    try:
        return reader(names, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordMalformed(f"a {kind} record that cannot be read: {error!r}") from error


def _group_record(names: Mapping[str, Any], content: Mapping[str, Any] | None) -> GroupRecord:
    if content is None:
        return GroupDeleted(_text(names["group"]))
    state = GroupState(content["state"])
    if state not in STORED_STATES:
        raise ValueError(f"state {state.value} is never stored")
    return GroupMetadata(
        group_id=_text(names["group"]),
        state=state,
        protocol_type=_text(content["type"]),
        generation=int(content["generation"]),
        protocol_name=_text_or_none(content["protocol"]),
        leader=_text_or_none(content["leader"]),
        state_since_ms=int(content["since_ms"]),
        members=tuple(_member_from_json(member) for member in content["members"]),
    )


def _offset_record(names: Mapping[str, Any], content: Mapping[str, Any] | None) -> GroupRecord:
    group_id, topic, partition = _text(names["group"]), _text(names["topic"]), int(names["partition"])
    if content is None:
        return OffsetDeleted(group_id, topic, partition)
    expire_ms = content["expire_ms"]
    topic_id = content.get("topic_id")
    return OffsetCommitted(
        group_id,
        topic,
        partition,
        offset=Offset(int(content["offset"])),
        leader_epoch=LeaderEpoch(int(content["epoch"])),
        metadata=_text(content["metadata"]),
        commit_ms=int(content["commit_ms"]),
        expire_ms=None if expire_ms is None else int(expire_ms),
        topic_id=None if topic_id is None else TopicId(bytes.fromhex(topic_id)),
    )


def _share_group_record(names: Mapping[str, Any], content: Mapping[str, Any] | None) -> GroupRecord:
    group_id = _text(names["group"])
    if content is None:
        return ShareGroupDeleted(group_id)
    return ShareGroupMetadata(group_id, int(content["epoch"]), bool(content.get("deleting")))


def _share_member_record(names: Mapping[str, Any], content: Mapping[str, Any] | None) -> GroupRecord:
    group_id, member_id = _text(names["group"]), _text(names["member"])
    if content is None:
        return ShareMemberLeft(group_id, member_id)
    return ShareMember(
        group_id,
        member_id,
        int(content["epoch"]),
        tuple(_text(topic) for topic in content["topics"]),
        _text(content["client"]),
        _text(content["host"]),
        _text_or_none(content["rack"]),
    )


_READERS = {
    "group": _group_record,
    "offset": _offset_record,
    "share-group": _share_group_record,
    "share-member": _share_member_record,
}


def _member_to_json(member: MemberMetadata) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "session_ms": member.session_timeout_ms,
        "rebalance_ms": member.rebalance_timeout_ms,
        # A list of pairs and not an object: the order is the member's preference.
        "protocols": [[protocol.name, _bytes_to_json(protocol.metadata)] for protocol in member.protocols],
        "assignment": _bytes_to_json(member.assignment),
    }


def text_bytes(text: str | None) -> int:
    """The size of a text in a record."""
    return len(json.dumps(text, ensure_ascii=True))


def opaque_bytes(size_bytes: int) -> int:
    """The size of this many opaque bytes in a record."""
    return 2 + (size_bytes + 2) // 3 * 4


def _member_from_json(member: Mapping[str, Any]) -> MemberMetadata:
    return MemberMetadata(
        member_id=_text(member["id"]),
        instance_id=_text_or_none(member["instance"]),
        client_id=_text(member["client"]),
        client_host=_text(member["host"]),
        session_timeout_ms=int(member["session_ms"]),
        rebalance_timeout_ms=int(member["rebalance_ms"]),
        protocols=tuple(
            Protocol(_text(name), b64decode(metadata, validate=True)) for name, metadata in member["protocols"]
        ),
        assignment=b64decode(member["assignment"], validate=True),
    )


def _group_key(group_id: str) -> bytes:
    return _dump({"kind": "group", "group": group_id})


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _dump({"kind": "offset", "group": group_id, "topic": topic, "partition": partition})


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _load(data: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordMalformed(f"not a group record: {error}") from error
    if not isinstance(content, dict):
        raise RecordMalformed(f"not a group record: {type(content).__name__} instead of an object")
    return content


def _bytes_to_json(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
