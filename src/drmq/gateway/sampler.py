"""Reads the counters of all nodes once a second, and keeps ten minutes of what follows from them.

Rates are differences of counters between two samples of one run of a node: after a restart its counters begin again,
and that second has no rate. Percentiles are those of the histograms' differences, so they are about the last second.

While nobody looks, only a sample every few seconds is taken, so that a page that is opened has a past to show.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from drmq.client import Admin, Broker, ClientError
from drmq.client.events import NodeEvents
from drmq.client.rates import Change, Labels, Reading
from drmq.gateway.admin_pool import AdminPool
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import BrokerView, EventView
from drmq.model.counters import Sample

log = logging.getLogger("drmq.gateway")

INTERVAL_S: Final = 1.0
IDLE_INTERVAL_S: Final = 5.0
"""While nobody looks."""
WATCHED_S: Final = 30.0
"""For how long somebody counts as looking."""
NODE_TIMEOUT_S: Final = 2.0
"""For one node: one that stands still must not hold up the samples of the others for longer."""
HISTORY_MAX: Final = 600
EVENTS_MAX: Final = 1_000
EVENTS_PER_SAMPLE_MAX: Final = 200


@dataclass(slots=True)
class Point:
    """What one second looked like, for the charts. Rates are per second; None where there is none."""

    time_ms: int
    series: dict[str, float] = field(default_factory=dict)


class Sampler:
    """Samples of all nodes. Lives on the event loop."""

    def __init__(self, admins: AdminPool) -> None:
        self._admins = admins
        self.gateways: dict[int, str] = {}
        """Where the gateways of the nodes answer, as last known: a page moves on when its own gateway is gone."""
        self.grpc: dict[int, str] = {}
        """Where they answer gRPC."""
        self.events: deque[EventView] = deque(maxlen=EVENTS_MAX)
        """The last events of all nodes, in the order of their arrival here."""
        self.listeners: set[Callable[[Sequence[EventView]], None]] = set()
        """Called with new events."""
        self._seen: dict[int, tuple[int, int]] = {}
        """By node: when it started, and the number of its last event that was read."""
        self._task: asyncio.Task[None] | None = None
        self._watched_s = -WATCHED_S
        self._looked_at = asyncio.Event()
        """Ends the longer pause that is made while nobody looks."""
        self.last: dict[int, Reading] = {}
        """Of the nodes that answered last; none if no node does."""
        self._change = Change({}, {})
        """Between the last two samples."""
        self.history: deque[Point] = deque(maxlen=HISTORY_MAX)
        self.brokers: list[Broker] = []
        self.sequence = 0
        """The number of the last sample."""
        self._news = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def watch(self) -> None:
        """Somebody looks: sample every second for a while."""
        self._watched_s = time.monotonic()
        self._looked_at.set()

    async def wait(self) -> None:
        """Wait for the next sample."""
        await self._news.wait()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._sample()
            except ClientError as error:
                log.warning("no node answers: %s", error, extra={"repeat_key": "sampling"})
                # What an earlier sample has shown is over: no node is up, and this gateway is not ready.
                self.last, self._change = {}, Change({}, {})
            except ProblemError as error:
                log.warning("no sample was taken: %s", error, extra={"repeat_key": "sampling"})
            except Exception:
                log.exception("sampling failed on a bug")
            self.sequence += 1
            news, self._news = self._news, asyncio.Event()
            news.set()
            await asyncio.sleep(max(0.1, began + INTERVAL_S - time.monotonic()))
            if time.monotonic() - self._watched_s >= WATCHED_S:
                self._looked_at.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_INTERVAL_S - INTERVAL_S):
                        await self._looked_at.wait()

    async def _sample(self) -> None:
        self.brokers = list(await self._admins.run(lambda admin: admin.brokers.all()))
        self._admins.learn(broker.address for broker in self.brokers)
        serving = [broker.node_id for broker in self.brokers if not broker.is_fenced]
        found = await asyncio.gather(*(self._admins.run(partial(_counters, node)) for node in serving))
        news = await asyncio.gather(*(self._admins.run(partial(_events, node, self._seen)) for node in serving))
        for answer in filter(None, news):
            self._take(answer)
        read_s = time.monotonic()
        answered = zip(serving, found, strict=True)
        before, self.last = self.last, {node: Reading(each, read_s) for node, each in answered if each is not None}
        self._change = Change(before, self.last)
        self.history.append(Point(int(time.time() * 1000), self._series()))

    def _take(self, answer: NodeEvents) -> None:
        node_id = answer.node_id
        for known, address in ((self.gateways, answer.http), (self.grpc, answer.grpc)):
            if address is None:
                known.pop(node_id, None)
            else:
                known[node_id] = address
        started_ms, last = self._seen.get(node_id, (0, 0))
        if answer.started_ms != started_ms:
            last = 0  # another run of its process: its numbers begin again
        news = []
        for event in answer.events:
            if event.sequence > last:
                last = event.sequence
                news.append(EventView(event.time_ms, node_id, event.sequence, event.level, event.source, event.text))
        self.events.extend(news)
        for listener in list(self.listeners) if news else ():
            listener(news)
        self._seen[node_id] = answer.started_ms, last

    def last_events(self, count: int) -> list[EventView]:
        """The last events of all nodes, the newest first."""
        # The order of arrival is nearly that of time; nodes are read one after the other.
        late = [self.events[-index] for index in range(1, min(len(self.events), 2 * count) + 1)]
        return sorted(late, key=lambda each: (each.time_ms, each.node_id, each.sequence), reverse=True)[:count]

    def _series(self) -> dict[str, float]:
        """The series of the overview: sums over all nodes that were sampled twice in one run."""
        series: dict[str, float] = {}
        change = self._change
        for name, (counter, labels) in _RATES.items():
            rate = change.rate(counter, *labels)
            if rate is not None:
                series[name] = rate
        if "cpu_us" in series:
            series["cpu_cores"] = series.pop("cpu_us") / 1e6
        for name, (counter, labels, share) in _PERCENTILES.items():
            found = change.quantile(share, counter, *labels)
            if found is not None:
                series[name] = found / 1000
        for name, (counter, labels) in _GAUGES.items():
            series[name] = sum(now.value(counter, *labels) for now in self.last.values())
        return series

    def broker_view(self, broker: Broker) -> BrokerView:
        """A node with what was sampled last."""
        now = self.last.get(broker.node_id)
        view = BrokerView(
            broker.node_id,
            broker.address.host,
            broker.address.port,
            broker.rack,
            broker.is_fenced,
            broker.is_controller,
            now is not None,
            http=self.gateways.get(broker.node_id),
        )
        if now is None:
            return view
        view.leaders = now.value("drmq_partitions", ("role", "leader"))
        view.followers = now.value("drmq_partitions", ("role", "follower"))
        view.log_bytes = now.total("drmq_log_size_bytes")
        total_bytes = now.value("drmq_disk_total_bytes")
        if total_bytes:
            view.disk_total_bytes, view.disk_free_bytes = total_bytes, now.value("drmq_disk_free_bytes")
        view.resident_bytes = now.value("drmq_process_resident_bytes")
        view.uptime_ms = now.value("drmq_process_uptime_us") // 1000
        view.connections = now.value("drmq_connections")
        used_us = self._change.rate_of(broker.node_id, "drmq_process_cpu_us_total")
        view.cpu_share = None if used_us is None else round(used_us / 1e6, 4)
        return view


_OUTCOMES = "drmq_lease_outcomes_total"
_RATES: dict[str, tuple[str, Labels]] = {
    "produce_rate": ("drmq_messages_produced_total", ()),
    "consume_rate": ("drmq_messages_consumed_total", ()),
    "produce_bytes": ("drmq_produced_bytes_total", ()),
    "consume_bytes": ("drmq_consumed_bytes_total", ()),
    "elections": ("drmq_elections_total", ()),
    "cpu_us": ("drmq_process_cpu_us_total", ()),
    "leased": ("drmq_leased_messages_total", ()),
    "dead_lettered": ("drmq_dead_letters_total", ()),
    "leases_acked": (_OUTCOMES, (("outcome", "accept"),)),
    "leases_failed": (_OUTCOMES, (("outcome", "release"),)),
    "leases_rejected": (_OUTCOMES, (("outcome", "reject"),)),
    "leases_expired": (_OUTCOMES, (("outcome", "expire"),)),
}
_PRODUCE = (("api", "PRODUCE"),)
_PERCENTILES: dict[str, tuple[str, Labels, float]] = {
    "produce_p50_ms": ("drmq_request_duration_us", _PRODUCE, 0.5),
    "produce_p99_ms": ("drmq_request_duration_us", _PRODUCE, 0.99),
    "commit_p99_ms": ("drmq_commit_duration_us", (), 0.99),
    "fsync_p99_ms": ("drmq_sync_duration_us", (), 0.99),
    "loop_p99_ms": ("drmq_loop_delay_us", (), 0.99),
}
_GAUGES: dict[str, tuple[str, Labels]] = {
    "under_replicated": ("drmq_under_replicated_partitions", ()),
    "connections": ("drmq_connections", ()),
    "resident_bytes": ("drmq_process_resident_bytes", ()),
    "leases_held": ("drmq_lease_messages", (("state", "held"),)),
    "leases_parked": ("drmq_lease_messages", (("state", "parked"),)),
}


def _counters(node_id: int, admin: Admin) -> list[Sample] | None:
    try:
        return admin.counters.of(node_id, timeout_s=NODE_TIMEOUT_S)
    except ClientError:
        return None


def _events(node_id: int, seen: Mapping[int, tuple[int, int]], admin: Admin) -> NodeEvents | None:
    """The events of a node since the last time, or of its new run, in which case the number asked for is too high."""
    after = seen.get(node_id, (0, 0))[1]
    try:
        answer = admin.events.of(node_id, after=after, count_max=EVENTS_PER_SAMPLE_MAX, timeout_s=NODE_TIMEOUT_S)
        if after and answer.started_ms != seen[node_id][0]:
            answer = admin.events.of(node_id, count_max=EVENTS_PER_SAMPLE_MAX)
    except ClientError:
        return None
    return answer
