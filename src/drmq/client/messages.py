"""What applications receive: messages with a position, and what a producer learns about a message that it sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from drmq.client.leases.batch import DONE, HELD, LOST, LeasedBatch

T = TypeVar("T")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

DELAY_S_MAX: Final = 43_200
"""Twelve hours: brokers refuse more."""
_UNREAD: Final = object()


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is now. It is on the disks of a majority of its replicas."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""


class Message(Generic[T]):
    """A message, and where it is in its topic."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        raise NotImplementedError

    @property
    def partition(self) -> int:
        raise NotImplementedError

    @property
    def offset(self) -> int:
        raise NotImplementedError

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970: set by the producer, or by the broker if the topic says so."""
        raise NotImplementedError

    @property
    def key(self) -> bytes | None:
        raise NotImplementedError

    # `Any` because a record may have no value at all. Compacted topics have such records, queues hardly ever, and most
    # code would have to assert that it is not so.
    @property
    def value(self) -> T | Any:
        """The value as the codec decodes it, when it is first used; None for a record without a value."""
        raise NotImplementedError

    @property
    def headers(self) -> Headers:
        raise NotImplementedError

    @property
    def time(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp / 1000, UTC)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}-{self.partition} offset {self.offset} key {self.key!r}>"


class LeasedData(Message[T]):
    """A message that is leased to this consumer: the part that the blocking and the asyncio class share."""

    __slots__ = ("_batch", "_row", "_value", "attempt")

    attempt: int
    """Which delivery this is, from 1. Deliveries that were given back do not count."""

    def __init__(self, batch: LeasedBatch, row: int, attempt: int) -> None:
        self._batch = batch
        self._row = row
        self.attempt = attempt
        self._value: Any = _UNREAD

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def offset(self) -> int:
        found: int = self._batch.offsets[self._row]
        return found

    @property
    def timestamp(self) -> int:
        return self._batch.timestamp_ms(self._row)

    @property
    def key(self) -> bytes | None:
        return self._batch.key(self._row)

    @property
    def value(self) -> T | Any:
        found = self._value
        if found is _UNREAD:
            found = self._batch.value(self._row)
            decode = self._batch.buffer.decode
            if decode is not None and found is not None:
                found = decode(found)
            self._value = found
        return found

    @property
    def headers(self) -> Headers:
        return self._batch.headers(self._row)

    @property
    def lease_token(self) -> int:
        """A number that grows with every delivery of a message: a store that remembers it can refuse late work."""
        return self._batch.token

    def settle_later(self, letter: int, delay: float | None = None) -> None:
        """Settle it with one of the letters of `leases.batch.WANTED`, without waiting for the broker."""
        if delay is None:
            self._batch.buffer.settle(self._batch, self._row, letter)
        else:
            self._batch.buffer.release(self._batch, self._row, letter, delay_in_ms(delay))

    @property
    def is_held(self) -> bool:
        """Whether this consumer still works on the message: it is not settled, and its lease has not ended."""
        return self._batch.states[self._row] == HELD

    @property
    def is_lost(self) -> bool:
        """Whether the client has learnt that the lease has ended."""
        return self._batch.states[self._row] == LOST

    @property
    def is_settled(self) -> bool:
        """Whether a broker has confirmed the outcome."""
        return self._batch.states[self._row] in DONE


def delay_in_ms(delay: float) -> int:
    """The milliseconds of so many seconds. Raises `ValueError`."""
    if not 0 <= delay <= DELAY_S_MAX:
        raise ValueError(f"delay is {delay!r}, and must be a number of seconds from 0 to {DELAY_S_MAX}")
    return int(delay * 1000)


class ReadMessage(Message[T]):
    """A message that was read without a lease."""

    __slots__ = ("_data", "_decode", "_headers", "_key", "_offset", "_partition", "_timestamp", "_topic", "_value")

    def __init__(self, found: Any, decode: Any) -> None:
        self._topic: str = found.topic()
        self._partition: int = found.partition()
        self._offset: int = found.offset()
        self._timestamp: int = found.timestamp()[1]
        self._key: bytes | None = found.key()
        self._headers = found.headers()
        self._data: bytes | None = found.value()
        self._decode = decode
        self._value: Any = _UNREAD

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def timestamp(self) -> int:
        return self._timestamp

    @property
    def key(self) -> bytes | None:
        return self._key

    @property
    def value(self) -> T | Any:
        if self._value is _UNREAD:
            decodes = self._decode is not None and self._data is not None
            self._value = self._decode(self._data) if decodes else self._data
        return self._value

    @property
    def headers(self) -> Headers:
        return tuple(self._headers or ())
