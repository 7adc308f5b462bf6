"""AlterConfigs (33): replace all settings of topics, brokers and groups. Settings that the request leaves out return to
their defaults.

Superseded by IncrementalAlterConfigs, but older clients still send it.
"""

from __future__ import annotations

from drmq.kafka.config_resources import alter, check_distinct
from drmq.kafka.context import Context
from drmq.model import NodeId
from drmq.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    topics = context.broker.topics

    async def replace_topic(resource: AlterConfigsRequestResource) -> None:
        check_distinct((config.name for config in resource.configs), "settings")
        configs = {config.name: config.value for config in resource.configs}
        await topics.set_configs(resource.resource_name, configs, validate_only=request.validate_only)

    async def replace_broker(resource: AlterConfigsRequestResource, node_id: NodeId | None) -> None:
        check_distinct((config.name for config in resource.configs), "settings")
        configs = {config.name: config.value for config in resource.configs}
        await topics.derive_broker_configs(
            node_id, lambda present: configs, replace_all=True, validate_only=request.validate_only
        )

    async def replace_group(resource: AlterConfigsRequestResource) -> None:
        check_distinct((config.name for config in resource.configs), "settings")
        configs = {config.name: config.value for config in resource.configs}
        await topics.derive_group_configs(
            resource.resource_name, lambda present: configs, replace_all=True, validate_only=request.validate_only
        )

    altered = await alter(request.resources, replace_topic, replace_broker, replace_group)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResource(each.error, each.message, each.resource_type, each.resource_name)
            for each in altered
        ]
    )
