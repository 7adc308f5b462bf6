"""The feature levels that nodes support and their cluster has finalized, and how to finalize a level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drmq.client.brokers import Broker
from drmq.client.cluster import Cluster
from drmq.client.configs import Configs
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, refusal
from drmq.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)

RELEASE_CONFIG = "drmq.release"
"""The read-only setting of a broker that contains its release."""


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """What a node reports about itself. A release from before feature levels reports nothing."""

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized: Mapping[str, int] = field(default_factory=dict)
    finalized_epoch: int = -1
    """Higher means newer; -1 if nothing is reported."""
    release: str | None = None


class Features:
    """Calls about features. Each raises `ClientError` and ends within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, broker: Broker, timeout_s: float) -> NodeFeatures | None:
        """What a node reports; None if it does not answer."""
        try:
            connection = Connection(broker.address, "drmq-cli", Deadline(timeout_s))
        except ClientError:
            return None
        connection.close()
        return NodeFeatures(
            connection.supported_features,
            connection.finalized_features,
            connection.finalized_epoch,
            self._release(broker),
        )

    def _release(self, broker: Broker) -> str | None:
        try:
            settings = Configs(self._cluster).of_broker(broker.node_id)
        except ClientError:
            return None
        return next((setting.value for setting in settings if setting.name == RELEASE_CONFIG), None)

    def finalize(self, levels: Mapping[str, int], *, dry_run: bool = False) -> None:
        """Finalize these levels, or with `dry_run` only check whether that is possible."""
        updates = [UpdateFeaturesRequestFeatureUpdate(feature, level) for feature, level in levels.items()]

        def ask(deadline: Deadline) -> None:
            request = UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run)
            answer = self._cluster.controller(deadline).call(request, UpdateFeaturesResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, "The level is not finalized", answer.error_message)

        self._cluster.retry(ask)
