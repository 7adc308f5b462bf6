"""The settings in effect of lease groups, on this node.

The catalog has what was set, and every node follows it, so a change takes effect everywhere without a restart. A result
is kept until the catalog's settings change: the settings of a group are needed for every request.
"""

from __future__ import annotations

from collections.abc import Callable

from drmq.catalog import Catalog, GroupConfig, effective_group
from drmq.groups import ShareTiming
from drmq.leases import LeaseOptions

_KEPT_MAX = 10_000
"""Groups whose settings are kept. Clients choose the names of groups."""


class GroupSettings:
    """The settings of lease groups. Used on the event loop."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._seen: tuple[object, object] = (None, None)
        self._kept: dict[str, tuple[GroupConfig, LeaseOptions]] = {}

    def of(self, group: str) -> GroupConfig:
        """The settings of a group."""
        return self._find(group)[0]

    def lease_options_of(self, group: str) -> LeaseOptions:
        """The settings that decide about the leases of a group."""
        return self._find(group)[1]

    def timing_of(self, group: str) -> ShareTiming:
        """The settings that the coordinator of a group needs."""
        config = self._find(group)[0]
        return ShareTiming(config.session_timeout_ms, config.heartbeat_interval_ms)

    def dead_letter_topic_of(self, group: str) -> str | None:
        """Where the dead letters of a group go; None if records that are given up are dropped."""
        return self._find(group)[0].dead_letter_topic

    def copies_dead_letters(self, group: str) -> bool:
        """Whether a dead letter has the key, the value and the headers of its record."""
        return self._find(group)[0].copies_dead_letters

    def _find(self, group: str) -> tuple[GroupConfig, LeaseOptions]:
        catalog = self._catalog()
        if self._seen[0] is not catalog.group_configs or self._seen[1] is not catalog.broker_configs:
            self._seen = (catalog.group_configs, catalog.broker_configs)
            self._kept.clear()
        found = self._kept.get(group)
        if found is None:
            config = effective_group(group, catalog.group_configs.get(group, {}), catalog.broker_configs)
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            found = self._kept[group] = (config, lease_options(config))
        return found


def lease_options(config: GroupConfig) -> LeaseOptions:
    """The part of a group's settings that its queues need."""
    return LeaseOptions(
        duration_ms=config.lock_duration_ms,
        attempts_max=config.deliveries_max,
        leased_max=config.locks_max,
        renews=config.renews,
        backoff_ms=config.backoff_ms,
        backoff_factor=config.backoff_factor,
        backoff_max_ms=config.backoff_max_ms,
        backoff_jitter=config.backoff_jitter,
        parked_max=config.parked_max,
        writes_dead_letters=config.dead_letter_topic is not None,
    )
