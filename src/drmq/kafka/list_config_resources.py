"""ListConfigResources (74): the topics and brokers, whose settings can be described, and the groups that have set some.

An empty list of types asks for all of them. The other types that Kafka has are empty, because they have no settings in
DRMQ. v0 asks for client metrics only.
"""

from __future__ import annotations

from drmq.broker.services.gate import Operation, on_group, on_topic
from drmq.kafka.config_resources import ResourceType
from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
)

_TYPES_FROM = 1


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types or ResourceType) if context.version >= _TYPES_FROM else set()
    if not wanted <= set(ResourceType):
        # The protocol has no other code for a type that Kafka may add later.
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    catalog = context.services.cluster.catalog
    found: list[ListConfigResourcesResponseResource] = []
    if ResourceType.TOPIC in wanted:
        names = (name for name in sorted(catalog.topics) if context.may(on_topic(Operation.DESCRIBE_CONFIGS, name)))
        found += (ListConfigResourcesResponseResource(name, ResourceType.TOPIC) for name in names)
    if ResourceType.BROKER in wanted:
        found += (
            ListConfigResourcesResponseResource(str(node), ResourceType.BROKER) for node in sorted(catalog.brokers)
        )
    if ResourceType.GROUP in wanted:
        groups = (
            name for name in sorted(catalog.group_configs) if context.may(on_group(Operation.DESCRIBE_CONFIGS, name))
        )
        found += (ListConfigResourcesResponseResource(name, ResourceType.GROUP) for name in groups)
    return ListConfigResourcesResponse(config_resources=found)
