"""Settings: a change of a group's is known to all brokers when the call returns."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.client import Admin
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
from support.fake_broker import broker

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
    assert asked_after_change == 4
