"""All replicas of this node: their ticks, their messages, and quiescing idle groups.

One timer ticks every replica that is awake. A replica that has something to do is marked, and pumped once at the end of
the event loop's turn, so that many proposals result in one `Ready`. Both are done in slices, between which the network
is read. If a pass over all replicas takes longer than a tick, the next one begins later: on a node that is short of
processor time, the time of its groups passes more slowly, and never in leaps.

**The heartbeats between nodes decide** which leaders and followers are gone, not the timers of thousands of groups. As
long as the leader's node is up, a follower waits several election timeouts before it campaigns, and a leader as long
before it gives up; when a node is down, its groups are told. Campaigns in progress are limited, others wait, and the
members of a group take turns. See decision 0019.

**Sleep (quiescing).** An idle group costs nothing. When everything is committed on all members and there was no request
for a while, the leader notifies the others, and all of them stop ticking. From then on the heartbeats between the nodes
replace those of the group: when the leader's node becomes silent, or too few nodes are left, the group wakes up and
uses its own timers again. Any message or request wakes a group too. Members on nodes that are down, or that still open
their replicas after a start, are left out: when a node returns after a pause, the leader wakes up, and when it returns
with a new process, each of its replicas wakes the others as soon as it is open. Sleeping only saves cost. If a
notification is lost, the replica that missed it stays awake, campaigns, and thereby wakes the others.

**Leader announcements** (`leader_news`) go to all nodes, also to those without a replica: a leader announces itself
together with the replicas that are in sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from random import Random

from drmq.broker.partitions.partition import Partition
from drmq.broker.replication.leader_news import LeaderNews
from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.broker.replication.replica import Replica
from drmq.broker.replication.sliced_work import SLICE_S, SlicedWork
from drmq.model import GroupId, MemberId, NodeId, TopicId, UnknownFormat, node_of
from drmq.model.counters import Histogram
from drmq.model.names import METADATA_GROUP
from drmq.raft import Cause, Message, Node, ProgressState, ProtocolError, RaftOptions, Role
from drmq.storage import Writer
from drmq.transport.peers import Hello, LeaderNotice, Network, PeerMessage, Sleep, Wake

log = logging.getLogger("drmq.broker")

_UNCLAIMED_MAX = 4_096
"""The maximum number of groups that this node does not know yet and keeps messages for."""
_PATIENCE = 5
"""How many election timeouts a follower waits for its leader while the leader's node is up, and a leader for followers
that nobody has reported as lost. Something is wrong with one group then, not with a node."""
_CAMPAIGNS_MAX = 128
"""Campaigns that this node has in progress at a time; further ones wait. An election costs each node a millisecond of
its processor: with this many, a node can still be heard in time."""
_HEARD_LOOKS = 2
"""A follower that was not heard since so many looks of its leader keeps its group awake."""
_IDLE_LOOKS = _HEARD_LOOKS + 1
"""How often in a row a leader finds its group idle before the group sleeps: often enough that all followers were heard
since the group woke up. Not more often, because a group that is awake costs ticks and heartbeats, and after a single
write these soon cost more than the write."""
_CAMPAIGNS_CHECKED_EVERY = 64
"""Replicas that are ticked between two checks of which campaigns are over."""
_PUMPED_AT_ONCE = 32
_NOTICES_AT_ONCE = 256


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
        self._news = LeaderNews(lambda group: self.on_first_leader(group))
        self.leaders = self._news.leaders
        """The leader of each partition, as far as this node knows, including those on this node."""
        self.on_first_leader: Callable[[GroupId], None] = lambda group: None
        """Called when this node learns of a leader of a partition for which it knew none."""
        self.protocol_errors = 0
        self.loop_delays_us = Histogram()
        """How late each tick was."""
        self._tick_s = tick_s
        self._lost_ticks = raft_options.election_timeout_ticks * _PATIENCE
        """For this long a member on a node that is down was not heard, as far as its leader is concerned."""
        self._partitions: dict[GroupId, Partition] = {}
        self._awake: dict[GroupId, Replica] = {}
        self._dirty: list[Replica] = []
        self._unclaimed: OrderedDict[GroupId, dict[type, tuple[NodeId, PeerMessage]]] = OrderedDict()
        """The last message of each type for groups that this node does not know yet."""
        self._boots: dict[NodeId, bytes] = {}
        self._unopened: dict[NodeId, set[GroupId]] = {}
        """By node that has started: the groups whose replicas there were not heard since, and may not be open yet."""
        self._unannounced: dict[GroupId, Partition] = {}
        """What this node leads, and has not announced to the others yet."""
        self._pass = SlicedWork()
        """The present pass over the replicas that are awake."""
        self._peer_events = SlicedWork()
        """Nodes that went down or came up: what that means for each partition, in the order of the events."""
        self._campaigns: dict[Replica, int] = {}
        """Replicas whose campaign may be in progress, and the tick at which it began."""
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._next_tick = 0.0
        self._tick_count = 0
        self._was_late = False

    def start(self) -> None:
        """Start ticking."""
        self._loop = asyncio.get_running_loop()
        self._next_tick = self._loop.time() + self._tick_s
        self._timer = self._loop.call_at(self._next_tick, self._tick)

    def stop(self) -> None:
        """Stop ticking and ignore other nodes: the groups continue without this one."""
        self._is_stopped = True
        self._pass.clear()
        self._peer_events.clear()
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
        for peer, message in self._unclaimed.pop(group, {}).values():
            self.on_group_message(peer, group, message)

    def rejoin(self, partition: Partition, preferred: NodeId) -> None:
        """Find the leader of a replica that was closed: its group may sleep, or have none.

        If all nodes have started together, the preferred replica becomes leader, and the others wait until its node has
        opened it too. Otherwise leadership would have to be transferred later, which is a second election.
        """
        node = partition.replica.node
        if node is None or partition.replica.is_alone:
            return
        self.wake_others(partition.replica)
        if preferred == self.node_id:
            node.hasten_election(Cause.PREFERRED)
        elif self._reaches(preferred):
            node.delay_election(_PATIENCE)

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

    def on_woken(self, replica: Replica) -> None:
        self._awake[replica.group] = replica

    def _pump(self) -> None:
        dirty, self._dirty = self._dirty, []
        end = self._loop.time() + SLICE_S
        self.writer.hold()
        try:
            for count, replica in enumerate(dirty, 1):
                self.guard(replica, replica.pump)
                if not count % _PUMPED_AT_ONCE and self._loop.time() >= end and count < len(dirty):
                    # The network is read before the rest.
                    if not self._dirty:
                        self._loop.call_soon(self._pump)
                    self._dirty = dirty[count:] + self._dirty
                    break
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
        late_s = max(0.0, now - self._next_tick)
        self.loop_delays_us.add(int(late_s * 1_000_000))
        is_late = late_s >= self._tick_s
        # Ticks that were missed are not made up for: time in which this loop did not run is no silence of others.
        self._next_tick = now + self._tick_s if is_late else self._next_tick + self._tick_s
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        if self._pass.is_busy:
            return
        # After a stall, what the others sent meanwhile is read first. On a loop that is always late, time must pass.
        self._was_late = is_late and not self._was_late
        if not self._was_late:
            self._tick_count += 1
            self._pass.add(self._tick_all(list(self._awake.items())))

    def _tick_all(self, awake: list[tuple[GroupId, Replica]]) -> Iterator[None]:
        looks_at_followers = self._tick_count % self.raft_options.heartbeat_ticks == 0
        if len(awake) > _CAMPAIGNS_MAX:
            # Not in the same order on all nodes: they would all campaign in the same groups first.
            start = self.random.randrange(len(awake))
            awake = awake[start:] + awake[:start]
        for count, (group, replica) in enumerate(awake):
            partition = self._partitions.get(group)
            if partition is None or partition.replica is not replica:
                if self._awake.get(group) is replica:
                    del self._awake[group]
                continue
            if looks_at_followers:
                # Before the tick: a heartbeat of the same tick, sent after the `Sleep` message, would wake the group
                # again.
                self.guard(replica, self.look_at, partition)
            if replica.asleep:
                self._awake.pop(group, None)
                continue
            if count % _CAMPAIGNS_CHECKED_EVERY == 0:
                self._forget_campaigns()
            self.guard(replica, self._tick_one, replica)
            yield

    def _tick_one(self, replica: Replica) -> None:
        node = replica.node
        if node is None:
            return
        leader = node.leader_id
        patience = _PATIENCE if leader is not None and self._reaches(node_of(leader)) else 1
        has_turn = len(self._campaigns) < _CAMPAIGNS_MAX or replica in self._campaigns
        may_campaign = has_turn or replica.group == METADATA_GROUP
        replica.tick(patience, may_campaign)
        # Without a quorum of nodes a campaign costs nothing, because its messages are not sent.
        if node.is_campaigning and replica not in self._campaigns and self._has_quorum(node):
            self._campaigns[replica] = self._tick_count

    def _forget_campaigns(self) -> None:
        """Forget the campaigns that are decided, or have had their time."""
        since = self._tick_count - self.raft_options.election_timeout_ticks
        self._campaigns = {
            replica: begun
            for replica, begun in self._campaigns.items()
            if begun > since and replica.node is not None and replica.node.is_campaigning
        }

    def _has_quorum(self, node: Node) -> bool:
        """Whether the nodes of a majority of a replica's group are up, counting its own."""
        voters = node.configuration.voters
        return 2 * sum(voter == node.node_id or self._reaches(node_of(voter)) for voter in voters) > len(voters)

    def _rank(self, replica: Replica, node: Node) -> int:
        """The place of a replica in the order in which the members of its group campaign after a loss."""
        present = [voter for voter in sorted(node.configuration.voters) if self._reaches(node_of(voter))]
        if node.node_id not in present:
            return len(present)
        return (present.index(node.node_id) - replica.group.partition) % len(present)

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
        if replica.asleep:
            return
        last = node.last_index
        # The others are left out: when they return, the group wakes up. A learner may not know its group yet, and then
        # could not wake it.
        present = {
            member: peer
            for member, peer in progress.items()
            if self._reaches(node_of(member))
            and not (peer.votes and partition.group in self._unopened.get(node_of(member), ()))
        }
        voters = node.configuration.voters
        idle = (
            partition.is_serving
            and 2 * len(voters & {node.node_id, *present}) > len(voters)
            and node.commit_index == node.applied_index == last
            and not replica.is_busy
            and not node.change_in_progress
            and node.transfer_target is None
            and all(
                (member in in_sync or not peer.votes)
                and peer.match == last
                and peer.state is ProgressState.REPLICATE
                and peer.ticks_since_heard <= self.raft_options.heartbeat_ticks * _HEARD_LOOKS
                for member, peer in present.items()
            )
        )
        if not idle:
            replica.idle_ticks = 0
            return
        replica.idle_ticks += 1
        if replica.idle_ticks >= _IDLE_LOOKS:
            if self.network is not None:
                for member in progress:
                    self.network.send(node_of(member), replica.group, Sleep(replica.member, member, node.term, last))  # type: ignore[arg-type]
            replica.asleep = True

    def _reaches(self, node_id: NodeId) -> bool:
        """Whether a node is up. A node that is down is not in sync, whatever its replicas reported last."""
        return self.network is None or node_id == self.node_id or self.network.is_up(node_id)

    # ---- peers ----------------------------------------------------------------------------------

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        if self._is_stopped:
            return
        if peer in self._unopened:
            self._unopened[peer].discard(group)
        partition = self._partitions.get(group)
        if partition is None:
            # The group may be so new that this node does not know it yet.
            self._unclaimed.setdefault(group, {})[type(message)] = (peer, message)
            if len(self._unclaimed) > _UNCLAIMED_MAX:
                self._unclaimed.popitem(last=False)
            return
        replica = partition.replica
        if isinstance(message, Sleep):
            self._on_sleep(replica, message)
        elif isinstance(message, Wake):
            if message.target == replica.member:
                self._on_wake(replica, message)
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
        """Wake the other members of a replica that ends or begins: while its node is up, they would not notice."""
        node = replica.node
        if node is not None and self.network is not None:
            for member in node.configuration.members - {replica.member}:
                self.network.send(node_of(member), replica.group, Wake(replica.member, MemberId(member), node.term))

    def _on_wake(self, replica: Replica, message: Wake) -> None:
        replica.wake()
        node = replica.node
        if node is None:
            return
        if node.leader_id == message.sender:
            # A leader wakes others only when it ends, or has started again.
            self.guard(replica, node.on_leader_lost, self._rank(replica, node), Cause.LEADER_ENDED)
        elif node.leader_id is None:
            self.guard(replica, node.on_voter_returned, self._rank(replica, node))

    def on_peer_up(self, hello: Hello) -> None:
        before, self._boots[hello.node_id] = self._boots.get(hello.node_id), hello.boot_id
        is_restarted = before is not None and before != hello.boot_id
        if is_restarted:
            self._unopened[hello.node_id] = set()
        self._peer_events.add(self._after_up(hello.node_id, is_restarted))

    def _after_up(self, node_id: NodeId, is_restarted: bool) -> Iterator[None]:
        notices: list[LeaderNotice] = []
        for partition in self:
            if partition.is_serving:
                notices.append(self._notice(partition))
            if len(notices) >= _NOTICES_AT_ONCE:
                self._notify(node_id, notices)
                notices = []
            member = _member_on(partition, node_id)
            if member is not None:
                self.guard(partition.replica, self._on_member_up, partition, member, is_restarted)
            yield
        self._notify(node_id, notices)

    def _on_member_up(self, partition: Partition, member: MemberId, is_restarted: bool) -> None:
        """The node of a member is up. With a new process, what it holds must be verified again.

        That process may take long to open all its replicas. Until then an idle group does not wait for its member
        there: the replica wakes the group when it is open.
        """
        replica, node = partition.replica, partition.replica.node
        assert node is not None
        leads = node.role is Role.LEADER
        if is_restarted and node_of(member) in self._unopened:
            self._unopened[node_of(member)].add(replica.group)
        if is_restarted and leads:
            node.on_member_restarted(member)
            self.mark_dirty(replica)
            if not node.configuration.votes(member):
                replica.wake()
            if node_of(member) in partition.in_sync:
                self.look_at(partition)
        elif is_restarted and node.leader_id == member:
            replica.wake()
            node.on_leader_lost(self._rank(replica, node), Cause.LEADER_RESTARTED)
            self.mark_dirty(replica)
        elif leads and member not in partition.members_in_sync:
            replica.wake()
        elif node.leader_id is None:
            node.on_voter_returned(self._rank(replica, node))

    def on_peer_down(self, node_id: NodeId) -> None:
        self._news.forget_node(node_id)
        self._unopened.pop(node_id, None)
        self._peer_events.add(self._after_down(node_id))

    def _after_down(self, node_id: NodeId) -> Iterator[None]:
        for partition in self:
            member = _member_on(partition, node_id)
            if member is not None:
                self.guard(partition.replica, self._on_member_down, partition, member)
            yield

    def _on_member_down(self, partition: Partition, member: MemberId) -> None:
        """The node of a member is down. A group that sleeps needs to wake up only if it lost its leader or quorum."""
        replica, node = partition.replica, partition.replica.node
        assert node is not None
        node.on_member_lost(member, self._lost_ticks)
        if node.leader_id == member:
            replica.wake()
            node.on_leader_lost(self._rank(replica, node), Cause.LEADER_DOWN)
            self.mark_dirty(replica)
        elif not self._has_quorum(node):
            replica.wake()
        if partition.is_serving and node_of(member) in partition.in_sync:
            self.look_at(partition)

    # ---- leader announcements -------------------------------------------------------------------

    def announce(self, partition: Partition) -> None:
        """Announce to all nodes that this node leads a partition, and which replicas are in sync."""
        partition.notice_version += 1
        self._news.note((self._notice(partition),))
        if not self._unannounced:
            self._loop.call_soon(self._announce_all)
        self._unannounced[partition.group] = partition

    def _announce_all(self) -> None:
        partitions, self._unannounced = self._unannounced, {}
        notices = [self._notice(partition) for partition in partitions.values() if partition.is_serving]
        if self.network is not None:
            for node_id in self.network.peers:
                self._notify(node_id, notices)

    def _notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        if notices and self.network is not None:
            self.network.notify(node_id, notices)

    def _notice(self, partition: Partition) -> LeaderNotice:
        return LeaderNotice(
            partition.group, partition.leader_epoch, self.node_id, partition.notice_version, partition.members_in_sync
        )

    def on_notices(self, notices: Iterable[LeaderNotice]) -> None:
        self._news.note(notices)

    async def next_leader_news(self, timeout_s: float) -> None:
        """Wait for the next announcement of any leader, or until the time is up."""
        heard = asyncio.Event()
        self.call_at_news(timeout_s, heard.set)
        await heard.wait()

    def call_at_news(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Call a function once at the next announcement of any leader, or when the time is up."""
        self._news.call_at_next(timeout_s, function)

    def forget_topics(self, topics: Iterable[TopicId]) -> None:
        """Forget the leaders of deleted topics."""
        self._news.forget_topics(topics)


def _member_on(partition: Partition, node_id: NodeId) -> MemberId | None:
    """The member of a partition's group on a node, if there is one: a present one, or else its last leader."""
    node = partition.replica.node
    if node is None:
        return None
    for member in node.configuration.members:
        if node_of(member) == node_id:
            return MemberId(member)
    leader = node.leader_id
    return MemberId(leader) if leader is not None and node_of(leader) == node_id else None
