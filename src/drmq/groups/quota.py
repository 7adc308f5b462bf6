"""How much state the groups of a node may have, and how much of it one caller may add.

A client can create a group with every request, by joining it or by committing an offset, and nothing but time removes
it. So there is a limit for the number of groups and for the bytes of all groups, members and offsets of a node. What
would exceed it is refused; what exists can still be used and committed again. The queues of share groups count too: a
client can begin one with every request, whether anyone has joined the group or not.

One caller must not use up all of it. A caller may add a quarter of each limit at once, and then as much again in the
time in which offsets of groups without members expire. A caller is an address: all its connections count together.
These counts are soft state: the next leader begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from drmq.groups.options import GroupOptions

GROUP_BYTES = 1_000
MEMBER_BYTES = 1_000
OFFSET_BYTES = 600
"""The memory of a group, a member and an offset besides their text, by measurement."""

CALLERS_MAX = 1_024
"""Callers whose counts are kept. Beyond this, the caller that has been inactive longest is forgotten."""

_CALLER_SHARE = 4
_RECOUNT_MS = 1_000
"""How often the usage is counted again while there is no room."""


class Usage(NamedTuple):
    """The state of some groups."""

    groups: int
    size_bytes: int


class Quota:
    """The limits of one node. Shared by its shards."""

    def __init__(
        self,
        options: GroupOptions,
        usage: Callable[[], Usage],
        recount: Callable[[], None],
        on_refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`usage` returns what the node has now. It may be too much, until `recount` is called.

        `on_refused` gets the limit by which a caller is refused.
        """
        self._options = options
        self._usage = usage
        self._recount = recount
        self._recounted_ms = -_RECOUNT_MS
        self._on_refused = on_refused
        self._left: dict[str, tuple[float, float, int]] = {}
        """By caller: the groups and bytes that it may add, and when that was computed."""

    def admits(self, caller: str, groups: int, size_bytes: int, now_ms: int) -> bool:
        """Whether a caller may add so many groups and bytes. If so, they count against its share."""
        if not self.has_room(groups, size_bytes, now_ms):
            return False
        options = self._options
        shares = options.groups_max / _CALLER_SHARE, options.state_bytes_max / _CALLER_SHARE
        groups_left, bytes_left, counted_ms = self._left.pop(caller, (*shares, now_ms))
        passed = (now_ms - counted_ms) / max(1, options.simple_offsets_retention_ms)
        groups_left = min(shares[0], groups_left + passed * shares[0])
        bytes_left = min(shares[1], bytes_left + passed * shares[1])
        is_admitted = groups <= groups_left and size_bytes <= bytes_left
        if is_admitted:
            groups_left, bytes_left = groups_left - groups, bytes_left - size_bytes
        if len(self._left) >= CALLERS_MAX:
            # The first is the one that was counted longest ago.
            del self._left[next(iter(self._left))]
        self._left[caller] = (groups_left, bytes_left, now_ms)
        if not is_admitted:
            name = "groups_max" if groups > groups_left else "group_state_bytes_max"
            self._on_refused(f"{caller or 'a caller'} has added a quarter of {name}, which is the share of a caller")
        return is_admitted

    def has_room(self, groups: int, size_bytes: int, now_ms: int) -> bool:
        """Whether the node has room for so many more groups and bytes, whichever caller adds them."""
        reached = self._limit_reached(groups, size_bytes)
        if reached is not None and now_ms - self._recounted_ms >= _RECOUNT_MS:
            self._recounted_ms = now_ms
            self._recount()
            reached = self._limit_reached(groups, size_bytes)
        if reached is not None:
            self._on_refused(f"the groups of this node have reached {reached}")
        return reached is None

    def _limit_reached(self, groups: int, size_bytes: int) -> str | None:
        used, options = self._usage(), self._options
        if used.groups + groups > options.groups_max:
            return f"groups_max ({options.groups_max})"
        if used.size_bytes + size_bytes > options.state_bytes_max:
            return f"group_state_bytes_max ({options.state_bytes_max})"
        return None
