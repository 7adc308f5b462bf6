"""Feature levels: who can take part, when a level becomes final, and that there is no way back."""

from __future__ import annotations

import pytest

from drmq.catalog import FEATURES, SUPPORTED, Catalog, FeatureLevelSet, UnknownFact, decode_fact, encode_fact
from drmq.catalog.features import Ranges, newest_levels, supports, unsupported
from drmq.model import ErrorCode, NodeId

from .clusters import of, play, refusal

NEW: Ranges = SUPPORTED
OLD: Ranges = {}
"""Of a release that knew of no features."""


def test_a_cluster_that_has_finalized_nothing_is_at_the_level_of_the_release_before() -> None:
    catalog = Catalog()
    assert catalog.level("metadata.version") == 1
    assert catalog.level("group.version") == 1
    assert catalog.level("share.version") == 0
    assert not any(isinstance(fact, FeatureLevelSet) for fact in catalog.snapshot())


def test_a_level_is_finalized_and_kept() -> None:
    catalog = of(2)
    facts = catalog.set_level("metadata.version", 2, {NodeId(1): NEW, NodeId(2): NEW})
    assert facts == [FeatureLevelSet("metadata.version", 2)]
    assert catalog.level("metadata.version") == 1
    play(catalog, facts)
    restored = Catalog()
    play(restored, catalog.snapshot())
    for each in (catalog, restored, catalog.copy()):
        assert each.level("metadata.version") == 2
        assert each.set_level("metadata.version", 2, {NodeId(1): NEW}) == []


@pytest.mark.parametrize(
    ("feature", "level", "nodes", "code", "text"),
    [
        ("magic.version", 1, {}, ErrorCode.FEATURE_UPDATE_FAILED, "there is no feature 'magic.version'; there are"),
        ("metadata.version", 9, {}, ErrorCode.INVALID_UPDATE_VERSION, "has levels 1 to 4 in this release, and 9 was"),
        (
            "metadata.version",
            2,
            {NodeId(1): NEW, NodeId(2): OLD, NodeId(3): OLD},
            ErrorCode.FEATURE_UPDATE_FAILED,
            "nodes 2, 3 run a release that does not support it; upgrade them first",
        ),
        (
            "metadata.version",
            2,
            {NodeId(1): NEW, NodeId(2): None},
            ErrorCode.FEATURE_UPDATE_FAILED,
            "while node 2 is down, because an older release may come back there; start it, or remove it",
        ),
    ],
)
def test_a_level_that_not_all_can_have_is_refused(
    feature: str, level: int, nodes: dict[NodeId, Ranges | None], code: ErrorCode, text: str
) -> None:
    catalog = of(3)
    refused = refusal(lambda: catalog.set_level(feature, level, nodes))
    assert refused[0] is code
    assert text in refused[1]


@pytest.mark.parametrize("downgrade", [False, True])
def test_there_is_no_way_back(downgrade: bool) -> None:
    catalog = of(1)
    play(catalog, [FeatureLevelSet("metadata.version", 2)])
    _, text = refusal(lambda: catalog.set_level("metadata.version", 1, {NodeId(1): NEW}, downgrade=downgrade))
    assert "is at level 2 and cannot go back to 1" in text
    play(catalog, [FeatureLevelSet("metadata.version", 1)])
    assert catalog.level("metadata.version") == 2


def test_a_new_cluster_begins_with_the_newest_level_that_all_support() -> None:
    newest = {"metadata.version": FEATURES["metadata.version"].level_max, "share.version": 1}
    assert newest_levels([NEW, NEW]) == newest
    assert newest_levels([NEW, OLD]) == {}
    assert newest_levels([NEW, {"metadata.version": (2, 5), "group.version": (1, 3)}]) == {"metadata.version": 4}


def test_who_does_not_support_a_finalized_level_is_told() -> None:
    finalized = {"metadata.version": 2}
    assert unsupported(NEW, finalized) is None
    assert unsupported(OLD, finalized) == "the cluster has finalized level 2 of metadata.version, and it supports 1"
    text = unsupported({"metadata.version": (3, 4)}, finalized)
    assert text == "the cluster has finalized level 2 of metadata.version, and it supports 3 to 4"
    assert supports(OLD, "share.version", 0)
    assert not supports(OLD, "share.version", 1)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (FeatureLevelSet("metadata.version", 5), "knows levels 1 to 4 of it"),
        (FeatureLevelSet("magic.version", 1), "knows no such feature"),
    ],
)
def test_a_level_of_a_later_release_is_not_passed_over(fact: FeatureLevelSet, text: str) -> None:
    with pytest.raises(UnknownFact, match=text):
        decode_fact(encode_fact(fact)[1])
