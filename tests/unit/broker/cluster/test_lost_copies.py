"""The controller lets a node give up its copy of a partition only where the copies of others are a majority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from drmq.broker.cluster.membership import Request
from drmq.broker.cluster.partition_reports import group_to_bytes
from drmq.catalog import Topic
from drmq.model import ApiError, ErrorCode, GroupId, MemberId, NodeId, TopicId, member_id
from drmq.transport.peers import LeaderNotice
from drmq.transport.peers.codec import decode_notices, encode_notices
from support.broker_harness import Harness
from support.other_nodes import add_node, add_topic, heard


@pytest.fixture
def harness() -> Iterator[Harness]:
    """A controller that has heard of five more nodes."""
    with Harness() as harness:
        heard(harness)
        harness.broker.host.network = harness.broker.network
        for node_id in range(2, 7):
            add_node(harness, node_id)
        yield harness


class Group:
    """A partition on other nodes, whose leader tells who is in sync."""

    def __init__(self, harness: Harness, nodes: Sequence[int]) -> None:
        self._harness = harness
        self._version = 0
        self.nodes = [NodeId(node) for node in nodes]
        self.group = GroupId(add_topic(harness, "orders", nodes).topic_id, 0)
        self.announce()

    @property
    def topic(self) -> Topic:
        return self._harness.broker.catalog.topic("orders")

    def member(self, node: int) -> MemberId:
        """Who the node is in the group now."""
        return self._harness.broker.catalog.members(self.topic.partitions[0], (NodeId(node),))[0]

    def announce(self, *, without: Sequence[int] = ()) -> None:
        """The leader knows what the catalog says, and all but these are in sync."""
        self._version += 1
        members = tuple(self.member(node) for node in self.nodes if node not in without)
        notice = LeaderNotice(self.group, 7, self.nodes[0], self._version, members)
        self._harness.call(lambda: self._harness.broker.host.on_notices([notice]))

    def lose(self, node: int) -> ErrorCode:
        """A node asks for leave to give up its copy; the answer."""
        arrival = self.topic.partitions[0].arrival(NodeId(node))
        payload = group_to_bytes(self.group) + arrival.to_bytes(8, "big")
        serve = self._harness.broker.membership.handlers[Request.REPLICA_LOST]
        before = self.member(node)
        try:
            self._harness.run(serve(NodeId(node), memoryview(payload)))
        except ApiError as error:
            assert self.member(node) == before
            return error.code
        assert self.member(node) != before
        return ErrorCode.NONE


def test_of_two_who_lose_their_copies_at_once_one_waits_until_the_other_has_a_new_one(harness: Harness) -> None:
    """The leader's last word is from before: it tells of a copy that is given up by now."""
    group = Group(harness, (2, 3, 4))
    assert group.lose(3) is ErrorCode.NONE
    assert group.lose(4) is ErrorCode.NOT_ENOUGH_REPLICAS
    group.announce(without=(3,))
    assert group.lose(4) is ErrorCode.NOT_ENOUGH_REPLICAS
    group.announce()
    assert group.lose(4) is ErrorCode.NONE


def test_a_copy_that_does_not_come_back_blocks_nobody_who_is_not_needed(harness: Harness) -> None:
    group = Group(harness, (2, 3, 4, 5, 6))
    assert group.lose(3) is ErrorCode.NONE
    assert group.lose(4) is ErrorCode.NONE
    assert group.lose(5) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_copy_can_be_lost_again_while_it_is_made_anew(harness: Harness) -> None:
    group = Group(harness, (2, 3, 4))
    assert group.lose(3) is ErrorCode.NONE
    assert group.lose(3) is ErrorCode.NONE


def test_a_node_with_another_disk_is_in_sync_only_under_its_new_name(harness: Harness) -> None:
    """It registered, and the leader has yet to hear of it."""
    group = Group(harness, (2, 3, 4))
    facts = harness.broker.catalog.register_broker(
        NodeId(3), "00ff", host="node-3", port=9092, peer_host="node-3", peer_port=10092
    )
    harness.call(lambda: harness.broker.metadata.append(facts))
    assert group.lose(4) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_news_of_a_leader_keep_apart_who_a_node_was_and_is() -> None:
    now = member_id(NodeId(3), 5)
    notice = LeaderNotice(GroupId(TopicId(bytes(16)), 0), 7, NodeId(2), 1, (NodeId(2), now))
    [arrived] = decode_notices(memoryview(encode_notices([notice])), memoryview(b""))
    assert arrived == notice
    assert arrived.in_sync == (2, 3)
    assert arrived.members_in_sync == (2, now)
