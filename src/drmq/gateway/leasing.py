"""Taking work by lease, for callers that keep nothing: scripts over HTTP, and unary calls of gRPC.

    messages = await leasing.poll("billing", ["orders"], count_max=10, wait_ms=5_000)
    await leasing.settle("billing", [Settle(each.ack_id, "ack") for each in messages])

A poll leases as a member of the group that this gateway keeps alive (`lease_member`), one for each group and set of
topics. What it leased is not remembered: an ack id has all that is needed to settle it, through any gateway. So a
lease is not renewed by itself; callers extend it.

Always true: what was leased for a caller that went away before it got it is given back. A settlement is answered for
each message, and may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from drmq.client import ClientError
from drmq.gateway import ack_ids
from drmq.gateway.ack_ids import BadAckId
from drmq.gateway.lease_member import BYTES_MAX, GIVE_BACK, Leased, LeaseMember, shutting_down
from drmq.gateway.settling import Settler, SettleResult, Wanted

log = logging.getLogger("drmq.gateway")

IDLE_S: Final = 300.0
"""A member that nobody polls leaves its group after this time."""
MEMBERS_MAX: Final = 64
"""Members of this gateway in all groups. Each has a connection or two to every node."""
COUNT_MAX: Final = 1_000
WAIT_MS_MAX: Final = 60_000
DELAY_MS_MAX: Final = 43_200_000
_SWEEP_S = 15.0
_CLOSE_S = 5.0

Outcome = Literal["ack", "nack", "reject", "extend", "give_back"]
_CODES: Final[dict[str, int]] = {"ack": 1, "nack": 2, "reject": 3, "extend": 4, "give_back": GIVE_BACK}

RefusalCode = Literal[
    "ok",
    "not_leased",
    "never_leased",
    "leased_to_another",
    "leased_again",
    "no_renewal",
    "bad_ack_id",
    "topic_deleted",
    "unavailable",
]

__all__ = ["Leased", "Leasing", "Outcome", "RefusalCode", "Settle", "Settled"]


@dataclass(frozen=True, slots=True)
class Settle:
    """How the work on a message went. `delay_ms` is for `nack`: None for the backoff of the group."""

    ack_id: str
    outcome: Outcome
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one message. If `ok` is false, `reason` says why it was refused, and nothing has changed.

    After the code `unavailable` it is not known whether it was settled, and it may be repeated.
    """

    ack_id: str
    ok: bool
    code: RefusalCode = "ok"
    reason: str | None = None
    lease_until_ms: int | None = None
    """After an extension."""


class Leasing:
    """All members of this gateway. Lives on the event loop."""

    def __init__(
        self, bootstrap: Callable[[], str], client_id: str = "drmq-gateway", *, idle_s: float = IDLE_S
    ) -> None:
        self._bootstrap = bootstrap
        """All nodes that are known when a client begins: those that the gateway was given may be gone by then."""
        self._client_id = client_id
        self._idle_s = idle_s
        self._members: dict[tuple[str, frozenset[str]], LeaseMember] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @cached_property
    def _settler(self) -> Settler:
        return Settler(self._bootstrap(), self._client_id)

    # ---- taking ---------------------------------------------------------------------------------

    async def poll(
        self, group: str, topics: Sequence[str], *, count_max: int, wait_ms: int, bytes_max: int = BYTES_MAX
    ) -> list[Leased]:
        """Lease up to `count_max` messages, and wait for the first one. Raises `ClientError`.

        If the caller is cancelled, what was leased for it is given back.
        """
        assert 1 <= count_max <= COUNT_MAX, count_max
        assert 0 <= wait_ms <= WAIT_MS_MAX, wait_ms
        member = self._member(group, frozenset(topics))
        with member.in_use():
            return await member.poll(count_max, wait_ms / 1000, bytes_max)

    def _member(self, group: str, topics: frozenset[str]) -> LeaseMember:
        if self._is_closed:
            raise shutting_down()
        key = (group, topics)
        member = self._members.get(key)
        if member is not None and not member.has_failed:
            return member
        if member is not None:
            self._remove(key)
        self._make_room()
        member = self._members[key] = LeaseMember(self._bootstrap(), self._client_id, group, topics, self._settler)
        member.start()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="lease-members")
        return member

    def _make_room(self) -> None:
        if len(self._members) < MEMBERS_MAX:
            return
        idle = [(member.used_s, key) for key, member in self._members.items() if not member.user_count]
        if not idle:
            raise ClientError(
                f"This gateway polls {MEMBERS_MAX} groups and sets of topics at the same time, the most it may",
                retriable=True,
                advice="Poll the topics of a group together, or use another gateway.",
            )
        self._remove(min(idle, key=lambda each: each[0])[1])

    def _remove(self, key: tuple[str, frozenset[str]]) -> None:
        member = self._members.pop(key)
        task = asyncio.get_running_loop().create_task(member.close(_CLOSE_S), name="lease-member-leaves")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._idle_s / 2))
            now_s = time.monotonic()
            for key, member in list(self._members.items()):
                if not member.user_count and now_s - member.used_s >= self._idle_s:
                    self._remove(key)

    # ---- settling -------------------------------------------------------------------------------

    async def settle(self, group: str, outcomes: Sequence[Settle]) -> list[Settled]:
        """Settle messages, whichever gateway leased them. The answers are in the order of `outcomes`.

        Raises `ClientError` if nothing at all could be settled because the cluster does not answer.
        """
        wanted: list[Wanted] = []
        places: list[int | str] = []
        """By outcome: its position in `wanted`, or what is wrong with its ack id."""
        for each in outcomes:
            try:
                ack = ack_ids.decode(group, each.ack_id)
            except BadAckId as error:
                places.append(str(error))
            else:
                places.append(len(wanted))
                delay_ms = -1 if each.delay_ms is None else each.delay_ms
                wanted.append(Wanted(ack, _CODES[each.outcome], delay_ms))
        results = await self._settler.settle(group, wanted) if wanted else []
        found = []
        for each, place in zip(outcomes, places, strict=True):
            if isinstance(place, str):
                found.append(Settled(each.ack_id, False, "bad_ack_id", place))
            else:
                found.append(_settled(each, results[place]))
        return found

    async def give_back(self, group: str, messages: Sequence[Leased]) -> None:
        """Return messages that did not reach their caller. If that fails, their leases run out."""
        with suppress(ClientError):
            await self.settle(group, [Settle(each.ack_id, "give_back") for each in messages])

    async def leave(self) -> None:
        """End all polls, and leave all groups. Leases that callers hold stay valid. To settle is still possible."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for key in list(self._members):
            self._remove(key)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def close(self) -> None:
        """The same, and close all connections."""
        await self.leave()
        self._settler.close()


def _settled(each: Settle, result: SettleResult) -> Settled:
    code: RefusalCode = result.code
    until_ms = result.lease_until_ms if each.outcome == "extend" else None
    return Settled(each.ack_id, code == "ok", code, result.reason, until_ms)
