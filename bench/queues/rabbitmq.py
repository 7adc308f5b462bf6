"""RabbitMQ: a quorum queue. Its log is synced to disk on most nodes before a publish is confirmed.

Imported only where aio-pika is installed. The nodes start slowly, so they keep running, and each measurement gets a
new queue. They have their own port mapper (epmd), which would otherwise be started in the background and stay.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import aio_pika
from aiormq.exceptions import AMQPError

from bench.payloads import make_payloads
from bench.process import BenchError, Server, Usage, Watched, fixed_ports, port_answers
from bench.queues.systems import FILL_SECONDS, Contender, QueueSystem
from bench.systems import Unavailable

START_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 120.0
FILL_WINDOW = 1000
PROGRAM_BESIDE = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command on PATH changes the user if it is started by root; this is what it then runs."""


class RabbitNodes:
    """Some nodes and their port mapper, running or not; also the `Watched` of their clients."""

    def __init__(self, directory: Path, node_count: int, program: str) -> None:
        self.directory = directory
        self.ports = fixed_ports(2 * node_count + 1)
        self._mapper_port = self.ports.pop()
        self._program = program
        self._mapper: Server | None = None
        self._nodes: list[Server] = []

    @property
    def name(self) -> str:
        """For messages."""
        return "rabbitmq"

    @property
    def client_ports(self) -> tuple[int, ...]:
        """Where clients connect."""
        return tuple(self.ports[::2])

    def start(self) -> None:
        """Start all nodes on empty directories, and wait until they are a cluster."""
        self.directory.mkdir(parents=True)
        # The nodes and the command find it in their home directory. Erlang refuses one that others may read.
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text("bench")
        cookie.chmod(0o400)
        epmd = ["epmd", "-address", "127.0.0.1", "-port", str(self._mapper_port)]
        self._mapper = Server(epmd, self.directory / "epmd.log")
        for number in range(1, len(self.client_ports) + 1):
            log = self.directory / f"{number}.log"
            self._nodes.append(Server(self._command(number), log))
        for node, port in zip(self._nodes, self.client_ports, strict=True):
            node.wait_ready(lambda port=port: port_answers(port), START_SECONDS_MAX)  # type: ignore[misc]
        self._wait_formed()

    def stop(self) -> None:
        """End everything."""
        for node in self._nodes:
            # A node that is stopped in order hands over its queues first.
            node.stop(signal.SIGKILL)
        self._nodes = []
        if self._mapper is not None:
            self._mapper.stop()
            self._mapper = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def usage(self) -> Usage:
        """Of all nodes."""
        each = [node.usage() for node in self._nodes]
        return Usage(
            sum(one.cpu_seconds for one in each), sum(one.rss_bytes for one in each),
            tuple(one.cpu_seconds for one in each),
        )  # fmt: skip

    def log_tail(self) -> str:
        """The last words of each node."""
        return " | ".join(node.log_tail()[-200:] for node in self._nodes)

    def _node_name(self, number: int) -> str:
        return f"bench-{self.ports[0]}-{number}@localhost"

    def _environment(self, number: int) -> dict[str, str]:
        home = self.directory / str(number)
        home.mkdir(exist_ok=True)
        config = home / "rabbitmq.conf"
        port, peer_port = self.ports[2 * number - 2 : 2 * number]
        lines = [f"listeners.tcp.local = 127.0.0.1:{port}", "log.console = true", "log.file = false"]
        if len(self.client_ports) > 1:
            lines.append("cluster_formation.peer_discovery_backend = classic_config")
            lines += [
                f"cluster_formation.classic_config.nodes.{other} = {self._node_name(other)}"
                for other in range(1, len(self.client_ports) + 1)
            ]
        config.write_text("\n".join(lines) + "\n")
        plugins = home / "enabled_plugins"
        plugins.write_text("[].\n")
        return {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node_name(number),
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(peer_port),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            # The script then replaces itself by the server, so that it is our process and not a child of it.
            "RUNNING_UNDER_SYSTEMD": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _command(self, number: int) -> list[str]:
        settings = [f"{name}={value}" for name, value in self._environment(number).items()]
        return ["env", *settings, self._program]

    def _wait_formed(self) -> None:
        """Every node must list all nodes as running."""
        wanted = len(self.client_ports)
        if wanted == 1:
            return
        deadline = time.perf_counter() + START_SECONDS_MAX
        control = Path(self._program).with_name("rabbitmqctl")
        environment = os.environ | self._environment(1)
        ask = [str(control), "-q", "eval", "length(rabbit_nodes:all_running())."]
        while True:
            done = subprocess.run(ask, env=environment, capture_output=True, text=True, check=False, timeout=60)
            if done.stdout.strip() == str(wanted):
                return
            if time.perf_counter() > deadline:
                raise BenchError(f"RabbitMQ did not form a cluster: {done.stdout} {done.stderr}"[-300:])
            time.sleep(0.5)


class RabbitQueue(QueueSystem):
    """A quorum queue with one replica per node."""

    program = "rabbitmq"
    variant = "quorum queue"
    contenders = (Contender("peer", "aio-pika", "lease_rabbitmq"),)
    sender = "lease_rabbitmq"

    def __init__(self, directory: Path, node_count: int) -> None:
        super().__init__(directory, node_count)
        self._nodes: RabbitNodes | None = None
        self._queue_count = 0

    def check(self) -> None:
        """Needs the server."""
        self._find_program()
        if shutil.which("epmd") is None:
            raise Unavailable("needs epmd on PATH, which comes with Erlang")

    def version(self) -> str:
        """By the directory of its code: the command that tells it starts a port mapper that stays."""
        found = sorted(Path(self._find_program()).parents[1].glob("**/rabbitmq_server-*"))
        return found[-1].name.partition("-")[2] if found else "unknown"

    def start(self) -> None:
        """A new queue; the first time, also new nodes."""
        if self._nodes is None:
            directory = self.directory / f"rabbitmq-{self.node_count}"
            nodes = RabbitNodes(directory, self.node_count, self._find_program())
            try:
                nodes.start()
            except BaseException:
                nodes.stop()
                raise
            self._nodes = nodes
        self._queue_count += 1

        async def declare(channel: aio_pika.abc.AbstractChannel) -> None:
            arguments: Any = {"x-queue-type": "quorum", "x-quorum-initial-group-size": self.node_count}
            await channel.declare_queue(self.queue, durable=True, arguments=arguments)

        self._run(declare)

    def stop(self) -> None:
        """Delete the queue; the nodes stay."""
        if self._nodes is None:
            return

        async def delete(channel: aio_pika.abc.AbstractChannel) -> None:
            await channel.queue_delete(self.queue)

        self._run(delete)

    def close(self) -> None:
        """End the nodes."""
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes = None

    @property
    def servers(self) -> Watched:
        """All nodes."""
        return self._started

    @property
    def ports(self) -> tuple[int, ...]:
        """Of all nodes."""
        return self._started.client_ports

    @property
    def queue(self) -> str:
        """A new name for each measurement."""
        return f"queue-{self._queue_count}"

    @property
    def keeps_messages(self) -> bool:
        """A message that is acknowledged is gone."""
        return False

    def fill(self, record_size: int, count: int) -> int:
        """Persistent messages, with confirms."""
        sent = 0

        async def publish(channel: aio_pika.abc.AbstractChannel) -> None:
            nonlocal sent
            payloads = make_payloads(record_size)
            exchange = channel.default_exchange
            deadline = time.perf_counter() + FILL_SECONDS
            for start in range(0, count, FILL_WINDOW):
                if time.perf_counter() > deadline:
                    break
                messages = [
                    aio_pika.Message(payloads[index % len(payloads)], delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                    for index in range(start, min(start + FILL_WINDOW, count))
                ]
                await asyncio.gather(*(exchange.publish(message, routing_key=self.queue) for message in messages))
                sent += len(messages)

        self._run(publish)
        return sent

    def open_group(self, group: str) -> None:
        """A queue has one group, which is there already."""

    @property
    def _started(self) -> RabbitNodes:
        if self._nodes is None:
            raise BenchError(f"{self.label} is not running")
        return self._nodes

    @staticmethod
    def _find_program() -> str:
        if PROGRAM_BESIDE.exists():
            return str(PROGRAM_BESIDE)
        found = shutil.which("rabbitmq-server")
        if found is None:
            raise Unavailable("needs rabbitmq-server on PATH, e.g. apt install rabbitmq-server")
        return found

    def _run(self, action: Any) -> None:
        async def run() -> None:
            connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self.ports[0]}/")
            try:
                await action(await connection.channel(publisher_confirms=True))
            finally:
                await connection.close()

        try:
            asyncio.run(asyncio.wait_for(run(), ANSWER_SECONDS_MAX))
        except (AMQPError, OSError, TimeoutError) as failed:
            raise BenchError(f"RabbitMQ does not answer as expected: {failed!r}") from failed
