"""Features and their levels: what the nodes of a cluster may write and send, so that all of them can read it.

A release *supports* a range of levels of each feature, and says so in every greeting to its peers. The cluster has
*finalized* one level of each, a fact in the metadata log. Until a level is finalized nothing of it is written, so that
a node that was upgraded can be taken back to the release before. Once it is, every node must support it: one that does
not is refused, and there is no way back.

`FEATURES` is the whole list. A new feature is one line in it; what depends on a level asks `Catalog.level`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drmq.model import ApiError, ErrorCode, NodeId

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"

TYPED_ENTRIES = 2
"""The level of `metadata.version` from which on own entries of replica groups begin with their type."""

Ranges = Mapping[str, tuple[int, int]]
"""By name: the lowest and the highest level of each feature that a node supports."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature as this release knows it."""

    name: str
    levels: Mapping[int, str]
    """Each level that is supported, and what it allows."""
    level_before: int = 0
    """The level of a cluster that has finalized none: what releases did that did not know of features."""

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
            },
            level_before=1,
        ),
        Feature(GROUP_VERSION, {1: "consumer groups whose members agree among themselves"}, level_before=1),
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
    """Whether a node with these ranges can be part of a cluster with this level. One that does not tell of a feature
    does what was done before there was one."""
    before = level_before(name)
    level_min, level_max = ranges.get(name, (before, before))
    return level_min <= level <= level_max


def unsupported(ranges: Ranges, finalized: Mapping[str, int]) -> str | None:
    """Which finalized level a node with these ranges does not support, for people; None if it supports all."""
    for name, level in finalized.items():
        if not supports(ranges, name, level):
            level_min, level_max = ranges.get(name, (level_before(name), level_before(name)))
            there = str(level_min) if level_min == level_max else f"{level_min} to {level_max}"
            return f"the cluster has finalized level {level} of {name}, and it supports {there}"
    return None


def check_update(
    name: str, level: int, present: int, nodes: Mapping[NodeId, Ranges | None], *, downgrade: bool = False
) -> None:
    """Raise `ApiError` unless the cluster can go to this level of a feature.

    `nodes` has all brokers, and what each supports; None for one that is not there, of which nobody knows.
    """
    feature = FEATURES.get(name)
    if feature is None:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED, f"there is no feature {name!r}; there are {', '.join(FEATURES)}"
        )
    if level < present:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED if downgrade else ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} is at level {present} and cannot go back to {level}: what was written since could not be read; "
            "to go back to an older release, restore a backup from before the level was finalized",
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
            f"{name} cannot go to level {level} while {_listed(away)} {_are(away)} down: nobody knows which release "
            f"comes back; start {_them(away)}, or remove {_them(away)} with `drmq cluster remove`",
        )
    behind = sorted(
        node_id for node_id, ranges in nodes.items() if ranges is not None and not supports(ranges, name, level)
    )
    if behind:
        raise ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"{name} cannot go to level {level}: {_listed(behind)} {_are(behind)} of a release that does not support "
            f"it; upgrade {_them(behind)} first",
        )


def newest_levels(nodes: Sequence[Ranges]) -> dict[str, int]:
    """The levels with which a cluster of these nodes begins: the newest that all support, where that is not the one
    that it would have anyway."""
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


def _them(nodes: Sequence[NodeId]) -> str:
    return "it" if len(nodes) == 1 else "them"
