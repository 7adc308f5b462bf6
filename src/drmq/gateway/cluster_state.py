"""The state of a cluster in one value, found by asking its nodes."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from drmq import __version__
from drmq.client import Admin, Broker, ClientError
from drmq.client.health import answering_brokers, observed, unreachable
from drmq.gateway.types import ClusterView, Feature, GatewayAddress

_PROBE_TIMEOUT_S = 2.0
_FEATURES_TIMEOUT_S = 5.0


def cluster_view(
    admin: Admin,
    gateways: Sequence[GatewayAddress],
    answering: Collection[int] | None = None,
    features: list[Feature] | None = None,
) -> ClusterView:
    """The cluster as its nodes describe it now. The nodes that answer, and the features, may be known already."""
    try:
        info = admin.describe_cluster()
        brokers = admin.brokers.all()
        topics = admin.topics.all()
        if answering is None:
            answering = answering_brokers(brokers, _PROBE_TIMEOUT_S)
        health = observed(admin, info.controller_id, brokers, topics, answering)
        if features is None:
            features = _features(admin, brokers)
    except ClientError as error:
        health, info, brokers, topics, features = unreachable(error), None, (), (), []
    return ClusterView(
        cluster_id="" if info is None else info.cluster_id,
        status=health["status"],
        reason=health["reason"],
        controller_id=health["controller"],
        brokers_up=len(health["brokers"]),
        brokers_total=len(brokers),
        topic_count=sum(not topic.is_internal for topic in topics),
        partition_count=sum(len(topic.partitions) for topic in topics),
        leaderless=len(health["leaderless"]),
        under_replicated=len(health["under_replicated"]),
        features=features,
        gateways=list(gateways),
        version=__version__,
        time_ms=int(time.time() * 1000),
    )


def _features(admin: Admin, brokers: Sequence[Broker]) -> list[Feature]:
    for broker in brokers:
        if not broker.is_fenced and (found := admin.features.of(broker, _FEATURES_TIMEOUT_S)) is not None:
            return [Feature(name, level) for name, level in sorted(found.finalized.items())]
    return []
