"""Requests and responses of a lease shard as bytes, for a shard that is led by another node.

Several are sent together: a JSON list of messages. A message is a list itself: the name of its class, and its fields in
order. Fields that are messages themselves are lists too, an enum is its name, and a topic id is hexadecimal. Classes
are only ever added, and fields only at the end, so that nodes of two releases understand each other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from drmq.leases.messages import (
    Acquire,
    Acquired,
    Advance,
    Bury,
    Delivery,
    DescribeQueues,
    Done,
    ExpireMember,
    Failed,
    Failure,
    LeaseRequest,
    LeaseResponse,
    LeaseView,
    Outcome,
    QueueBegun,
    QueueList,
    QueueView,
    Refusal,
    Refused,
    ReleaseMember,
    RemoveQueues,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    Withdraw,
)
from drmq.leases.queue_key import QueueKey
from drmq.leases.redrive_transfer import REDRIVE_READERS
from drmq.model import ErrorCode, TopicId


class Problem(NamedTuple):
    """Instead of a response: the request was refused with this code of the protocol."""

    code: ErrorCode
    text: str


_MESSAGES: Final[dict[str, type]] = {
    each.__name__: each
    for each in (
        StartQueue,
        Acquire,
        Withdraw,
        Advance,
        Settle,
        ReleaseMember,
        ExpireMember,
        Bury,
        RemoveQueues,
        DescribeQueues,
        Failed,
        QueueBegun,
        Acquired,
        SettleResult,
        Done,
        QueueList,
        Problem,
    )
}


def requests_to_bytes(requests: Sequence[LeaseRequest]) -> bytes:
    """Requests for another node."""
    return _to_bytes(requests)


def responses_to_bytes(responses: Sequence[LeaseResponse | Problem]) -> bytes:
    """Responses for another node, in the order of the requests."""
    return _to_bytes(responses)


def _to_bytes(messages: Sequence[tuple[Any, ...]]) -> bytes:
    rows = [[type(message).__name__, *message] for message in messages]
    return json.dumps(rows, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    assert isinstance(value, bytes), value
    return value.hex()


def requests_from_bytes(data: bytes) -> list[LeaseRequest]:
    """Requests of another node. Raises `ValueError`."""
    messages: list[LeaseRequest] = _from_bytes(data)
    return messages


def responses_from_bytes(data: bytes) -> list[LeaseResponse | Problem]:
    """Responses of another node. Raises `ValueError`."""
    messages: list[LeaseResponse | Problem] = _from_bytes(data)
    return messages


def _from_bytes(data: bytes) -> Any:
    try:
        return [_READERS[name](fields) for name, *fields in json.loads(data)]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"messages about leases from another node are malformed: {error!r}") from error


def _key(fields: list[Any]) -> QueueKey:
    group, topic_id, partition = fields
    return QueueKey(str(group), TopicId(bytes.fromhex(topic_id)), int(partition))


def _settlement(fields: list[Any]) -> Settlement:
    first, last, outcome, delay_ms, token = fields
    return Settlement(int(first), int(last), Outcome[outcome], None if delay_ms is None else int(delay_ms), int(token))


def _queue_view(fields: list[Any]) -> QueueView:
    key, start, end, held, returned, parked, dying, next_due_ms, is_paused, leases = fields
    views = tuple(LeaseView(*each) for each in leases)
    return QueueView(_key(key), start, end, held, returned, parked, dying, next_due_ms, is_paused, views)


def _ranges(runs: list[Any]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in runs)


_READERS: Final[dict[str, Any]] = {
    "StartQueue": lambda f: StartQueue(_key(f[0]), int(f[1]), bool(f[2]), *map(str, f[3:4])),
    "Acquire": lambda f: Acquire(_key(f[0]), str(f[1]), *map(int, f[2:7])),
    "Withdraw": lambda f: Withdraw(_key(f[0]), str(f[1]), int(f[2])),
    "Advance": lambda f: Advance(_key(f[0]), int(f[1]), int(f[2])),
    "Settle": lambda f: Settle(_key(f[0]), str(f[1]), tuple(map(_settlement, f[2]))),
    "ReleaseMember": lambda f: ReleaseMember(_key(f[0]), str(f[1])),
    "ExpireMember": lambda f: ExpireMember(str(f[0]), str(f[1])),
    "Bury": lambda f: Bury(_key(f[0]), _ranges(f[1])),
    "RemoveQueues": lambda f: RemoveQueues(str(f[0]), None if f[1] is None else TopicId(bytes.fromhex(f[1]))),
    "DescribeQueues": lambda f: DescribeQueues(str(f[0]), int(f[1])),
    "Failed": lambda f: Failed(Failure[f[0]]),
    "QueueBegun": lambda f: QueueBegun(int(f[0])),
    "Acquired": lambda f: Acquired(int(f[0]), int(f[1]), tuple(Delivery(*map(int, each)) for each in f[2])),
    "SettleResult": lambda f: SettleResult(
        tuple(Refused(int(first), int(last), Refusal[name]) for first, last, name in f[0])
    ),
    "Done": lambda f: Done(),
    "QueueList": lambda f: QueueList(tuple(map(_queue_view, f[0]))),
    "Problem": lambda f: Problem(ErrorCode(f[0]), str(f[1])),
    **REDRIVE_READERS,
}
assert _READERS.keys() == _MESSAGES.keys() | REDRIVE_READERS.keys()
