"""All replicas of this node: their ticks, their messages, and quiescing idle groups.

One timer ticks every replica that is awake. A replica that has something to do is marked, and pumped once at the end of
the event loop's turn, so that many proposals result in one `Ready`.

**Sleep (quiescing).** An idle group costs nothing. When everything is committed on all members and there was no request
for a while, the leader notifies the others, and all of them stop ticking. From then on the heartbeats between the nodes
replace those of the group: when a node becomes silent, or returns with a new process, every group that it is a member
of wakes up and uses its own timers again. Any message or request wakes a group too. Sleeping only saves cost. If a
notification is lost, the replica that missed it stays awake, campaigns, and thereby wakes the others.

**Leader announcements** go to all nodes, also to those without a replica: a leader announces itself together with the
replicas that are in sync. An announcement is a hint with a term in it, so an older one never replaces a newer one.
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
from drmq.model import GroupId, MemberId, NodeId, TopicId, UnknownFormat, node_of
from drmq.model.counters import Histogram
from drmq.raft import Message, Node, ProgressState, ProtocolError, RaftOptions, Role
from drmq.storage import Writer
from drmq.transport.peers import Hello, LeaderNotice, Network, PeerMessage, Sleep, Wake

log = logging.getLogger("drmq.broker")

_UNCLAIMED_MAX = 4_096
"""The maximum number of messages kept for groups that this node does not know yet."""
_TICKS_CAUGHT_UP_MAX = 64


class GroupHost:
    """The replicas of one node. Used on the event loop."""

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
        """The leader of each partition, as far as this node knows, including those on this node."""
        self.on_first_leader: Callable[[GroupId], None] = lambda group: None
        """Called when this node learns of a leader of a partition for which it knew none."""
        self.protocol_errors = 0
        self.loop_delays_us = Histogram()
        """How late each tick was."""
        self._tick_s = tick_s
        self._silent_ticks = round(peer_timeout_s / tick_s)
        """How many ticks a node has been silent, at most, when it is considered down."""
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
        """Start ticking."""
        self._loop = asyncio.get_running_loop()
        self._next_tick = self._loop.time() + self._tick_s
        self._timer = self._loop.call_at(self._next_tick, self._tick)

    def stop(self) -> None:
        """Stop ticking and ignore other nodes: the groups continue without this one."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, group: GroupId) -> Partition | None:
        return self._partitions.get(group)

    def add(self, partition: Partition) -> None:
        """Make a partition take part in its group."""
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
            # Before the writer wakes up and competes for the interpreter lock: the followers need longer to reach a
            # disk.
            if self.network is not None:
                self.network.flush()
        finally:
            self.writer.release()

    def guard(self, replica: Replica, work: Callable[..., object], *arguments: object) -> None:
        """Call a function that works for one replica. An exception does not reach the caller.

        An exception is a bug, because errors of disks and peers are not raised. It ends this replica, because it is
        unknown which part of its work was done. The other members of its group elect another leader. The exception to
        that is data of a later release, which ends the replica without being a bug.
        """
        try:
            work(*arguments)
        except UnknownFormat as error:
            replica.on_unknown_format(str(error))
        except Exception as error:  # noqa: BLE001 - the event loop reports it, with its trace
            self._on_bug(replica, error)

    def _on_bug(self, replica: Replica, error: Exception) -> None:
        self._complain(f"{replica.log.name}: its replica failed because of a bug", error)
        try:
            replica.on_bug(error)
        except Exception as another:  # noqa: BLE001 - a second bug, in code that was notified of the first
            self._complain(f"{replica.log.name}: its replica could not be stopped cleanly", another)

    def _complain(self, message: str, error: Exception) -> None:
        """Report an exception like the event loop reports exceptions of its own callbacks."""
        self._loop.call_exception_handler({"message": message, "exception": error})

    def call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_later(delay_s, function, *arguments)

    # ---- time -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._loop.time()
        self.loop_delays_us.add(max(0, int((now - self._next_tick) * 1_000_000)))
        # A process that was suspended has missed ticks: a leader must notice that it may no longer be the leader.
        missed = 1 + min(int((now - self._next_tick) / self._tick_s), _TICKS_CAUGHT_UP_MAX)
        if missed < self.raft_options.election_timeout_ticks:
            missed = 1
        self._next_tick = max(self._next_tick + self._tick_s, now)
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        self._tick_count += 1
        looks_at_followers = self._tick_count % self.raft_options.heartbeat_ticks == 0
        for group, replica in list(self._awake.items()):
            if looks_at_followers:
                # Before the tick: a heartbeat of the same tick, sent after the `Sleep` message, would wake the group
                # again.
                self.guard(replica, self.look_at, self._partitions[group])
            if replica.asleep:
                del self._awake[group]
                continue
            for _ in range(missed):
                self.guard(replica, replica.tick)

    def look_at(self, partition: Partition) -> None:
        """On a leader: update the replicas that are in sync, and quiesce the group if it is idle."""
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
        # Not while a member is missing: when its node returns, nothing would check again, and it would stay out of
        # sync.
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
        """Whether a node is up. A node that is down is not in sync, whatever its replicas reported last."""
        return self.network is None or self.network.is_up(node_id)

    # ---- peers ----------------------------------------------------------------------------------

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        if self._is_stopped:
            return
        partition = self._partitions.get(group)
        if partition is None:
            # The group may be so new that this node does not know it yet.
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
            except UnknownFormat as error:
                replica.on_unknown_format(str(error))
            except ProtocolError as error:
                self.protocol_errors += 1
                log.error("node %d sent an invalid message: %s", peer, error, extra={"repeat_key": f"peer {peer}"})
            except Exception as error:  # noqa: BLE001 - messages of other groups are in the same frame
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
        """Wake the other members of a replica that ends: while its node is up, a sleeping group would not notice."""
        node = replica.node
        if node is not None and self.network is not None:
            for member in node.configuration.members - {replica.member}:
                self.network.send(node_of(member), replica.group, Wake(replica.member, MemberId(member), node.term))

    def _wake(self, replica: Replica) -> None:
        replica.wake()
        self._awake[replica.group] = replica

    def wake_members(self, node_id: NodeId) -> None:
        """Wake all groups that a node is a member of, because it went down or returned with a new process."""
        for replica, _, _ in self._members_on(node_id):
            self._wake(replica)

    def _members_on(self, node_id: NodeId) -> Iterator[tuple[Replica, Node, MemberId]]:
        """The local replicas of all groups that a node is a member of, with its member id in each."""
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
        """Make the groups that are led here verify again what their members on a node hold."""
        for replica, node, member in list(self._members_on(node_id)):
            if node.role is Role.LEADER:
                self.guard(replica, node.on_member_restarted, member)
                self.mark_dirty(replica)

    def on_peer_down(self, node_id: NodeId) -> None:
        for replica, consensus, member in list(self._members_on(node_id)):
            # The ticks of a sleeping group stood still, so without this it would wait for a whole timeout again.
            self.guard(replica, consensus.on_member_lost, member, self._silent_ticks)
            self._wake(replica)
        # When it returns, it announces again what it leads, which may be less.
        self.leaders = {group: notice for group, notice in self.leaders.items() if notice.leader != node_id}
        for partition in self._partitions.values():
            node = partition.replica.node
            if node is not None and node.leader_id is not None and node_of(node.leader_id) == node_id:
                self.guard(partition.replica, node.on_leader_lost)
                self.mark_dirty(partition.replica)
            elif partition.is_serving and node_id in partition.in_sync:
                self.guard(partition.replica, self.look_at, partition)

    # ---- leader announcements -------------------------------------------------------------------

    def announce(self, partition: Partition) -> None:
        """Announce to all nodes that this node leads a partition, and which replicas are in sync."""
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
            if known is None:
                self.on_first_leader(notice.group)
            waiting, self._news_waiters = self._news_waiters, {}
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def next_leader_news(self, timeout_s: float) -> None:
        """Wait for the next announcement of any leader, or until the time is up."""
        heard = asyncio.Event()
        self.call_at_news(timeout_s, heard.set)
        await heard.wait()

    def call_at_news(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Call a function once at the next announcement of any leader, or when the time is up."""
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
        """Forget the leaders of deleted topics."""
        gone = set(topics)
        if gone:
            self.leaders = {group: notice for group, notice in self.leaders.items() if group.topic_id not in gone}
