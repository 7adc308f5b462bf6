"""Topics, their partitions and their settings."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from drmq.client import Admin, NewTopic
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.problems import ProblemError
from drmq.gateway.routes.cluster import setting_view
from drmq.gateway.topic_survey import bounds_of, sizes_of, view_of
from drmq.gateway.types import (
    Done,
    Name,
    NewTopicRequest,
    Page,
    PartitionView,
    SettingsChange,
    SettingView,
    TopicChange,
    TopicView,
)
from drmq.model import TopicPartition

_DEFAULT = -1


class TopicsParams(Struct, forbid_unknown_fields=True):
    internal: bool = False
    """Whether internal topics are listed too."""


class TopicParams(Struct, forbid_unknown_fields=True):
    topic: Name


@endpoint("GET", "/topics", "All topics with their size.")
async def topics(gateway: Gateway, params: TopicsParams) -> Page[TopicView]:
    def ask(admin: Admin) -> list[TopicView]:
        found = [topic for topic in admin.topics.all() if params.internal or not topic.is_internal]
        bounds, sizes = bounds_of(admin, found), sizes_of(admin)
        return [view_of(topic, bounds, sizes) for topic in found]

    return Page(await gateway.admins.run(ask))


@endpoint("POST", "/topics", "Create a topic.", status=201)
async def create_topic(gateway: Gateway, body: NewTopicRequest) -> TopicView:
    def ask(admin: Admin) -> TopicView:
        admin.topics.create(NewTopic(body.name, body.partitions or _DEFAULT, body.replicas or _DEFAULT, body.settings))
        return _one(admin, body.name)

    return await gateway.admins.run(ask)


@endpoint("GET", "/topics/{topic}", "One topic.")
async def topic(gateway: Gateway, params: TopicParams) -> TopicView:
    return await gateway.admins.run(lambda admin: _one(admin, params.topic))


@endpoint("PATCH", "/topics/{topic}", "Add partitions to a topic: `partitions` is their new number.")
async def change_topic(gateway: Gateway, params: TopicParams, body: TopicChange) -> TopicView:
    def ask(admin: Admin) -> TopicView:
        admin.topics.add_partitions(params.topic, body.partitions)
        return _one(admin, params.topic)

    return await gateway.admins.run(ask)


@endpoint("DELETE", "/topics/{topic}", "Delete a topic with all its records.")
async def delete_topic(gateway: Gateway, params: TopicParams) -> Done:
    await gateway.admins.run(lambda admin: admin.topics.delete(params.topic))
    return Done()


@endpoint("GET", "/topics/{topic}/partitions", "The partitions of a topic: leaders, replicas, offsets and sizes.")
async def partitions(gateway: Gateway, params: TopicParams) -> Page[PartitionView]:
    def ask(admin: Admin) -> list[PartitionView]:
        found = admin.topics.describe(params.topic)
        bounds, sizes = bounds_of(admin, [found]), sizes_of(admin)
        rows = []
        for each in found.partitions:
            place = TopicPartition(found.name, each.index)
            start, end = bounds.get(place, (None, None))
            rows.append(
                PartitionView(
                    each.index,
                    each.leader,
                    each.leader_epoch,
                    list(each.replicas),
                    list(each.in_sync),
                    start,
                    end,
                    max(sizes.get(place, [0])),
                )
            )
        return rows

    return Page(await gateway.admins.run(ask))


@endpoint("GET", "/topics/{topic}/settings", "The settings of a topic, with where each value comes from.")
async def topic_settings(gateway: Gateway, params: TopicParams) -> Page[SettingView]:
    found = await gateway.admins.run(lambda admin: admin.configs.of_topic(params.topic))
    return Page(list(map(setting_view, found)))


@endpoint("PATCH", "/topics/{topic}/settings", "Change settings of a topic.")
async def change_topic_settings(gateway: Gateway, params: TopicParams, body: SettingsChange) -> Page[SettingView]:
    if not body.set and not body.unset:
        raise ProblemError(400, "nothing is to be changed: `set` and `unset` are empty")

    def ask(admin: Admin) -> Sequence[SettingView]:
        admin.configs.alter_topic(params.topic, body.set, body.unset)
        return list(map(setting_view, admin.configs.of_topic(params.topic)))

    return Page(list(await gateway.admins.run(ask)))


def _one(admin: Admin, name: str) -> TopicView:
    found = admin.topics.describe(name)
    return view_of(found, bounds_of(admin, [found]), sizes_of(admin))
