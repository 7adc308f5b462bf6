"""The cluster, its nodes, their counters and their events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from drmq.client import Admin, Broker, ClientError, ConfigEntry
from drmq.gateway.cluster_state import cluster_view
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import (
    BrokerDetail,
    BrokerView,
    ClusterView,
    CounterView,
    EventView,
    Index,
    Limit,
    MetricsHistory,
    Page,
    SettingView,
)


class BrokerParams(Struct, forbid_unknown_fields=True):
    node_id: Index


class EventParams(Struct, forbid_unknown_fields=True):
    limit: Limit = 100
    level: str = "info"


class HistoryParams(Struct, forbid_unknown_fields=True):
    seconds: Annotated[int, Meta(ge=1, le=3600)] = 600


@endpoint("GET", "/cluster", "The health of the cluster in one sentence, and its size.")
async def cluster(gateway: Gateway) -> ClusterView:
    return await gateway.admins.run(lambda admin: cluster_view(admin, gateway.addresses()))


@endpoint("GET", "/brokers", "All nodes, with their load as last sampled.")
async def brokers(gateway: Gateway) -> Page[BrokerView]:
    found = await gateway.admins.run(lambda admin: admin.brokers.all())
    return Page([gateway.sampler.broker_view(each) for each in found])


@endpoint("GET", "/brokers/{node_id}", "One node with its counters and settings.")
async def broker(gateway: Gateway, params: BrokerParams) -> BrokerDetail:
    def ask(admin: Admin) -> tuple[Broker, Any, Sequence[ConfigEntry]]:
        for each in admin.brokers.all():
            if each.node_id == params.node_id:
                return each, admin.counters.of(each.node_id), admin.configs.of_broker(each.node_id)
        raise ProblemError(404, f"there is no node {params.node_id}", advice="GET /api/v1/brokers lists the nodes.")

    found, samples, settings = await gateway.admins.run(ask)
    counters = [CounterView(each.name, dict(each.labels), each.value, list(each.buckets)) for each in samples]
    return BrokerDetail(gateway.sampler.broker_view(found), counters, list(map(setting_view, settings)))


def setting_view(entry: ConfigEntry) -> SettingView:
    return SettingView(entry.name, entry.value, entry.source, entry.is_default, entry.read_only, entry.documentation)


@endpoint("GET", "/events", "The last events of all nodes, the newest first.")
async def events(gateway: Gateway, params: EventParams) -> Page[EventView]:
    def ask(admin: Admin) -> list[EventView]:
        found: list[EventView] = []
        for each in admin.brokers.all():
            if each.is_fenced:
                continue
            try:
                answer = admin.events.of(each.node_id, count_max=params.limit)
            except ClientError:
                continue  # a node that does not answer must not hide the events of the others
            found += [
                EventView(event.time_ms, each.node_id, event.sequence, event.level, event.source, event.text)
                for event in answer.events
            ]
        return found

    levels = {"info": ("info", "warning", "error", "critical"), "warning": ("warning", "error", "critical")}
    shown = levels.get(params.level)
    if shown is None:
        raise ProblemError(400, f"the level is `info` or `warning`, not {params.level!r}")
    found = [event for event in await gateway.admins.run(ask) if event.level in shown]
    found.sort(key=lambda event: (event.time_ms, event.node_id, event.sequence), reverse=True)
    return Page(found[: params.limit])


@endpoint("GET", "/metrics/history", "The samples of the last minutes that this gateway kept, for charts.")
async def metrics_history(gateway: Gateway, params: HistoryParams) -> MetricsHistory:
    since_ms = time.time() * 1000 - params.seconds * 1000
    points = [point for point in gateway.sampler.history if point.time_ms >= since_ms]
    names = sorted({name for point in points for name in point.series})
    series = {name: [point.series.get(name) for point in points] for name in names}
    return MetricsHistory([point.time_ms for point in points], series)
