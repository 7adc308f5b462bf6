"""Feature levels: what the nodes of a cluster may write and send, so that all of them can read it.

A release *supports* a range of levels of each feature, and sends it in every greeting to its peers. The cluster has
*finalized* one level of each, which is a fact in the metadata log. Nothing of a level is written before it is
finalized, so an upgraded node can go back to the release before. Afterwards every node must support the level. A node
that does not is rejected, and the level is never lowered.

`FEATURES` is the complete list; a new feature is one line. Code that depends on a level reads `Catalog.level`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drmq.model import ApiError, ErrorCode, NodeId

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"

TYPED_ENTRIES = 2
"""From this level of `metadata.version` on, own entries of replica groups start with their type."""
BROKER_CONFIGS = 3
"""From this level of `metadata.version` on, settings of brokers are facts."""
GROUP_CONFIGS = 4
"""From this level of `metadata.version` on, settings of groups are facts."""

Ranges = Mapping[str, tuple[int, int]]
"""By name: the lowest and the highest level of each feature that a node supports."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, as this release supports it."""

    name: str
    levels: Mapping[int, str]
    """The supported levels, and what each allows."""
    level_before: int = 0
    """The level of a cluster that has finalized none: that of the releases before feature levels."""

    @property
    def level_min(self) -> int:
        return min(self.levels)

    @property
    def level_max(self) -> int:
        return max(self.levels)


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(
            METADATA_VERSION,
            {
                1: "what releases before feature levels write",
                2: "feature levels as facts, and a type in the replica groups' own entries",
                3: "settings of brokers that are changed at run time",
                4: "settings of groups",
            },
            level_before=1,
        ),
        Feature(GROUP_VERSION, {1: "consumer groups of the classic protocol"}, level_before=1),
        Feature(SHARE_VERSION, {0: "no share groups", 1: "share groups"}),
    )
}
"""By name."""

SUPPORTED: Ranges = {name: (feature.level_min, feature.level_max) for name, feature in FEATURES.items()}
"""What this release supports."""


def level_before(name: str) -> int:
    """The level of a feature in a cluster that has finalized none."""
    feature = FEATURES.get(name)
    return 0 if feature is None else feature.level_before


def supports(ranges: Ranges, name: str, level: int) -> bool:
    """Whether a node with these ranges can be part of a cluster with this level.

    A node that does not mention a feature supports only the level from before feature levels.
    """
    before = level_before(name)
    level_min, level_max = ranges.get(name, (before, before))
    return level_min <= level <= level_max


def unsupported(ranges: Ranges, finalized: Mapping[str, int]) -> str | None:
    """A text about a finalized level that a node with these ranges does not support; None if it supports all."""
    for name, level in finalized.items():
        if not supports(ranges, name, level):
            level_min, level_max = ranges.get(name, (level_before(name), level_before(name)))
            there = str(level_min) if level_min == level_max else f"{level_min} to {level_max}"
            return f"the cluster has finalized level {level} of {name}, and it supports {there}"
    return None


def check_update(
    name: str, level: int, present: int, nodes: Mapping[NodeId, Ranges | None], *, downgrade: bool = False
) -> None:
    """Raise `ApiError` unless the cluster can finalize this level of a feature.

    `nodes` has the ranges of all brokers, and None for a broker that is down, whose release is not known.
    """
    feature = FEATURES.get(name)
    if feature is None:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED, f"there is no feature {name!r}; there are {', '.join(FEATURES)}"
        )
    if level < present:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED if downgrade else ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} is at level {present} and cannot go back to {level}: older releases could not read what was "
            "written since; to return to an older release, restore a backup from before the level was finalized",
        )
    if level == present:
        return
    if level not in feature.levels:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} has levels {feature.level_min} to {feature.level_max} in this release, and {level} was asked for; "
            "upgrade all nodes to a release that has it first",
        )
    away = sorted(node_id for node_id, ranges in nodes.items() if ranges is None)
    if away:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"{name} cannot go to level {level} while {_listed(away)} {_are(away)} down, because an older release "
            f"may come back there; start {_them(away)}, or remove {_them(away)} with `drmq cluster remove`",
        )
    behind = sorted(
        node_id for node_id, ranges in nodes.items() if ranges is not None and not supports(ranges, name, level)
    )
    if behind:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"{name} cannot go to level {level}: {_listed(behind)} {_run(behind)} a release that does not support "
            f"it; upgrade {_them(behind)} first",
        )


def newest_levels(nodes: Sequence[Ranges]) -> dict[str, int]:
    """The first levels of a cluster of these nodes: the newest that all support, without those it has by default."""
    levels = {}
    for feature in FEATURES.values():
        shared = [level for level in feature.levels if all(supports(node, feature.name, level) for node in nodes)]
        level = max(shared, default=feature.level_before)
        if level != feature.level_before:
            levels[feature.name] = level
    return levels


def _listed(nodes: Sequence[NodeId]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))


def _are(nodes: Sequence[NodeId]) -> str:
    return "is" if len(nodes) == 1 else "are"


def _run(nodes: Sequence[NodeId]) -> str:
    return "runs" if len(nodes) == 1 else "run"


def _them(nodes: Sequence[NodeId]) -> str:
    return "it" if len(nodes) == 1 else "them"
