"""The vocabulary: types for ids, error codes and the few values that every layer uses.

This package has no behaviour. A type belongs here when two packages that may not import each other both need it.
"""

from drmq.model.errors import ApiError, DrmqError, ErrorCode, UnknownFormat
from drmq.model.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    GroupId,
    LeaderEpoch,
    MemberId,
    NodeId,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
    incarnation_of,
    member_id,
    node_of,
    topic_id_text,
)
from drmq.model.step import Answer, Step
from drmq.model.timers import Timers
from drmq.model.value import value

__all__ = [
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "NO_TOPIC_ID",
    "Answer",
    "ApiError",
    "DrmqError",
    "ErrorCode",
    "GroupId",
    "LeaderEpoch",
    "MemberId",
    "NodeId",
    "Offset",
    "ProducerId",
    "Step",
    "Timers",
    "TopicId",
    "TopicPartition",
    "UnknownFormat",
    "incarnation_of",
    "member_id",
    "node_of",
    "topic_id_text",
    "value",
]
