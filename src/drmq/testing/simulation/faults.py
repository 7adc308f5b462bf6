"""What goes wrong, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from drmq.broker import Partition
from drmq.model import ApiError, NodeId, Offset, node_of
from drmq.raft import AppendAccepted, SnapshotChunk, TimeoutNow, VoteRequest, VoteResponse
from drmq.records import iter_batches
from drmq.storage import SegmentLog
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.streams import CLIENTS
from drmq.testing.simulation.world import MS, SECOND
from drmq.transport.peers import PeerMessage

if TYPE_CHECKING:
    from drmq.testing.simulation.cluster import Cluster

_SILENT_DISK_US_MAX = 400 * MS
_DAY_MS = 86_400_000
_CRC_START = 21
"""Where in a batch the bytes begin that its checksum covers."""


class _Rot(NamedTuple):
    """A bit that was flipped under a process."""

    node: SimulatedNode
    path: str
    start: int
    """Where its batch begins."""
    batch: bytes
    """What that is by now."""
    position: int
    bit: int

    @property
    def is_there(self) -> bool:
        """Whether the file still has it: the copy may have been made anew."""
        files, end = self.node.files, self.start + len(self.batch)
        return files.has_file(self.path) and files.content(self.path)[self.start : end] == self.batch


class Faults:
    """Breaks things at random moments, and repairs each after a while."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._is_on = False
        self._wipes_left = cluster.profile.wipes
        self._damages_left = cluster.profile.damages
        self._bad_disk: SimulatedNode | None = None
        """The one node whose disk has failed in this run: two could be beyond what is promised."""
        self._damaged: SimulatedNode | None = None
        self._rots_left = cluster.profile.rots
        self._rotten: _Rot | None = None
        self._stranding: NodeId | None = None
        """The node that hands over and is to hear nothing from then on."""

    def begin(self) -> None:
        """From now on, things go wrong."""
        profile, links = self._cluster.profile, self._cluster.links
        self._is_on = True
        links.loss, links.duplication = profile.loss, profile.duplication
        links.delay_us_max, links.late, links.late_us_max = profile.delay_us_max, profile.late, profile.late_us_max
        for node in self._cluster.nodes:
            self.adopt(node)
        for name, every_us, fault in (
            ("power cut", profile.power_cut_every_us, self._cut_power),
            ("kill", profile.kill_every_us, self._kill),
            ("blackout", profile.blackout_every_us, self._black_out),
            ("stop", profile.stop_every_us, self._stop),
            ("cut", profile.cut_every_us, self._cut_links),
            ("pause", profile.pause_every_us, self._pause),
            ("slow disk", profile.slow_disk_every_us, self._slow_disk),
            ("full disk", profile.full_disk_every_us, self._fill_disk),
            ("sync error", profile.sync_error_every_us, self._fail_sync),
            ("clock jump", profile.clock_jump_every_us, self._turn_clock),
            ("transfer", profile.transfer_every_us, self._transfer),
            ("reassign", profile.reassign_every_us, self._reassign),
            ("strand", profile.strand_every_us, self._strand),
            ("trim", profile.trim_every_us, self._trim),
            ("wipe", 10 * SECOND, self._wipe),
            ("damage", 10 * SECOND, self._damage),
            ("rot", 1 * SECOND if profile.rots else 10**12, self._rot),
        ):
            if every_us < 10**12:
                self._world.repeat(name, every_us, self._if_on(fault))

    def adopt(self, node: SimulatedNode) -> None:
        """From now on, things go wrong with this one too."""
        node.on_dead = self._on_dead
        if self._is_on:
            node.disk_us_max = self._cluster.profile.disk_us_max

    def end(self) -> None:
        self._is_on = False
        if self._rotten is not None and self._rotten.is_there:
            # Nobody has read it. From now on everything is read, by those who look whether all is well.
            self._rotten.node.files.flip_bit(self._rotten.path, self._rotten.position, self._rotten.bit)

    def on_message(self, message: PeerMessage) -> None:
        """A node makes a promise to another. Whether it was true shows when its power is cut right after."""
        if not self._is_on:
            return
        profile = self._cluster.profile
        if isinstance(message, VoteRequest | VoteResponse):
            chance = profile.cut_after_vote
        elif isinstance(message, AppendAccepted):
            chance = profile.cut_after_accept
        elif isinstance(message, SnapshotChunk):
            chance = profile.cut_while_installing
            if chance and message.data and self._random.random() < chance:
                receiver = self._cluster.nodes[node_of(message.target) - 1]
                (self._cut_power_while_installing if message.done else self._end_while_receiving)(receiver)
            return
        else:
            if isinstance(message, TimeoutNow) and node_of(message.sender) == self._stranding:
                self._cut_off_stranded(node_of(message.sender))
            return
        if chance and self._random.random() < chance:
            node = self._cluster.nodes[node_of(message.sender) - 1]
            life = node.life

            def cut() -> None:
                if node.life == life and self._may_lose_power(node):
                    self._world.say(node.name, f"loses power after {type(message).__name__}")
                    node.power_cut()
                    self._start_later(node)

            self._world.later(0, "power cut", cut)

    def _if_on(self, fault: Callable[[], None]) -> Callable[[], None]:
        return lambda: fault() if self._is_on else None

    def _later(self, low_us: int, high_us: int, name: str, repair: Callable[[], None]) -> None:
        """Repair something after a while; at the end everything is repaired anyway."""
        self._world.later(self._random.randrange(low_us, high_us), name, self._if_on(repair))

    def _some_node(self) -> SimulatedNode:
        return self._random.choice(self._cluster.live_nodes)

    def mend(self, node: SimulatedNode) -> None:
        """Nothing is wrong with a node any more."""
        node.disk_us_max = 600
        node.free_disk()
        node.files.forget_faults()
        node.files.crash_at = None
        if node.is_running and node.loop.is_paused:
            node.go_on()
        if node.is_running and (node.disk_is_bad or self._has_failed(node)):
            node.kill()
        if not node.is_running:
            node.start()

    def _has_failed(self, node: SimulatedNode) -> bool:
        """Whether a log of the node is closed for good, which a person would restart it for."""
        return node.is_serving and any(partition.failure is not None for partition in node.broker.partitions)

    # ---- processes and machines -----------------------------------------------------------------

    def _on_dead(self, node: SimulatedNode, reason: str) -> None:
        if reason == "power":
            node.power_cut()
        elif reason != "stopped":
            node.kill()
        self._start_later(node)

    def _start_later(self, node: SimulatedNode) -> None:
        life = node.life

        def start() -> None:
            if not node.is_running and node.life == life and not node.is_retired:
                node.start()

        # Also when the faults are over: a node that is to come back comes back.
        self._world.later(self._random.randrange(100 * MS, 8_000 * MS), "start", start)

    def _may_lose_power(self, node: SimulatedNode) -> bool:
        """Damage that nobody has noticed yet and a power cut are one too many: see `_damage`."""
        return node.is_running and (node is not self._damaged or node.is_serving)

    def _cut_power(self) -> None:
        node = self._some_node()
        if not self._may_lose_power(node):
            return
        if self._random.random() < 0.6:
            self._world.say(node.name, "is about to lose power in the middle of a write")
            node.power_cut_soon()
        else:
            self._world.say(node.name, "loses power")
            node.power_cut()
            self._start_later(node)

    def _cut_power_while_installing(self, node: SimulatedNode) -> None:
        """The last part of a snapshot is on its way to a node: let it come, and not much further.

        Or a little further: the node has begun to live on what it installed, and has acknowledged more.
        """
        if not self._may_lose_power(node) or node.files.crash_at is not None:
            return
        self._world.say(node.name, "is about to lose power, in or after the installation of a snapshot")
        life, is_later = node.life, self._random.random() < 0.5

        def cut() -> None:
            if node.life != life or not self._may_lose_power(node):
                return
            node.power_cut()
            self._start_later(node)

        if is_later:
            self._world.later(self._random.randrange(20 * MS, 800 * MS), "power cut", cut)
        else:
            node.power_cut_while_installing()

    def _end_while_receiving(self, node: SimulatedNode) -> None:
        """A part of a snapshot, and not the last, is on its way to a node, which does not wait for the others."""
        life, is_kill = node.life, self._random.random() < 0.5

        def end() -> None:
            if node.life != life or not self._may_lose_power(node):
                return
            self._world.say(node.name, f"{'is killed' if is_kill else 'loses power'} while it receives a snapshot")
            if is_kill:
                node.kill()
            else:
                node.power_cut()
            self._start_later(node)

        self._world.later(self._random.randrange(30 * MS), "end of a receiver", end)

    def _kill(self) -> None:
        node = self._some_node()
        if node.is_running:
            self._world.say(node.name, "is killed")
            node.kill()
            self._start_later(node)

    def _black_out(self) -> None:
        self._world.say("world", "all machines lose power")
        for node in self._cluster.nodes:
            if self._may_lose_power(node):
                node.power_cut()
                self._start_later(node)

    def _stop(self) -> None:
        node = self._some_node()
        if node.is_running and node.is_serving and not node.loop.is_paused:
            self._world.say(node.name, "is told to stop")
            node.stop()

    def _pause(self) -> None:
        node = self._some_node()
        if not node.is_running or node.loop.is_paused:
            return
        self._world.say(node.name, "stands still")
        node.pause()
        life = node.life

        def go_on() -> None:
            if node.life == life and node.is_running and node.loop.is_paused:
                self._world.say(node.name, "goes on")
                node.go_on()

        self._later(50 * MS, 6 * SECOND, "go on", go_on)

    def _wipe(self) -> None:
        node = self._some_node()
        if not self._wipes_left or not self._may_lose_a_disk():
            return
        self._wipes_left -= 1
        self._world.say(node.name, "loses its disk")
        node.wipe()
        self._start_later(node)

    def _may_lose_a_disk(self) -> bool:
        nodes = self._cluster.live_nodes
        return len(nodes) >= 3 and all(other.is_serving for other in nodes)

    def _damage(self) -> None:
        """Flip a bit in the middle of a log that is synced. The node must notice, and not vote on what is left."""
        if not self._damages_left or not self._may_lose_a_disk():
            return
        node = self._some_node()
        paths = [
            partition.log.name
            for partition in node.broker.partitions
            if partition.topic == "orders" and partition.high_watermark > 20
        ]
        if not paths:
            return
        path = self._random.choice(paths)
        # Only the process dies. After a power cut it may not be known how far the log was synced, and then damage
        # cannot be told from a write that was never finished.
        node.kill()
        files = node.files.durable_files(path)
        name = max(name for name in files if name.endswith(".log"))
        batches = list(iter_batches(memoryview(bytes(files[name]))))
        if len(batches) < 4:
            self._start_later(node)
            return
        # The leader epoch lies outside the checksum, and nothing would notice another one.
        start, header = self._random.choice(batches[: len(batches) // 2])
        position = start + _CRC_START + self._random.randrange(header.size - _CRC_START)
        self._damages_left -= 1
        self._damaged = node
        self._world.say(node.name, f"is killed, and a bit at {position} of {path}/{name} is flipped")
        node.files.flip_bit(f"{path}/{name}", position, self._random.randrange(8))
        self._start_later(node)

    def _rot(self) -> None:
        """Flip a bit in an old part of a log while a process has it open. Nobody may be given what it holds now.

        In bytes that an earlier process wrote and this one has not read: what it wrote or checked itself it trusts, as
        long as it lives. Not in the last segment, whose end may be unfinished after a power cut: see `_damage`.
        """
        if not self._rots_left or not self._may_lose_a_disk() or (self._rotten is not None and self._rotten.is_there):
            return
        in_sync = {partition.group: partition.in_sync for _, partition in self._serving_partitions()}
        found = [
            (node, partition, *batch)
            for node in self._cluster.live_nodes
            for partition in node.broker.partitions
            if partition.topic == "orders"
            and len(in_sync.get(partition.group, ())) >= 3
            and node.node_id in in_sync[partition.group]
            for batch in _unread_batches(node, partition)
        ]
        if not found:
            return
        node, partition, path, start, size = self._random.choice(found)
        position, bit = start + _CRC_START + self._random.randrange(size - _CRC_START), self._random.randrange(8)
        self._rots_left -= 1
        self._world.say(node.name, f"has a bit at {position} of {path} flipped")
        self._cluster.invariants.on_rot(node.node_id, partition.log.name)
        node.files.flip_bit(path, position, bit)
        batch = node.files.content(path)[start : start + size]
        self._rotten = _Rot(node, path, start, batch, position, bit)

    # ---- links ----------------------------------------------------------------------------------

    def _cut_links(self) -> None:
        random, ids = self._random, self._cluster.node_ids
        everyone = [CLIENTS, *ids]
        kind = random.randrange(4)
        if kind == 0:  # one way between two
            ways = [(random.choice(everyone), random.choice(everyone))]
        elif kind == 1:  # one machine from all others, clients perhaps not
            alone = random.choice(ids)
            others = [other for other in (everyone if random.random() < 0.5 else ids) if other != alone]
            ways = [(alone, other) for other in others]
            if random.random() < 0.7:
                ways += [(other, alone) for other in others]
        elif kind == 2:  # two halves, with the clients on one side
            side = {one for one in everyone if random.random() < 0.5}
            ways = [(a, b) for a in everyone for b in everyone if (a in side) != (b in side)]
        else:  # two machines that do not see each other
            a, b = random.choice(ids), random.choice(ids)
            ways = [(a, b), (b, a)]
        self._world.say("world", f"cut: {' '.join(f'{a}>{b}' for a, b in ways)}")
        self._cluster.links.cut(ways)

        def mend() -> None:
            self._world.say("world", "cut mended")
            self._cluster.links.mend(ways)

        self._later(200 * MS, 8 * SECOND, "mend", mend)

    def _strand(self) -> None:
        """Leave a leader alone with its clients: it hands over and does not hear of its successor, or nobody hears it.

        In the first case it leads on, as far as it knows, while another does. In the other it decides things that
        nobody else will ever know of.
        """
        self._stranding = None
        led = self._serving_partitions()
        if not led or len(self._cluster.node_ids) < 3:
            return
        node, partition = self._random.choice(led)
        if self._random.random() < 0.5:
            self._stranding = node.node_id
            self._hand_over(node, partition)
        else:
            self._cut_off_stranded(node.node_id)
            ways = [(int(node.node_id), other) for other in self._cluster.node_ids if other != node.node_id]
            self._cluster.links.cut(ways)
            self._later(500 * MS, 3 * SECOND, "mend", lambda: self._cluster.links.mend(ways))

    def _cut_off_stranded(self, stranded: NodeId) -> None:
        self._stranding = None
        ways = [(other, int(stranded)) for other in self._cluster.node_ids if other != stranded]
        self._world.say("world", f"node {stranded} hears nothing from the other nodes")
        self._cluster.links.cut(ways)

        def mend() -> None:
            self._world.say("world", f"node {stranded} hears the others again")
            self._cluster.links.mend(ways)

        self._later(500 * MS, 3 * SECOND, "mend", mend)

    # ---- disks and clocks -----------------------------------------------------------------------

    def _slow_disk(self) -> None:
        node = self._some_node()
        node.disk_us_max = self._random.choice((30 * MS, _SILENT_DISK_US_MAX))
        self._world.say(node.name, f"has a slow disk, {node.disk_us_max // MS} ms")
        normal = self._cluster.profile.disk_us_max
        self._later(SECOND, 10 * SECOND, "disk is quick", lambda: setattr(node, "disk_us_max", normal))

    def _fill_disk(self) -> None:
        node = self._some_node()
        self._world.say(node.name, "has a full disk")
        node.fill_disk()
        self._later(500 * MS, 5 * SECOND, "disk has room", node.free_disk)

    def _fail_sync(self) -> None:
        node = self._bad_disk or self._some_node()
        if not node.is_running:
            return
        self._bad_disk = node
        self._world.say(node.name, "cannot sync")
        node.fail_sync()
        life = node.life

        def restart() -> None:
            if node.life == life and node.is_running:
                self._world.say(node.name, "is restarted because of its disk")
                node.kill()
                self._start_later(node)

        self._later(SECOND, 8 * SECOND, "restart", restart)

    def _turn_clock(self) -> None:
        node = self._some_node()
        jump_ms = self._random.choice((-30 * _DAY_MS, -5_000, 3_000, _DAY_MS, 30 * _DAY_MS, 30 * _DAY_MS))
        clock = node.clock
        clock.wall_ahead_ms += jump_ms
        self._world.say(node.name, f"has its clock set, now {clock.wall_ahead_ms} ms ahead")
        if abs(jump_ms) < _DAY_MS:
            return

        def set_right() -> None:
            clock.wall_ahead_ms -= jump_ms
            self._world.say(node.name, f"has its clock set right, now {clock.wall_ahead_ms} ms ahead")

        # Retention passes over one round after a jump. A clock that stays wrong is believed in the end.
        self._world.later(self._random.randrange(100 * MS, 2_900 * MS), "clock set right", set_right)

    # ---- decisions ------------------------------------------------------------------------------

    def _serving_partitions(self) -> list[tuple[SimulatedNode, Partition]]:
        return [
            (node, partition)
            for node in self._cluster.live_nodes
            if node.is_serving and not node.loop.is_paused and not node.is_stopping
            for partition in node.broker.partitions
            if partition.is_serving
        ]

    def _transfer(self) -> None:
        """Tell a leader to hand over to any other member."""
        led = self._serving_partitions()
        if not led:
            return
        self._hand_over(*self._random.choice(led))

    def _hand_over(self, node: SimulatedNode, partition: Partition) -> None:
        raft = partition.replica.node
        if raft is None:
            return
        others = sorted(raft.configuration.voters - {raft.node_id})
        if others:
            target = self._random.choice(others)
            self._world.say(node.name, f"is told to hand {partition!r} over to {target}")
            node.loop.call_soon(node.broker._transfer, partition, target)

    def _controller(self) -> SimulatedNode | None:
        for node in self._cluster.live_nodes:
            if node.is_serving and not node.loop.is_paused and node.broker.is_controller:
                return node
        return None

    def _reassign(self) -> None:
        """Give a partition other replicas."""
        node = self._controller()
        if node is None:
            return
        random, catalog = self._random, node.broker.catalog
        topic = catalog.topics.get("orders")
        if topic is None:
            return
        index = random.randrange(topic.partition_count)
        # With fewer than three replicas, the one disk that may be lost would be one too many.
        profile = self._cluster.profile
        keeps_three = profile.wipes or profile.damages or profile.rots
        count = 3 if keeps_three else random.choice((1, 2, 3, 3, 3))
        if random.random() < 0.2:
            count = len(self._cluster.node_ids)
        replicas = random.sample(self._cluster.node_ids, min(count, len(self._cluster.node_ids)))

        def decide() -> None:
            if not node.broker.is_controller:
                return
            try:
                facts = catalog.start_reassignment(topic, index, [NodeId(one) for one in replicas])
                node.broker.metadata.append(facts)
            except ApiError as error:
                self._world.say(node.name, f"does not move {topic.name}-{index}: {error.message}")
            else:
                self._world.say(node.name, f"moves {topic.name}-{index} to {replicas}")

        node.loop.call_soon(decide)

    def _trim(self) -> None:
        """Delete records of the topic that nobody counts on."""
        for node, partition in self._serving_partitions():
            if partition.topic == "short" and partition.high_watermark > partition.start_offset:
                offset = self._random.randint(partition.start_offset, partition.high_watermark)
                self._world.say(node.name, f"is told to delete {partition!r} below {offset}")
                self._cluster.invariants.on_trim_asked(partition.group, offset)

                def trim(partition: Partition = partition, offset: int = offset) -> None:
                    try:
                        partition.trim(Offset(offset), lambda error: None)
                    except ApiError:
                        return

                node.loop.call_soon(trim)


def _unread_batches(node: SimulatedNode, partition: Partition) -> list[tuple[str, int, int]]:
    """The sealed batches of a log that this life of its node neither wrote nor read: path, start and size of each."""
    log = partition.log
    assert isinstance(log, SegmentLog), log
    return [
        (segment.path, start, header.size)
        for segment in log._view.segments[:-1]
        if segment.trusted_from
        for start, header in iter_batches(memoryview(node.files.content(segment.path)))
        if start + header.size <= segment.trusted_from and not segment._checked.covers(start, start + header.size)
    ]
