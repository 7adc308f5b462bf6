"""AlterConfigs (33): replace all settings of a topic; settings that the request leaves out return to their defaults.

Superseded by IncrementalAlterConfigs, but older clients still send it.
"""

from __future__ import annotations

from drmq.kafka.config_resources import alter_topics, check_distinct
from drmq.kafka.context import Context
from drmq.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsRequestResource) -> None:
        check_distinct((config.name for config in resource.configs), "settings")
        configs = {config.name: config.value for config in resource.configs}
        await context.broker.topics.set_configs(resource.resource_name, configs, validate_only=request.validate_only)

    altered = await alter_topics(request.resources, replace)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseResource(each.error, each.message, each.resource_type, each.resource_name)
            for each in altered
        ]
    )
