"""A consumer that reads at a position of its own."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from drmq.client.blocking.consumer import Consumer
from drmq.client.codecs import CodecName, Decoding
from drmq.client.messages import Message, ReadMessage
from drmq.client.reader import Offsets, Reader, Start, Time

T = TypeVar("T")

_STEP_S = 0.5
"""Ctrl-C is noticed after this at the latest: librdkafka cannot be interrupted."""


class SingleConsumer(Consumer[T]):
    """A consumer in single mode. `Consumer(servers, mode="single")` makes one. Used by one thread at a time."""

    def __init__(
        self,
        bootstrap: str,
        group: str | None = None,
        *,
        mode: Literal["single"] = "single",
        codec: CodecName | Decoding[T] = "bytes",
        timeout: float = 10.0,
        client_id: str = "drmq",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._reader = Reader(
            bootstrap, group, codec=codec, timeout_s=timeout, client_id=client_id, properties=properties
        )

    def subscribe(
        self,
        topic: str,
        start: Start | None = None,
        *,
        offset: Offsets | None = None,
        time: Time | None = None,
        partitions: Iterable[int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Read a topic too: from its start or end, an offset (of each partition, or by partition), or a time.

        Without a position, it is the offset that was committed for the group, or else the start. The topic need not
        exist yet, and partitions that are added later are read from their start.
        """
        self._reader.subscribe(topic, start, offset, time, partitions, timeout)

    def seek(
        self,
        topic: str,
        start: Start | None = None,
        *,
        offset: Offsets | None = None,
        time: Time | None = None,
        partition: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Go on reading at another position: in one partition, or in all that are read."""
        self._reader.seek(topic, start, offset, time, partition, timeout)

    def poll(self, max: int = 500, timeout: float = 1.0) -> list[Message[T]]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        deadline_s = clock.monotonic() + timeout
        while True:
            left_s = deadline_s - clock.monotonic()
            found: list[Message[T]] = []
            found += self._reader.poll(max, min(_STEP_S, left_s) if left_s > 0 else 0.0, ReadMessage)
            if found or left_s <= _STEP_S:
                return found

    def __iter__(self) -> Iterator[Message[T]]:
        """Messages one after the other, for ever."""
        while True:
            yield from self.poll()

    def commit(self, topic: str, offset: int, partition: int = 0, *, timeout: float | None = None) -> None:
        """Keep the *next* offset to read under the name of the group."""
        self._reader.commit(topic, offset, partition, timeout)

    def committed(self, topic: str, partition: int = 0, *, timeout: float | None = None) -> int | None:
        """The offset that was committed last for the group; None if there is none."""
        return self._reader.committed(topic, partition, timeout)

    def close(self, timeout: float | None = None) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        self._reader.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
