"""NATS JetStream: a stream with the retention policy of a work queue, synced to disk before a publish is answered.

Imported only where nats-py is installed. Acknowledgements are not synced: a server keeps the state of a consumer in
memory and writes it now and then.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType

from bench.cluster.nats import NatsCluster
from bench.payloads import make_payloads
from bench.process import BenchError, Watched
from bench.queues.systems import FILL_SECONDS, ONE_PARTITION, Contender, QueueSystem
from bench.systems.nats import NatsSystem

ANSWER_SECONDS_MAX = 120.0
CREATE_SECONDS_MAX = 60.0
IN_FLIGHT_MAX = 4000
CHECK_EVERY = 500
ACK_PENDING_MAX = 20_000
"""Messages that all workers together may have. The default, 1,000, is too few for sixteen."""


class NatsQueue(QueueSystem):
    """A stream with one replica per node, and a durable consumer."""

    program = "nats"
    variant = "sync always"
    contenders = (Contender("peer", "nats-py", "lease_jetstream", "push"),)
    sender = "lease_jetstream"

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self._single = NatsSystem(directory, fsyncs=True)
        self._cluster = NatsCluster(directory, node_count, fsyncs=True)

    def check(self) -> None:
        """Needs the two packages."""
        self._single.check()

    def version(self) -> str:
        """As the server says."""
        return self._single.version()

    def start(self) -> None:
        """Empty servers and an empty stream."""
        if self.node_count == 1:
            self._single.start(ONE_PARTITION)
        else:
            self._cluster.form(1)
        self._run(self._add_stream)

    def stop(self) -> None:
        """End the servers."""
        self._single.stop()
        self._cluster.stop()

    @property
    def servers(self) -> Watched:
        """One server or all."""
        return self._single.server if self.node_count == 1 else self._cluster

    @property
    def ports(self) -> tuple[int, ...]:
        """Of one server or all."""
        return (self._single.port,) if self.node_count == 1 else tuple(self._cluster.client_ports)

    @property
    def keeps_messages(self) -> bool:
        """A message that is acknowledged is deleted."""
        return False

    def fill(self, record_size: int, count: int) -> int:
        """Publishes, with many of them in flight."""
        sent = 0

        async def publish(stream: JetStreamContext, connection: Client) -> None:
            nonlocal sent
            deadline = time.perf_counter() + FILL_SECONDS
            payloads = make_payloads(record_size)
            inbox = connection.new_inbox()
            answered = asyncio.Event()
            answers = 0
            errors: list[bytes] = []

            async def on_answer(message: Msg) -> None:
                nonlocal answers
                answers += 1
                if b'"error"' in message.data or not message.data:
                    errors.append(message.data or b"no responders")
                answered.set()

            await connection.subscribe(inbox, cb=on_answer, pending_msgs_limit=-1, pending_bytes_limit=-1)
            is_sending = True
            while is_sending:
                for _ in range(min(CHECK_EVERY, count - sent)):
                    await connection.publish(self.queue, payloads[sent % len(payloads)], reply=inbox)
                    sent += 1
                is_sending = sent < count and time.perf_counter() < deadline
                while sent - answers > (IN_FLIGHT_MAX if is_sending else 0):
                    answered.clear()
                    await asyncio.wait_for(answered.wait(), ANSWER_SECONDS_MAX)
                if errors:
                    raise BenchError(f"{len(errors)} publishes failed: {errors[0].decode()}")

        self._run(publish)
        return sent

    def open_group(self, group: str) -> None:
        """A durable consumer of the stream."""

        async def add(stream: JetStreamContext, connection: Client) -> None:
            is_push = self.contenders[0].mode == "push"
            config = ConsumerConfig(
                durable_name=group, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=ACK_PENDING_MAX,
                deliver_subject=f"deliver.{group}" if is_push else None, deliver_group=group if is_push else None,
            )  # fmt: skip
            await stream.add_consumer(self.queue, config)

        self._run(add)

    async def _add_stream(self, stream: JetStreamContext, _connection: Client) -> None:
        deadline = asyncio.get_running_loop().time() + CREATE_SECONDS_MAX
        while True:
            try:
                await stream.add_stream(
                    name=self.queue, subjects=[self.queue], storage=StorageType.FILE, num_replicas=self.node_count,
                    retention=RetentionPolicy.WORK_QUEUE,
                )  # fmt: skip
                return
            except nats.errors.Error as failed:
                # Early on it may be refused for want of peers.
                if asyncio.get_running_loop().time() > deadline:
                    raise BenchError(f"cannot create a stream: {failed}") from failed
                await asyncio.sleep(0.1)

    def _run(self, action: Callable[[JetStreamContext, Client], Awaitable[None]]) -> None:
        async def run() -> None:
            connection = await nats.connect([f"nats://127.0.0.1:{port}" for port in self.ports])
            try:
                await action(connection.jetstream(timeout=30), connection)
            finally:
                await connection.close()

        try:
            asyncio.run(run())
        except (nats.errors.Error, OSError, TimeoutError) as failed:
            raise BenchError(f"NATS does not answer as expected: {failed!r}") from failed
