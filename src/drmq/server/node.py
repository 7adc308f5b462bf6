"""One node as a process: builds and wires everything, runs until a signal arrives, shuts down cleanly.

This module makes no decisions. `run` creates the event loop, opens the data directory, starts the broker and its
listener, logs the address, and waits. SIGTERM and SIGINT start a clean shutdown: stop accepting, finish in-flight
requests, flush, mark the shutdown as clean. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace

from drmq.broker import Broker, DiskLogs, LogStore, MemoryLogs
from drmq.broker.cluster.membership import NodeRemoved
from drmq.kafka import KafkaServer, import_all
from drmq.kafka.produce_traces import ProduceTraces
from drmq.model import DrmqError, NodeId
from drmq.model.address import Address
from drmq.server.config import ServerConfig
from drmq.server.file_limits import file_limits, raise_file_limit
from drmq.server.gateway_child import GatewayChild, open_listener, reserve_port
from drmq.server.membership import WILDCARD_HOSTS
from drmq.server.ports import check_port
from drmq.server.processes import EXIT_REMOVED
from drmq.server.status_port import STOPPING, StatusPort
from drmq.server.system_errors import os_error_text
from drmq.storage import DataDirectory, Recovery
from drmq.telemetry import tracing
from drmq.telemetry.system_errors import in_words
from drmq.transport.limits import ListenerOptions

log = logging.getLogger("drmq.server")

_NEEDED = ("fdatasync", "RWF_NOWAIT", "pwritev")
"""What storage uses of the system, and other systems than Linux do not have."""
_SWITCH_INTERVAL_S = 0.0005
_GC_THRESHOLDS = (50_000, 20, 20)
_LOOPBACK = "127.0.0.1"


class Node:
    """A broker with its listener. `start` and `stop` run on the node's event loop."""

    def __init__(self, config: ServerConfig, store: LogStore) -> None:
        self.config = config
        self.broker = Broker(NodeId(config.node_id), store, config.broker, cluster=config.cluster)
        self.server = KafkaServer(self.broker, _within_file_limits(config.listener))
        if config.tracing:
            self.server.traces = ProduceTraces(config.node_id, self.broker.clock)
        self.status = StatusPort(self.broker)
        self.port = 0
        """The port for Kafka clients, once it is open."""

    async def start(self) -> tuple[str, int]:
        """Open everything. Returns the address that is advertised to clients."""
        import_all()
        if self.config.metrics_port is not None:
            # First of all: a probe must be able to tell a node that starts slowly from one that is gone.
            port = await self.status.open(self.config.host, self.config.metrics_port)
            log.info("node %d serves /metrics, /healthz and /readyz at port %d", self.config.node_id, port)
        try:
            return await self._start()
        except BaseException:
            await self.status.close()
            raise

    async def _start(self) -> tuple[str, int]:
        await self.broker.start()
        try:
            _, self.port = await self.server.open(self.config.host, self.config.port, accepts=False)
        except BaseException:
            # The port is in use, or a signal ends the start: close the data as a clean shutdown does.
            await self.broker.stop()
            raise
        self.broker.advertised = self.config.advertised_address(self.port)
        try:
            await self.broker.join()
            # Not earlier: a client would take an empty answer about the cluster for the truth.
            await self.server.listener.start_accepting()
        except BaseException:
            await self.stop()
            raise
        self._report_recovery()
        self.status.obstacle = None
        return self.broker.advertised

    def _report_recovery(self) -> None:
        """After an unclean shutdown, log what recovery of the logs did."""
        found = [getattr(partition.log, "recovery", None) for partition in self.broker.partitions]
        recoveries = [recovery for recovery in found if isinstance(recovery, Recovery)]
        unclean = [recovery for recovery in recoveries if not recovery.was_clean]
        if unclean:
            log.info(
                "the last shutdown was not clean: %d of %d logs were not closed cleanly, %d bytes checked, %d cut",
                len(unclean),
                len(recoveries),
                sum(recovery.walked_bytes for recovery in unclean),
                sum(recovery.cut_bytes for recovery in unclean),
            )

    async def stop(self) -> None:
        """Shut down cleanly. Leadership moves while clients are still connected, so that they are redirected."""
        self.status.obstacle = STOPPING
        await self.broker.hand_over()
        await self.server.close()
        await self.status.close()
        await self.broker.stop()

    async def crash(self) -> None:
        """Stop as if the process were killed: save nothing, notify no peer. For tests that run nodes as threads."""
        self.broker.abandon()
        await self.server.listener.close(drain_timeout_s=0.0)
        await self.status.close()
        await self.broker.let_go()


def open_store(config: ServerConfig, *, memory: bool = False) -> LogStore:
    """The node's logs: in its locked data directory, or in memory. Raises `DrmqError`."""
    if memory:
        return MemoryLogs()
    missing = [name for name in _NEEDED if not hasattr(os, name)]
    if missing:
        raise DrmqError(
            f"A node can store its data on Linux only: this system ({sys.platform}) has no {' and no '.join(missing)}, "
            "without which it cannot promise that acknowledged records are on the disk. Use a Linux machine, virtual "
            "machine or container."
        )
    files_max = file_limits().logs
    return DiskLogs(DataDirectory(str(config.data_dir), NodeId(config.node_id)), open_files_max=files_max)


def _within_file_limits(options: ListenerOptions) -> ListenerOptions:
    """The options with as many connections as the limit of open files has room for, at most."""
    connections_max = file_limits().connections
    if connections_max >= options.connections_max:
        return options
    log.info(
        "accepts %d connections instead of %d (connections_max), because this process may open no more files",
        connections_max,
        options.connections_max,
    )
    return replace(options, connections_max=connections_max)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop if uvloop is installed, which is several times faster than the standard one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(config: ServerConfig) -> int:
    """Run a node in the foreground until a signal or a fatal error. Returns the exit code of the process."""
    if not __debug__:
        print("drmq server: cannot run under python -O, which disables checks that protect the data", file=sys.stderr)
        return 1
    raise_file_limit()
    # The writer thread waits for the interpreter lock after each sync. With the default of 5 ms, a busy loop makes
    # it wait ten times longer than the sync took (submit to durable: p50 11 ms instead of 1.7 ms).
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # Requests create almost no reference cycles, and a collection after every 700 new objects costs a busy broker
    # a twentieth of its time.
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        _check_ports(config)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(config))
    except NodeRemoved as error:
        log.critical("the node cannot start: %s", error)
        return EXIT_REMOVED
    except DrmqError as error:
        log.critical("the node cannot start: %s", error)
        return 1
    except OSError as error:
        log.critical("the node cannot start: %s", os_error_text(error))
        return 1


def _check_ports(config: ServerConfig) -> None:
    """Raise `PortTaken` before the data directory is created or opened: a wrong port is no reason to touch it."""
    if config.port:
        check_port(Address(config.host, config.port))
    if config.metrics_port:
        check_port(Address(config.host, config.metrics_port), "--metrics-port", "--host")
    if config.cluster.peer_port:
        check_port(Address(config.cluster.peer_host, config.cluster.peer_port), "--peer-port", "--peer-host")


async def _serve(config: ServerConfig) -> int:
    if config.tracing:
        try:
            traces = tracing.start("drmq", {"drmq.process": "node", "drmq.node_id": config.node_id})
        except tracing.PackageMissing as error:
            raise DrmqError(str(error)) from None
    else:
        traces = None
    try:
        return await _serve_until_end(config)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, tracing.stop, traces)


async def _serve_until_end(config: ServerConfig) -> int:
    node = Node(config, open_store(config))
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        is_in_order = isinstance(error, NodeRemoved)
        if is_in_order:
            log.warning("%s", error)
        else:
            log.critical("the node stops because of a fatal error: %s", in_words(error))
        if not ended.done():
            ended.set_result(0 if is_in_order else 1)

    node.broker.on_fatal = fail
    node.broker.services.fault_lab.is_enabled = config.lab
    logging.getLogger("drmq").addHandler(node.broker.services.events)
    _on_signals(lambda name: _end(ended, name))
    starting = asyncio.ensure_future(node.start())
    # Joining the cluster may take long; signals must be handled meanwhile.
    await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        log.info("stopped before the node joined its cluster")
        return ended.result()
    host, port = await starting
    log.info("node %d serves Kafka clients at %s:%d, data in %s", config.node_id, host, port, config.data_dir)
    gateway = _start_gateway(node, host) if config.gateway else None
    code = await ended
    log.info("stopping: finishing in-flight requests, then flushing")
    if gateway is not None:
        await gateway.stop()
    await node.stop()
    log.info("stopped cleanly" if code == 0 else "stopped after a failure")
    return code


def _start_gateway(node: Node, advertised_host: str) -> GatewayChild | None:
    """Start the node's gateway. Without it the node does all else, so a port in use is no reason to end."""
    config = node.config
    try:
        listener = open_listener(config.host, config.http_port)
    except OSError as error:
        log.warning(
            "no gateway: cannot listen on port %d (%s); --http-port chooses another one, --no-gateway leaves it out",
            config.http_port,
            os_error_text(error),
        )
        return None
    host = _LOOPBACK if config.host in WILDCARD_HOSTS else config.host
    grpc, flags = _reserve_grpc(config), _gateway_flags(config)
    gateway = GatewayChild(config.node_id, Address(host, node.port), listener, grpc, flags)
    events = node.broker.services.events
    events.http = str(Address(advertised_host, gateway.port))
    if gateway.grpc_port is not None:
        events.grpc = str(Address(advertised_host, gateway.grpc_port))
    gateway.start()
    log.info("node %d serves HTTP at http://%s", config.node_id, events.http)
    if events.grpc is not None:
        log.info("node %d serves gRPC at %s", config.node_id, events.grpc)
    return gateway


def _reserve_grpc(config: ServerConfig) -> socket.socket | None:
    try:
        return reserve_port(config.host, config.grpc_port)
    except OSError as error:
        log.warning(
            "no gRPC: cannot listen on port %d (%s); --grpc-port chooses another one",
            config.grpc_port,
            os_error_text(error),
        )
        return None


def _gateway_flags(config: ServerConfig) -> list[str]:
    """What the gateway does as its node does it."""
    flags = ["--log-level", config.log_level, "--log-format", config.log_format]
    if config.tracing:
        flags.append("--tracing")
    if config.http_names:
        flags += ["--http-names", ",".join(config.http_names)]
    if config.lab:
        # The directory of the cluster: the data is in DIR/node-1/data.
        flags += ["--lab", str(config.data_dir.absolute().parent.parent)]
    return flags


def _end(ended: asyncio.Future[int], name: str) -> None:
    if ended.done():
        log.warning("received %s again: exiting at once", name)
        sys.stderr.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    else:
        log.info("received %s", name)
        ended.set_result(0)


def _on_signals(act: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act, number.name)
