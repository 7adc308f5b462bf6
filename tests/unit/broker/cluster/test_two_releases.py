"""Nodes of two releases in one simulated cluster: levels begin low, become final together, and shut the older out.

The older release is this one, told to greet and register like it. `tests/e2e/test_rolling_upgrade.py` runs the real
one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from drmq.broker import BrokerOptions
from drmq.broker.cluster.features import Update
from drmq.broker.partitions.derived_state import replay_batches
from drmq.broker.replication.entry_log import check_own
from drmq.catalog import FEATURES, METADATA_VERSION
from drmq.model import ApiError, ErrorCode, NodeId, Offset
from drmq.raft import EntryKind
from drmq.testing.simulation.links import Links
from drmq.testing.simulation.node import Ending, SimulatedNode
from drmq.testing.simulation.peers import Switchboard
from drmq.testing.simulation.world import MS, SECOND, World

T = TypeVar("T")

FORMED_WITHIN_US = 60 * SECOND
TO_NEWEST = [Update(METADATA_VERSION, FEATURES[METADATA_VERSION].level_max)]
FACTS_OF_VERSION_1 = {
    "cluster-created",
    "broker-registered",
    "broker-fenced",
    "broker-unfenced",
    "topic-created",
    "producer-ids-reserved",
}


class Machines:
    """Some nodes in a world without faults."""

    def __init__(self, count: int, *older: int) -> None:
        self.world = World(7, None)
        self._board = Switchboard(self.world, Links(self.world))
        self._founders = count
        self.nodes: dict[int, SimulatedNode] = {}
        self.deaths: dict[int, str] = {}
        """What was said when a node ended by itself."""
        for number in range(1, count + 1):
            self.add(number, is_older=number in older)

    def add(self, number: int, *, is_older: bool) -> SimulatedNode:
        options = BrokerOptions(offsets_topic_partitions=1)
        node = SimulatedNode(self.world, self._board, number, self._founders, options, 100_000)
        node.on_dead = self._on_dead
        node.greets_as_version_1 = is_older
        self.nodes[number] = node
        node.start()
        return node

    def _on_dead(self, node: SimulatedNode, ending: Ending) -> None:
        self.deaths[int(node.node_id)] = f"{ending.name}: {node.fatal_error}"
        node.kill()

    def until(self, condition: Callable[[], object]) -> None:
        end_us = self.world.now_us + FORMED_WITHIN_US
        while not condition():
            assert self.world.now_us < end_us, "it does not happen"
            self.world.run_until(self.world.now_us + 100 * MS)

    def formed(self) -> Machines:
        self.until(lambda: all(node.is_serving for node in self.nodes.values()))
        return self

    def restart(self, number: int, *, is_older: bool) -> SimulatedNode:
        node = self.nodes[number]
        node.kill()
        node.greets_as_version_1 = is_older
        node.start()
        return node

    @property
    def controller(self) -> SimulatedNode:
        found = [node for node in self.nodes.values() if node.is_serving and node.broker.is_controller]
        self.until(lambda: found or any(node.broker.is_controller for node in self.nodes.values()))
        return next(node for node in self.nodes.values() if node.is_serving and node.broker.is_controller)

    def run(self, node: SimulatedNode, work: Coroutine[Any, Any, T]) -> T:
        task: asyncio.Task[T] = node.loop.create_task(work)
        self.until(task.done)
        return task.result()

    def create_topic(self, name: str) -> None:
        broker = self.controller.broker
        self.run(self.controller, broker.topics.create(name, broker.new_topic_id(), 1, {}))

    def levels(self) -> list[int]:
        return [node.broker.metadata.committed_catalog.level(METADATA_VERSION) for node in self.nodes.values()]

    def formats(self) -> list[int]:
        contents = [node.files.content("/data/drmq.json") for node in self.nodes.values()]
        return [json.loads(content)["format_version"] for content in contents]

    def finalize(self) -> None:
        node = self.controller
        self.until(lambda: None not in node.broker.features.of_brokers().values())
        self.run(node, node.broker.features.update(TO_NEWEST, dry_run=False))
        self.until(lambda: set(self.levels()) == {FEATURES[METADATA_VERSION].level_max})


def test_a_new_cluster_begins_with_the_newest_levels() -> None:
    machines = Machines(3).formed()
    assert machines.levels() == [4, 4, 4]
    assert machines.formats() == [4, 4, 4]


def test_a_cluster_with_an_older_node_writes_nothing_new() -> None:
    """Neither facts nor own entries that it could not read; and its directories can go back."""
    machines = Machines(3, 3).formed()
    machines.create_topic("t")
    assert machines.levels() == [1, 1, 1]
    assert machines.formats() == [3, 3, 3]
    for node in machines.nodes.values():
        records = [bytes(data) for _, data in facts_of(node)]
        kinds = {json.loads(record)["kind"] for record in records}
        assert kinds
        assert kinds <= FACTS_OF_VERSION_1
    assert trim_payload(machines) == Offset(0).to_bytes(8, "big")


def test_a_level_waits_for_the_last_node_and_then_shuts_the_older_release_out() -> None:
    machines = Machines(3, 3).formed()
    controller = machines.controller
    with pytest.raises(ApiError, match="node 3 runs a release that does not support it") as refused:
        machines.run(controller, controller.broker.features.update(TO_NEWEST, dry_run=False))
    assert refused.value.code is ErrorCode.FEATURE_UPDATE_FAILED
    machines.restart(3, is_older=False)
    machines.formed()
    machines.run(machines.controller, machines.controller.broker.features.update(TO_NEWEST, dry_run=True))
    assert machines.levels() == [1, 1, 1]
    machines.finalize()
    machines.until(lambda: machines.formats() == [4, 4, 4])
    machines.create_topic("t")
    assert trim_payload(machines) == b"\1" + Offset(0).to_bytes(8, "big")

    older = machines.restart(3, is_older=True)
    others = [machines.nodes[number] for number in (1, 2)]
    for node in others:
        machines.until(lambda node=node: node.broker.network.peers[NodeId(3)].refusal is not None)  # type: ignore[misc]
        refusal = str(node.broker.network.peers[NodeId(3)].refusal)
        assert "node 3 cannot take part: the cluster has finalized level 4 of metadata.version" in refusal
    assert not older.is_serving

    newcomer = machines.add(4, is_older=True)
    machines.world.run_until(machines.world.now_us + FORMED_WITHIN_US)
    assert not newcomer.is_serving
    assert all(NodeId(4) not in node.broker.catalog.brokers for node in others)


def test_a_node_that_is_down_holds_up_a_level() -> None:
    machines = Machines(3, 1, 2, 3).formed()
    for number in (1, 2, 3):
        machines.restart(number, is_older=False)
        machines.until(lambda number=number: machines.nodes[number].is_serving)  # type: ignore[misc]
    machines.nodes[3].kill()
    controller = machines.controller
    machines.until(lambda: not controller.broker.network.is_up(NodeId(3)))
    with pytest.raises(ApiError, match="while node 3 is down, because an older release may come back there"):
        machines.run(controller, controller.broker.features.update(TO_NEWEST, dry_run=False))
    machines.nodes[3].start()
    machines.formed()
    machines.finalize()


def facts_of(node: SimulatedNode) -> list[tuple[bytes, bytes]]:
    """The records of a node's metadata log."""
    found: list[tuple[bytes, bytes]] = []
    partition = node.broker.metadata.log.partition
    data = partition.log.read(Offset(0), 1 << 20, partition.high_watermark)
    assert data is not None
    replay_batches(data, lambda key, value: found.append((key, value or b"")), Offset(0))
    return found


def trim_payload(machines: Machines) -> bytes:
    """What the leader of a partition appends to its group's log when records are to be removed."""
    leaders: list[Any] = []

    def look() -> bool:
        leaders[:] = [
            partition
            for node in machines.nodes.values()
            if node.is_serving
            for partition in node.broker.partitions
            if partition.topic == "t" and partition.is_serving
        ]
        return bool(leaders)

    machines.until(look)
    partition = leaders[0]
    before = len(partition.replica.ledger.entries)
    partition.trim(Offset(0), lambda code: None)
    machines.until(lambda: len(partition.replica.ledger.entries) > before)
    entry = partition.replica.ledger.entries[-1]
    assert entry.kind == EntryKind.PAYLOAD
    check_own(entry.index, entry.kind, entry.payload)
    payload: bytes = entry.payload
    return payload
