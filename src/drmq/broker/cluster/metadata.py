"""The catalog on its log: cluster metadata as a replicated state machine.

Every node replays the metadata log, so every node can answer questions about the cluster by itself. The node that
leads the log is the controller: only the controller appends, and its catalog includes at once what it has decided, so
that its next decision fits. Such decisions may never be committed, though: the disk refuses them, or another node
leads before a majority has them. What follows from a fact on a node (files created, files removed, members changed)
depends on `committed_catalog`, which includes committed facts only and never goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from drmq.broker.clock import Clock
from drmq.broker.coordination.coordinator import Coordinator, MachineDraft, OutcomeUnknown, RecordCodec
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.durability import durable
from drmq.broker.partitions.derived_state import Draft
from drmq.broker.partitions.partition import Partition
from drmq.catalog import Catalog, Fact, Topic, decode_fact, encode_fact
from drmq.model import Answer, ApiError, ErrorCode, NodeId, Offset, Step, TopicId, node_of
from drmq.model.names import CLUSTER_METADATA, METADATA_GROUP

METADATA_TOPIC = Topic(METADATA_GROUP.topic_id, CLUSTER_METADATA, ())
"""The topic of the metadata log. It is not in the catalog, which is built from it."""

Decision: TypeAlias = Callable[[Catalog], Sequence[Fact]]
"""A request to the controller: the facts that make it true, or an `ApiError` if it is refused."""
Decided: TypeAlias = Sequence[Fact] | ApiError

CODEC: RecordCodec[Fact] = RecordCodec(encode_fact, lambda key, value: decode_fact(value or b"{}"))


class CatalogMachine:
    """The catalog as a `StateMachine`. It has no soft state, no timers, and parks no request."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.touched: set[TopicId] = set()
        """Topics that replayed facts are about, since `take_touched`."""

    def replay(self, record: Fact) -> None:
        self.touched |= _topics_of((record,))
        self.catalog.replay(record)

    def snapshot(self) -> Iterable[Fact]:
        return list(self.catalog.snapshot())

    def handle(self, ticket: int, request: Decision, now_ms: int, wall_ms: int) -> Step[Fact, Decided]:
        try:
            facts = request(self.catalog)
        except ApiError as refusal:
            # A refusal is an answer like any other: it may depend on facts that are not committed yet.
            return Step((), (Answer(ticket, refusal),))
        return Step(tuple(facts), (Answer(ticket, facts),))

    def become_leader(self, now_ms: int) -> None:
        return

    def resign(self) -> Step[Fact, Decided]:
        return Step()

    def on_disconnect(self, tickets: Iterable[int], now_ms: int, wall_ms: int) -> Step[Fact, Decided]:
        return Step()

    def next_deadline(self) -> int | None:
        return None

    def on_deadline(self, now_ms: int, wall_ms: int) -> Step[Fact, Decided]:
        return Step()


class CatalogCoordinator(Coordinator[CatalogMachine, Decision, Decided, Fact]):
    """Drives the catalog, and keeps a copy of the committed catalog, because the leader's runs ahead of it.

    The copy is made at the first decision of a leader, and then follows the commits until the node leads no more: to
    copy the catalog costs time in proportion to all partitions, and must not be paid for each decision.
    """

    has_soft_state = False

    def __init__(self, clock: Clock) -> None:
        super().__init__(CatalogMachine, CODEC, clock)
        self.on_changed: Callable[[set[TopicId]], None] = lambda topics: None
        """Called with the topics that committed facts are about, and with all when a snapshot replaced the catalog."""
        self.on_elected: Callable[[], None] = lambda: None
        """Called when this node becomes the controller."""
        self._was_applied = False
        self._kept: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        return self.machine.catalog

    @property
    def committed(self) -> Catalog:
        """The committed facts and nothing else. Do not keep a reference: a later commit may replace the object."""
        return self.catalog if self._kept is None else self._kept

    def on_led(self) -> None:
        self._kept = None  # The whole log is committed and replayed.
        self.on_elected()

    def on_appending(self) -> Catalog:
        """The catalog is about to include uncommitted facts: keep a copy without them."""
        if self._kept is None:
            self._kept = self.catalog.copy()
        return self._kept

    def on_records_committed(self, records: Sequence[Fact], token: object) -> None:
        """Facts that were decided while the copy `token` was kept are committed; later ones may not be."""
        if self._kept is token and self._kept is not None:
            for fact in records:
                self._kept.replay(fact)
            # Not only in `on_applied`: a busy controller is always ahead of what is committed. Called before those who
            # wait for the answers continue, but not here: the answers must be sent even if it fails.
            topics = _topics_of(records)
            self.machine.touched -= topics
            asyncio.get_running_loop().call_soon(lambda: self.on_changed(topics))

    def become(self, draft: Draft) -> None:
        assert isinstance(draft, MachineDraft), draft
        before, machine = self.machine, draft.machine
        assert isinstance(machine, CatalogMachine), machine
        machine.touched |= before.touched | before.catalog.topics_by_id.keys()
        if self._kept is None and self._was_applied:
            # An old snapshot, with more of the log to follow. This node may have acted on what it had before.
            self._kept = before.catalog
        self.machine = machine

    def on_applied(self) -> None:
        self._was_applied = True
        if not self.leads:
            self._kept = None
        touched, self.machine.touched = self.machine.touched, set()
        self.on_changed(touched)


class Metadata:
    """Cluster metadata on this node: the catalog to read, and on the controller to change.

    Implements `internal_topics.CoordinatorSet`, for a topic with one partition.
    """

    partition_count = 1

    def __init__(self, clock: Clock) -> None:
        self.coordinator = CatalogCoordinator(clock)

    def new_coordinator(self) -> CatalogCoordinator:
        return self.coordinator

    def add(self, partition: Partition, coordinator: object) -> None:
        assert coordinator is self.coordinator, coordinator

    def remove(self, partition: Partition) -> None:
        return

    @property
    def log(self) -> MachineLog:
        return self.coordinator.log

    @property
    def is_attached(self) -> bool:
        """Whether this node has a replica of the metadata log yet."""
        return hasattr(self.coordinator, "log")

    @property
    def catalog(self) -> Catalog:
        """On the controller: including what it has decided and is not committed yet."""
        return self.coordinator.catalog

    @property
    def committed_catalog(self) -> Catalog:
        """For code that removes, gives up or promises something because of a fact, and for what clients see."""
        return self.coordinator.committed

    @property
    def is_controller(self) -> bool:
        return self.coordinator.leads

    @property
    def controller(self) -> NodeId | None:
        """The node that decides, as far as this one knows."""
        return self.log.partition.leader if self.is_attached else None

    def voting_nodes(self) -> set[NodeId]:
        """The nodes that elect the controller. A node knows them before it knows what is committed."""
        raft = self.log.partition.replica.node if self.is_attached else None
        return set() if raft is None else {node_of(member) for member in raft.configuration.voters}

    @property
    def next_offset(self) -> Offset:
        return self.log.partition.next_offset

    @property
    def applied_offset(self) -> Offset:
        """How much of what is committed the catalog includes."""
        return min(self.log.partition.high_watermark, self.log.state.applied_offset)

    # ---- on the controller ----------------------------------------------------------------------

    async def decide(self, decision: Decision, what: str) -> Sequence[Fact]:
        """Decide about a request, wait until the facts are committed, and return them. Raises `ApiError`.

        `decision` is called with the controller's catalog at the end of this turn of the event loop. Facts of all
        decisions of one turn are one batch. A refusal, too, is raised only when everything it depends on is
        committed. `what` names the decision in errors.
        """
        self.check_controller()
        future: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()

        def respond(answer: Decided | Exception) -> None:
            if future.done():
                return
            if isinstance(answer, Exception):
                future.set_exception(self._explained(answer, what))
            else:
                future.set_result(answer)

        self.coordinator.submit(decision, respond)
        decided = await future
        assert not isinstance(decided, ApiError)
        return decided

    def append(self, facts: Sequence[Fact]) -> None:
        """Append facts that the caller has just derived from `catalog`. Raises `ApiError`.

        They apply here at once, and on other nodes once they are committed. For the controller's own rounds, which do
        not wait for the commit.
        """
        if not facts:
            return
        try:
            self.coordinator.append(facts)
        except ApiError as error:
            raise self._explained(error, "") from error

    async def committed(self, what: str) -> None:
        """Wait until everything decided so far is committed. Raises `ApiError`."""
        try:
            await durable(self.log.when_durable, what)
        except ApiError as error:
            raise self._explained(OutcomeUnknown(error.code, error.message), what) from error

    def _explained(self, error: Exception, what: str) -> Exception:
        """An error of the log in terms of the controller. Clients look for another one after NOT_CONTROLLER only."""
        if not isinstance(error, ApiError):
            return error
        if isinstance(error, OutcomeUnknown):
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return ApiError(error.code, f"{what} could not be stored")
            return ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"it is not known whether {what} was stored, because this node stopped being the controller; "
                f"{self.not_controller().message}",
            )
        return self.not_controller() if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error

    def check_controller(self) -> None:
        """Raise `ApiError` if this node is not the controller.

        Call this before any other check: the catalog of another node may lag, and refusals based on it may be wrong.
        """
        if not self.is_controller:
            raise self.not_controller()

    def not_controller(self) -> ApiError:
        """The error which says why this node cannot decide now."""
        failure = self.log.partition.failure if self.is_attached else None
        if failure is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {failure}")
        controller = self.controller
        if controller is None:
            return ApiError(
                ErrorCode.NOT_CONTROLLER,
                "the cluster has no controller now; to elect one, a majority of voters is needed",
            )
        return ApiError(ErrorCode.NOT_CONTROLLER, f"the controller of this cluster is node {controller}")


def _topics_of(facts: Iterable[Fact]) -> set[TopicId]:
    """The topics that facts are about."""
    return {fact.topic_id for fact in facts if hasattr(fact, "topic_id")}
