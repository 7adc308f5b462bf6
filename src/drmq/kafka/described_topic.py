"""Topics in the form of Metadata, encoded without a message object for each partition, and remembered.

A cluster has thousands of partitions, and many clients ask for all of them, often at the same moment: when a leader has
changed. What a partition's row has in common with others (its replicas, those in sync, those offline) is encoded by the
codec, once for all rows that have the same. The rest of a row is four numbers, which are packed here. `Look.remembered`
keeps the result until the topic is described differently.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import cast

from drmq.broker.services.cluster_view import NO_LEADER, Look
from drmq.catalog import Topic
from drmq.model import ErrorCode
from drmq.wire.codec import EncodedArray, encode_part
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

_EPOCH_FROM = 7
_HEAD = Struct(">hii")
_HEAD_WITH_EPOCH = Struct(">hiii")
"""The start of a row: error code, index, leader and, in later versions, the leader's epoch."""
_NO_LEADER_ERROR = int(ErrorCode.LEADER_NOT_AVAILABLE)

Nodes = tuple[int, ...]


def describe(look: Look, topic: Topic, version: int) -> MetadataResponseTopic:
    """Describe one topic for an answer of this version."""
    data = look.remembered(topic, version, lambda: _partitions(look, topic, version))
    partitions = cast("list[MetadataResponsePartition]", EncodedArray(topic.partition_count, data))
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, partitions)


def encoded(look: Look, topic: Topic, version: int, operations: int) -> bytes:
    """The encoded description of one topic, with the operations that the client may carry out on it."""
    return look.remembered(topic, (version, operations), lambda: _encode(look, topic, version, operations))


def _encode(look: Look, topic: Topic, version: int, operations: int) -> bytes:
    data = _partitions(look, topic, version)
    partitions = cast("list[MetadataResponsePartition]", EncodedArray(topic.partition_count, data))
    described = MetadataResponseTopic(0, topic.name, topic.topic_id, topic.is_internal, partitions, operations)
    out = bytearray()
    encode_part(described, MetadataResponse, version, out)
    return bytes(out)


def _partitions(look: Look, topic: Topic, version: int) -> bytes:
    """The encoded rows of all partitions of a topic."""
    has_epoch = version >= _EPOCH_FROM
    pack = _HEAD_WITH_EPOCH.pack if has_epoch else _HEAD.pack
    rows = []
    for index, leader, epoch, replicas, in_sync, offline in look.partitions(topic, range(topic.partition_count)):
        error = _NO_LEADER_ERROR if leader == NO_LEADER else 0
        rows.append(pack(error, index, leader, epoch) if has_epoch else pack(error, index, leader))
        rows.append(_tail(replicas, in_sync, offline, version))
    return b"".join(rows)


@lru_cache(maxsize=4096)
def _tail(replicas: Nodes, in_sync: Nodes, offline: Nodes, version: int) -> bytes:
    """The end of a row: all that follows the leader."""
    row = MetadataResponsePartition(0, 0, 0, 0, list(replicas), list(in_sync), list(offline))
    out = bytearray()
    encode_part(row, MetadataResponse, version, out)
    head = _HEAD_WITH_EPOCH if version >= _EPOCH_FROM else _HEAD
    return bytes(out[head.size :])
