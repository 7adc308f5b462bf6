"""The vocabulary of the client drivers: records, answers, and what each driver can do.

Everything here is a value of bytes and integers, so that a record written by one client can be compared with what
another read. The drivers translate; they add no retries, no defaults and no repairs of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from support.polling import PATIENCE_S

Acks = Literal["0", "1", "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]
Partition = tuple[str, int]

RECORD_SIZE_BYTES_MAX = 16 * 1024 * 1024
"""What the drivers let through to the broker, whose own limit is the one under test."""

SESSION_TIMEOUT_MS = 6_000
"""The smallest session timeout that Apache Kafka accepts by default."""


@dataclass(frozen=True)
class Record:
    """What a producer is asked to send; `partition=None` leaves the choice to the client's partitioner."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = 0
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Received:
    """What a consumer saw."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: Literal["create", "append", "unknown"] = field(default="unknown")

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


def content(record: Record) -> tuple[bytes | None, bytes | None, Headers]:
    """The part of a record that must come back unchanged, in the shape of `Received.content`."""
    return record.key, record.value, record.headers


@dataclass(frozen=True)
class Delivery:
    """Where a record was stored, according to the producer. Without acknowledgements the offset is unknown (None)."""

    partition: int
    offset: int | None


class KafkaFailure(Exception):
    """An error that the broker answered with, by its Kafka code, whatever exception the client made of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Member(ABC):
    """A running group member. It polls on its own; tests look at its partitions and at what it has read."""

    @abstractmethod
    def assigned(self) -> frozenset[Partition]:
        """The partitions owned now; empty during a rebalance."""

    @abstractmethod
    def assignment_count(self) -> int:
        """How many times partitions were handed to this member: a rebalance that passes by leaves it unchanged."""

    @abstractmethod
    def received(self) -> list[Received]: ...

    @abstractmethod
    def failure(self) -> KafkaFailure | None:
        """What ended the member, if the broker did."""

    @abstractmethod
    def leave(self) -> None:
        """Commit, leave the group (a static member only stops) and release everything."""


class Client(ABC):
    """One client library, reduced to the verbs that all of them share."""

    name: ClassVar[str]
    assignors: ClassVar[tuple[str, ...]]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Delivery]:
        """Send the records in order and wait for all of them; raise `KafkaFailure` for the first that failed."""

    @abstractmethod
    def consume(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] = (0,),
        offset: int | Literal["earliest", "latest"] = "earliest",
        reset: Literal["earliest", "latest"] = "earliest",
        read_committed: bool = False,
        partition_fetch_bytes_max: int = 1024 * 1024,
        fetch_bytes_min: int = 1,
        fetch_wait_ms_max: int = 500,
        timeout_s: float = PATIENCE_S,
    ) -> list[Received]:
        """Read from assigned partitions, without a group, until `count` records are there or the time is over."""

    @abstractmethod
    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignor: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        metadata_age_ms_max: int = 300_000,
    ) -> Member:
        """Become a member that reads from the beginning where nothing is committed, and commits as it goes.

        A topic that starts with `^` is a pattern.
        """

    def __repr__(self) -> str:
        return self.name
