"""Appends batches to partitions that this node leads, and reports when they are safe.

The hot path of producing. A batch is appended at once, in the order of the calls. A callback reports when it is as safe
as requested (`acks`): there is no task and no future per batch. `Router.append` is for partitions that another node may
lead.

A batch for a topic that requires a codec may have to be recompressed first (`must_recompress`). Then it is appended
later, and a callback gets its place in the log. Topics that keep batches as they come cost one look at their settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drmq.broker.clock import Clock
from drmq.broker.options import BrokerOptions
from drmq.broker.partitions.partition import Appended, Partition
from drmq.broker.partitions.partition_table import PartitionTable
from drmq.broker.services.recompression import Outcome, Recompression
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.storage import Writer

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


class Appends:
    """Appends for clients. Lives on the event loop."""

    def __init__(
        self,
        partitions: PartitionTable,
        writer: Writer,
        clock: Clock,
        options: BrokerOptions,
        recompression: Recompression,
    ) -> None:
        self._partitions = partitions
        self.recompression = recompression
        self._writer = writer
        self._clock = clock
        self._options = options

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition of a topic, which is given by its name or its id. Raises `ApiError`."""
        table = self._partitions
        return table.by_name(topic, index) if isinstance(topic, str) else table.by_id(TopicId(topic), index)

    def append(self, partition: Partition, batch: memoryview | None, acks: int, *, is_own: bool = False) -> Appended:
        """Check a batch, assign its offsets and propose it. If it raises `ApiError`, nothing has changed.

        The batch is changed in place, and the caller must not use it afterwards. Call it only if `must_recompress` is
        false. `is_own` means that a node writes the batch, and not a client: `max.message.bytes` does not apply.
        """
        if not batch:
            raise ApiError(ErrorCode.INVALID_RECORD, "the request has no batch for this partition")
        now_ms = self._clock.wall_ms()
        if is_own:
            partition.check_own_size(len(batch))
        return partition.append(
            batch, now_ms, wants_written=acks == ACKS_LEADER, wants_all=acks == ACKS_ALL, own=is_own
        )

    def must_recompress(self, partition: Partition, batch: memoryview | None) -> bool:
        """Whether a batch has to be recompressed, or has to wait for one that is."""
        return partition.config.compression is not None and self.recompression.is_needed(partition, batch)

    def recompress(
        self,
        partition: Partition,
        batch: memoryview,
        acks: int,
        caller: str,
        placed: Callable[[Outcome], None],
        *,
        is_own: bool = False,
    ) -> None:
        """Copy a batch, recompress and append it later, and tell `placed` its place or why it has none.

        The batches of a caller (an address) are appended in the order of the calls.
        """
        self.recompression.submit(
            partition, batch, caller, lambda at, done: self.append(at, done, acks, is_own=is_own), placed
        )

    def when_safe(self, partition: Partition, appended: Appended, acks: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once the batch is as safe as `acks` requires, or has failed for good."""
        if acks == ACKS_ALL:
            partition.when_durable(appended.next_offset, done)
        else:
            partition.when_written(appended.next_offset, done)

    def is_flooded(self, share: int = 1) -> bool:
        """Whether the bytes that wait for the disk, or for followers, exceed 1/`share` of their limit.

        A door stops reading from its producers when this is true for 1, and continues when it is false for 2.
        """
        options = self._options
        return (
            self._writer.queued_bytes > options.queued_bytes_max // share
            or self._partitions.uncommitted_bytes > options.uncommitted_bytes_max // share
        )
