"""A second door needs nothing of the first: all that clients ask for is in the services, none of them Kafka's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from drmq import groups
from drmq.broker.services.caller import ANONYMOUS, Caller
from drmq.broker.services.gate import Operation, on_topic, refusal, single
from drmq.broker.services.lookups import EARLIEST, HIGH_WATERMARK, LATEST
from drmq.broker.services.reads import WantedPartition
from drmq.model import ApiError, ErrorCode, Offset, TopicPartition
from support.batches import a_batch
from support.broker_harness import Harness
from support.gates import NamedGate

PARTITION = WantedPartition("t", 0, 0, 1 << 20)


class Door:
    """The smallest door: decodes and encodes nothing, and calls the services."""

    listener = "TEST"

    def __init__(self, harness: Harness) -> None:
        self._services = harness.broker.services
        self._caller = Caller(ANONYMOUS, "test", "", self.listener)

    def check(self, api: str, operation: Operation, topic: str) -> None:
        needed = on_topic(operation, topic)
        if needed in self._services.gate.admit(self._caller, api, 0, single, needed).refused:
            raise refusal(self._caller, needed)

    async def put(self, topic: str, batch: memoryview) -> Offset:
        self.check("PUT", Operation.WRITE, topic)
        return await self._services.router.append(self._caller, topic, 0, batch)

    async def get(self, topic: str, offset: int, wait_ms: int = 0) -> bytes:
        self.check("GET", Operation.READ, topic)
        wanted = WantedPartition(topic, 0, offset, 1 << 20)
        [result] = await self._services.reads.read([wanted], max_wait_ms=wait_ms)
        if result.error:
            raise ApiError(result.error, "not read")
        return bytes(result.data)


def test_a_door_of_a_few_lines_produces_consumes_and_is_checked(harness: Harness) -> None:
    door, services = Door(harness), harness.broker.services
    harness.run(services.topic_creation.auto_create(Caller(ANONYMOUS, "test", "", Door.listener), "t"))
    assert harness.run(door.put("t", a_batch([b"one"]))) == 0
    assert b"one" in harness.run(door.get("t", 0))

    async def wait_for_the_next() -> bytes:
        waiting = asyncio.ensure_future(door.get("t", 1, wait_ms=60_000))
        await asyncio.sleep(0)
        assert services.reads.parked_partitions == 1
        await door.put("t", a_batch([b"two"]))
        return await waiting

    assert b"two" in harness.run(wait_for_the_next())
    assert services.reads.parked_partitions == 0
    services.gate = NamedGate("t")
    for refused in (door.put("t", a_batch()), door.get("t", 0)):
        with pytest.raises(ApiError) as caught:
            harness.run(refused)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_groups_lookups_and_the_cluster_without_kafka(harness: Harness) -> None:
    services = harness.broker.services
    harness.create_topic("t")
    for _ in range(3):
        harness.produce("t")
    assert harness.run(services.lookups.find_offset("t", 0, LATEST))[0] == 3
    assert harness.run(services.lookups.move_start("t", 0, 2)) == 2
    assert harness.run(services.lookups.find_offset("t", 0, EARLIEST))[0] == 2
    assert harness.run(services.lookups.move_start("t", 0, HIGH_WATERMARK)) == 3
    assert services.cluster.partition(services.cluster.catalog.topic("t"), 0).leader == 1
    assert harness.run(services.producer_ids.new()) >= 0

    async def commit() -> object:
        request = groups.OffsetCommitRequest("g", (groups.OffsetToCommit("t", 0, Offset(2)),))
        committed = services.groups.ask("g", request, groups.OffsetCommitResponse, lambda answer: answer)
        return await committed if asyncio.isfuture(committed) else committed

    async def committed() -> object:
        request = groups.OffsetFetchRequest("g", (TopicPartition("t", 0),))
        found = services.groups.ask("g", request, groups.OffsetFetchResponse, lambda answer: answer)
        return await found if asyncio.isfuture(found) else found

    harness.run(commit())
    answer = harness.run(committed())
    assert isinstance(answer, groups.OffsetFetchResponse)
    assert [offset.offset for offset in answer.offsets] == [2]


def test_a_read_that_nobody_waits_for_any_more_is_not_parked(harness: Harness) -> None:
    harness.create_topic("t")
    reads = harness.broker.services.reads

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reads.read([PARTITION], max_wait_ms=60_000), 0.01)

    harness.run(give_up())
    assert reads.parked_partitions == 0
    assert not harness.partition("t")._watchers


def test_the_services_do_not_bring_the_kafka_door_with_them() -> None:
    """Neither it nor the Kafka wire format: a door of another protocol must not pay for them."""
    source = Path(__file__).resolve().parents[4] / "src"
    modules = [
        f"drmq.broker.services.{path.stem}" for path in sorted((source / "drmq/broker/services").glob("[a-z]*.py"))
    ]
    assert len(modules) > 8
    script = (
        "import importlib, sys\n"
        f"for name in {modules}: importlib.import_module(name)\n"
        "import drmq.broker.broker\n"
        "print([name for name in sys.modules if name.startswith(('drmq.kafka', 'drmq.wire.messages'))])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=source)
    assert found.stdout.strip() == "[]"
