"""How much state the groups of a node may have, and how much of it one caller may add.

A client can create a group with every request, by joining it or by committing an offset, and nothing but time removes
it. So there is a limit for the number of groups and for the bytes of all groups, members and offsets of a node. What
would exceed it is refused; what exists can still be used and committed again. The queues of share groups count too: a
client can begin one with every request, whether anyone has joined the group or not.

One caller must not use up all of it. A caller may add a quarter of each limit at once, and then as much again in the
time in which offsets of groups without members expire. A caller is an address: all its connections count together.
These counts are soft state: the next leader begins anew.

What members of groups take is part of the share of a caller only while it is there (`Held`): members that come and go
use up nothing. A leader counts it from the stored members when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
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


class Held:
    """What members, their assignments and unused member ids take, each by a key, and the caller that it counts for."""

    def __init__(self) -> None:
        self._places: dict[Hashable, tuple[str, int]] = {}
        self._by_caller: dict[str, int] = {}

    def put(self, key: Hashable, caller: str, size_bytes: int) -> None:
        """Count a place, instead of what was counted for it before."""
        self.drop(key)
        self._places[key] = (caller, size_bytes)
        self._by_caller[caller] = self.of(caller) + size_bytes

    def drop(self, key: Hashable) -> None:
        caller, size_bytes = self._places.pop(key, ("", 0))
        left = self.of(caller) - size_bytes
        if left:
            self._by_caller[caller] = left
        else:
            self._by_caller.pop(caller, None)

    def caller_of(self, key: Hashable) -> str | None:
        place = self._places.get(key)
        return None if place is None else place[0]

    def of(self, caller: str) -> int:
        """The bytes of all places that count for a caller."""
        return self._by_caller.get(caller, 0)


class Quota:
    """The limits of one node. Shared by its shards."""

    def __init__(
        self,
        options: GroupOptions,
        usage: Callable[[], Usage],
        recount: Callable[[], None],
        on_refused: Callable[[str], None] = lambda reason: None,
        held: Callable[[str], int] = lambda caller: 0,
    ) -> None:
        """`usage` returns what the node has now. It may be too much, until `recount` is called.

        `on_refused` gets the limit by which a caller is refused. `held` returns what the members of a caller take now.
        """
        self._held = held
        self._options = options
        self._usage = usage
        self._recount = recount
        self._recounted_ms = -_RECOUNT_MS
        self._on_refused = on_refused
        self._left: dict[str, tuple[float, float, int]] = {}
        """By caller: the groups and bytes that it may add, and when that was computed."""

    def admits(self, caller: str, groups: int, size_bytes: int, now_ms: int, member_bytes: int = 0) -> bool:
        """Whether a caller may add so many groups and bytes. If so, they count against its share.

        `member_bytes` are what members add. They count as long as `held` has them.
        """
        if not self.has_room(groups, size_bytes + member_bytes, now_ms):
            return False
        groups_left, bytes_left = self._left_of(caller, now_ms)
        self._left.pop(caller, None)
        is_admitted = groups <= groups_left and size_bytes + member_bytes <= bytes_left - self._held(caller)
        if is_admitted:
            groups_left, bytes_left = groups_left - groups, bytes_left - size_bytes
        if len(self._left) >= CALLERS_MAX:
            # The first is the one that was counted longest ago.
            del self._left[next(iter(self._left))]
        self._left[caller] = (groups_left, bytes_left, now_ms)
        if not is_admitted:
            name = "groups_max" if groups > groups_left else "group_state_bytes_max"
            self._on_refused(f"{caller or 'a caller'} has a quarter of {name}, which is the share of a caller")
        return is_admitted

    def give_back(self, caller: str, size_bytes: int) -> None:
        """What a caller has added is removed, so that it may add as much again."""
        if caller in self._left:
            groups_left, bytes_left, counted_ms = self._left[caller]
            self._left[caller] = groups_left, bytes_left + size_bytes, counted_ms

    def may_hold(self, caller: str, member_bytes: int, now_ms: int) -> bool:
        """Whether members that are there already may count for a caller from now on."""
        return member_bytes <= self._left_of(caller, now_ms)[1] - self._held(caller)

    def charged_caller(self, owner: str | None, caller: str, size_bytes: int, growth: int, now_ms: int) -> str | None:
        """The caller that a place counts for when it has grown to `size_bytes`; None if it must not grow.

        `owner` is the caller that it counts for now, if it exists. If another has come to it, for example because a
        member has moved, it counts for that one if there is room in its share. Otherwise, two callers could fill their
        shares in turns, each time with places that are then taken over by the other. What does not grow is never
        refused.
        """
        if owner is not None and owner != caller:
            if self.may_hold(caller, size_bytes, now_ms):
                return caller if growth <= 0 or self.has_room(0, growth, now_ms) else None
            if growth <= 0:
                return owner
            growth = size_bytes
        return caller if growth <= 0 or self.admits(caller, 0, 0, now_ms, growth) else None

    def _left_of(self, caller: str, now_ms: int) -> tuple[float, float]:
        """The groups and bytes that a caller may add now, and what members hold of that."""
        options = self._options
        shares = options.groups_max / _CALLER_SHARE, options.state_bytes_max / _CALLER_SHARE
        groups_left, bytes_left, counted_ms = self._left.get(caller, (*shares, now_ms))
        passed = (now_ms - counted_ms) / max(1, options.simple_offsets_retention_ms)
        return min(shares[0], groups_left + passed * shares[0]), min(shares[1], bytes_left + passed * shares[1])

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
