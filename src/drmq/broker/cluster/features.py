"""The feature levels of the cluster: what each node supports, and how a level is finalized.

Nodes send what they support in their greetings, so every node knows it of all others. The controller finalizes a level
if every broker is up and supports it. A broker that is down may come back with an older release, which could not read
what was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.options import ClusterOptions
from drmq.catalog import Catalog, Fact
from drmq.catalog.features import FEATURES, SUPPORTED, Ranges, newest_levels
from drmq.model import ApiError, ErrorCode, NodeId, node_of
from drmq.raft import Configuration
from drmq.transport.peers import FeatureRange, Network, NoNetwork


def own_ranges(options: ClusterOptions) -> Ranges:
    """The levels that this node supports. A node that greets like an older release supports no features."""
    return {} if options.greets_as_version_1 else SUPPORTED


def offered(options: ClusterOptions) -> tuple[FeatureRange, ...]:
    """The same, for greetings."""
    return tuple(FeatureRange(name, *levels) for name, levels in own_ranges(options).items())


class Update(NamedTuple):
    """A requested level of a feature."""

    feature: str
    level: int
    may_go_back: bool = False


class FeatureLevels:
    """The features of the nodes that this node knows, and on the controller the levels to change."""

    def __init__(self, node_id: NodeId, metadata: Metadata, options: ClusterOptions) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._own = own_ranges(options)
        self.network: Network = NoNetwork()

    @property
    def supported(self) -> Ranges:
        """What this node supports."""
        return self._own

    def finalized(self) -> dict[str, int]:
        """The level of each feature that this release knows."""
        catalog = self._metadata.committed_catalog
        return {name: level for name in FEATURES if (level := catalog.level(name))}

    @property
    def epoch(self) -> int:
        """The metadata offset that `finalized` is from: higher means newer; -1 before this node has metadata."""
        return self._metadata.applied_offset if self._metadata.is_attached else -1

    def of_brokers(self) -> dict[NodeId, Ranges | None]:
        """What each broker supports; None for brokers that are down."""
        return {node_id: self._ranges_of(node_id) for node_id in self._metadata.catalog.brokers}

    def _ranges_of(self, node_id: NodeId) -> Ranges | None:
        if node_id == self._node_id:
            return self._own
        return self.network.features_of(node_id) if self.network.is_up(node_id) else None

    def to_begin_with(self, configuration: Configuration) -> Mapping[str, int]:
        """The first levels of a cluster that these members form."""
        nodes = {node_of(member) for member in configuration.members} - {self._node_id}
        return newest_levels([self._own, *map(self.network.features_of, sorted(nodes))])

    def check_controller(self) -> None:
        """Raise `ApiError` if the controller runs a release from before feature levels."""
        controller = self._metadata.controller
        if controller is None or controller == self._node_id or self.network.protocol_version(controller) > 1:
            return
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"node {controller}, which is the controller, runs a release from before feature levels; upgrade it first",
        )

    async def update(self, updates: list[Update], *, dry_run: bool) -> None:
        """On the controller: finalize these levels, all or none. Raises `ApiError`."""

        def finalize(catalog: Catalog) -> Sequence[Fact]:
            facts: list[Fact] = []
            nodes = self.of_brokers()
            for update in updates:
                facts += catalog.set_level(update.feature, update.level, nodes, downgrade=update.may_go_back)
            return () if dry_run else facts

        await self._metadata.decide(finalize, "the level of a feature")
