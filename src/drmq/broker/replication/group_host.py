"""All replicas of this node: their clock, their messages, their sleep.

One timer ticks every replica that is awake. Whoever has something to do is marked, and pumped once at the end
of the loop's turn: many proposals, one `Ready`.

**Sleep.** A group without work costs nothing. When everything is committed everywhere and nobody has asked for
anything for a while, the leader tells the others, and all of them stop ticking. From then on the nodes' own
heartbeats stand for the group: when a node falls silent, or comes back as another process, every group that it is
in wakes up and goes on with its own timers. Any message or request wakes a group too. Falling asleep is a
matter of cost only: a lost word leaves somebody awake, who asks, which wakes the rest.

**Who leads** is news for everyone, also for nodes without a replica: a leader announces itself to all nodes, with
the replicas that keep up. The announcement is a hint with a term in it, so an older one never replaces a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from random import Random

from drmq.broker.partitions.partition import Partition
from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.broker.replication.replica import Replica
from drmq.model import GroupId, MemberId, NodeId, TopicId, node_of
from drmq.raft import Message, Node, ProgressState, ProtocolError, RaftOptions, Role
from drmq.storage import Writer
from drmq.transport.peers import Hello, LeaderNotice, Network, PeerMessage, Sleep, Wake

log = logging.getLogger("drmq.broker")

_UNCLAIMED_MAX = 4_096
"""Messages kept for groups that this node has not heard of yet."""
_TICKS_CAUGHT_UP_MAX = 64


class GroupHost:
    """The replicas of one node. Lives on the event loop."""

    def __init__(
        self,
        node_id: NodeId,
        writer: Writer,
        pool: Executor,
        random: Random,
        raft_options: RaftOptions,
        tick_s: float,
        peer_timeout_s: float,
        copy_bytes_per_s: int,
    ) -> None:
        self.node_id = node_id
        self.writer = writer
        self.pool = pool
        self.random = random
        self.raft_options = raft_options
        self.recent_memory = RecentMemory()
        self.catch_up = LearnerCatchUp(copy_bytes_per_s, lambda: self._loop.time(), self.call_later)
        self.network: Network | None = None
        self.leaders: dict[GroupId, LeaderNotice] = {}
        """Who leads what, as far as this node has heard; replicas of its own included."""
        self.protocol_errors = 0
        self._tick_s = tick_s
        self._silent_ticks = round(peer_timeout_s / tick_s)
        """How long a node was not heard, at most, when it is taken for dead."""
        self._partitions: dict[GroupId, Partition] = {}
        self._awake: dict[GroupId, Replica] = {}
        self._dirty: list[Replica] = []
        self._unclaimed: OrderedDict[tuple[GroupId, type], tuple[NodeId, PeerMessage]] = OrderedDict()
        self._boots: dict[NodeId, bytes] = {}
        self._news_waiters: dict[asyncio.Future[None], None] = {}
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._next_tick = 0.0
        self._tick_count = 0

    def start(self) -> None:
        """Begin to tick."""
        self._loop = asyncio.get_running_loop()
        self._next_tick = self._loop.time() + self._tick_s
        self._timer = self._loop.call_at(self._next_tick, self._tick)

    def stop(self) -> None:
        """Tick no more, and hear no other node: the groups go on without this one."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, group: GroupId) -> Partition | None:
        return self._partitions.get(group)

    def add(self, partition: Partition) -> None:
        """Have a partition take part in its group."""
        group = partition.group
        self._partitions[group] = partition
        self._awake[group] = partition.replica
        self.guard(partition.replica, partition.replica.start)
        for key in [key for key in self._unclaimed if key[0] == group]:
            peer, message = self._unclaimed.pop(key)
            self.on_group_message(peer, group, message)

    def remove(self, partition: Partition) -> None:
        self._partitions.pop(partition.group, None)
        self._awake.pop(partition.group, None)

    # ---- ReplicaHost ----------------------------------------------------------------------------

    def send(self, node_id: NodeId, group: GroupId, message: Message) -> None:
        if self.network is not None:
            self.network.send(node_id, group, message)

    def mark_dirty(self, replica: Replica) -> None:
        if not replica.is_dirty:
            replica.is_dirty = True
            if not self._dirty:
                self._loop.call_soon(self._pump)
            self._dirty.append(replica)
        if not replica.asleep:
            self._awake[replica.group] = replica

    def _pump(self) -> None:
        dirty, self._dirty = self._dirty, []
        self.writer.hold()
        try:
            for replica in dirty:
                self.guard(replica, replica.pump)
            # Before the writer wakes and competes for the interpreter: the followers have the longer way to a disk.
            if self.network is not None:
                self.network.flush()
        finally:
            self.writer.release()

    def guard(self, replica: Replica, work: Callable[..., object], *arguments: object) -> None:
        """Do some work of one replica. Whatever becomes of it, whoever calls goes on with the next.

        An exception is a bug, for what disks and peers may do is not raised. It costs this replica: nobody knows what
        of its work was done. The others of its group elect another leader.
        """
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - the loop shows it, with its trace
            self._on_bug(replica, error)

    def _on_bug(self, replica: Replica, error: Exception) -> None:
        self._complain(f"{replica.log.name}: the work of its replica failed on a bug", error)
        try:
            replica.on_bug(error)
        except Exception as another:  # noqa: BLE001 - the same, in those whom it told
            self._complain(f"{replica.log.name}: its replica could not be ended in order", another)

    def _complain(self, message: str, error: Exception) -> None:
        """As loudly as the loop does about what failed in its own hands."""
        self._loop.call_exception_handler({"message": message, "exception": error})

    def call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_later(delay_s, function, *arguments)

    # ---- time -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._loop.time()
        # A process that was stopped for a while has missed ticks: a leader must notice that it may lead no longer.
        missed = 1 + min(int((now - self._next_tick) / self._tick_s), _TICKS_CAUGHT_UP_MAX)
        if missed < self.raft_options.election_timeout_ticks:
            missed = 1
        self._next_tick = max(self._next_tick + self._tick_s, now)
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        self._tick_count += 1
        looks_at_followers = self._tick_count % self.raft_options.heartbeat_ticks == 0
        for group, replica in list(self._awake.items()):
            if looks_at_followers:
                # Before the tick: a heartbeat of this very tick, sent after the word to sleep, would wake everyone up.
                self.guard(replica, self.look_at, self._partitions[group])
            if replica.asleep:
                del self._awake[group]
                continue
            for _ in range(missed):
                self.guard(replica, replica.tick)

    def look_at(self, partition: Partition) -> None:
        """On a leader: who keeps up, and is there anything left to do?"""
        replica = partition.replica
        node = replica.node
        if node is None or node.role is not Role.LEADER:
            return
        progress = node.progress()
        in_sync = [
            member
            for member, peer in progress.items()
            if peer.votes
            and peer.caught_up
            and self._reaches(node_of(member))
            and member not in partition.former_members
        ]
        if node.configuration.votes(node.node_id):
            in_sync.append(node.node_id)
        if partition.set_in_sync(tuple(sorted(in_sync, key=node_of))) and partition.is_serving:
            self.announce(partition)
        if partition.config.min_insync_replicas > 1:
            partition.update_acked()
        last = node.last_index
        # Not while somebody is missed: nobody would look again when its node is back, and it would stay out of sync.
        idle = (
            partition.is_serving
            and len(in_sync) == len(node.configuration.voters)
            and node.commit_index == node.applied_index == last
            and not replica.is_busy
            and not node.change_in_progress
            and node.transfer_target is None
            and all(
                peer.match == last
                and peer.state is ProgressState.REPLICATE
                and peer.ticks_since_heard <= self.raft_options.heartbeat_ticks * 2
                for peer in progress.values()
            )
        )
        if not idle:
            replica.idle_ticks = 0
            return
        replica.idle_ticks += 1
        if replica.idle_ticks * self.raft_options.heartbeat_ticks > self.raft_options.election_timeout_ticks:
            if self.network is not None:
                for member in progress:
                    self.network.send(node_of(member), replica.group, Sleep(replica.member, member, node.term, last))  # type: ignore[arg-type]
            replica.asleep = True

    def _reaches(self, node_id: NodeId) -> bool:
        """Whether a node is heard of. One that is not keeps up with nothing, whatever its replicas last said."""
        return self.network is None or self.network.is_up(node_id)

    # ---- peers ----------------------------------------------------------------------------------

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        if self._is_stopped:
            return
        partition = self._partitions.get(group)
        if partition is None:
            # The group may be so new that this node has not heard of it yet.
            self._unclaimed[group, type(message)] = (peer, message)
            if len(self._unclaimed) > _UNCLAIMED_MAX:
                self._unclaimed.popitem(last=False)
            return
        replica = partition.replica
        if isinstance(message, Sleep):
            self._on_sleep(replica, message)
        elif isinstance(message, Wake):
            if message.target == replica.member:
                self._wake(replica)
        else:
            try:
                replica.receive(message)
            except ProtocolError as error:
                self.protocol_errors += 1
                log.error("node %d sent what no replica sends: %s", peer, error, extra={"repeat_key": f"peer {peer}"})
            except Exception as error:  # noqa: BLE001 - other groups have messages in the same frame
                self._on_bug(replica, error)

    def _on_sleep(self, replica: Replica, message: Sleep) -> None:
        node = replica.node
        if node is None or message.target != replica.member:
            return
        may_sleep = (
            node.term == message.term
            and node.leader_id == message.sender
            and node.last_index == node.commit_index == node.applied_index == message.last_index
            and not replica.is_busy
            and self.network is not None
            and self.network.is_up(node_of(message.sender))
        )
        if may_sleep:
            replica.asleep = True
        elif self.network is not None:
            self.network.send(node_of(message.sender), replica.group, Wake(replica.member, message.sender, node.term))

    def wake_others(self, replica: Replica) -> None:
        """While its node is up, nobody would notice that one of its replicas is over; not if the group sleeps."""
        node = replica.node
        if node is not None and self.network is not None:
            for member in node.configuration.members - {replica.member}:
                self.network.send(node_of(member), replica.group, Wake(replica.member, MemberId(member), node.term))

    def _wake(self, replica: Replica) -> None:
        replica.wake()
        self._awake[replica.group] = replica

    def wake_members(self, node_id: NodeId) -> None:
        """A node went, or came back as another process: the groups that it is in must see for themselves."""
        for replica, _, _ in self._members_on(node_id):
            self._wake(replica)

    def _members_on(self, node_id: NodeId) -> Iterator[tuple[Replica, Node, MemberId]]:
        """The replicas here of all groups that a node is in, and who it is there."""
        for partition in self._partitions.values():
            node = partition.replica.node
            if node is not None:
                for member in node.configuration.members:
                    if node_of(member) == node_id:
                        yield partition.replica, node, MemberId(member)

    def on_peer_up(self, hello: Hello) -> None:
        before, self._boots[hello.node_id] = self._boots.get(hello.node_id), hello.boot_id
        if before is not None and before != hello.boot_id:
            self.wake_members(hello.node_id)
            self._tell_of_restart(hello.node_id)
        if self.network is not None:
            own = [self._notice(partition) for partition in self if partition.is_serving]
            if own:
                self.network.notify(hello.node_id, own)

    def _tell_of_restart(self, node_id: NodeId) -> None:
        """Have the groups that are led here ask the members on a node again what they hold."""
        for replica, node, member in list(self._members_on(node_id)):
            if node.role is Role.LEADER:
                self.guard(replica, node.on_member_restarted, member)
                self.mark_dirty(replica)

    def on_peer_down(self, node_id: NodeId) -> None:
        for replica, consensus, member in list(self._members_on(node_id)):
            # Where the group slept, its own ticks have stood still, and it would wait for as long again.
            self.guard(replica, consensus.on_member_lost, member, self._silent_ticks)
            self._wake(replica)
        # It says again what it leads when it is back, and that may be less.
        self.leaders = {group: notice for group, notice in self.leaders.items() if notice.leader != node_id}
        for partition in self._partitions.values():
            node = partition.replica.node
            if node is not None and node.leader_id is not None and node_of(node.leader_id) == node_id:
                self.guard(partition.replica, node.on_leader_lost)
                self.mark_dirty(partition.replica)
            elif partition.is_serving and node_id in partition.in_sync:
                self.guard(partition.replica, self.look_at, partition)

    # ---- who leads ------------------------------------------------------------------------------

    def announce(self, partition: Partition) -> None:
        """Tell everyone that this node leads a partition, and who keeps up."""
        partition.notice_version += 1
        notice = self._notice(partition)
        self.note_leader(notice)
        if self.network is not None:
            for node_id in self.network.peers:
                self.network.notify(node_id, (notice,))

    def _notice(self, partition: Partition) -> LeaderNotice:
        return LeaderNotice(
            partition.group, partition.leader_epoch, self.node_id, partition.notice_version, partition.members_in_sync
        )

    def on_notices(self, notices: Iterable[LeaderNotice]) -> None:
        for notice in notices:
            self.note_leader(notice)

    def note_leader(self, notice: LeaderNotice) -> None:
        known = self.leaders.get(notice.group)
        if known is None or (notice.term, notice.version) > (known.term, known.version):
            self.leaders[notice.group] = notice
            waiting, self._news_waiters = self._news_waiters, {}
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def next_leader_news(self, timeout_s: float) -> None:
        """Wait until anything is heard about leaders, or the time is up."""
        heard = asyncio.Event()
        self.call_at_news(timeout_s, heard.set)
        await heard.wait()

    def call_at_news(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Call a function once anything is heard about leaders, or the time is up."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._news_waiters[future] = None

        def give_up() -> None:
            if self._news_waiters.pop(future, future) is None:
                future.set_result(None)

        timer = self._loop.call_later(timeout_s, give_up)

        def on_done(done: asyncio.Future[None]) -> None:
            timer.cancel()
            if not done.cancelled():
                function()

        future.add_done_callback(on_done)

    def forget_topics(self, topics: Iterable[TopicId]) -> None:
        """Topics were deleted."""
        gone = set(topics)
        if gone:
            self.leaders = {group: notice for group, notice in self.leaders.items() if group.topic_id not in gone}
