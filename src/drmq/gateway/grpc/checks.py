"""Checks of what requests name, with answers that say what is wrong before the cluster is asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

from drmq.gateway.grpc.status import bad_request

T = TypeVar("T")

TOPIC_LENGTH_MAX: Final = 249
GROUP_LENGTH_MAX: Final = 1_000
TOPICS_MAX: Final = 1_000


def check_topic(name: str) -> None:
    if not 0 < len(name) <= TOPIC_LENGTH_MAX:
        raise bad_request(f"the name of a topic has from 1 to {TOPIC_LENGTH_MAX} characters, and this one {len(name)}")


def check_topics(names: Collection[str]) -> None:
    if not 0 < len(names) <= TOPICS_MAX:
        raise bad_request(f"from 1 to {TOPICS_MAX} topics must be named, and these are {len(names)}")
    for name in names:
        check_topic(name)


def check_group(name: str) -> None:
    if not 0 < len(name) <= GROUP_LENGTH_MAX:
        raise bad_request(f"the name of a group has from 1 to {GROUP_LENGTH_MAX} characters, and this one {len(name)}")


def in_range(value: int, lowest: int, highest: int, name: str) -> int:
    if not lowest <= value <= highest:
        raise bad_request(f"{name} is {value}, and must be from {lowest} to {highest}")
    return value


def converted(values: dict[str, Any], kind: type[T]) -> T:
    """The arguments of an operation of the HTTP door, which shares its checks with this one."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"the request is not valid: {error}") from None
