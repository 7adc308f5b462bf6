"""The leader is killed, again and again, while programs write; then it is stopped in order.

Each time the node that leads the partition gets SIGKILL, and every probe says how long it took
from there to the acknowledgement of a write that it began after it. Then the node is started
again, and the next round waits until it has caught up: each kill hits a healthy cluster.

A node that is stopped in order (SIGTERM) is to hand over what it leads before it goes. There the
longest time between two acknowledgements counts, from just before the signal until writes that
began after the end of the process are acknowledged, and what a client library could not deliver.

At the end the partition must hold at least as many records as were acknowledged. That is a
check of the benchmark, not a proof of safety; `make chaos` and the simulator are for that.
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.clients.probe import ANSWER_SECONDS_MAX, ProbeTask
from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.cluster.nodes import ClusterSystem, Node, wait_until
from bench.process import BenchError, Program

RECORD_SIZE = 1024
CALM_SECONDS = 11.0
"""Of writing between a healed cluster and the next kill.

librdkafka doubles its pause before it connects to a node with every lost connection, up to 10 s, and
forgets that only when 10 s have passed without one (reconnect.backoff.max.ms). Kills in quicker
succession would measure that pause: up to 8 s where the next leader was there after 0.2 s.
"""
HEAL_SECONDS_MAX = 60.0
RATES = {False: 1000.0, True: 200.0}
"""Records per second of a client library's probe, and of an eager one, which waits for each."""


@dataclass
class Failover:
    """All kills of one system. Times in seconds; None where nothing was acknowledged in time."""

    system: str
    calm_seconds: float
    """Between a healed cluster and the next kill."""
    seconds: dict[str, list[float | None]] = field(default_factory=dict)
    """By probe, one per kill."""
    controller_too: list[bool] = field(default_factory=list)
    """Whether the killed node was the controller as well, where that can be asked."""
    heal_seconds: list[float] = field(default_factory=list)
    """From the start of the killed node until all replicas are in sync."""
    eager_probes: list[str] = field(default_factory=list)
    """Those that are their own client, and look for the leader by themselves."""
    stop_gap_seconds: dict[str, list[float]] = field(default_factory=dict)
    """By probe, one per stop in order: the longest time without an acknowledgement."""
    stop_failures: dict[str, int] = field(default_factory=dict)
    """By probe: what failed during all stops. For a probe that is its own client these are refusals."""
    acknowledged: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)

    def median(self, probe: str) -> float | None:
        """The middle one; a kill without answer counts as endless."""
        times = [float("inf") if s is None else s for s in self.seconds.get(probe, [])]
        return statistics.median(times) if times else None

    def worst(self, probe: str) -> float | None:
        """The longest."""
        times = [float("inf") if s is None else s for s in self.seconds.get(probe, [])]
        return max(times) if times else None

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(
    system: ClusterSystem, kill_count: int, stop_count: int, calm_seconds: float, on_step: Callable[[str], None]
) -> Failover:
    """Kill `kill_count` leaders and stop `stop_count`; an error ends it early and is kept."""
    out = Failover(system.label, calm_seconds)
    probes: list[Program] = []
    try:
        try:
            on_step(f"failover: {system.label} starts")
            system.start(1)
            ports = tuple(system.client_ports)
            for name, module, is_eager in system.probes:
                task = ProbeTask(ports, system.topic, RECORD_SIZE, RATES[is_eager], is_eager)
                probes.append(Program(name, module, task))
                out.seconds[name] = []
                if is_eager:
                    out.eager_probes.append(name)
            for probe in probes:
                probe.hear(HEAL_SECONDS_MAX)
            for index in range(kill_count):
                on_step(f"failover: {system.label}, {index + 1} of {kill_count}")
                time.sleep(calm_seconds)
                _kill_once(system, probes, out)
            for index in range(stop_count):
                on_step(f"failover: {system.label}, stop {index + 1} of {stop_count}")
                time.sleep(calm_seconds)
                _stop_once(system, probes, out)
            _end(system, probes, out)
        finally:
            for probe in probes:
                probe.close()
            system.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


def _kill_once(system: ClusterSystem, probes: list[Program], out: Failover) -> None:
    leader = system.leader()
    assert leader.server is not None
    if isinstance(system, KafkaProtocolCluster):
        out.controller_too.append(system.is_controller(leader))
    killed_at = time.perf_counter()
    os.kill(leader.server.pid, signal.SIGKILL)
    system.halt(leader, signal.SIGKILL)
    for probe in probes:
        probe.tell(f"after {killed_at!r}")
    for probe in probes:
        out.seconds[probe.name].append(json.loads(probe.hear(ANSWER_SECONDS_MAX + 10))["seconds"])
    started_at = time.perf_counter()
    _start_again(system, leader)
    out.heal_seconds.append(time.perf_counter() - started_at)


def _stop_once(system: ClusterSystem, probes: list[Program], out: Failover) -> None:
    leader = system.leader()
    begun_at = time.perf_counter()
    failed_before = [_ask(probe, f"gap {begun_at!r} {begun_at!r}")["failed"] for probe in probes]
    system.halt(leader, signal.SIGTERM)
    gone_at = time.perf_counter()
    for probe, failed in zip(probes, failed_before, strict=True):
        served = _ask(probe, f"after {gone_at!r}")["seconds"]
        if served is None:
            raise BenchError(f"{system.label} served {probe.name} no more after node {leader.number} was stopped")
        answer = _ask(probe, f"gap {begun_at!r} {gone_at + served!r}")
        out.stop_gap_seconds.setdefault(probe.name, []).append(answer["seconds"])
        out.stop_failures[probe.name] = out.stop_failures.get(probe.name, 0) + int(answer["failed"] - failed)
    _start_again(system, leader)


def _ask(probe: Program, question: str) -> dict[str, float]:
    probe.tell(question)
    answer: dict[str, float] = json.loads(probe.hear(ANSWER_SECONDS_MAX + 10))
    return answer


def _start_again(system: ClusterSystem, node: Node) -> None:
    system.launch(node)
    wait_until(system.is_in_sync, HEAL_SECONDS_MAX, f"node {node.number} of {system.label} in sync again")


def _end(system: ClusterSystem, probes: list[Program], out: Failover) -> None:
    for probe in probes:
        probe.tell("end")
        totals = json.loads(probe.hear(HEAL_SECONDS_MAX))
        out.acknowledged += totals["acknowledged"]
        out.failed += totals["failed"]
    there = system.record_count()
    if there < out.acknowledged:
        raise BenchError(f"{system.label} acknowledged {out.acknowledged} records and has {there}")
