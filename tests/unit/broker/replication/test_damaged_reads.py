"""A leader whose log is damaged where a follower needs it: it reports that, and does everything else as before."""

from __future__ import annotations

import errno
import logging

import pytest

from drmq.model import NodeId, Offset
from drmq.raft import AppendAccepted, AppendRejected, AppendRequest, HeartbeatResponse, LogIndex, Node, Term
from drmq.testing.files import FakeFiles
from support.harness_leader import receive
from support.replica_harness import SELF, TOPIC, ReplicaHarness
from unit.broker.replication.test_replica import GROUP, lead

BATCHES = 5
DAMAGED = Offset(2)
"""The offset of the damaged batch: each batch holds one record."""
LOG = f"/data/topics/{TOPIC.name}.{TOPIC.topic_id.hex()}/0/{0:020}.log"
TWO, THREE = NodeId(2), NodeId(3)


class Scene:
    """A leader with some batches that node 2 has. Node 3 returns with nothing, when the leader's memory is empty."""

    def __init__(self, *, is_restarted: bool = False) -> None:
        self.desk = ReplicaHarness(FakeFiles(), members=GROUP)
        lead(self.desk)
        for _ in range(BATCHES):
            self.produce()
        if is_restarted:
            assert self.desk.files is not None
            self.desk = ReplicaHarness(self.desk.files.after_kill(), members=GROUP, is_old=True)
            lead(self.desk)
            self.accept(TWO)
        for _ in range(self.desk.raft_options.election_timeout_ticks * 2):
            # Node 3 is silent for so long that what is kept for it in memory is let go.
            self.desk.replica.tick()
            self.answer(TWO)
        assert not self.desk.replica.entries.recent
        self.damaged: list[object] = []
        self.desk.table.on_damage = self.damaged.append

    @property
    def files(self) -> FakeFiles:
        assert self.desk.files is not None
        return self.desk.files

    @property
    def node(self) -> Node:
        assert self.desk.replica.node is not None
        return self.desk.replica.node

    @property
    def term(self) -> Term:
        return self.node.term

    def produce(self) -> None:
        self.desk.produce(b"v" * 50)
        self.accept(TWO)

    def accept(self, sender: NodeId, match: int | None = None) -> None:
        index = self.node.last_index if match is None else LogIndex(match)
        receive(self.desk, AppendAccepted(sender, SELF, self.term, index))
        self.desk.work()

    def answer(self, sender: NodeId) -> None:
        receive(self.desk, HeartbeatResponse(sender, SELF, self.term, 0))
        self.desk.work()

    def bring_node_3_back(self) -> None:
        """It answers heartbeats, is asked where it is, and takes what it gets."""
        for _ in range(6):
            self.desk.sent.clear()
            self.answer(THREE)
            for message in list(self.desk.sent):
                if not isinstance(message, AppendRequest) or message.target != THREE:
                    continue
                if message.previous_index > self.node.progress()[THREE].match:
                    rejected = AppendRejected(THREE, SELF, self.term, message.previous_index, LogIndex(0), Term(0))
                    receive(self.desk, rejected)
                elif message.entries:
                    receive(self.desk, AppendAccepted(THREE, SELF, self.term, message.entries[-1].index))
                self.desk.work()

    def rot(self, byte: int) -> None:
        size = len(self.files.content(LOG))
        self.files.flip_bit(LOG, size // BATCHES * DAMAGED + byte)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["written by this process", "read from the disk"])
@pytest.mark.parametrize("byte", [2, 9, 12, 16], ids=["base offset", "length", "leader epoch", "magic"])
def test_a_header_that_rotted_is_damage_and_no_bug(
    byte: int, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(is_restarted=is_restarted)
    scene.rot(byte)
    scene.files.drop_caches()
    with caplog.at_level(logging.ERROR, "drmq.broker"):
        scene.bring_node_3_back()
    assert scene.damaged[:1] == [scene.desk.partition]
    assert "cannot be read" in caplog.text
    # It has what lies before the damage, and nothing of what is behind it.
    assert scene.node.progress()[THREE].match == scene.desk.replica.entries.last_index_before(DAMAGED)
    before = scene.desk.partition.high_watermark
    scene.produce()
    assert scene.desk.partition.high_watermark == before + 1


def test_after_an_error_of_the_disk_the_follower_gets_what_it_needs() -> None:
    """A read that failed is tried again, though not at once: else the leader would do nothing but try."""
    scene = Scene(is_restarted=True)
    scene.files.drop_caches()
    fault = scene.files.fail("read", errno.EIO, path_part=".log", fail_count=100)
    scene.bring_node_3_back()
    assert fault.fail_count > 80
    assert scene.node.progress()[THREE].match < scene.node.last_index
    assert not scene.damaged
    scene.files.forget_faults()
    scene.bring_node_3_back()
    scene.bring_node_3_back()
    assert scene.node.progress()[THREE].match == scene.node.last_index
