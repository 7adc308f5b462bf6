"""The services: one class for each of `proto/drmq/v1`, with one function for each method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

from drmq.client import Admin
from drmq.gateway.gateway import Gateway
from drmq.gateway.grpc import append_stream, fetch_stream, lease_calls
from drmq.gateway.grpc.append_stream import AppendStream
from drmq.gateway.grpc.checks import check_group, check_topic, converted, in_range
from drmq.gateway.grpc.lease_stream import LeaseStream
from drmq.gateway.grpc.methods import Call
from drmq.gateway.grpc.status import CallFailed, bad_request
from drmq.gateway.grpc.views import filled
from drmq.gateway.leasing import Outcome
from drmq.gateway.problems import problem
from drmq.gateway.routes import cluster as cluster_routes
from drmq.gateway.routes import groups as group_routes
from drmq.gateway.routes import topics as topic_routes
from drmq.gateway.types import NewTopicRequest, SettingsChange, TopicChange
from drmq.model import TopicPartition
from drmq.v1 import cluster_pb2, groups_pb2, leases_pb2, log_pb2, topics_pb2

LEASE_STREAMS_MAX: Final = 200
"""Each is a member of a group with connections of its own to every broker."""
OFFSETS_MAX: Final = 10_000


class LogMethods:
    """Appending and reading."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def append(self, request: log_pb2.AppendRequest, call: Call) -> log_pb2.AppendResponse:
        return await append_stream.append((await self._gateway.producer()).sender, request)

    async def append_stream(self, requests: AsyncIterator[log_pb2.AppendStreamRequest], call: Call) -> None:
        await AppendStream((await self._gateway.producer()).sender, call).run(requests)

    async def fetch(self, request: log_pb2.FetchRequest, call: Call) -> log_pb2.FetchResponse:
        return await fetch_stream.fetch(self._gateway, request)

    async def fetch_stream(self, request: log_pb2.FetchStreamRequest, call: Call) -> None:
        await fetch_stream.fetch_stream(self._gateway, request, call)


class LeaseMethods:
    """Work queues."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams = 0
        self._closing: set[asyncio.Task[None]] = set()

    async def lease(self, requests: AsyncIterator[leases_pb2.LeaseRequest], call: Call) -> None:
        if self._streams >= LEASE_STREAMS_MAX:
            text = f"this gateway has {LEASE_STREAMS_MAX} lease streams already"
            raise CallFailed(problem(429, text, advice="Use another gateway, or fewer streams.", retriable=True))
        self._streams += 1
        stream = LeaseStream(self._gateway.bootstrap, call)
        try:
            await stream.run(requests)
        finally:
            self._streams -= 1
            # Also if this call is cancelled again meanwhile: what is held must be given back.
            await asyncio.shield(self._keep(stream.close()))

    async def poll(self, request: leases_pb2.PollRequest, call: Call) -> leases_pb2.PollResponse:
        return await lease_calls.poll(self._gateway.leasing, request)

    async def ack(self, request: leases_pb2.AckRequest, call: Call) -> leases_pb2.AckResponse:
        return leases_pb2.AckResponse(results=await self._settle("ack", request))

    async def nack(self, request: leases_pb2.NackRequest, call: Call) -> leases_pb2.NackResponse:
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        return leases_pb2.NackResponse(results=await self._settle("nack", request, delay_ms))

    async def extend(self, request: leases_pb2.ExtendRequest, call: Call) -> leases_pb2.ExtendResponse:
        return leases_pb2.ExtendResponse(results=await self._settle("extend", request))

    async def give_back(self, request: leases_pb2.GiveBackRequest, call: Call) -> leases_pb2.GiveBackResponse:
        return leases_pb2.GiveBackResponse(results=await self._settle("give_back", request))

    async def reject(self, request: leases_pb2.RejectRequest, call: Call) -> leases_pb2.RejectResponse:
        return leases_pb2.RejectResponse(results=await self._settle("reject", request))

    async def _settle(
        self, outcome: Outcome, request: lease_calls.SettleRequest, delay_ms: int | None = None
    ) -> list[leases_pb2.SettleResult]:
        return await lease_calls.settle(self._gateway.leasing, outcome, request, delay_ms)

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def close(self) -> None:
        """Wait until the streams have given back what they held."""
        await asyncio.gather(*self._closing, return_exceptions=True)


class TopicMethods:
    """Topics."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list_topics(self, request: topics_pb2.ListTopicsRequest, call: Call) -> topics_pb2.ListTopicsResponse:
        params = topic_routes.TopicsParams(internal=request.internal)
        found = await topic_routes.topics(self._gateway, params)
        return topics_pb2.ListTopicsResponse(topics=[filled(topics_pb2.Topic(), each) for each in found.items])

    async def create_topic(self, request: topics_pb2.CreateTopicRequest, call: Call) -> topics_pb2.CreateTopicResponse:
        values: dict[str, Any] = {"name": request.name, "settings": dict(request.settings)}
        for name in ("partitions", "replicas"):
            if request.HasField(name):
                values[name] = getattr(request, name)
        found = await topic_routes.create_topic(self._gateway, converted(values, NewTopicRequest))
        return topics_pb2.CreateTopicResponse(topic=filled(topics_pb2.Topic(), found))

    async def describe_topic(
        self, request: topics_pb2.DescribeTopicRequest, call: Call
    ) -> topics_pb2.DescribeTopicResponse:
        params = _topic(request.name)
        found = await topic_routes.topic(self._gateway, params)
        partitions = await topic_routes.partitions(self._gateway, params)
        return topics_pb2.DescribeTopicResponse(
            topic=filled(topics_pb2.Topic(), found),
            partitions=[filled(topics_pb2.Partition(), each) for each in partitions.items],
        )

    async def delete_topic(self, request: topics_pb2.DeleteTopicRequest, call: Call) -> topics_pb2.DeleteTopicResponse:
        await topic_routes.delete_topic(self._gateway, _topic(request.name))
        return topics_pb2.DeleteTopicResponse()

    async def add_partitions(
        self, request: topics_pb2.AddPartitionsRequest, call: Call
    ) -> topics_pb2.AddPartitionsResponse:
        change = converted({"partitions": request.partitions}, TopicChange)
        found = await topic_routes.change_topic(self._gateway, _topic(request.name), change)
        return topics_pb2.AddPartitionsResponse(topic=filled(topics_pb2.Topic(), found))

    async def list_topic_settings(
        self, request: topics_pb2.ListTopicSettingsRequest, call: Call
    ) -> topics_pb2.ListTopicSettingsResponse:
        found = await topic_routes.topic_settings(self._gateway, _topic(request.name))
        settings = [filled(topics_pb2.Setting(), each) for each in found.items]
        return topics_pb2.ListTopicSettingsResponse(settings=settings)

    async def change_topic_settings(
        self, request: topics_pb2.ChangeTopicSettingsRequest, call: Call
    ) -> topics_pb2.ChangeTopicSettingsResponse:
        change = converted({"set": dict(request.set), "unset": list(request.unset)}, SettingsChange)
        found = await topic_routes.change_topic_settings(self._gateway, _topic(request.name), change)
        settings = [filled(topics_pb2.Setting(), each) for each in found.items]
        return topics_pb2.ChangeTopicSettingsResponse(settings=settings)


def _topic(name: str) -> topic_routes.TopicParams:
    check_topic(name)
    return topic_routes.TopicParams(name)


class GroupMethods:
    """Groups and their offsets."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list_groups(self, request: groups_pb2.ListGroupsRequest, call: Call) -> groups_pb2.ListGroupsResponse:
        found = await group_routes.groups(self._gateway)
        return groups_pb2.ListGroupsResponse(groups=[filled(groups_pb2.Group(), each) for each in found.items])

    async def describe_group(
        self, request: groups_pb2.DescribeGroupRequest, call: Call
    ) -> groups_pb2.DescribeGroupResponse:
        found = await group_routes.group(self._gateway, _group(request.group))
        response = groups_pb2.DescribeGroupResponse(
            group=filled(groups_pb2.Group(), found.group),
            partitions=[filled(groups_pb2.GroupPartition(), each) for each in found.partitions],
        )
        for each in found.members:
            member = response.members.add(member_id=each.member_id, client_id=each.client_id, host=each.host)
            for topic, partition in each.assignments:
                member.assignments.add(topic=topic, partition=partition)
        return response

    async def delete_group(self, request: groups_pb2.DeleteGroupRequest, call: Call) -> groups_pb2.DeleteGroupResponse:
        await group_routes.delete_group(self._gateway, _group(request.group))
        return groups_pb2.DeleteGroupResponse()

    async def list_group_settings(
        self, request: groups_pb2.ListGroupSettingsRequest, call: Call
    ) -> groups_pb2.ListGroupSettingsResponse:
        found = await group_routes.group_settings(self._gateway, _group(request.group))
        settings = [filled(topics_pb2.Setting(), each) for each in found.items]
        return groups_pb2.ListGroupSettingsResponse(settings=settings)

    async def change_group_settings(
        self, request: groups_pb2.ChangeGroupSettingsRequest, call: Call
    ) -> groups_pb2.ChangeGroupSettingsResponse:
        change = converted({"set": dict(request.set), "unset": list(request.unset)}, SettingsChange)
        found = await group_routes.change_group_settings(self._gateway, _group(request.group), change)
        settings = [filled(topics_pb2.Setting(), each) for each in found.items]
        return groups_pb2.ChangeGroupSettingsResponse(settings=settings)

    async def commit(self, request: groups_pb2.CommitRequest, call: Call) -> groups_pb2.CommitResponse:
        check_group(request.group)
        if not 0 < len(request.offsets) <= OFFSETS_MAX:
            raise bad_request(f"from 1 to {OFFSETS_MAX} offsets can be committed, and these are {len(request.offsets)}")
        offsets = {}
        for each in request.offsets:
            check_topic(each.topic)
            in_range(each.partition, 0, 2**31 - 1, "partition")
            in_range(each.offset, 0, 2**63 - 1, "offset")
            offsets[TopicPartition(each.topic, each.partition)] = each.offset
        await self._gateway.admins.run(lambda admin: admin.groups.commit(request.group, offsets))
        return groups_pb2.CommitResponse()

    async def list_committed(
        self, request: groups_pb2.ListCommittedRequest, call: Call
    ) -> groups_pb2.ListCommittedResponse:
        check_group(request.group)

        def ask(admin: Admin) -> groups_pb2.ListCommittedResponse:
            response = groups_pb2.ListCommittedResponse()
            for place, committed in admin.groups.offsets(request.group).items():
                response.offsets.add(topic=place.topic, partition=place.partition, offset=committed.offset)
            return response

        return await self._gateway.admins.run(ask)


def _group(name: str) -> group_routes.GroupParams:
    check_group(name)
    return group_routes.GroupParams(name)


class ClusterMethods:
    """The cluster and its nodes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_cluster(
        self, request: cluster_pb2.DescribeClusterRequest, call: Call
    ) -> cluster_pb2.DescribeClusterResponse:
        found = await cluster_routes.cluster(self._gateway)
        response = filled(cluster_pb2.DescribeClusterResponse(), found)
        response.features.extend(filled(cluster_pb2.Feature(), each) for each in found.features)
        response.gateways.extend(filled(cluster_pb2.Gateway(), each) for each in found.gateways)
        return response

    async def list_brokers(
        self, request: cluster_pb2.ListBrokersRequest, call: Call
    ) -> cluster_pb2.ListBrokersResponse:
        found = await cluster_routes.brokers(self._gateway)
        return cluster_pb2.ListBrokersResponse(brokers=[filled(cluster_pb2.Broker(), each) for each in found.items])

    async def describe_broker(
        self, request: cluster_pb2.DescribeBrokerRequest, call: Call
    ) -> cluster_pb2.DescribeBrokerResponse:
        in_range(request.node_id, 0, 2**31 - 1, "node_id")
        found = await cluster_routes.broker(self._gateway, cluster_routes.BrokerParams(request.node_id))
        return cluster_pb2.DescribeBrokerResponse(
            broker=filled(cluster_pb2.Broker(), found.broker),
            settings=[filled(topics_pb2.Setting(), each) for each in found.settings],
        )
