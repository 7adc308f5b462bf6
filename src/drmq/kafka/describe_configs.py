"""DescribeConfigs (32): the settings of topics, groups and this broker, with their sources and fallbacks.

A broker is named by its node id. The empty name stands for the settings that were set on all brokers at run time. A
list of keys that is null or empty asks for all settings. Keys that do not exist are skipped. A resource that is named
several times is described once, with all the requested keys. A group need not exist. Other resources (loggers) have no
settings in DRMQ.
"""

from __future__ import annotations

from drmq.kafka.config_entries import ConfigEntry, all_brokers_entries, broker_entries, group_entries, topic_entries
from drmq.kafka.config_resources import ResourceType, no_settings
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.model.names import is_group_id
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    resources: dict[tuple[int, str], DescribeConfigsRequestResource] = {}
    wanted: dict[tuple[int, str], set[str] | None] = {}
    """The keys of each resource; None for all."""
    for resource in request.resources:
        place = resource.resource_type, resource.resource_name
        resources.setdefault(place, resource)
        keys = wanted.setdefault(place, set())
        if not resource.configuration_keys:
            wanted[place] = None
        elif keys is not None:
            keys.update(resource.configuration_keys)
    return DescribeConfigsResponse(
        results=[_describe(context, request, resource, wanted[place]) for place, resource in resources.items()]
    )


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsRequestResource, keys: set[str] | None
) -> DescribeConfigsResponseResult:
    result = DescribeConfigsResponseResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(context, resource)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.configs = [_config(entry, request) for entry in entries if keys is None or entry.name in keys]
    return result


def _entries(context: Context, resource: DescribeConfigsRequestResource) -> list[ConfigEntry]:
    broker, name = context.broker, resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        return topic_entries(broker, broker.metadata.committed_catalog.topic(name))
    if resource.resource_type == ResourceType.GROUP:
        if not is_group_id(name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name[:80]!r} is not the name of a group")
        return group_entries(broker, name)
    if resource.resource_type != ResourceType.BROKER:
        raise no_settings(resource)
    if not name:
        return all_brokers_entries(broker)
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}, which does not have the settings of {name!r}; ask that broker",
        )
    assert context.connection is not None
    return broker_entries(broker, context.connection.limits)


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResponseConfig:
    return DescribeConfigsResponseConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[DescribeConfigsResponseSynonym(*each) for each in entry.synonyms] if request.include_synonyms else [],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
