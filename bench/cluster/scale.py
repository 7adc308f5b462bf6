"""Many partitions, with and without processes that burn CPU beside the nodes.

One cluster per number of partitions and of burners lives through the events: it forms, creates the topic, idles, one
node is paused by SIGSTOP, one is killed by SIGKILL and started again, and all are stopped and started. Each event is
followed from its moment by two observers. One asks the nodes for Metadata, until every partition is led and all running
nodes are in sync, as all of them report. The other, `bench.clients.sweep`, writes a record to every partition. Then it
writes once more, because a cluster in trouble can take a write and be without leaders a moment later.

An event that takes longer than its limit is a result, and so is how far it came. The load ends then, and the time until
the cluster is whole again is measured, so that the next event begins with a whole cluster.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from bench import kafka_counters, kafka_metadata
from bench.clients.sweep import SweepTask, Swept
from bench.cluster.burners import Burners
from bench.cluster.kafka_nodes import KafkaProtocolCluster
from bench.kafka_counters import Counter
from bench.process import BenchError, Program
from bench.systems.kafka_admin import create_topic

EVENTS = ("pause", "kill", "start")
"""What can be chosen; forming and creating come first always."""
SETTLE_SECONDS = 10.0
"""Longer than the last election and the leaders' farewell to sleep."""
ASK_SECONDS_MIN = 0.25
ASK_SHARE = 0.2
"""Metadata is asked for during at most this share of the time: it is work for the nodes."""
ASK_TIMEOUT_SECONDS = 10.0
PROGRAM_SECONDS_MAX = 60.0
METADATA_COUNT = 5
METADATA_COUNTER = "drmq_request_duration_us[METADATA]"
CPU_COUNTER = "drmq_process_cpu_us_total"


@dataclass(frozen=True)
class Plan:
    """What is measured; the sizes are partitions, each with a replica on every node."""

    sizes: tuple[int, ...] = (3_000, 10_000)
    burner_counts: tuple[int, ...] = (0, 8, 24)
    events: tuple[str, ...] = EVENTS
    event_seconds_max: float = 120.0
    idle_seconds: float = 20.0
    settle_seconds: float = SETTLE_SECONDS
    pause_seconds: float = 3.0

    @property
    def step_count(self) -> int:
        """How many times `measure` calls `on_step`."""
        per_cell = 2 + len(self.events) + ("kill" in self.events)
        idle_count = len(self.sizes) if 0 in self.burner_counts else 0
        return len(self.sizes) * len(self.burner_counts) * per_cell + idle_count

    def seconds_max(self, burner_count: int) -> float:
        """The limit of one event: a machine with many burners is given more time."""
        return self.event_seconds_max * (2.5 if burner_count > 8 else 1.0)


@dataclass
class Event:
    """One event; seconds are from its moment, None where that was not reached within `seconds_max`."""

    name: str
    seconds_max: float
    led_seconds: float | None = None
    """Every partition is led by a running node, as all running nodes say."""
    in_sync_seconds: float | None = None
    """And all running nodes are in sync for it, and they name the same leader."""
    led_count: int = 0
    """At the end, of the node that reported the fewest."""
    in_sync_count: int = 0
    writes: Swept | None = None
    """From the moment on; None for an event without partitions."""
    writes_again: Swept | None = None
    """From the end of that on, with its own limit."""
    whole_seconds: float | None = None
    """After a missed limit: from the end of the load until all partitions were in sync and took a write."""
    elections: list[int] = field(default_factory=list)
    """Per node that runs and answers, during the event."""
    loop_delay_ms_bound: list[float] = field(default_factory=list)
    """Per node: the event loop was never later than this; at most twice the largest delay."""
    error: str = ""

    @property
    def has_writes(self) -> bool:
        """Whether it has a part that writes to all partitions."""
        return self.name != "form"

    @property
    def is_reached(self) -> bool:
        """Whether all that was waited for happened within the limit."""
        swept = [s for s in (self.writes, self.writes_again) if s is not None]
        has_written = len(swept) == 2 * self.has_writes and all(s.seconds is not None for s in swept)
        return self.in_sync_seconds is not None and has_written


@dataclass
class Scale:
    """One cluster with one number of partitions and of burners."""

    system: str
    partition_count: int
    burner_count: int
    events: list[Event] = field(default_factory=list)
    core_shares: list[float] = field(default_factory=list)
    """Per node, idle; 1.0 is one core. Only without burners, as the numbers below."""
    replica_bytes: list[float] = field(default_factory=list)
    """Per node: resident memory with the partitions less that before, divided by their number."""
    rss_bytes: list[int] = field(default_factory=list)
    metadata_ms: list[float] = field(default_factory=list)
    """Of each request for all partitions: from its arrival to its response, as the node counts it."""
    metadata_cpu_ms: list[float] = field(default_factory=list)
    """The CPU time of the node for each of them: its time on the event loop, whatever else the machine does."""
    errors: list[str] = field(default_factory=list)

    def event(self, name: str) -> Event | None:
        """The event of that name, if it came to that."""
        return next((event for event in self.events if event.name == name), None)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(system: KafkaProtocolCluster, plan: Plan, out: list[Scale], on_step: Callable[[str], None]) -> None:
    """Append to `out` one result per size and number of burners, as they come."""
    had_sessions = system.has_sessions
    system.has_sessions = True
    try:
        for size in plan.sizes:
            for burner_count in plan.burner_counts:
                scale = Scale(system.label, size, burner_count)
                out.append(scale)
                _Cell(system, plan, scale, on_step).run()
    finally:
        system.has_sessions = had_sessions


class _Cell:
    """Takes one `Scale`."""

    def __init__(self, system: KafkaProtocolCluster, plan: Plan, out: Scale, on_step: Callable[[str], None]) -> None:
        self._system = system
        self._plan = plan
        self._out = out
        self._on_step = on_step
        self._count = out.partition_count
        self._seconds_max = plan.seconds_max(out.burner_count)
        self._burners = Burners(out.burner_count)
        self._rss_before: list[int] = []
        self._sweep: Program | None = None

    def run(self) -> None:
        """Live through all events; an error ends it early and is kept."""
        try:
            try:
                with self._burners:
                    self._take_events()
            finally:
                if self._sweep is not None:
                    self._sweep.close()
                self._system.stop()
        except BenchError as failed:
            self._out.errors.append(str(failed))

    def _take_events(self) -> None:
        self._form()
        self._create()
        if self._out.burner_count == 0:
            self._step("idle")
            self._idle()
            self._ask_metadata()
        for name in self._plan.events:
            {"pause": self._pause, "kill": self._kill, "start": self._start}[name]()

    def _step(self, what: str) -> None:
        self._on_step(f"scale: {self._count:,} partitions, {self._out.burner_count} burners: {what}")

    # The events

    def _form(self) -> None:
        self._system.lay_out()
        with self._event("form") as event:
            moment = time.perf_counter()
            for node in self._system.nodes:
                self._system.launch(node)
            self._watch(event, moment, partition_count=0)
        if event.in_sync_seconds is None:
            raise BenchError(f"three nodes were no cluster after {event.seconds_max:.0f} s: {self._system.log_tail()}")
        time.sleep(1.0)
        self._rss_before = self._rss()
        task = SweepTask(tuple(self._system.client_ports), self._system.topic, self._count)
        self._sweep = Program("sweep", "sweep", task, has_session=True)
        self._sweep.hear(PROGRAM_SECONDS_MAX)

    def _create(self) -> None:
        with self._event("create") as event:
            moment = time.perf_counter()
            try:
                create_topic(
                    self._system.nodes[0].port, self._system.topic, self._count, self._system.topic_config(),
                    self._system.replica_count, event.seconds_max,
                )  # fmt: skip
            except BenchError as failed:
                event.error = str(failed)
            self._watch_and_sweep(event, moment)

    def _pause(self) -> None:
        node = self._system.nodes[0]
        with self._event("pause") as event:
            assert node.server is not None
            os.kill(node.server.pid, signal.SIGSTOP)
            try:
                time.sleep(self._plan.pause_seconds)
            finally:
                os.kill(node.server.pid, signal.SIGCONT)
            self._watch_and_sweep(event, time.perf_counter())

    def _kill(self) -> None:
        node = self._system.nodes[1]
        with self._event("kill") as event:
            moment = time.perf_counter()
            self._system.halt(node, signal.SIGKILL)
            self._watch_and_sweep(event, moment)
        with self._event("return") as event:
            moment = time.perf_counter()
            self._system.launch(node)
            self._watch_and_sweep(event, moment)

    def _start(self) -> None:
        with self._event("start") as event:
            for node in self._system.nodes:
                self._system.halt(node, signal.SIGTERM)
            moment = time.perf_counter()
            for node in self._system.nodes:
                self._system.launch(node)
            self._watch_and_sweep(event, moment)

    @contextlib.contextmanager
    def _event(self, name: str) -> Iterator[Event]:
        """Around one event: the load, what the nodes count, and what follows if it missed its limit."""
        self._step(name)
        event = Event(name, self._seconds_max)
        self._out.events.append(event)
        self._burners.start()
        before = self._counters()
        yield event
        for number, now in self._counters().items():
            old = before.get(number, {})
            event.elections.append(now["drmq_elections_total"].since(old.get("drmq_elections_total")).value)
            delays = now["drmq_loop_delay_us"].since(old.get("drmq_loop_delay_us"))
            event.loop_delay_ms_bound.append(delays.bound / 1000)
        if event.has_writes and not event.is_reached:
            self._burners.stop()
            event.whole_seconds = self._recover(event)

    def _recover(self, event: Event) -> float:
        """How long it takes without the load; raises if that is not enough."""
        moment = time.perf_counter()
        calm = Event("calm", self._plan.event_seconds_max)
        self._watch_and_sweep(calm, moment)
        if not calm.is_reached:
            raise BenchError(
                f"{event.name}: not whole {calm.seconds_max:.0f} s after the load ended: {calm.led_count:,} of "
                f"{self._count:,} led, {calm.in_sync_count:,} in sync, {calm.writes.count if calm.writes else 0:,} "
                f"took a write. {event.error}"
            )
        assert calm.in_sync_seconds is not None
        assert calm.writes is not None
        assert calm.writes.seconds is not None
        return max(calm.in_sync_seconds, calm.writes.seconds)

    # The observers

    def _watch_and_sweep(self, event: Event, moment: float) -> None:
        assert self._sweep is not None
        self._sweep.tell(f"go {moment!r} {event.seconds_max!r}")
        self._watch(event, moment, self._count)
        event.writes = self._hear_sweep(event.seconds_max)
        if event.writes.seconds is not None:
            self._sweep.tell(f"go {time.perf_counter()!r} {event.seconds_max!r}")
            event.writes_again = self._hear_sweep(event.seconds_max)

    def _hear_sweep(self, seconds_max: float) -> Swept:
        assert self._sweep is not None
        return Swept(**json.loads(self._sweep.hear(seconds_max + PROGRAM_SECONDS_MAX)))

    def _watch(self, event: Event, moment: float, partition_count: int) -> None:
        """Ask until all is led and in sync, or the limit has passed."""
        while True:
            asked_at = time.perf_counter()
            found = self._look(partition_count)
            is_agreed = False
            if found is not None:
                event.led_count, event.in_sync_count, is_agreed = found
            now = time.perf_counter()
            if event.led_seconds is None and is_agreed and event.led_count == partition_count:
                event.led_seconds = now - moment
            if is_agreed and event.in_sync_count == partition_count:
                event.in_sync_seconds = now - moment
                return
            if now - moment > event.seconds_max:
                return
            self._check_alive()
            time.sleep(max(ASK_SECONDS_MIN, (now - asked_at) / ASK_SHARE))

    def _look(self, partition_count: int) -> tuple[int, int, bool] | None:
        """How many partitions are led, how many in sync, by the node that says the fewest; whether all nodes say so.

        Nodes are asked one after the other, and no more once one of them says that something is missing. None if one
        does not answer.
        """
        running = [node for node in self._system.nodes if node.is_running]
        numbers = {node.number for node in running}
        led_least = in_sync_least = partition_count
        leaders: dict[int, int] = {}
        for node in running:
            try:
                view = kafka_metadata.ask(node.port, self._system.topic, ASK_TIMEOUT_SECONDS)
            except OSError:
                return None
            led = in_sync = 0
            for index, state in view.partitions.items():
                if state.leader in numbers:
                    led += 1
                    if numbers.issubset(state.in_sync) and leaders.setdefault(index, state.leader) == state.leader:
                        in_sync += 1
            led_least, in_sync_least = min(led_least, led), min(in_sync_least, in_sync)
            if led < partition_count or not numbers <= view.ports.keys():
                return led_least, in_sync_least, False
        return led_least, in_sync_least, True

    def _check_alive(self) -> None:
        for node in self._system.nodes:
            if node.server is not None and not node.server.is_alive():
                raise BenchError(f"node {node.number} ended by itself: {node.server.log_tail()}")

    def _counters(self) -> dict[int, dict[str, Counter]]:
        """By number of the node, of those that answer soon enough."""
        found = {}
        for node in self._system.nodes:
            if node.is_running:
                with contextlib.suppress(OSError):
                    found[node.number] = kafka_counters.ask(node.port)
        return found

    # What is measured only without burners

    def _rss(self) -> list[int]:
        return [node.server.usage().rss_bytes for node in self._system.nodes if node.server is not None]

    def _idle(self) -> None:
        time.sleep(self._plan.settle_seconds)
        before, started_at = self._system.usage(), time.perf_counter()
        time.sleep(self._plan.idle_seconds)
        after, seconds = self._system.usage(), time.perf_counter() - started_at
        spent = zip(before.cpu_seconds_each, after.cpu_seconds_each, strict=True)
        self._out.core_shares = [(b - a) / seconds for a, b in spent]
        self._out.rss_bytes = self._rss()
        pairs = zip(self._rss_before, self._out.rss_bytes, strict=True)
        self._out.replica_bytes = [(now - then) / self._count for then, now in pairs]

    def _ask_metadata(self) -> None:
        """Each request alone: its time is what the counters of the node grow by, beyond what reading them costs."""
        for node in self._system.nodes:
            for _ in range(METADATA_COUNT):
                try:
                    first = kafka_counters.ask(node.port)
                    before = kafka_counters.ask(node.port)
                    kafka_metadata.ask(node.port, self._system.topic, ASK_TIMEOUT_SECONDS)
                    after = kafka_counters.ask(node.port)
                except OSError as failed:
                    raise BenchError(f"node {node.number} does not answer while it idles: {failed}") from failed
                spent = after[METADATA_COUNTER].since(before.get(METADATA_COUNTER))
                self._out.metadata_ms.append(spent.value / max(1, spent.count) / 1000)
                cpu_us = [counters[CPU_COUNTER].value for counters in (first, before, after)]
                self._out.metadata_cpu_ms.append(max(0, cpu_us[2] - 2 * cpu_us[1] + cpu_us[0]) / 1000)
