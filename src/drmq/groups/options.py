"""The settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Limits and delays of every group in a shard."""

    session_timeout_ms_min: int = 1_000
    """Smallest session timeout that a member may request. If too small, a pause looks like a failure."""

    session_timeout_ms_max: int = 1_800_000
    """Largest session timeout that a member may request. If too large, a failed member keeps its partitions that
    long."""

    initial_rebalance_delay_ms: int = 0
    """How long the first join of an empty group waits for more members. A longer delay means fewer rebalances when
    many consumers start together, and a later first message."""

    group_size_max: int = 10_000
    """Members per group, including ids that were assigned but not used. Further joins are refused."""

    group_bytes_max: int = 32 << 20
    """Size limit of all stored members of a group together, without their assignments. A group is one record, and the
    log
    has a limit for records. A join beyond it is refused."""

    offset_metadata_size_bytes_max: int = 4_096
    """Largest text that a client may attach to a committed offset."""

    groups_max: int = 50_000
    """Groups on a node, over all shards. A join or commit that would create a further one is refused."""

    state_bytes_max: int = 256 << 20
    """Memory for groups, members, offsets and queues on a node, over all shards. What would add to it is refused."""

    simple_offsets_retention_ms: int = 12 * 3_600 * 1_000
    """How long the offsets of a group that no member ever joined are kept, from the last commit on."""

    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    """How long the offsets of a group without members are kept. If too short, a consumer that was stopped for some
    days starts again from the beginning or the end."""

    def __post_init__(self) -> None:
        if not 0 < self.session_timeout_ms_min <= self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min must be positive and not above session_timeout_ms_max")
        if min(self.initial_rebalance_delay_ms, self.offsets_retention_ms, self.simple_offsets_retention_ms) < 0:
            raise ValueError("delays and retention must not be negative")
        if min(self.groups_max, self.state_bytes_max) < 1:
            raise ValueError("a node must have room for one group")
        if min(self.group_size_max, self.group_bytes_max) < 1 or self.offset_metadata_size_bytes_max < 0:
            raise ValueError("a group must have room for one member, and metadata a size limit of 0 or more")
