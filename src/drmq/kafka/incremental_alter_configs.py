"""IncrementalAlterConfigs (44): change individual settings of topics, brokers and groups, and leave the others.

Set and delete work on every setting, append and subtract only on lists. Appending an item that is in the list, or
subtracting one that is not, changes nothing; nor does deleting a setting that is not set. All changes to one resource
are made together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from drmq.catalog import (
    BROKER_DEFINITIONS,
    DEFINITIONS,
    GROUP_DEFINITIONS,
    ConfigDefinition,
    ConfigType,
    Topic,
    default_texts,
)
from drmq.kafka.config_resources import alter, check_distinct
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)


class ConfigOperation(IntEnum):
    """Operations on a setting, with the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    topics = context.broker.topics

    async def change_topic(resource: IncrementalAlterConfigsRequestResource) -> None:
        check_distinct((config.name for config in resource.configs), "settings")
        defaults = default_texts(topics.defaults)

        def changes(topic: Topic) -> dict[str, str | None]:
            present = {**defaults, **topic.configs}
            return {config.name: _new_value(DEFINITIONS, present, config) for config in resource.configs}

        await topics.derive_configs(resource.resource_name, changes, validate_only=request.validate_only)

    async def change_broker(resource: IncrementalAlterConfigsRequestResource, node_id: NodeId | None) -> None:
        check_distinct((config.name for config in resource.configs), "settings")

        def changes(present: Mapping[str, str]) -> dict[str, str | None]:
            return {config.name: _new_value(BROKER_DEFINITIONS, present, config) for config in resource.configs}

        await topics.derive_broker_configs(node_id, changes, validate_only=request.validate_only)

    async def change_group(resource: IncrementalAlterConfigsRequestResource) -> None:
        check_distinct((config.name for config in resource.configs), "settings")

        def changes(present: Mapping[str, str]) -> dict[str, str | None]:
            return {config.name: _new_value(GROUP_DEFINITIONS, present, config) for config in resource.configs}

        await topics.derive_group_configs(resource.resource_name, changes, validate_only=request.validate_only)

    altered = await alter(request.resources, change_topic, change_broker, change_group)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseResource(each.error, each.message, each.resource_type, each.resource_name)
            for each in altered
        ]
    )


def _new_value(
    definitions: Mapping[str, ConfigDefinition],
    present: Mapping[str, str],
    config: IncrementalAlterConfigsRequestConfig,
) -> str | None:
    """The new value of the setting, or None for its default. Raises `ApiError`."""
    name, value, operation = config.name, config.value, config.config_operation
    if operation == ConfigOperation.DELETE:
        return None
    if operation not in (ConfigOperation.SET, ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is unknown")
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} has no value; to return it to its default, delete it")
    if operation == ConfigOperation.SET:
        return value
    definition = definitions.get(name)
    if definition is None:
        # Refused later, with its name.
        return value
    if definition.type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{name} is not a list, so it has no items to add or remove; set or delete it"
        )
    items, given = _items(present[name]), _items(value)
    # Sets, because a request has room for a million items.
    if operation == ConfigOperation.APPEND:
        known = set(items)
        return ",".join([*items, *(item for item in given if item not in known)])
    gone = set(given)
    return ",".join(item for item in items if item not in gone)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
