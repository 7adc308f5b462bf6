"""Results that arrive by a callback."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from drmq.broker.services.pending import Pending
from drmq.wire.messages.lease_fetch import LeaseSettlement
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness
from support.lease_requests import ACCEPT, TOPIC, Leases


def test_a_callback_gets_the_result_whenever_it_arrives() -> None:
    taken: list[object] = []
    early, late = Pending[int](), Pending[int]()
    early.then(lambda *result: taken.append(result))
    early._resolve(1)
    late._resolve(2)
    late.then(lambda *result: taken.append(result))
    assert taken == [(1, None), (2, None)]


def test_what_is_cancelled_calls_nothing() -> None:
    taken: list[object] = []
    pending = Pending[int]()
    pending.then(lambda *result: taken.append(result))
    pending.cancel()
    pending._resolve(1)
    assert pending.is_done
    assert taken == []


def test_it_can_be_awaited() -> None:
    async def main() -> None:
        good, bad = Pending[int](), Pending[int]()
        asyncio.get_running_loop().call_soon(good._resolve, 3)
        assert await good == 3
        bad._reject(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await bad

    asyncio.run(main())


def test_a_request_leaves_nothing_to_the_collector(harness: Harness) -> None:
    """Its records may be megabytes, and the collector of a broker runs rarely."""
    leases = Leases(harness)
    harness.produce(TOPIC, values=[b"x"] * 10)
    leases.take(1)
    line = KafkaHarness(harness)
    calls: list[weakref.ref[object]] = []
    call = harness.broker.services.leases.call

    def noting(*arguments: object) -> object:
        made: Pending[object] = call(*arguments)  # type: ignore[arg-type]
        calls.append(weakref.ref(made))
        return made

    harness.broker.services.leases.call = noting  # type: ignore[method-assign,assignment]
    gc.collect()
    gc.disable()
    try:
        line.ask(leases.request(count=3), 0)
        line.ask(leases.request(LeaseSettlement(0, 0, ACCEPT)), 0)
        line.ask(leases.request(LeaseSettlement(1, 1, ACCEPT), count=3), 0)
        line.send(leases.request(count=9, wait_ms=60_000), 0)
        harness.call(lambda: line.server.on_close(line.connection))
        line.paper.answers.clear()
        harness.settle()
        assert [ref() for ref in calls] == [None] * 4
    finally:
        gc.enable()
