"""Settings: a change of a group's is known to all brokers when the call returns."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from drmq.client import Admin, configs
from drmq.wire import ApiKey
from drmq.wire.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from support.fake_broker import broker, fake_cluster
from support.polling import PATIENCE_S

NAME = "share.delivery.count.limit"
DEFAULT, GROUP = 5, 8


def described(value: str, source: int) -> DescribeConfigsResponse:
    config = DescribeConfigsResponseConfig(NAME, value, config_source=source)
    return DescribeConfigsResponse(results=[DescribeConfigsResponseResult(configs=[config])])


@pytest.mark.parametrize(
    ("changes", "resets", "before", "after"),
    [
        ({NAME: "3"}, [], described("5", DEFAULT), described("3", GROUP)),
        ({}, [NAME], described("3", GROUP), described("5", DEFAULT)),
        # The value of a default may be the one that was set.
        ({}, [NAME], described("5", GROUP), described("5", DEFAULT)),
    ],
    ids=["set", "reset", "reset to the same value"],
)
def test_a_change_of_a_group_waits_until_it_is_known(
    changes: dict[str, str], resets: list[str], before: DescribeConfigsResponse, after: DescribeConfigsResponse
) -> None:
    asked_after_change = 0
    is_changed = False

    def alter(request: Any) -> IncrementalAlterConfigsResponse:
        nonlocal is_changed
        is_changed = True
        return IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResponseResource()])

    def describe(request: Any) -> DescribeConfigsResponse:
        nonlocal asked_after_change
        asked_after_change += is_changed
        return after if asked_after_change > 3 else before

    with (
        broker({ApiKey.INCREMENTAL_ALTER_CONFIGS: alter, ApiKey.DESCRIBE_CONFIGS: describe}) as fake,
        Admin(str(fake.address)) as admin,
    ):
        admin.configs.alter_group("crew", changes, resets)
    assert asked_after_change >= 4


def test_a_broker_that_never_answers_does_not_keep_others_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them is asked first."""
    monkeypatch.setattr(configs, "_KNOWN_WITHIN_S", PATIENCE_S)
    is_known = threading.Event()
    looks = 0

    def never(request: Any) -> DescribeConfigsResponse:
        is_known.wait(PATIENCE_S)
        return described("3", GROUP)

    def at_the_third_look(request: Any) -> DescribeConfigsResponse:
        nonlocal looks
        looks += 1
        if looks < 3:
            return described("5", DEFAULT)
        is_known.set()
        return described("3", GROUP)

    with fake_cluster(2) as cluster, Admin(cluster.bootstrap, timeout_s=PATIENCE_S) as admin:
        cluster.answer(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            lambda request: IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResponseResource()]),
        )
        cluster[1].answers[ApiKey.DESCRIBE_CONFIGS] = never
        cluster[2].answers[ApiKey.DESCRIBE_CONFIGS] = at_the_third_look
        admin.configs.alter_group("crew", {NAME: "3"}, [])
    assert is_known.is_set()
