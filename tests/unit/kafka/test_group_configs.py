"""Groups as resources of the config APIs: described, changed one by one or all at once, and listed."""

from __future__ import annotations

import pytest

from drmq.catalog import GROUP_DEFINITIONS
from drmq.kafka.config_entries import ConfigSource
from drmq.kafka.config_resources import ResourceType
from drmq.kafka.incremental_alter_configs import ConfigOperation
from drmq.model import ErrorCode
from drmq.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseConfig,
)
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from drmq.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.broker_harness import Harness
from support.share_requests import set_configs, set_group

LIMIT = "share.delivery.count.limit"
TOPIC_NAME = "errors.deadletterqueue.topic.name"


def describe(harness: Harness, group: str, *keys: str) -> dict[str, DescribeConfigsResponseConfig]:
    resource = DescribeConfigsRequestResource(ResourceType.GROUP, group, list(keys) or None)
    [result] = harness.ask(DescribeConfigsRequest([resource], include_synonyms=True)).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def test_a_group_that_nobody_knows_has_the_defaults(harness: Harness) -> None:
    """Settings are made before the group exists: where it begins is decided when its first member comes."""
    configs = describe(harness, "billing")
    assert configs.keys() == GROUP_DEFINITIONS.keys()
    assert configs[LIMIT].value == "5"
    assert configs[TOPIC_NAME].value == "dlq.billing"
    assert {config.config_source for config in configs.values()} == {ConfigSource.DEFAULT}
    assert not any(config.read_only for config in configs.values())


def test_a_value_of_the_group_goes_before_the_default(harness: Harness) -> None:
    set_group(harness, share_delivery_count_limit="3", errors_deadletterqueue_topic_name="")
    configs = describe(harness, "billing", LIMIT, TOPIC_NAME)
    assert [(each.name, each.value, each.source) for each in configs[LIMIT].synonyms] == [
        (LIMIT, "3", ConfigSource.GROUP),
        ("group.share.delivery.count.limit", "5", ConfigSource.DEFAULT),
    ]
    assert (configs[TOPIC_NAME].value, configs[TOPIC_NAME].config_source) == ("", ConfigSource.GROUP)
    set_group(harness, share_delivery_count_limit=None)
    assert describe(harness, "billing", LIMIT)[LIMIT].value == "5"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such", ConfigOperation.SET, "1")], ErrorCode.INVALID_CONFIG),
        ([(LIMIT, ConfigOperation.SET, "1")], ErrorCode.INVALID_CONFIG),
        ([(LIMIT, ConfigOperation.APPEND, "3")], ErrorCode.INVALID_CONFIG),
        ([(LIMIT, ConfigOperation.SET, None)], ErrorCode.INVALID_REQUEST),
        ([(LIMIT, ConfigOperation.SET, "3"), (LIMIT, ConfigOperation.DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_bad_change_undoes_all_of_its_group(
    harness: Harness, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    good = ("share.auto.offset.reset", ConfigOperation.SET, "earliest")
    configs = [IncrementalAlterConfigsRequestConfig(*each) for each in (good, *changes)]
    resource = IncrementalAlterConfigsRequestResource(ResourceType.GROUP, "billing", configs)
    [answer] = harness.ask(IncrementalAlterConfigsRequest([resource], False)).responses
    assert answer.error_code == code
    assert answer.error_message
    assert harness.broker.catalog.group_configs == {}


def test_all_settings_are_replaced_at_once(harness: Harness) -> None:
    set_group(harness, share_delivery_count_limit="3")
    configs = [AlterConfigsRequestConfig("share.auto.offset.reset", "earliest")]
    request = AlterConfigsRequest([AlterConfigsRequestResource(ResourceType.GROUP, "billing", configs)], True)
    assert [each.error_code for each in harness.ask(request).responses] == [0]
    assert harness.broker.catalog.group_configs == {"billing": {LIMIT: "3"}}, "it was only checked"
    request.validate_only = False
    assert [each.error_code for each in harness.ask(request).responses] == [0]
    assert harness.broker.catalog.group_configs == {"billing": {"share.auto.offset.reset": "earliest"}}


def test_groups_that_have_set_something_are_listed(harness: Harness) -> None:
    for group in ("shipping", "billing"):
        set_group(harness, group, share_delivery_count_limit="3")
    found = harness.ask(ListConfigResourcesRequest([ResourceType.GROUP])).config_resources
    assert [(each.resource_name, each.resource_type) for each in found] == [("billing", 32), ("shipping", 32)]
    set_group(harness, "shipping", share_delivery_count_limit=None)
    found = harness.ask(ListConfigResourcesRequest([ResourceType.GROUP])).config_resources
    assert [each.resource_name for each in found] == ["billing"]


@pytest.mark.parametrize("group", ["", "x" * 1_025])
def test_what_cannot_be_a_group_has_no_settings(harness: Harness, group: str) -> None:
    answer = set_configs(harness, ResourceType.GROUP, group, {LIMIT: "3"})
    assert answer.error_code == ErrorCode.INVALID_REQUEST
