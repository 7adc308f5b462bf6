"""UpdateFeatures and the features in ApiVersions: levels go up when all nodes support them, and never down."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.catalog import FeatureLevelSet
from drmq.model import ErrorCode, NodeId
from drmq.wire.messages.api_versions import ApiVersionsRequest
from drmq.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesRequestFeatureUpdate
from support.broker_harness import Harness
from support.other_nodes import add_node

LEVEL_2 = UpdateFeaturesRequestFeatureUpdate("metadata.version", 2)


@pytest.fixture
def older(harness: Harness) -> Harness:
    """A cluster of before there were levels."""
    harness.broker.catalog.features.clear()
    harness.broker.metadata.committed_catalog.features.clear()
    return harness


def update(harness: Harness, *updates: UpdateFeaturesRequestFeatureUpdate, version: int = 2, **fields: Any) -> Any:
    return harness.ask(UpdateFeaturesRequest(feature_updates=list(updates), **fields), version=version)


def levels(harness: Harness) -> dict[str, int]:
    answer = harness.ask(ApiVersionsRequest("test", "1"), version=4)
    assert [(each.name, each.min_version, each.max_version) for each in answer.supported_features] == [
        ("metadata.version", 1, 4),
        ("group.version", 1, 1),
        ("share.version", 0, 1),
    ]
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    assert answer.finalized_features_epoch == harness.broker.metadata.applied_offset
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_a_level_is_finalized(older: Harness) -> None:
    assert levels(older) == {"metadata.version": 1, "group.version": 1}
    answer = update(older, LEVEL_2)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert levels(older) == {"metadata.version": 2, "group.version": 1}
    assert update(older, LEVEL_2).error_code == 0, "asked again, it is still so"


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_get_a_result_for_each_feature(older: Harness, version: int) -> None:
    answer = update(older, LEVEL_2, UpdateFeaturesRequestFeatureUpdate("group.version", 1), version=version)
    assert [(each.feature, each.error_code) for each in answer.results] == [
        ("metadata.version", 0),
        ("group.version", 0),
    ]


def test_a_dry_run_changes_nothing(older: Harness) -> None:
    assert update(older, LEVEL_2, validate_only=True).error_code == 0
    assert levels(older)["metadata.version"] == 1
    add_node(older, 2)
    assert update(older, LEVEL_2, validate_only=True).error_code == ErrorCode.FEATURE_UPDATE_FAILED


def test_a_node_that_is_not_there_holds_it_up(older: Harness) -> None:
    add_node(older, 2)
    answer = update(older, LEVEL_2)
    assert answer.error_code == ErrorCode.FEATURE_UPDATE_FAILED
    assert "while node 2 is down" in str(answer.error_message)
    assert levels(older)["metadata.version"] == 1


def test_all_updates_or_none(older: Harness) -> None:
    answer = update(older, LEVEL_2, UpdateFeaturesRequestFeatureUpdate("group.version", 7))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(older)["metadata.version"] == 1


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({}, 2, ErrorCode.INVALID_UPDATE_VERSION),
        ({"upgrade_type": 2}, 2, ErrorCode.FEATURE_UPDATE_FAILED),
        ({"upgrade_type": 3}, 2, ErrorCode.FEATURE_UPDATE_FAILED),
        ({"allow_downgrade": True}, 0, ErrorCode.FEATURE_UPDATE_FAILED),
    ],
)
def test_there_is_no_way_back(harness: Harness, fields: dict[str, Any], version: int, code: ErrorCode) -> None:
    downgrade = UpdateFeaturesRequestFeatureUpdate("metadata.version", 1, **fields)
    answer = update(harness, downgrade, version=version)
    assert answer.error_code == code
    assert "cannot go back" in str(answer.error_message)
    assert levels(harness)["metadata.version"] == 4


@pytest.mark.parametrize(
    ("updates", "code"),
    [
        ([], ErrorCode.INVALID_REQUEST),
        ([LEVEL_2, LEVEL_2], ErrorCode.INVALID_REQUEST),
        ([UpdateFeaturesRequestFeatureUpdate("metadata.version", 2, upgrade_type=9)], ErrorCode.INVALID_UPDATE_VERSION),
        ([UpdateFeaturesRequestFeatureUpdate("magic", 2)], ErrorCode.FEATURE_UPDATE_FAILED),
        ([UpdateFeaturesRequestFeatureUpdate("metadata.version", 0)], ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_requests_that_make_no_sense(
    older: Harness, updates: list[UpdateFeaturesRequestFeatureUpdate], code: ErrorCode
) -> None:
    answer = update(older, *updates)
    assert answer.error_code == code
    assert answer.error_message


def test_only_the_controller_decides(older: Harness) -> None:
    with older.failing(older.broker.metadata.log.partition):
        assert update(older, LEVEL_2).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_controller_of_an_older_release_is_named(older: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(older.broker.metadata), "controller", NodeId(3))
    answer = update(older, LEVEL_2)
    assert answer.error_code == ErrorCode.FEATURE_UPDATE_FAILED
    assert "node 3, which is the controller, runs a release from before feature levels" in answer.error_message


def test_a_finalized_level_is_a_fact(older: Harness) -> None:
    update(older, LEVEL_2)
    assert FeatureLevelSet("metadata.version", 2) in list(older.broker.catalog.snapshot())
