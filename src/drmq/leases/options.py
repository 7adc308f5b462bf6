"""The settings of a lease group, with Kafka's names and defaults where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """The settings of one group that decide about its leases."""

    duration_ms: int = 30_000
    """How long a lease lasts (`share.record.lock.duration.ms`)."""
    attempts_max: int = 5
    """Deliveries of a record before it is given up (`share.delivery.count.limit`)."""
    leased_max: int = 10_000
    """Records of one partition that are leased at a time (`share.partition.max.record.locks`)."""
    renews: bool = True
    """Whether a member may renew its leases (`share.renew.acknowledge.enable`)."""
    backoff_ms: int = 0
    """How long a record waits after its first failed delivery. Each further failure multiplies the wait by
    `backoff_factor`, up to `backoff_max_ms`. 0: it is available again at once."""
    backoff_factor: float = 2.0
    backoff_max_ms: int = 3_600_000
    backoff_jitter: float = 0.2
    """The share of the wait that is random, so that records that failed together do not return together."""
    parked_max: int = 100_000
    """Records of one partition that wait for a time. While there are as many, no new record is leased."""
    dying_max: int = 1_000
    """Records of one partition that wait for their dead letter. While there are as many, no new record is leased."""
    writes_dead_letters: bool = True
    """If not, a record that is given up is dropped."""

    def __post_init__(self) -> None:
        assert min(self.duration_ms, self.attempts_max, self.leased_max) > 0, self
        assert self.backoff_ms >= 0, self
        assert self.backoff_factor >= 1, self
        assert 0 <= self.backoff_jitter <= 1, self


def backoff_ms(options: LeaseOptions, failures: int, random: float) -> int:
    """How long a record waits after so many failed deliveries; `random` is from 0 to 1."""
    wait = options.backoff_ms
    for _ in range(failures - 1):
        if wait >= options.backoff_max_ms:
            break
        wait = int(wait * options.backoff_factor)
    wait = min(wait, options.backoff_max_ms)
    return int(wait * (1 - options.backoff_jitter * random))
