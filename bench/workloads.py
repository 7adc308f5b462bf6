"""What is sent: record size, batching, partitions, and how much of it.

A workload is bounded twice, in bytes and in seconds, whichever comes first. A slow system
therefore sends less instead of taking longer, and rates stay comparable.
"""

import enum
from dataclasses import dataclass, replace

MEGABYTE = 1_000_000

TOPIC = "bench-0000"
"""The topic, unless a system needs a new one each time; names are all of this length."""


class Batching(enum.Enum):
    """How records are put together into requests, and by which client."""

    LARGE = "large"
    """The system's usual client, tuned for throughput: linger 20 ms, batches of up to 1 MB."""

    EAGER = "linger0"
    """The system's usual client with linger 0: whatever is queued leaves at once."""

    RAW = "raw"
    """Pre-encoded requests of one large batch each, pipelined by a bare socket program."""

    SINGLE = "single"
    """Pre-encoded requests of exactly one record each, pipelined by a bare socket program."""

    @property
    def is_raw(self) -> bool:
        """Whether the sender is the bare socket program, which only Kafka's protocol has."""
        return self in (Batching.RAW, Batching.SINGLE)


@dataclass(frozen=True)
class Workload:
    """One shape of traffic. `name` is what `--workload` takes."""

    name: str
    record_size: int
    batching: Batching
    partition_count: int
    bytes_max: int
    """Record values sent at most, per repetition."""
    seconds_max: float = 4.0
    """How long one phase sends at most; what was sent by then counts."""
    is_quick: bool = False
    """Whether `--quick` includes it."""

    @property
    def records_max(self) -> int:
        """How many records fill `bytes_max`."""
        return max(1, self.bytes_max // self.record_size)

    @property
    def title(self) -> str:
        """The workload in words, for the table."""
        size = "1 KB" if self.record_size >= 1000 else f"{self.record_size} B"
        how = {
            Batching.LARGE: "large batches",
            Batching.EAGER: "linger 0",
            Batching.RAW: "large batches, raw sender",
            Batching.SINGLE: "one record per request, raw sender",
        }[self.batching]
        partitions = "1 partition" if self.partition_count == 1 else f"{self.partition_count} partitions"
        return f"{size}, {how}, {partitions}"


ALL: tuple[Workload, ...] = (
    Workload("1k", 1024, Batching.LARGE, 1, 768 * MEGABYTE, is_quick=True),
    Workload("1k-16p", 1024, Batching.LARGE, 16, 768 * MEGABYTE),
    Workload("1k-raw", 1024, Batching.RAW, 1, 1536 * MEGABYTE, is_quick=True),
    Workload("100b", 100, Batching.LARGE, 1, 200 * MEGABYTE, is_quick=True),
    Workload("100b-16p", 100, Batching.LARGE, 16, 200 * MEGABYTE),
    Workload("1k-linger0", 1024, Batching.EAGER, 1, 512 * MEGABYTE),
    Workload("100b-linger0", 100, Batching.EAGER, 16, 100 * MEGABYTE),
    Workload("single", 100, Batching.SINGLE, 1, 60 * MEGABYTE, is_quick=True),
    Workload("single-16p", 100, Batching.SINGLE, 16, 60 * MEGABYTE),
)


def select(names: list[str], *, is_quick: bool) -> list[Workload]:
    """The workloads of a run; `--quick` takes fewer, and less time for each."""
    known = {workload.name for workload in ALL}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(f"unknown workload {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [w for w in ALL if (w.name in names if names else w.is_quick or not is_quick)]
    if is_quick:
        chosen = [replace(w, seconds_max=1.2) for w in chosen]
    return chosen
