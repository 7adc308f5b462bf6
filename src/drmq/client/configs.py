"""Settings of topics, groups and brokers at run time, and changes of those of topics and groups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, refusal
from drmq.client.topics import topic_refusal
from drmq.model import ErrorCode
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    """What a setting belongs to."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


SOURCES = {1: "topic", 2: "broker", 3: "broker default", 4: "broker file", 5: "default", 6: "broker logger", 8: "group"}
"""Where a value comes from, by the protocol's number, in words for a table."""

_SET, _DELETE = 0, 1
_KNOWN_WITHIN_S = 5.0
_KNOWN_LOOK_S = 1.0
"""How long one broker is waited for, so that one that hangs leaves time for the others."""
_KNOWN_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with its value and the origin of the value. A sensitive setting has no value."""

    name: str
    value: str | None
    source: str
    read_only: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class Configs:
    """Calls about settings. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of_topic(self, name: str) -> Sequence[ConfigEntry]:
        """Every setting of a topic, by name."""
        return self._describe(ResourceType.TOPIC, name)

    def of_group(self, group_id: str) -> Sequence[ConfigEntry]:
        """Every setting of a group, by name. A group that does not exist has settings too."""
        return self._describe(ResourceType.GROUP, group_id)

    def of_broker(self, node_id: int) -> Sequence[ConfigEntry]:
        """Every setting of a broker, by name."""
        return self._describe(ResourceType.BROKER, str(node_id))

    def _describe(self, kind: ResourceType, name: str) -> Sequence[ConfigEntry]:
        def ask(deadline: Deadline) -> Sequence[ConfigEntry]:
            resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name)
            request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
            answer = self._right_broker(kind, name, deadline).call(request, DescribeConfigsResponse, deadline)
            found = []
            for result in answer.results:
                if result.error_code:
                    raise _config_refusal(result.error_code, kind, name, result.error_message)
                found += [
                    ConfigEntry(
                        config.name,
                        config.value,
                        SOURCES.get(config.config_source, "unknown"),
                        config.read_only,
                        config.documentation,
                    )
                    for config in result.configs
                ]
            return sorted(found, key=lambda entry: entry.name)

        return self._cluster.retry(ask)

    def _right_broker(self, kind: ResourceType, name: str, deadline: Deadline) -> Connection:
        if kind is ResourceType.BROKER:
            return self._cluster.node(int(name), deadline)
        return self._cluster.any_node(deadline)

    def alter_topic(
        self, name: str, changes: Mapping[str, str], resets: Sequence[str], *, validate_only: bool = False
    ) -> None:
        """Change some settings of a topic and reset others to their defaults."""
        self._alter(ResourceType.TOPIC, name, changes, resets, validate_only)

    def alter_group(
        self, group_id: str, changes: Mapping[str, str], resets: Sequence[str], *, validate_only: bool = False
    ) -> None:
        """Change some settings of a group, which need not exist yet, and reset others to their defaults."""
        self._alter(ResourceType.GROUP, group_id, changes, resets, validate_only)
        if not validate_only:
            self._wait_until_known(group_id, {**changes, **dict.fromkeys(resets)})

    def _wait_until_known(self, group_id: str, wanted: Mapping[str, str | None]) -> None:
        """Wait until all brokers know the settings of a group, or for a moment at most. None stands for a default.

        The leader of a partition decides where a group begins in it. Were it asked before it knows a setting that was
        just changed, the group would begin elsewhere, for good.
        """
        deadline = Deadline(min(_KNOWN_WITHIN_S, self._cluster.deadline().timeout_s))
        waiting = list(self._cluster.brokers())
        while waiting and deadline.left_s() > 0:
            waiting = [node_id for node_id in waiting if not self._is_known_to(node_id, group_id, wanted, deadline)]
            if waiting:
                time.sleep(_KNOWN_POLL_S)

    def _is_known_to(self, node_id: int, group_id: str, wanted: Mapping[str, str | None], deadline: Deadline) -> bool:
        """Whether a broker knows the settings, or is down: then it learns of them when it starts."""
        look = Deadline(min(_KNOWN_LOOK_S, deadline.left_s()))
        request = DescribeConfigsRequest([DescribeConfigsRequestResource(ResourceType.GROUP, group_id, list(wanted))])
        try:
            answer = self._cluster.node(node_id, look).call(request, DescribeConfigsResponse, look)
        except ClientError:
            # One that is down refuses at once. Half of the time is what a connection may take.
            return look.elapsed_s() < look.timeout_s / 2
        known = {
            config.name: config.value
            for result in answer.results
            for config in result.configs
            if SOURCES.get(config.config_source) == "group"
        }
        return all(known.get(name) == value for name, value in wanted.items())

    def _alter(
        self, kind: ResourceType, name: str, changes: Mapping[str, str], resets: Sequence[str], validate_only: bool
    ) -> None:
        if resets:
            # A broker ignores the deletion of a setting that does not exist, but here it is a typing error.
            unknown = set(resets).difference(entry.name for entry in self._describe(kind, name))
            if unknown:
                said = f"unknown {kind.name.lower()} setting {', '.join(sorted(map(repr, unknown)))}"
                raise _config_refusal(ErrorCode.INVALID_CONFIG, kind, name, said)
        configs = [
            IncrementalAlterConfigsRequestConfig(name=key, config_operation=_SET, value=value)
            for key, value in changes.items()
        ]
        configs += [IncrementalAlterConfigsRequestConfig(name=key, config_operation=_DELETE) for key in resets]
        resource = IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=configs)

        def ask(deadline: Deadline) -> None:
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
            answer = self._cluster.controller(deadline).call(request, IncrementalAlterConfigsResponse, deadline)
            for result in answer.responses:
                if result.error_code:
                    raise _config_refusal(result.error_code, kind, name, result.error_message)

        self._cluster.retry(ask)


def _config_refusal(number: int, kind: ResourceType, name: str, said: str | None) -> Exception:
    if kind is ResourceType.TOPIC and number == ErrorCode.INVALID_CONFIG:
        advice = f"`drmq topic describe {name} --all` lists the settings of a topic."
        return refusal(number, f"The settings of topic `{name}` cannot be changed", said, advice)
    if kind is ResourceType.TOPIC:
        return topic_refusal(number, name, said)
    if kind is ResourceType.GROUP:
        advice = f"`drmq group describe {name} --all` lists the settings of a group."
        return refusal(number, f"The settings of group `{name}` cannot be used", said, advice)
    return refusal(number, f"The settings of broker {name} cannot be read", said)
