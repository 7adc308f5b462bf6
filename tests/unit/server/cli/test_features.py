"""`drmq cluster features` and `drmq cluster upgrade` against a scripted cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from drmq.model import ErrorCode
from drmq.server.cli import main
from drmq.wire import ApiKey
from drmq.wire.messages.api_versions import ApiVersionsResponseFinalizedFeature, ApiVersionsResponseSupportedFeature
from drmq.wire.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from drmq.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

from .scripted_cluster import ScriptedCluster, scripted_cluster

Capture = pytest.CaptureFixture[str]
NEW = {"metadata.version": (1, 2), "group.version": (1, 1)}


class Upgraded:
    """Three nodes, some of which are of the new release."""

    def __init__(self, cluster: ScriptedCluster, *new: int) -> None:
        self.cluster = cluster
        self.asked: list[tuple[dict[str, int], bool]] = []
        self.error = ErrorCode.NONE
        self.set_level(1)
        for node_id in cluster.fakes.brokers:
            self.become(node_id, is_new=node_id in new)
        cluster.fakes.answer(ApiKey.UPDATE_FEATURES, self._update)

    def become(self, node_id: int, *, is_new: bool) -> None:
        fake = self.cluster.fakes[node_id]
        ranges = NEW if is_new else {}
        fake.supported_features = [ApiVersionsResponseSupportedFeature(name, *pair) for name, pair in ranges.items()]
        release = [DescribeConfigsResponseConfig(name="drmq.release", value="0.2.0")] if is_new else []
        answer = DescribeConfigsResponse(results=[DescribeConfigsResponseResult(configs=release)])
        fake.answers[ApiKey.DESCRIBE_CONFIGS] = lambda request: answer
        self.set_level(self.level)

    def set_level(self, level: int) -> None:
        self.level = level
        for fake in self.cluster.fakes.brokers.values():
            is_new = bool(fake.supported_features)
            features = {"metadata.version": level, "group.version": 1} if is_new else {}
            fake.finalized_features = [
                ApiVersionsResponseFinalizedFeature(name, each, each) for name, each in features.items()
            ]
            fake.finalized_epoch = 10 * level if is_new else -1

    def _update(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        levels = {update.feature: update.max_version_level for update in request.feature_updates}
        self.asked.append((levels, request.validate_only))
        if self.error:
            return UpdateFeaturesResponse(error_code=self.error, error_message="node 9 is down")
        self.set_level(levels["metadata.version"])
        return UpdateFeaturesResponse()


@pytest.fixture
def three() -> Iterator[ScriptedCluster]:
    with scripted_cluster(3) as cluster:
        cluster.add("orders", [1, 2, 3])
        yield cluster


def ask(capture: Capture, cluster: ScriptedCluster, *arguments: str) -> Any:
    assert main(["cluster", *arguments, "-b", cluster.bootstrap, "-o", "json"]) == 0
    return json.loads(capture.readouterr().out)


def test_features_while_releases_run_side_by_side(three: ScriptedCluster, capsys: Capture) -> None:
    Upgraded(three, 1, 3)
    found = ask(capsys, three, "features")
    assert [(row["feature"], row["finalized"], row["newest"]) for row in found["features"]] == [
        ("metadata.version", 1, 2),
        ("group.version", 1, 1),
        ("share.version", 0, 0),
    ]
    assert found["nodes"] == [
        {
            "node": 1,
            "state": "up",
            "release": "0.2.0",
            "supported": {"metadata.version": [1, 2], "group.version": [1, 1], "share.version": [0, 0]},
        },
        {
            "node": 2,
            "state": "up",
            "release": None,
            "supported": {"metadata.version": [1, 1], "group.version": [1, 1], "share.version": [0, 0]},
        },
        {
            "node": 3,
            "state": "up",
            "release": "0.2.0",
            "supported": {"metadata.version": [1, 2], "group.version": [1, 1], "share.version": [0, 0]},
        },
    ]
    assert found["to_finalize"] == {"metadata.version": 2}
    assert "node 2 runs a release that does not support it; upgrade it first" in found["obstacle"]
    assert main(["cluster", "features", "-b", three.bootstrap]) == 0
    text = capsys.readouterr().out
    assert "1-2" in text
    assert "`drmq cluster upgrade --finalize` would change metadata.version from 1 to 2" in text
    assert "Not possible now: metadata.version cannot go to level 2: node 2 runs a release" in text


def test_features_of_an_older_cluster(three: ScriptedCluster, capsys: Capture) -> None:
    Upgraded(three)
    found = ask(capsys, three, "features")
    assert found["to_finalize"] == {}
    assert main(["cluster", "features", "-b", three.bootstrap]) == 0
    assert "All levels that the nodes support are finalized." in capsys.readouterr().out


def test_upgrade_only_says_what_would_happen(three: ScriptedCluster, capsys: Capture) -> None:
    upgraded = Upgraded(three, 1, 2, 3)
    found = ask(capsys, three, "upgrade")
    assert found == {
        "levels": {"metadata.version": 2, "group.version": 1, "share.version": 0},
        "finalized": False,
        "obstacle": None,
    }
    assert upgraded.asked == []


def test_upgrade_is_finalized(three: ScriptedCluster, capsys: Capture) -> None:
    upgraded = Upgraded(three, 1, 2, 3)
    found = ask(capsys, three, "upgrade", "--finalize", "--yes")
    assert found["finalized"]
    assert upgraded.asked == [({"metadata.version": 2}, False)]
    assert main(["cluster", "upgrade", "-b", three.bootstrap, "--finalize", "--yes"]) == 0
    assert "There is nothing to finalize" in capsys.readouterr().out
    assert len(upgraded.asked) == 1


def test_upgrade_waits_for_the_last_node(three: ScriptedCluster, capsys: Capture) -> None:
    upgraded = Upgraded(three, 1, 2)
    assert main(["cluster", "upgrade", "-b", three.bootstrap, "--finalize", "--yes"]) != 0
    assert "node 3 runs a release that does not support it; upgrade it first" in capsys.readouterr().err
    upgraded.become(3, is_new=True)
    three.fakes[2].close()
    assert main(["cluster", "upgrade", "-b", three.bootstrap, "--finalize", "--yes"]) != 0
    assert "while node 2 is down" in capsys.readouterr().err
    assert upgraded.asked == []


def test_what_the_controller_says_is_told(three: ScriptedCluster, capsys: Capture) -> None:
    upgraded = Upgraded(three, 1, 2, 3)
    upgraded.error = ErrorCode.FEATURE_UPDATE_FAILED
    assert main(["cluster", "upgrade", "-b", three.bootstrap, "--finalize", "--yes"]) != 0
    assert "node 9 is down" in capsys.readouterr().err


def test_upgrade_asks_first(three: ScriptedCluster, capsys: Capture) -> None:
    upgraded = Upgraded(three, 1, 2, 3)
    assert main(["cluster", "upgrade", "-b", three.bootstrap, "--finalize"]) != 0
    assert upgraded.asked == []
