"""The resources that have settings, and the rules that AlterConfigs and IncrementalAlterConfigs share.

The settings of topics and groups, and a few of brokers, can be changed while a node runs. A broker is named by its node
id, and all brokers by the empty name. A group need not exist. A resource that a request names twice is refused as a
whole, and so is a resource with a setting named twice, because it is not clear which of the two is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from drmq.model import ApiError, ErrorCode, NodeId

_NODE_ID_DIGITS_MAX = 10


class ResourceType(IntEnum):
    """Kinds of resources, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """The fields that the resources of all config requests have in common."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class Altered(NamedTuple):
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def alter(
    resources: Sequence[R],
    change_topic: Callable[[R], Awaitable[None]],
    change_broker: Callable[[R, NodeId | None], Awaitable[None]],
    change_group: Callable[[R], Awaitable[None]],
) -> list[Altered]:
    """Change each resource: a topic, a broker (for None all brokers), or a group.

    `ApiError`s become errors in the result.
    """
    results = []
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        count = named.pop(key, 0)
        if not count:
            continue
        try:
            if count > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"{resource.resource_name!r} is in the request {count} times; name it once",
                )
            if resource.resource_type == ResourceType.TOPIC:
                await change_topic(resource)
            elif resource.resource_type == ResourceType.BROKER:
                await change_broker(resource, broker_named(resource.resource_name))
            elif resource.resource_type == ResourceType.GROUP:
                await change_group(resource)
            else:
                raise no_settings(resource)
        except ApiError as error:
            results.append(Altered(*key, error.code, error.message))
        else:
            results.append(Altered(*key))
    return results


def check_distinct(names: Iterable[str], what: str) -> None:
    """Raise `ApiError` (INVALID_REQUEST) if a name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} given more than once: {', '.join(repeated)}; give each once")


def broker_named(name: str) -> NodeId | None:
    """The broker that a resource names, or None for all brokers. Raises `ApiError`."""
    if name and not (name.isascii() and name.isdigit() and len(name) <= _NODE_ID_DIGITS_MAX):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name!r} is no broker: give a node id, or nothing for all brokers")
    return NodeId(int(name)) if name else None


def no_settings(resource: Resource) -> ApiError:
    """The error for a resource that can be neither described nor changed."""
    try:
        kind = ResourceType(resource.resource_type).name.lower().replace("_", " ")
    except ValueError:
        return ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is unknown")
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {kind!r} have no settings in DRMQ; only topics, brokers and groups have",
    )
