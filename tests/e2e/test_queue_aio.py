"""`drmq.aio`: the same as the blocking client, for asyncio, against a real broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

import drmq
from drmq.testing import Broker
from support.polling import PATIENCE_S
from support.queue_client import client_threads

T = TypeVar("T")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(partitions=2)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine; no task and no thread may be left of it."""

    async def checked() -> T:
        async with asyncio.timeout(PATIENCE_S):
            result = await main()
        # The callbacks of what was just closed.
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    try:
        return asyncio.run(checked())
    finally:
        assert client_threads() == []


def test_send_take_and_acknowledge(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with drmq.aio.Producer(broker.bootstrap_servers) as producer:
            sent = await producer.send(topic, b"0", key=b"k")
            assert (sent.topic, sent.offset) == (topic, 0)
            later = [await producer.submit(topic, b"%d" % number) for number in range(1, 100)]
            await producer.flush()
            assert all(each.done() for each in later)
        got = []
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}", start="earliest") as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                async with message:
                    got.append(int(message.value))
                if len(got) == 50:
                    break
            while len(got) < 100:
                for message in await consumer.poll(10):
                    got.append(int(message.value))
                    await message.ack(wait=False)
            await consumer.flush()
        assert sorted(got) == list(range(100))
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}") as consumer:
            await consumer.subscribe(topic)
            assert await consumer.poll(1, 1.0) == []

    run(main)


def test_each_outcome(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with drmq.aio.Producer(broker.bootstrap_servers) as producer:
            for value in (b"nack", b"give back", b"reject", b"raise"):
                await producer.send(topic, value, partition=0)
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}", start="earliest") as consumer:
            await consumer.subscribe(topic)
            found: dict[bytes, drmq.aio.LeasedMessage[bytes]] = {}
            while len(found) < 4:
                found |= {message.value: message for message in await consumer.poll(10)}
            await found[b"nack"].extend()
            await found[b"nack"].nack(delay=0)
            await found[b"give back"].give_back()
            await found[b"reject"].reject()
            with pytest.raises(ZeroDivisionError):
                async with found[b"raise"]:
                    _ = 1 / 0
            again: dict[bytes, int] = {}
            while len(again) < 3:
                again |= {message.value: message.attempt for message in await consumer.poll(10)}
            assert again == {b"nack": 2, b"give back": 1, b"raise": 2}

    run(main)


def test_a_task_that_is_cancelled_gives_its_message_back(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with drmq.aio.Producer(broker.bootstrap_servers) as producer:
            await producer.send(topic, b"a")
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}", start="earliest") as consumer:
            await consumer.subscribe(topic)
            began = asyncio.Event()

            async def work() -> None:
                async for message in consumer:
                    async with message:
                        began.set()
                        await asyncio.sleep(PATIENCE_S)

            task = asyncio.create_task(work())
            await began.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            [message] = await consumer.poll(1, PATIENCE_S)
            assert message.attempt == 1
            await message.ack()

    run(main)


def test_a_block_that_is_cancelled_closes_its_consumer(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with drmq.aio.Producer(broker.bootstrap_servers) as producer:
            await producer.send(topic, b"a")
        began = asyncio.Event()

        async def work() -> None:
            async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}", start="earliest") as consumer:
                await consumer.subscribe(topic)
                async for _ in consumer:
                    began.set()

        task = asyncio.create_task(work())
        await began.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}") as other:
            await other.subscribe(topic)
            [message] = await other.poll(1, PATIENCE_S)
            assert message.attempt == 1

    run(main)


def test_single_mode(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with drmq.aio.Producer(broker.bootstrap_servers, codec="text") as producer:
            for number in range(5):
                await producer.send(topic, f"{number}", partition=0)
        async with drmq.aio.Consumer(broker.bootstrap_servers, f"s-{topic}", mode="single", codec="text") as reader:
            await reader.subscribe(topic, offset={0: 3})
            found = []
            async for message in reader:
                found.append(message.value)
                if len(found) == 2:
                    break
            assert found == ["3", "4"]
            await reader.seek(topic, "earliest")
            assert (await reader.poll(1, PATIENCE_S))[0].value == "0"
            await reader.commit(topic, 4)
            assert await reader.committed(topic) == 4

    run(main)


def test_the_classes_say_when_they_are_not_open(broker: Broker) -> None:
    async def main() -> None:
        consumer = drmq.aio.Consumer(broker.bootstrap_servers, "g")
        reader = drmq.aio.Consumer(broker.bootstrap_servers, mode="single")
        producer = drmq.aio.Producer(broker.bootstrap_servers)
        for call in (consumer.poll, reader.poll, lambda: producer.send("orders", b"a")):
            with pytest.raises(drmq.Closed, match="async with"):
                await call()

    run(main)


def test_a_cluster_that_cannot_be_reached() -> None:
    async def main() -> None:
        async with drmq.aio.Consumer("127.0.0.1:1", "g", timeout=0.5) as consumer:
            with pytest.raises(drmq.Unreachable):
                await consumer.subscribe("orders")

    run(main)


def test_subscribing_gives_a_new_group_its_position_in_every_partition(broker: Broker) -> None:
    topic = broker.create_topic(partitions=40)

    async def main() -> None:
        # A broker asks no more partitions than records are wanted: one with the smallest prefetch.
        async with (
            drmq.aio.Producer(broker.bootstrap_servers) as producer,
            drmq.aio.Consumer(broker.bootstrap_servers, f"g-{topic}", start="latest", prefetch=1) as consumer,
        ):
            await consumer.subscribe(topic)
            for partition in range(40):
                await producer.submit(topic, b"%d" % partition, partition=partition)
            await producer.flush()
            got: set[int] = set()
            while len(got) < 40:
                for message in await consumer.poll(10):
                    got.add(message.partition)
                    await message.ack(wait=False)

    run(main)
