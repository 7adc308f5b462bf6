"""Settling leased records for any member: the request goes to the leader of each record, and is repeated if it must be.

A settlement names the member that holds the lease, so any process may send it. To repeat one does no harm: the shard
remembers what each member settled recently.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from drmq.client import ClientError
from drmq.client.errors import refusal
from drmq.client.leases.brokers import REQUEST_TIMEOUT_S, Brokers, Purpose
from drmq.gateway.ack_ids import AckId
from drmq.model import ErrorCode
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
    LeaseSettlement,
)

TIMEOUT_S: Final = 15.0
"""How long a settlement is tried: longer than an election takes."""
_PLACES_MAX: Final = 50_000
_RETRY_S, _RETRY_S_MAX = 0.05, 1.0
_DELETED_GRACE_S: Final = 2.0
"""How long a topic that a node does not know may be known to another one."""

Code = Literal[
    "ok",
    "not_leased",
    "never_leased",
    "leased_to_another",
    "leased_again",
    "no_renewal",
    "topic_deleted",
    "unavailable",
]
_REFUSALS: Final[dict[int, tuple[Code, str]]] = {
    1: ("never_leased", "it was never leased"),
    2: ("not_leased", "its lease has run out, or it was settled before"),
    3: ("leased_to_another", "another consumer holds it"),
    4: ("leased_again", "it was delivered again since"),
    5: ("no_renewal", "the group does not renew leases"),
}

Place = tuple[bytes, int]


class Wanted(NamedTuple):
    """A record to settle, with an outcome of LeaseFetch."""

    ack: AckId
    outcome: int
    delay_ms: int = -1


class SettleResult(NamedTuple):
    code: Code
    reason: str | None = None
    lease_until_ms: int | None = None
    """Until when the lease lasts, if it was renewed."""


class Settler:
    """Sends settlements. Lives on the event loop."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._brokers = Brokers(bootstrap, client_id)
        self._leaders: dict[Place, int] = {}

    def close(self) -> None:
        self._brokers.close()

    async def settle(self, group: str, wanted: Sequence[Wanted], timeout_s: float = TIMEOUT_S) -> list[SettleResult]:
        """Settle records within a time. Raises `ClientError` if the cluster answers for none of them."""
        results: dict[int, SettleResult] = {}
        until_s = time.monotonic() + timeout_s
        different = list(dict.fromkeys(wanted))
        for numbers in _rounds(different):
            await _Round(self, group, different, numbers, results).run(until_s)
        positions = {each: number for number, each in enumerate(different)}
        return [results[positions[each]] for each in wanted]

    # ---- leaders --------------------------------------------------------------------------------

    def leader_of(self, place: Place) -> int | None:
        return self._leaders.get(place)

    def on_moved(self, place: Place, leader: int | None) -> None:
        """A node does not lead this partition. `leader` is the one that does, if that node knows."""
        if leader is not None and self._brokers.knows(leader):
            self._leaders[place] = leader
        else:
            self._leaders.pop(place, None)

    async def find_leaders(self, places: Iterable[Place]) -> set[bytes]:
        """Look for the leaders of partitions. Returns the topics that do not exist. Raises `ClientError`."""
        topic_ids = {topic_id for topic_id, _ in places}
        answer = await self._brokers.metadata_by_id(topic_ids)
        if len(self._leaders) > _PLACES_MAX:
            self._leaders.clear()
        unknown = set()
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                unknown.add(topic.topic_id)
            for part in topic.partitions:
                if part.leader_id >= 0:
                    self._leaders[topic.topic_id, part.partition_index] = part.leader_id
        return unknown

    async def ask(self, node_id: int, request: LeaseFetchRequest) -> LeaseFetchResponse:
        """Send a request to a node. Raises `ClientError`."""
        link = await self._brokers.link_to(node_id, Purpose.SETTLING)
        answer = await link.call(request, LeaseFetchResponse, REQUEST_TIMEOUT_S)
        if answer.error_code:
            raise refusal(answer.error_code, f"Group `{request.group_id}` refuses a request", answer.error_message)
        return answer


def _rounds(wanted: Sequence[Wanted]) -> list[list[int]]:
    """Positions in `wanted`, such that no round has a record twice: a broker refuses such a request."""
    rounds: list[list[int]] = []
    seen: dict[tuple[str, bytes, int, int], int] = {}
    for number, each in enumerate(wanted):
        key = each.ack[:4]
        turn = seen.get(key, -1) + 1
        seen[key] = turn
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(number)
    return rounds


class _Round:
    """Settlements that go together."""

    def __init__(
        self,
        settler: Settler,
        group: str,
        wanted: Sequence[Wanted],
        numbers: Sequence[int],
        results: dict[int, SettleResult],
    ) -> None:
        self._settler = settler
        self._group = group
        self._wanted = wanted
        self._results = results
        self._open = set(numbers)
        self._failure: ClientError | None = None

    async def run(self, until_s: float) -> None:
        """Settle all of them, or say why not. Raises `ClientError` if the cluster answers for none."""
        began_s = time.monotonic()
        retry_s = _RETRY_S
        while self._open:
            if time.monotonic() >= until_s:
                self._give_up()
                return
            await self._find_leaders(time.monotonic() - began_s)
            await asyncio.gather(*(self._exchange(*share) for share in self._shares()))
            if not self._open:
                return
            await asyncio.sleep(min(retry_s, max(0.0, until_s - time.monotonic())))
            retry_s = min(2 * retry_s, _RETRY_S_MAX)

    def _give_up(self) -> None:
        failure = self._failure
        if failure is not None and not self._results:
            raise failure
        reason = "the cluster does not answer for it" if failure is None else str(failure)
        for number in self._open:
            self._results[number] = SettleResult("unavailable", f"{reason}; to repeat it does no harm")

    def _place(self, number: int) -> Place:
        ack = self._wanted[number].ack
        return ack.topic_id, ack.partition

    async def _find_leaders(self, elapsed_s: float) -> None:
        missing = {place for number in self._open if self._settler.leader_of(place := self._place(number)) is None}
        if not missing:
            return
        try:
            unknown = await self._settler.find_leaders(missing)
        except ClientError as error:
            self._failure = error
            return
        if elapsed_s < _DELETED_GRACE_S:
            return
        for number in [number for number in self._open if self._wanted[number].ack.topic_id in unknown]:
            self._settle(number, SettleResult("topic_deleted", "its topic was deleted"))

    def _shares(self) -> list[tuple[int, str, list[int]]]:
        """What is sent to each node for each member, in the order of places and offsets."""
        shares: dict[tuple[int, str], list[int]] = {}
        for number in sorted(self._open, key=lambda number: self._wanted[number].ack[1:4]):
            leader = self._settler.leader_of(self._place(number))
            if leader is not None:
                shares.setdefault((leader, self._wanted[number].ack.member_id), []).append(number)
        return [(leader, member, numbers) for (leader, member), numbers in shares.items()]

    async def _exchange(self, leader: int, member_id: str, numbers: list[int]) -> None:
        by_place: dict[Place, list[int]] = {}
        for number in numbers:
            by_place.setdefault(self._place(number), []).append(number)
        topics: dict[bytes, LeaseFetchRequestTopic] = {}
        for (topic_id, partition), part in by_place.items():
            topic = topics.setdefault(topic_id, LeaseFetchRequestTopic(topic_id, []))
            settlements = [self._settlement(number) for number in part]
            topic.partitions.append(LeaseFetchRequestPartition(partition, 0, settlements))
        request = LeaseFetchRequest(self._group, member_id, topics=list(topics.values()))
        try:
            answer = await self._settler.ask(leader, request)
        except ClientError as error:
            self._failure = error
            if not error.retriable:
                raise
            for place in by_place:
                self._settler.on_moved(place, None)
            return
        until_ms = int(time.time() * 1000) + answer.lease_ms
        for found in answer.topics:
            for each in found.partitions:
                place = found.topic_id, each.partition_index
                self._on_answer(place, each, by_place.get(place, []), until_ms)

    def _settlement(self, number: int) -> LeaseSettlement:
        ack, outcome, delay_ms = self._wanted[number]
        return LeaseSettlement(ack.offset, ack.offset, outcome, delay_ms, ack.token)

    def _on_answer(
        self, place: Place, answer: LeaseFetchResponsePartition, numbers: Sequence[int], until_ms: int
    ) -> None:
        if answer.settle_error_code:
            what = f"Partition {place[1]} of a topic does not settle"
            error = refusal(answer.settle_error_code, what, answer.settle_error_message)
            self._failure = error
            if not error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                raise error
            hint = answer.current_leader.leader_id
            self._settler.on_moved(place, hint if hint >= 0 else None)
            return
        refused = {
            offset: _REFUSALS.get(each.reason, ("not_leased", f"reason {each.reason}"))
            for each in answer.refusals
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        for number in numbers:
            reason = refused.get(self._wanted[number].ack.offset)
            self._settle(number, SettleResult("ok", None, until_ms) if reason is None else SettleResult(*reason))

    def _settle(self, number: int, result: SettleResult) -> None:
        self._results[number] = result
        self._open.discard(number)
