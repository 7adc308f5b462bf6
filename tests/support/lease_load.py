"""A lease group at work on a cluster of real processes, recorded and judged by the rules of `drmq.testing.lease_rules`.

The members are those of the simulator, on real sockets: they settle well, badly, late, twice and for others, lose
answers on purpose, vanish and leave. Beside them works a `ShareConsumer` of confluent-kafka, which nobody here wrote.
Producers are confluent-kafka's too.

Real processes are disturbed by everything, a busy machine included, so the rules that hold only undisturbed are left
out: the whole run counts as disturbed.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import AcknowledgeType, Consumer, KafkaError, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from drmq.leases import Outcome
from drmq.testing.lease_history import Job, LeaseHistory, Produced, Said, letter_of
from drmq.testing.lease_rules import violations
from drmq.testing.simulation.client import Unavailable
from drmq.testing.simulation.history import History, Place
from drmq.testing.simulation.lease_members import Habits, LeaseMember, LeaseNotes, ShareMember, is_poison
from drmq.testing.simulation.workload import Worker
from drmq.testing.simulation.world import World
from drmq.wire.messages.describe_leases import DescribeLeasesRequest
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from support.checked_clients import QUIET
from support.cluster import ClusterProcesses
from support.polling import eventually

TOPIC, GROUP, LETTERS = "jobs", "crew", "dlq.crew"
PARTITIONS = 2
ATTEMPTS_MAX = 5
_BEHIND_MAX = 100
DRAINED_WITHIN_S = 240.0
"""Leases of members that vanished run out, several times for some records."""
_DESCRIBE, _ALTER = 0, 1
_BROKER, _GROUP = 4, 32
_SETTINGS = (
    (_BROKER, "", {"group.share.min.record.lock.duration.ms": "1000"}),
    (_GROUP, GROUP, {"share.record.lock.duration.ms": "10000", "share.auto.offset.reset": "earliest"}),
)
"""Short leases, so that members that vanish do not hold up the end."""
HABITS = Habits(poison=0.05, pause=0.005, crash=0.003, leave=0.003)


class RealWorld(World):
    """Real time, and a list of what went wrong."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.problems: list[str] = []

    @property
    def now_us(self) -> int:
        return int(time.monotonic() * 1_000_000)

    @now_us.setter
    def now_us(self, value: int) -> None:
        """Nobody sets real time."""

    def say(self, who: str, text: str) -> None:
        """What members do is not told."""

    def break_rule(self, rule: str, text: str) -> None:
        self.problems.append(f"{rule}: {text}")


class _Socket(asyncio.Protocol):
    """A connection of a member. Implements `client.ClientStream`."""

    def __init__(self, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._is_over = False
        self.task: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(3.0):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError:
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_over:
            transport.abort()
            return
        transport.write(b"".join(self._waiting))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if not self._is_over:
            self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_lost()

    def to_server(self, data: bytes) -> None:
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def break_off(self, *, by_server: bool) -> None:
        self._is_over = True
        if self._transport is not None:
            # As a connection that breaks: what was sent last may still arrive, or not.
            self._transport.close()


class _Sockets:
    """Reaches real nodes. Implements `client.Connector`."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster

    @property
    def node_ids(self) -> list[int]:
        return list(self._cluster.ids)

    def connect(self, node: int, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> _Socket | None:
        if node not in self._cluster.nodes:
            return None
        host, _, port = self._cluster[node].bootstrap.rpartition(":")
        stream = _Socket(on_data, on_lost)
        stream.task = asyncio.get_running_loop().create_task(stream.open(host, int(port)))
        return stream


class LeaseLoad:
    """A lease group at work. Made once the cluster is healthy."""

    def __init__(self, cluster: ClusterProcesses, seed: int = 1, members: int = 4) -> None:
        self.cluster = cluster
        self.world = RealWorld(seed)
        self.history = LeaseHistory(GROUP, ATTEMPTS_MAX, is_rough=True)
        self.notes = LeaseNotes(self.world, self.history, TOPIC, PARTITIONS, HABITS)
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._ending = threading.Event()
        cluster.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"}, len(cluster.nodes))
        cluster.wait_healthy()
        connector, history = _Sockets(cluster), _Unjudged(self.world)
        self.workers: list[Worker] = [
            (ShareMember if number % 3 == 2 else LeaseMember)(self.world, connector, history, self.notes, number)
            for number in range(members)
        ]
        for worker in self.workers:
            assert isinstance(worker, LeaseMember | ShareMember)
            worker.is_drained = self._ending.is_set
        self._has_begun = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(target,), daemon=True, name=target.__name__)
            for target in (self._run_members, self._produce, self._share)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except Exception as error:  # noqa: BLE001 - the outermost frame of a thread
            self.problems.append(f"{target.__name__}: {error!r}")

    @property
    def now_ms(self) -> float:
        return self.notes.now_ms

    # ---- members ----------------------------------------------------------------------------------

    def _run_members(self) -> None:
        asyncio.run(self._members())

    async def _members(self) -> None:
        await self._begin()
        self._has_begun.set()
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.run())
            while not self._stopping.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.1)
            for worker in self.workers:
                worker.healed_us = self.world.now_us
                worker.is_stopping = True

    async def _begin(self) -> None:
        """Give the group its settings."""
        left = list(_SETTINGS)
        while left and not self._stopping.is_set():
            kind, name, values = left[0]
            configs = [IncrementalAlterConfigsRequestConfig(key, 0, value) for key, value in values.items()]
            resource = IncrementalAlterConfigsRequestResource(kind, name, configs)
            try:
                answer = await self.workers[0].client.ask_any(IncrementalAlterConfigsRequest([resource]), _ALTER, 10.0)
                assert not answer.responses[0].error_code, answer.responses[0]
                left.pop(0)
            except Unavailable:
                await asyncio.sleep(0.2)

    # ---- confluent-kafka ----------------------------------------------------------------------------

    def _produce(self) -> None:
        self._has_begun.wait()
        chance = random.Random(self.world.seed)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "logger": QUIET})

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None or message.offset() is None:
                return
            job = Job(TOPIC, int(message.partition() or 0), int(message.offset() or 0))
            value = message.value() or b""
            self.history.produced.append(Produced(job, value, self.now_ms, is_poison(value, HABITS.poison)))

        number = 0
        while not self._stopping.is_set():
            if len(self.history.produced) - len(self.history.handouts) > _BEHIND_MAX:
                producer.poll(0.05)  # on a busy machine members are slower than producers, and all must end
                continue
            number += 1
            producer.produce(TOPIC, b"job %d" % number, partition=chance.randrange(PARTITIONS), on_delivery=on_delivery)
            producer.poll(chance.uniform(0, 0.02))
        left = producer.flush(60)
        assert not left, f"{left} jobs were never acknowledged"

    def _share(self) -> None:
        """A member that we did not write, which accepts what it gets, and releases poison."""
        self._has_begun.wait()
        consumer: Any = ShareConsumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "logger": QUIET,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            while not self._ending.is_set():
                for message in consumer.poll(0.3):
                    if message.error() is None:
                        self._on_shared(consumer, message)
        finally:
            consumer.close()

    def _on_shared(self, consumer: Any, message: Any) -> None:
        value = message.value() or b""
        job = Job(TOPIC, message.partition(), message.offset())
        # It may have been leased long ago, and the lease may be over: the library fetches before it is asked to.
        handout = self.history.on_handout(job, "librdkafka", message.delivery_count(), 0, 0.0, self.now_ms, 0.0, value)
        outcome = Outcome.RELEASE if is_poison(value, HABITS.poison) else Outcome.ACCEPT
        settling = self.history.on_settling(handout, "librdkafka", outcome, self.now_ms, is_fenced=False)
        kind = AcknowledgeType.RELEASE if outcome is Outcome.RELEASE else AcknowledgeType.ACCEPT
        try:
            consumer.acknowledge(message, kind)
            results = consumer.commit_sync(10)
        except KafkaException:
            return
        if all(error is None for error in results.values()):
            settling.said, settling.answered_ms = Said.OK, self.now_ms

    def wait_loaded(self, count: int = 50) -> None:
        """Until so many more jobs were settled."""
        before = len(self.history.settlings)
        eventually(
            lambda: len(self.history.settlings) - before,
            lambda more: more >= count,
            timeout_s=120,
            interval_s=0.05,
            what=f"{count} more settlements",
        )

    # ---- the end ------------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """End the work, and judge it. The cluster is whole again. What is wrong, as texts."""
        self._stopping.set()
        problems = self.problems
        try:
            self._threads[1].join(90)
            eventually(self._open, lambda left: left == 0, timeout_s=DRAINED_WITHIN_S, interval_s=0.5, what="open jobs")
            self._read_letters()
        except (AssertionError, KafkaException, OSError) as error:
            problems.append(f"jobs do not end: {error}")
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        return problems + self.world.problems + list(map(str, violations(self.history)))

    def abandon(self) -> None:
        self._stopping.set()
        self._ending.set()
        self._has_begun.set()

    def _open(self) -> int:
        """How many jobs have not ended, as the cluster says."""
        return asyncio.run(self._ask_open())

    async def _ask_open(self) -> int:
        client = Worker(self.world, _Sockets(self.cluster), _Unjudged(self.world), "asker").client
        try:
            answer = await client.ask_any(DescribeLeasesRequest(GROUP, [TOPIC]), _DESCRIBE, 10.0)
        except Unavailable:
            return -1
        queues = answer.queues
        if len(queues) < PARTITIONS or any(queue.error_code for queue in queues):
            return -1
        return sum(
            max(queue.open_count, queue.held_count + queue.returned_count + queue.parked_count + queue.dying_count)
            for queue in queues
        )

    def _read_letters(self) -> None:
        config = {"bootstrap.servers": self.cluster.bootstrap, "group.id": "letters", "logger": QUIET}
        consumer = Consumer(config)
        try:
            topics = consumer.list_topics(timeout=30).topics
            if LETTERS not in topics:
                return
            for index in topics[LETTERS].partitions:
                _, end = consumer.get_watermark_offsets(KafkaPartition(LETTERS, index), timeout=30)
                consumer.assign([KafkaPartition(LETTERS, index, 0)])
                position, deadline = 0, time.monotonic() + 60
                while position < end:
                    assert time.monotonic() < deadline, f"{LETTERS} cannot be read"
                    for message in consumer.consume(1_000, 0.5):
                        if message.error() is None:
                            headers: Any = message.headers() or []
                            self.history.letters.append(letter_of(message.value(), headers))
                            position = int(message.offset() or 0) + 1
        finally:
            consumer.close()

    def figures(self) -> dict[str, object]:
        return {
            "jobs": len(self.history.produced),
            "deliveries": len(self.history.handouts),
            "settlements": len(self.history.settlings),
            "letters": len(self.history.letters),
        }


class _Unjudged(History):
    """Members report what they read; here that is the matter of `lease_rules` alone."""

    def on_read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        return
