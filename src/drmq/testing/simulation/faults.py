"""Which faults happen in a run, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from drmq.broker import Partition
from drmq.model import ApiError, NodeId, Offset, node_of
from drmq.raft import AppendAccepted, SnapshotChunk, TimeoutNow, VoteRequest, VoteResponse
from drmq.records import iter_batches
from drmq.storage import SegmentLog
from drmq.testing.simulation.node import Ending, SimulatedNode
from drmq.testing.simulation.streams import CLIENTS
from drmq.testing.simulation.world import MS, SECOND
from drmq.transport.peers import PeerMessage

if TYPE_CHECKING:
    from drmq.testing.simulation.cluster import Cluster

_SILENT_DISK_US_MAX = 400 * MS
_DAY_MS = 86_400_000
_CRC_START = 21
"""The position in a batch from which on its checksum covers the bytes."""


class _Rot(NamedTuple):
    """A bit that was flipped while a process had the file open."""

    node: SimulatedNode
    path: str
    start: int
    """The position of its batch."""
    batch: bytes
    """The bytes of the batch after the flip."""
    position: int
    bit: int

    @property
    def is_there(self) -> bool:
        """Whether the file still has it: the copy may have been replaced."""
        files, end = self.node.files, self.start + len(self.batch)
        return files.has_file(self.path) and files.content(self.path)[self.start : end] == self.batch


class Faults:
    """Injects faults at random times, and repairs each one after a while."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._is_on = False
        self._wipes_left = cluster.profile.wipes
        self._damages_left = cluster.profile.damages
        self._bad_disk: SimulatedNode | None = None
        """The one node whose disk has failed in this run: two could exceed what the cluster tolerates."""
        self._damaged: SimulatedNode | None = None
        self._rots_left = cluster.profile.rots
        self._rotten: _Rot | None = None
        self._stranding: NodeId | None = None
        """The node that hands over its leadership and is to receive nothing from then on."""

    def begin(self) -> None:
        """Start injecting faults."""
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
        """Inject faults on this node too."""
        node.on_dead = self._on_dead
        if self._is_on:
            node.disk_us_max = self._cluster.profile.disk_us_max
            node.starve(self._cluster.profile.unit_us)

    def end(self) -> None:
        self._is_on = False
        if self._rotten is not None and self._rotten.is_there:
            # No process has read it. From now on the final checks read everything.
            self._rotten.node.files.flip_bit(self._rotten.path, self._rotten.position, self._rotten.bit)

    def on_message(self, message: PeerMessage) -> None:
        """A node makes a promise to another node. Cutting its power right after shows whether the promise was true."""
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
            run_number = node.run_number

            def cut() -> None:
                if node.run_number == run_number and self._may_lose_power(node):
                    self._world.say(node.name, f"loses power after {type(message).__name__}")
                    node.power_cut()
                    self._start_later(node)

            self._world.later(0, "power cut", cut)

    def _if_on(self, fault: Callable[[], None]) -> Callable[[], None]:
        def inject() -> None:
            if self._is_on:
                self._cluster.on_disturbed()
                fault()

        return inject

    def _later(self, low_us: int, high_us: int, name: str, repair: Callable[[], None]) -> None:
        """Repair a fault after a while; at the end everything is repaired anyway."""
        self._world.later(self._random.randrange(low_us, high_us), name, self._if_on(repair))

    def _some_node(self) -> SimulatedNode:
        return self._random.choice(self._cluster.live_nodes)

    def repair(self, node: SimulatedNode) -> None:
        """Repair everything on a node."""
        node.disk_us_max = 600
        node.starve(0)
        node.free_disk()
        node.files.forget_faults()
        node.files.crash_at = None
        node.resume()
        if node.is_running and (node.disk_is_bad or self._has_failed(node)):
            node.kill()
        if not node.is_running:
            node.start()

    def _has_failed(self, node: SimulatedNode) -> bool:
        """Whether a log of the node is closed permanently, for which an operator would restart it."""
        return node.is_serving and any(partition.failure is not None for partition in node.broker.partitions)

    # ---- processes and machines -----------------------------------------------------------------

    def _on_dead(self, node: SimulatedNode, ending: Ending) -> None:
        if ending is Ending.POWER_CUT:
            node.power_cut()
        elif ending is Ending.FAILED:
            node.kill()
        self._start_later(node)

    def _start_later(self, node: SimulatedNode) -> None:
        run_number = node.run_number

        def start() -> None:
            if not node.is_running and node.run_number == run_number and not node.is_retired:
                node.start()

        # Also after the faults have ended: a node that is scheduled to restart does.
        self._world.later(self._random.randrange(100 * MS, 8_000 * MS), "start", start)

    def _may_lose_power(self, node: SimulatedNode) -> bool:
        """Undetected damage together with a power cut exceeds what is tolerated: see `_damage`."""
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
        """The last chunk of a snapshot is on its way to a node: cut the power during or soon after its installation.

        Soon after: the node already uses what it installed, and has acknowledged more.
        """
        if not self._may_lose_power(node) or node.files.crash_at is not None:
            return
        self._world.say(node.name, "is about to lose power, in or after the installation of a snapshot")
        run_number, is_later = node.run_number, self._random.random() < 0.5

        def cut() -> None:
            if node.run_number != run_number or not self._may_lose_power(node):
                return
            node.power_cut()
            self._start_later(node)

        if is_later:
            self._world.later(self._random.randrange(20 * MS, 800 * MS), "power cut", cut)
        else:
            node.power_cut_while_installing()

    def _end_while_receiving(self, node: SimulatedNode) -> None:
        """A chunk of a snapshot, but not the last, is on its way to a node: end the node before the others arrive."""
        run_number, is_kill = node.run_number, self._random.random() < 0.5

        def end() -> None:
            if node.run_number != run_number or not self._may_lose_power(node):
                return
            self._world.say(node.name, f"{'is killed' if is_kill else 'loses power'} while it is receiving a snapshot")
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

    def end_leader(self, node: SimulatedNode, partition: Partition) -> None:
        """Kill the leader of a partition, cut its power, or ask it to stop."""
        way = self._random.choice(("is killed", "loses power", "is asked to stop"))
        self._world.say(node.name, f"leads {partition!r}, and {way}")
        if way == "is asked to stop":
            node.stop()
            return
        if way == "is killed":
            node.kill()
        elif self._may_lose_power(node):
            node.power_cut()
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
            self._world.say(node.name, "is asked to stop")
            node.stop()

    def _pause(self) -> None:
        node = self._some_node()
        if not node.is_running or node.loop.is_paused:
            return
        self._world.say(node.name, "is paused")
        node.pause()
        run_number = node.run_number

        def resume() -> None:
            if node.run_number == run_number and node.is_running and node.loop.is_paused:
                self._world.say(node.name, "is resumed")
                node.resume()

        self._later(50 * MS, 6 * SECOND, "go on", resume)

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
        """Flip a synced bit in the middle of a log. The node must detect it, and must not vote with the rest."""
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
        # Only the process dies. After a power cut it may be unknown how far the log was synced, and then damage cannot
        # be distinguished from an unfinished write.
        node.kill()
        files = node.files.durable_files(path)
        name = max(name for name in files if name.endswith(".log"))
        batches = list(iter_batches(memoryview(bytes(files[name]))))
        if len(batches) < 4:
            self._start_later(node)
            return
        # The checksum does not cover the leader epoch, so a change there would not be detected.
        start, header = self._random.choice(batches[: len(batches) // 2])
        position = start + _CRC_START + self._random.randrange(header.size - _CRC_START)
        self._damages_left -= 1
        self._damaged = node
        self._world.say(node.name, f"is killed, and a bit at {position} of {path}/{name} is flipped")
        node.files.flip_bit(f"{path}/{name}", position, self._random.randrange(8))
        self._start_later(node)

    def _rot(self) -> None:
        """Flip a bit in an old part of a log while a process has it open. No client may receive the damaged bytes.

        Only bytes that an earlier process wrote and this one has not read: a process trusts what it wrote or checked
        itself. Not in the last segment, whose end may be unfinished after a power cut: see `_damage`.
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
        self._world.say(node.name, f"bit rot: a bit at {position} of {path} is flipped")
        self._cluster.invariants.on_rot(node.node_id, partition.log.name)
        node.files.flip_bit(path, position, bit)
        batch = node.files.content(path)[start : start + size]
        self._rotten = _Rot(node, path, start, batch, position, bit)

    # ---- links ----------------------------------------------------------------------------------

    def _cut_links(self) -> None:
        random, ids = self._random, self._cluster.node_ids
        all_ends = [CLIENTS, *ids]
        kind = random.randrange(4)
        if kind == 0:  # one direction between two machines
            ways = [(random.choice(all_ends), random.choice(all_ends))]
        elif kind == 1:  # one machine from all others, and perhaps from clients
            alone = random.choice(ids)
            others = [other for other in (all_ends if random.random() < 0.5 else ids) if other != alone]
            ways = [(alone, other) for other in others]
            if random.random() < 0.7:
                ways += [(other, alone) for other in others]
        elif kind == 2:  # two halves, with the clients on one side
            side = {one for one in all_ends if random.random() < 0.5}
            ways = [(a, b) for a in all_ends for b in all_ends if (a in side) != (b in side)]
        else:  # both directions between two machines
            a, b = random.choice(ids), random.choice(ids)
            ways = [(a, b), (b, a)]
        self._world.say("world", f"links cut: {' '.join(f'{a}>{b}' for a, b in ways)}")
        self._cluster.links.cut(ways)

        def restore() -> None:
            self._world.say("world", "cut links restored")
            self._cluster.links.restore(ways)

        self._later(200 * MS, 8 * SECOND, "mend", restore)

    def _strand(self) -> None:
        """Isolate a leader with its clients: it hands over and does not hear from its successor, or no node hears it.

        In the first case it believes that it is still the leader, while another one is. In the other case its decisions
        never reach any other node.
        """
        self._stranding = None
        led = self._serving_partitions()
        if not led or len(self._cluster.node_ids) < 3:
            return
        self.strand_leader(*self._random.choice(led))

    def strand_leader(self, node: SimulatedNode, partition: Partition) -> None:
        """Isolate the leader of one partition."""
        self._stranding = None
        if self._random.random() < 0.5:
            self._stranding = node.node_id
            self.hand_over(node, partition)
        else:
            self._cut_off_stranded(node.node_id)
            ways = [(int(node.node_id), other) for other in self._cluster.node_ids if other != node.node_id]
            self._cluster.links.cut(ways)
            self._later(500 * MS, 3 * SECOND, "mend", lambda: self._cluster.links.restore(ways))

    def _cut_off_stranded(self, stranded: NodeId) -> None:
        self._stranding = None
        ways = [(other, int(stranded)) for other in self._cluster.node_ids if other != stranded]
        self._world.say("world", f"node {stranded} receives nothing from the other nodes")
        self._cluster.links.cut(ways)

        def restore() -> None:
            self._world.say("world", f"node {stranded} receives from the other nodes again")
            self._cluster.links.restore(ways)

        self._later(500 * MS, 3 * SECOND, "mend", restore)

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
        run_number = node.run_number

        def restart() -> None:
            if node.run_number == run_number and node.is_running:
                self._world.say(node.name, "is restarted because of its disk")
                node.kill()
                self._start_later(node)

        self._later(SECOND, 8 * SECOND, "restart", restart)

    def _turn_clock(self) -> None:
        self.set_clock(self._some_node())

    def set_clock(self, node: SimulatedNode) -> None:
        """Set the wall clock of a machine; if it is far off, only for a while."""
        jump_ms = self._random.choice((-30 * _DAY_MS, -5_000, 3_000, _DAY_MS, 30 * _DAY_MS, 30 * _DAY_MS))
        clock = node.clock
        if self._cluster.leases is not None and abs(clock.wall_ahead_ms) >= _DAY_MS:
            return  # clocks are set so often in these runs that it would be wrong for long, and be believed
        clock.wall_ahead_ms += jump_ms
        self._world.say(node.name, f"has its clock set, now {clock.wall_ahead_ms} ms ahead")
        if abs(jump_ms) < _DAY_MS:
            return

        def set_right() -> None:
            clock.wall_ahead_ms -= jump_ms
            self._world.say(node.name, f"has its clock set right, now {clock.wall_ahead_ms} ms ahead")

        # Retention skips one check after a clock jump. A clock that stays wrong is eventually believed.
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
        """Ask a leader to hand over to any other member."""
        led = self._serving_partitions()
        if not led:
            return
        self.hand_over(*self._random.choice(led))

    def hand_over(self, node: SimulatedNode, partition: Partition) -> None:
        """Ask a leader to hand over to any other member."""
        raft = partition.replica.node
        if raft is None:
            return
        others = sorted(raft.configuration.voters - {raft.node_id})
        if others:
            target = self._random.choice(others)
            self._world.say(node.name, f"is asked to hand {partition!r} over to {target}")
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
        # With fewer than three replicas, the loss of one disk would exceed what is tolerated.
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
                self._world.say(node.name, f"refuses to move {topic.name}-{index}: {error.message}")
            else:
                self._world.say(node.name, f"moves {topic.name}-{index} to {replicas}")

        node.loop.call_soon(decide)

    def _trim(self) -> None:
        """Delete records of the topic that no check depends on."""
        for node, partition in self._serving_partitions():
            if partition.topic == "short" and partition.high_watermark > partition.start_offset:
                offset = self._random.randint(partition.start_offset, partition.high_watermark)
                self._world.say(node.name, f"is asked to delete {partition!r} below {offset}")
                self._cluster.invariants.on_trim_asked(partition.group, offset)

                def trim(partition: Partition = partition, offset: int = offset) -> None:
                    try:
                        partition.trim(Offset(offset), lambda error: None)
                    except ApiError:
                        return

                node.loop.call_soon(trim)


def _unread_batches(node: SimulatedNode, partition: Partition) -> list[tuple[str, int, int]]:
    """The sealed batches of a log that the current process neither wrote nor read: path, start and size of each."""
    log = partition.log
    assert isinstance(log, SegmentLog), log
    return [
        (segment.path, start, header.size)
        for segment in log._view.segments[:-1]
        if segment.trusted_from
        for start, header in iter_batches(memoryview(node.files.content(segment.path)))
        if start + header.size <= segment.trusted_from and not segment._checked.covers(start, start + header.size)
    ]
