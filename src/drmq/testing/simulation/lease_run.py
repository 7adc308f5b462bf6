"""The part of a run that is about lease groups: a topic of jobs, its members, what goes wrong, and what is checked.

The rules are in `drmq.testing.lease_rules`. They are checked now and then, and at the end, when every job is done and
the dead letters are read. A run is *disturbed* while a process is down or paused, a link is cut, a disk slow or full,
and when a leader is elected. The rules about how often and when something happens hold for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drmq.broker import Broker, Partition
from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.leases import LeaseOptions, QueueKey
from drmq.leases.queue import Queue
from drmq.model import ErrorCode
from drmq.records import decode_batch, iter_batches
from drmq.testing.files import UNLIMITED_BYTES
from drmq.testing.lease_history import Job, LeaseHistory, Letter, Produced, letter_of
from drmq.testing.lease_rules import violations
from drmq.testing.simulation.client import Connector, Unavailable
from drmq.testing.simulation.history import History, Place
from drmq.testing.simulation.lease_members import Habits, LeaseMember, LeaseNotes, ShareMember, is_poison
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.workload import LATEST, Producer, Worker
from drmq.testing.simulation.world import MS, World
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic

if TYPE_CHECKING:
    from drmq.testing.simulation.cluster import Cluster

TOPIC, GROUP, LETTERS = "jobs", "crew", "dlq.crew"
_PARTITIONS = 2
_LOOK_US = 50 * MS
_JUDGE_EVERY = 40
"""How often the rules are checked during a run: every so many looks."""
_FETCH, _LIST_OFFSETS = 12, 6
_DECOMPRESSED_MAX = 1 << 24


class JobProducer(Producer):
    """Writes jobs, and notes when each was acknowledged."""

    def __init__(
        self, world: World, connector: Connector, history: History, name: str, place: Place, notes: LeaseNotes
    ) -> None:
        super().__init__(world, connector, history, name, place)
        self._notes = notes

    def on_written(self, batch: object, offset: int) -> None:
        for index, sent in enumerate(batch.records):  # type: ignore[attr-defined]
            self._notes.history.produced.append(
                Produced(
                    Job(*self.place, offset + index),
                    sent.value,
                    self._notes.now_ms,
                    is_poison(sent.value, self._notes.habits.poison),
                )
            )


class LetterReader(Worker):
    """Reads the dead letters, once, after all work is done."""

    def __init__(self, world: World, connector: Connector, history: History, notes: LeaseNotes, count: int) -> None:
        super().__init__(world, connector, history, "the reader of letters")
        self._notes = notes
        self._left = [Place(LETTERS, index) for index in range(count)]
        self.pause_s = 0.005

    @property
    def is_done(self) -> bool:
        return not self._left

    async def work(self) -> None:
        place = self._left[0]
        leader = await self.client.leader(place)
        found: list[Letter] = []
        try:
            end, position = await self._end(leader.node, place), 0
            while position < end:
                position = await self._read(leader.node, place, position, found)
        except Unavailable:
            self.client.mark_stale(place)
            raise
        self._notes.history.letters += found
        self._left.pop(0)

    async def _end(self, node: int, place: Place) -> int:
        topic = ListOffsetsRequestTopic(place.topic, [ListOffsetsRequestPartition(place.partition, -1, LATEST)])
        answer = await self.client.ask(node, ListOffsetsRequest(topics=[topic]), _LIST_OFFSETS)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            raise Unavailable(ErrorCode(result.error_code).name)
        return int(result.offset)

    async def _read(self, node: int, place: Place, position: int, found: list[Letter]) -> int:
        partition = FetchRequestPartition(place.partition, fetch_offset=position, partition_max_bytes=1 << 20)
        topic = FetchRequestTopic(place.topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        answer = await self.client.ask(node, request, _FETCH)
        result = answer.responses[0].partitions[0]
        if result.error_code:
            raise Unavailable(ErrorCode(result.error_code).name)
        view = memoryview(result.records or b"")
        for at, header in iter_batches(view):
            for record in decode_batch(view[at : at + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
                if record.offset >= position:
                    found.append(letter_of(record.value, record.headers))
                    position = record.offset + 1
        return position


class LeaseRun:
    """The lease group of a run, its history, and its faults."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        profile = cluster.profile
        self.options: LeaseOptions = profile.lease_options
        self.habits: Habits = profile.habits
        self.history = LeaseHistory(GROUP, self.options.attempts_max)
        self.notes = LeaseNotes(cluster.world, self.history, TOPIC, _PARTITIONS, self.habits)
        self.history.patience_ms = profile.lease_patience_ms
        self._producers: list[JobProducer] = []
        self._is_rough = profile.loss > 0 or profile.late > 0
        self._looks = 0
        self.is_on = False
        """Whether faults may be injected."""

    @property
    def places(self) -> list[Place]:
        return self.notes.places

    def prepare(self, broker: Broker) -> None:
        """Give a broker the settings of the group."""
        broker.leases.options_of = lambda group: self.options
        broker.services.leases.starts_at = lambda group, partition, caller: partition.start_offset

    def start(self) -> list[Worker]:
        """The clients."""
        cluster = self._cluster
        common = (cluster.world, cluster, cluster.history)
        self._producers = [
            JobProducer(*common, f"j{index}", place, self.notes) for index, place in enumerate(self.places)
        ]
        count = cluster.profile.lease_members
        members = [
            (ShareMember if number % 3 == 2 else LeaseMember)(*common, self.notes, number) for number in range(count)
        ]
        for member in members:
            member.is_drained = self.is_drained
        self._world.later(_LOOK_US, "look at leases", self._look)
        return [*self._producers, *members]

    # ---- the state of the group -------------------------------------------------------------------

    def shards(self) -> list[tuple[SimulatedNode, LeaseShardCoordinator]]:
        """The shards, on the nodes that lead them now."""
        return [
            (node, shard)
            for node in self._cluster.live_nodes
            if node.is_running and node.is_serving and not node.loop.is_paused
            for shard in node.broker.leases.shards.values()
            if shard.leads
        ]

    def queues(self) -> dict[QueueKey, Queue]:
        return {
            key: queue
            for _, shard in self.shards()
            for key, queue in shard.machine.queues.items()
            if key.group == GROUP and 0 <= key.partition < _PARTITIONS
        }

    def data(self) -> list[tuple[SimulatedNode, Partition]]:
        """The partitions of the jobs, on the nodes that lead them now."""
        return [
            (node, partition)
            for node in self._cluster.live_nodes
            if node.is_running and node.is_serving and not node.loop.is_paused
            for partition in node.broker.partitions
            if partition.topic == TOPIC and partition.is_serving
        ]

    def is_drained(self) -> bool:
        """Whether all jobs are written, and every one has ended."""
        if not all(producer.is_done for producer in self._producers):
            return False
        queues, data = self.queues(), self.data()
        if len(queues) < _PARTITIONS or len(data) < _PARTITIONS:
            return False
        ends = {partition.index: partition.high_watermark for _, partition in data}
        return all(
            queue.end >= ends[key.partition]
            and not (queue.held.count or queue.returned.count or queue.parked.count or queue.dying.count)
            for key, queue in queues.items()
        )

    # ---- what goes wrong --------------------------------------------------------------------------

    def disturb(self) -> None:
        self.history.disturb(self._world.now_us / MS)

    def _look(self) -> None:
        cluster = self._cluster
        if self._is_rough or cluster.links.has_cuts or any(_is_unwell(node) for node in cluster.live_nodes):
            self.disturb()
        if any(node.clock.wall_ahead_ms for node in cluster.nodes):
            self.history.clocks_set = True
        self._looks += 1
        if self._looks % _JUDGE_EVERY == 0:
            self._judge(is_over=False)
        if self.is_on:
            self._provoke()
        self._world.later(_LOOK_US, "look at leases", self._look)

    def _provoke(self) -> None:
        """End or move what holds leases or writes dead letters, at that very moment."""
        random, profile = self._world.random, self._cluster.profile
        chance = _LOOK_US / profile.lease_fault_every_us
        if random.random() < chance:
            shards = [
                (node, shard)
                for node, shard in self.shards()
                if any(queue.held.count for queue in shard.machine.queues.values())
            ]
            if shards and random.random() < 0.6:
                node, shard = random.choice(shards)
                self._hit(node, shard.log.partition)
            elif data := self.data():
                self._hit(*random.choice(data))
        dying = [
            (node, shard) for node, shard in self.shards() if next(shard.machine.dead_records(1), None) is not None
        ]
        if dying and random.random() < 8 * chance:
            node, shard = random.choice(dying)
            self._world.say(node.name, "dead letters are being written")
            self._hit(node, shard.log.partition)

    def _hit(self, node: SimulatedNode, partition: Partition) -> None:
        faults, dice = self._cluster.faults, self._world.random.random()
        self.disturb()
        if dice < 0.4:
            faults.end_leader(node, partition)
        elif dice < 0.75:
            faults.hand_over(node, partition)
        elif dice < 0.9:
            faults.strand_leader(node, partition)
        else:
            faults.set_clock(node)

    # ---- checks -----------------------------------------------------------------------------------

    def _judge(self, *, is_over: bool) -> None:
        for rule, text in violations(self.history, is_over=is_over)[:1]:
            self._world.break_rule(rule, text)

    def reader(self) -> LetterReader | None:
        """A reader of the dead letters, if there are any."""
        for node in self._cluster.live_nodes:
            topic = node.broker.metadata.committed_catalog.topics.get(LETTERS)
            if topic is not None:
                common = (self._cluster.world, self._cluster, self._cluster.history)
                return LetterReader(*common, self.notes, topic.partition_count)
        return None

    def check_end(self) -> None:
        """Judge all that was seen. The letters are read."""
        self.history.ended_ms = self._world.now_us / MS
        self._judge(is_over=True)
        counts, history = self._world.counts, self.history
        counts["jobs"] += len(history.produced)
        counts["deliveries of jobs"] += len(history.handouts)
        counts["dead letters"] += len(history.letters)


def _is_unwell(node: SimulatedNode) -> bool:
    return (
        not node.is_serving
        or node.is_stopping
        or node.loop.is_paused
        or node.disk_is_bad
        or node.disk_us_max > 20 * MS
        or node.files.capacity_bytes < UNLIMITED_BYTES
    )
