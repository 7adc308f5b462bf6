"""Polls that wait: as long as one does, every leader is asked for records."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from drmq.client import ClientError
from drmq.client.leases.brokers import Purpose
from drmq.client.leases.source import Source
from drmq.gateway import ack_ids
from drmq.gateway.ack_ids import AckId
from drmq.gateway.lease_member import GIVE_BACK, Leased, LeaseMember
from drmq.gateway.settling import Settler, Wanted
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from drmq.wire.messages.lease_fetch import (
    LeaseDelivery,
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
    LeaseFetchResponseTopic,
)

NODE = 1
_WAIT_S = 2.0
Fetch = Callable[[int], Awaitable[list[Leased]]]


def a_message(offset: int, value: bytes = b"work") -> Leased:
    ack = AckId(str(uuid.uuid4()), bytes(16), 0, offset, 1)
    return Leased(ack_ids.encode("crew", ack), "jobs", 0, offset, 0, None, value, (), 1, 0, 1)


class Member:
    """A member that has joined, and whose only partition has a leader. `fetch` stands for its requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fetch: Fetch) -> None:
        settler = Settler("127.0.0.1:1", "test")
        self.member = LeaseMember("127.0.0.1:1", "test", "crew", frozenset({"jobs"}), settler)
        self.source = Source("jobs", bytes(16), 0)
        self.source.leader_id = NODE
        self.asked = 0
        self.was_asked = asyncio.Event()

        async def ask(
            node_id: int, sources: Sequence[Source], count: int, bytes_max: int, wait_s: float, purpose: Purpose
        ) -> Any:
            self.asked += 1
            await asyncio.sleep(0)
            # The caller of the test goes on when this waits, or has returned.
            asyncio.get_running_loop().call_soon(self.was_asked.set)
            return await fetch(self.asked)

        monkeypatch.setattr(self.member, "_fetch", ask)
        monkeypatch.setattr(self.member._leaders, "_sources", {(bytes(16), 0): self.source})

    async def wait(self) -> list[Leased]:
        return await self.member._wait(1, _WAIT_S)


def test_a_poll_that_begins_while_the_last_request_ends_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate = asyncio.get_running_loop().create_future()

        async def fetch(number: int) -> list[Leased]:
            if number == 1:
                await gate
            return [a_message(number)]

        async def second() -> list[Leased]:
            await gate
            return await member.wait()

        member = Member(monkeypatch, fetch)
        first = asyncio.ensure_future(member.wait())
        await member.was_asked.wait()
        # It wakes up in the same turn of the event loop as the request, and after it.
        late = asyncio.ensure_future(second())
        await asyncio.sleep(0)
        gate.set_result(None)
        assert [each.offset for each in await first] == [1]
        assert [each.offset for each in await late] == [2]

    asyncio.run(main())


def test_a_partition_that_was_refused_is_asked_again_for_polls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's shard may have no leader for a moment, while the leader of the partition stays the same."""

    async def main() -> None:
        async def fetch(number: int) -> list[Leased]:
            if number > 1:
                return [a_message(number)]
            member.source.retry_at_s = time.monotonic() + 0.2
            return []

        member = Member(monkeypatch, fetch)
        waiting = asyncio.ensure_future(member.wait())
        await member.was_asked.wait()
        member.member._on_leaders()  # the metadata has come, and is the same
        assert [each.offset for each in await waiting] == [2]

    asyncio.run(main())


def test_a_poll_that_begins_to_wait_while_the_gateway_stops_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def fetch(number: int) -> list[Leased]:
            return []

        member = Member(monkeypatch, fetch)
        await member.member.close(1.0)
        with pytest.raises(ClientError) as caught:
            await member.wait()
        assert caught.value.retriable
        assert not member.asked

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_a_poll_brings_no_more_bytes_than_are_wanted(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """A client may not accept a larger answer, and would lose its leases. Those that do not fit are given back."""

    async def main() -> None:
        async def fetch(number: int) -> list[Leased]:
            return [] if waits and number == 1 else [a_message(offset, bytes(1_000)) for offset in range(10)]

        member = Member(monkeypatch, fetch)
        given_back: list[Leased] = []
        monkeypatch.setattr(member.member, "_be_ready", lambda: asyncio.sleep(0))
        monkeypatch.setattr(member.member, "_give_back", given_back.extend)
        found = await member.member.poll(10, _WAIT_S if waits else 0.0, 4_000)
        assert [each.offset for each in found] == [0, 1, 2]
        assert [each.offset for each in given_back] == list(range(3, 10))
        given_back.clear()
        assert len(await member.member.poll(10, 0.0, 10)) == 1, "one is never too large"

    asyncio.run(main())


def test_what_a_poll_has_no_room_for_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kilobytes in each of these partitions decompress to 10 MB. What is not decoded is given back."""

    async def main() -> None:
        member = LeaseMember("127.0.0.1:1", "test", "crew", frozenset({"jobs"}), Settler("127.0.0.1:1", "test"))
        large = [Record(Offset(offset), 0, None, bytes(1_000_000)) for offset in range(10)]
        batch = bytes(encode_batch(large, base_offset=Offset(0), codec=Codec.GZIP))
        parts = [
            LeaseFetchResponsePartition(index, records=batch, deliveries=[LeaseDelivery(0, 9, 1)]) for index in range(4)
        ]
        answer = LeaseFetchResponse(topics=[LeaseFetchResponseTopic(bytes(16), parts)])

        async def link_to(*place: Any) -> Any:
            async def call(*request: Any) -> LeaseFetchResponse:
                return answer

            return SimpleNamespace(call=call)

        given_back: list[Wanted] = []

        async def settle(wanted: Sequence[Wanted]) -> None:
            given_back.extend(wanted)

        monkeypatch.setattr(member, "_settle", settle)
        monkeypatch.setattr(member._brokers, "link_to", link_to)
        sources = [Source("jobs", bytes(16), index) for index in range(4)]
        tracemalloc.start()
        try:
            found = await member._fetch(NODE, sources, 100, 4_000_000, 0.0, Purpose.TAKING)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await asyncio.gather(*member._tasks)
        assert 4 <= len(found) <= 5
        assert len(found) + len(given_back) == 40
        assert {each.outcome for each in given_back} == {GIVE_BACK}
        assert peak < 32_000_000, "10 MB of one batch, and what is kept of it"

    asyncio.run(main())
