"""What `drmq top` shows, found by asking the nodes of a cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from drmq.client import Admin, Broker, ClientError
from drmq.client.events import Event
from drmq.client.health import observe
from drmq.client.rates import Change, Reading
from drmq.server.cli.group_progress import progress
from drmq.server.cli.options import ClusterChoice

HISTORY: Final = 60
"""Readings of which the rates are kept."""
EVENTS_MAX: Final = 200
_EVENTS_AT_ONCE = 50
_GROUPS_EVERY_S = 4.0
_GROUPS_MAX = 100
_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 1.0
_PRODUCE = ("api", "PRODUCE")


@dataclass(slots=True)
class BrokerRow:
    """One node. What is None is not known."""

    node_id: int
    address: str
    is_controller: bool
    is_up: bool
    leaders: int | None = None
    followers: int | None = None
    cpu_share: float | None = None
    """Of one core."""
    resident_bytes: int | None = None
    disk_share: float | None = None
    """How much of its disk is used."""
    log_bytes: int | None = None
    connections: int | None = None
    uptime_ms: int | None = None


@dataclass(slots=True)
class GroupRow:
    """One group. What is None is not known, or its type does not have it."""

    group_id: str
    kind: str
    state: str
    members: int
    lag: int | None
    oldest_ms: int | None = None
    """When its oldest open record was written."""
    held: int | None = None
    parked: int | None = None
    dead_letters: int | None = None


@dataclass(slots=True)
class Snapshot:
    """The cluster at one time."""

    at_s: float
    """Of the wall clock."""
    status: str
    """`healthy`, `degraded` or `down`."""
    reason: str
    brokers: list[BrokerRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)
    """With the node of each, the newest first."""
    rates: dict[str, float | None] = field(default_factory=dict)
    """Messages and bytes in a second, and milliseconds."""
    past: dict[str, list[float | None]] = field(default_factory=dict)
    """The last rates, the newest last."""
    held: int = 0
    parked: int = 0
    dead_letters: int = 0


class Observer:
    """Asks the nodes of one cluster. Used by one thread."""

    def __init__(self, cluster: ClusterChoice) -> None:
        self._cluster = cluster
        self._admin: Admin | None = None
        self._readings: dict[int, Reading] = {}
        self._past: dict[str, deque[float | None]] = {}
        self._events: deque[tuple[int, Event]] = deque(maxlen=EVENTS_MAX)
        self._seen: dict[int, tuple[int, int]] = {}
        """By node: when it started, and the number of its last event."""
        self._groups: list[GroupRow] = []
        self._dead_letters = 0
        self._groups_at_s = -_GROUPS_EVERY_S

    def look(self) -> Snapshot:
        """The cluster now. Does not raise if no node answers: the snapshot says so, and has nothing else."""
        try:
            if self._admin is None:
                self._admin = Admin(self._cluster.bootstrap, client_id="drmq-top", timeout_s=_TIMEOUT_S)
            return self._look(self._admin)
        except ClientError as error:
            # The client is kept: it knows nodes that the user has not named.
            return Snapshot(time.time(), "down", error.message.rstrip("."))

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _look(self, admin: Admin) -> Snapshot:
        health = observe(admin, _PROBE_TIMEOUT_S)
        brokers = admin.brokers.all()
        answering = [broker for broker in brokers if broker.node_id in health["brokers"]]
        readings = {broker.node_id: found for broker in answering if (found := _reading(admin, broker)) is not None}
        change = Change(self._readings, readings)
        self._readings = readings
        rates = _rates(change)
        for name, rate in rates.items():
            self._past.setdefault(name, deque(maxlen=HISTORY)).append(rate)
        self._read_events(admin, answering)
        if time.monotonic() - self._groups_at_s >= _GROUPS_EVERY_S:
            self._read_groups(admin)
        disks = _disks(admin)
        rows = [_row(broker, readings.get(broker.node_id), change, disks.get(broker.node_id)) for broker in brokers]
        for row in rows:
            row.is_controller = row.node_id == health["controller"]
            row.is_up = row.node_id in health["brokers"]
        return Snapshot(
            time.time(),
            health["status"],
            health["reason"],
            rows,
            list(self._groups),
            sorted(self._events, key=lambda each: (each[1].time_ms, each[0], each[1].sequence), reverse=True),
            rates,
            {name: list(values) for name, values in self._past.items()},
            sum(reading.value("drmq_lease_messages", ("state", "held")) for reading in readings.values()),
            sum(reading.value("drmq_lease_messages", ("state", "parked")) for reading in readings.values()),
            self._dead_letters,
        )

    def _read_events(self, admin: Admin, brokers: Sequence[Broker]) -> None:
        for broker in brokers:
            started_ms, last = self._seen.get(broker.node_id, (0, 0))
            try:
                found = admin.events.of(broker.node_id, after=last, count_max=_EVENTS_AT_ONCE)
                if last and found.started_ms != started_ms:
                    # Another run of its process: its numbers begin again.
                    found = admin.events.of(broker.node_id, count_max=_EVENTS_AT_ONCE)
            except ClientError:
                continue
            self._events.extend((broker.node_id, event) for event in found.events)
            last = found.events[-1].sequence if found.events else last if found.started_ms == started_ms else 0
            self._seen[broker.node_id] = found.started_ms, last

    def _read_groups(self, admin: Admin) -> None:
        rows, letters = [], {}
        try:
            for summary in list(admin.groups.all())[:_GROUPS_MAX]:
                group = admin.groups.describe(summary.group_id)
                found = progress(admin, group)
                facts = found.facts
                rows.append(
                    GroupRow(
                        group.group_id,
                        summary.kind,
                        group.state,
                        len(group.members),
                        facts["lag"],
                        facts["oldest_ms"],
                        facts["out"],
                        facts["parked"],
                        facts["dead_letters"],
                    )
                )
                if found.dead_letter_topic is not None:
                    letters[found.dead_letter_topic] = found.dead_letters or 0
        except ClientError:
            return  # while a coordinator moves; the last rows stay until the next time
        self._groups, self._dead_letters = rows, sum(letters.values())
        self._groups_at_s = time.monotonic()


def _reading(admin: Admin, broker: Broker) -> Reading | None:
    try:
        return Reading(admin.counters.of(broker.node_id), time.monotonic())
    except ClientError:
        return None


def _rates(change: Change) -> dict[str, float | None]:
    def milliseconds(share: float, name: str, *labels: tuple[str, str]) -> float | None:
        found = change.quantile(share, name, *labels)
        return None if found is None else found / 1000

    return {
        "produced": change.rate("drmq_messages_produced_total"),
        "consumed": change.rate("drmq_messages_consumed_total"),
        "produced_bytes": change.rate("drmq_produced_bytes_total"),
        "consumed_bytes": change.rate("drmq_consumed_bytes_total"),
        "produce_p50": milliseconds(0.5, "drmq_request_duration_us", _PRODUCE),
        "produce_p99": milliseconds(0.99, "drmq_request_duration_us", _PRODUCE),
        "commit_p99": milliseconds(0.99, "drmq_commit_duration_us"),
        "fsync_p99": milliseconds(0.99, "drmq_sync_duration_us"),
    }


def _disks(admin: Admin) -> dict[int, float]:
    """By node: how much of its disk is used."""
    try:
        found = admin.log_dirs()
    except ClientError:
        return {}
    return {
        disk.broker_id: 1 - disk.usable_bytes / disk.total_bytes
        for disk in found
        if disk.total_bytes > 0 and disk.usable_bytes >= 0
    }


def _row(broker: Broker, now: Reading | None, change: Change, disk_share: float | None) -> BrokerRow:
    row = BrokerRow(broker.node_id, str(broker.address), broker.is_controller, False, disk_share=disk_share)
    if now is None:
        return row
    row.leaders = now.value("drmq_partitions", ("role", "leader"))
    row.followers = now.value("drmq_partitions", ("role", "follower"))
    used_us = change.rate_of(broker.node_id, "drmq_process_cpu_us_total")
    row.cpu_share = None if used_us is None else used_us / 1e6
    row.resident_bytes = now.value("drmq_process_resident_bytes")
    row.log_bytes = now.total("drmq_log_size_bytes")
    row.connections = now.value("drmq_connections")
    row.uptime_ms = now.value("drmq_process_uptime_us") // 1000
    return row
