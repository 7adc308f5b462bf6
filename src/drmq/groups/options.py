"""The settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Limits and delays of every group in a shard."""

    session_timeout_ms_min: int = 1_000
    """Smallest session timeout a member may ask for. Too small a value lets pauses look like deaths."""

    session_timeout_ms_max: int = 1_800_000
    """Largest session timeout a member may ask for. Too large a value keeps the dead for that long."""

    initial_rebalance_delay_ms: int = 0
    """How long the first join of an empty group waits for company. Longer means fewer rebalances when
    many consumers start together, and a later first message."""

    group_size_max: int = 10_000
    """Members per group, ids handed out but not used included. A join beyond it is refused."""

    group_bytes_max: int = 32 << 20
    """What a group's members, as they are stored, may take together, without their assignments. A group is one record,
    and the log takes none that is too large. A join beyond it is refused."""

    offset_metadata_size_bytes_max: int = 4_096
    """Largest text a client may attach to a committed offset."""

    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    """How long the offsets of a group without members are kept. Too short, and a consumer that was
    stopped over the holidays starts again from the beginning or the end."""

    def __post_init__(self) -> None:
        if not 0 < self.session_timeout_ms_min <= self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min must be positive and not above session_timeout_ms_max")
        if self.initial_rebalance_delay_ms < 0 or self.offsets_retention_ms < 0:
            raise ValueError("delays and retention must not be negative")
        if min(self.group_size_max, self.group_bytes_max) < 1 or self.offset_metadata_size_bytes_max < 0:
            raise ValueError("a group must have room for one member, and metadata a size limit of 0 or more")
