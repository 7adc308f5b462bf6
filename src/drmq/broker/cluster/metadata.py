"""The catalog on its log: cluster metadata as a replicated state machine.

Every node replays the metadata log, so every node can answer questions about the cluster by itself. The node that
leads the log is the controller: it alone appends, and its catalog says at once what it has decided, so that its next
decision fits. Decisions may come to nothing, though: the disk refuses them, or another node leads before a majority
has them. What follows from a fact on a node (files made, files removed, members changed) is done by
`committed_catalog`, which runs ahead of nothing and never goes back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from drmq.broker.clock import Clock
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.durability import durable
from drmq.broker.partitions.derived_state import Draft, KeyValue
from drmq.broker.partitions.partition import Partition
from drmq.catalog import Catalog, Fact, Topic, decode_fact, encode_fact
from drmq.model import ApiError, ErrorCode, NodeId, Offset, TopicId, node_of
from drmq.model.names import CLUSTER_METADATA, METADATA_GROUP

METADATA_TOPIC = Topic(METADATA_GROUP.topic_id, CLUSTER_METADATA, ())
"""The topic of the metadata log. It stands outside the catalog, which is made from it."""


class CatalogDraft:
    """A catalog that is being made from a snapshot. Implements `states.Draft`."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.touched: set[TopicId] = set()

    def replay(self, key: bytes, value: bytes | None) -> None:
        _replay(value, self.catalog, self.touched)


class CatalogMachine:
    """The catalog as a `states.Machine`."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.on_changed: Callable[[set[TopicId]], None] = lambda topics: None
        """Called with the topics that committed facts were about, and with all when the catalog has become another."""
        self.on_lead: Callable[[], None] = lambda: None
        self.on_follow: Callable[[], None] = lambda: None
        self._touched: set[TopicId] = set()
        self._was_applied = False
        self._kept: Catalog | None = None

    @property
    def committed(self) -> Catalog:
        """What committed facts say, and nothing else. Read it at once: it is another one when more is committed."""
        return self.catalog if self._kept is None else self._kept

    def keep_committed(self) -> Catalog:
        """The catalog is about to say more than is committed; what goes on saying only that."""
        if self._kept is None:
            self._kept = self.catalog.copy()
        return self._kept

    def on_committed(self, facts: Sequence[Fact], kept: Catalog) -> None:
        """What was decided while `kept` was kept is committed, though perhaps not all that was decided since."""
        if self._kept is kept:
            for fact in facts:
                kept.replay(fact)

    def replay(self, key: bytes, value: bytes | None) -> None:
        _replay(value, self.catalog, self._touched)

    def draft(self) -> CatalogDraft:
        return CatalogDraft()

    def become(self, draft: Draft) -> None:
        assert isinstance(draft, CatalogDraft), draft
        self._touched.update(self.catalog.topics_by_id, draft.touched)
        if self._kept is None and self._was_applied:
            # This is an old snapshot, with more to follow, and this node may have acted upon what it had.
            self._kept = self.catalog
        self.catalog = draft.catalog

    def snapshot(self) -> Iterable[KeyValue]:
        return map(encode_fact, list(self.catalog.snapshot()))

    def on_applied(self) -> None:
        self._was_applied, self._kept = True, None
        touched, self._touched = self._touched, set()
        self.on_changed(touched)


def _replay(value: bytes | None, catalog: Catalog, touched: set[TopicId]) -> None:
    fact = decode_fact(value or b"{}")
    topic_id = getattr(fact, "topic_id", None)
    if topic_id is not None:
        touched.add(topic_id)
    catalog.replay(fact)


class Metadata:
    """Cluster metadata on this node: the catalog to read, and on the controller to write."""

    log: MachineLog

    def __init__(self, clock: Clock) -> None:
        self.machine = CatalogMachine()
        self._clock = clock

    def attach(self, partition: Partition) -> None:
        self.log = MachineLog(partition)

    @property
    def catalog(self) -> Catalog:
        """On the controller: with what it has decided and is not committed yet."""
        return self.machine.catalog

    @property
    def committed_catalog(self) -> Catalog:
        """For whoever removes, gives up or promises something because of a fact, and for what clients are told."""
        return self.machine.committed

    @property
    def is_controller(self) -> bool:
        return hasattr(self, "log") and self.log.leads

    @property
    def controller(self) -> NodeId | None:
        """The node that decides, as far as this one knows."""
        return self.log.partition.leader if hasattr(self, "log") else None

    def voting_nodes(self) -> set[NodeId]:
        """The nodes that elect the controller. A node knows them before it has heard what is committed."""
        raft = self.log.partition.replica.node if hasattr(self, "log") else None
        return set() if raft is None else {node_of(member) for member in raft.configuration.voters}

    @property
    def next_offset(self) -> Offset:
        return self.log.partition.next_offset

    @property
    def applied_offset(self) -> Offset:
        """How much of what is committed the catalog knows."""
        return min(self.log.partition.high_watermark, self.log.state.applied_offset)

    def append(self, facts: Sequence[Fact]) -> None:
        """Make facts true, here at once and everywhere when they are committed. Raises `ApiError`."""
        if not facts:
            return
        if not self.is_controller:
            raise self.not_controller()
        kept = self.machine.keep_committed()
        try:
            self.log.append([encode_fact(fact) for fact in facts], self._clock.wall_ms())
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise self.not_controller() from error
            raise

        def on_committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.machine.on_committed(facts, kept)

        # It is the first to hear, so that whoever is answered finds what he was told.
        self.log.when_durable(on_committed)

    async def committed(self, what: str) -> None:
        """Wait until everything appended so far is committed. Raises `ApiError`."""
        try:
            await durable(self.log.when_durable, what)
        except ApiError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            # Clients ask the next controller after this code, and only after this one.
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"whether {what} is stored is not known: this node has stopped deciding meanwhile; "
                f"{self.not_controller().message}",
            ) from error

    @asynccontextmanager
    async def certain_refusals(self) -> AsyncIterator[None]:
        """A refusal may rest on what is decided and not committed. So it is heard when that is, like any answer."""
        try:
            yield
        except ApiError:
            self.check_controller()
            await self.committed("what the answer rests on")
            raise

    def check_controller(self) -> None:
        """First of all: the catalog of another node may be behind, and its refusals wrong."""
        if not self.is_controller:
            raise self.not_controller()

    def not_controller(self) -> ApiError:
        """Why this node does not decide now, for whoever asked it to."""
        failure = self.log.partition.failure if hasattr(self, "log") else None
        if failure is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {failure}")
        controller = self.controller
        who = "nobody, at the moment: its nodes have no majority" if controller is None else f"node {controller}"
        return ApiError(ErrorCode.NOT_CONTROLLER, f"the cluster is controlled by {who}")
