"""The settings of a lease group: their names, the allowed values, and the defaults.

Names, defaults and limits are Kafka's where Kafka has the setting; those of the backoff curve and of parked records are
DRMQ's own. One default differs: a group that sets nothing writes dead letters, to a topic that is named after it, with
the record copied. So nothing is dropped silently. An empty name of the topic switches them off.

A group stores the settings that were set on it, as text, whether or not it exists yet. `GroupConfig` is the effective
result, typed. A few limits are settings of the whole cluster (`broker_configs`). They are checked when a setting of a
group is made, not later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from drmq.catalog.broker_configs import (
    DEAD_LETTER_PREFIX,
    LOCK_DURATION_MAX,
    LOCK_DURATION_MIN,
    BrokerConfigs,
    cluster_config,
)
from drmq.catalog.config_definitions import (
    ConfigDefinition,
    ConfigType,
    boolean,
    check_value,
    number,
    one_of,
    table_of,
    whole_number,
)
from drmq.catalog.features import GROUP_CONFIGS
from drmq.catalog.records import Fact, GroupConfigsSet
from drmq.model import ApiError, ErrorCode
from drmq.model.names import GROUP_ID_BYTES_MAX, TOPIC_NAME_LENGTH_MAX, is_group_id, is_internal, is_topic_name

GroupConfigs: TypeAlias = Mapping[str, Mapping[str, str]]
"""The settings that were set, by group."""

GROUPS_MAX: Final = 10_000
"""Groups that may have settings of their own: every node keeps them all in memory."""

LOCK_DURATION: Final = "share.record.lock.duration.ms"
DELIVERIES_MAX: Final = "share.delivery.count.limit"
LOCKS_MAX: Final = "share.partition.max.record.locks"
START: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
RENEWS: Final = "share.renew.acknowledge.enable"
HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "share.session.timeout.ms"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY: Final = "errors.deadletterqueue.copy.record.enable"
BACKOFF: Final = "share.retry.backoff.ms"
BACKOFF_FACTOR: Final = "share.retry.backoff.factor"
BACKOFF_MAX: Final = "share.retry.backoff.max.ms"
BACKOFF_JITTER: Final = "share.retry.backoff.jitter"
PARKED_MAX: Final = "share.partition.max.parked.records"

_DAY_MS = 86_400_000
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d{1,5})D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,7})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})(?:\.(?P<part>\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


def _start_age_ms(value: str) -> int | None:
    """How long before now a queue begins, in ms: 0 at the end of the log, None at its start. Raises `ValueError`."""
    if value == "earliest":
        return None
    if value == "latest":
        return 0
    found = _DURATION.fullmatch(value.removeprefix(_BY_DURATION)) if value.startswith(_BY_DURATION) else None
    if found is None:
        raise ValueError(value)
    days, hours, minutes, seconds, part = (found[name] or "0" for name in _DURATION.groupindex)
    whole_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s * 1000 + int(part.ljust(3, "0")[:3])


def _start_problem(value: str) -> str | None:
    try:
        _start_age_ms(value)
    except ValueError:
        return "is not latest, earliest, or by_duration: and a duration such as PT1H or P7D"
    return None


def _dead_letter_topic_problem(value: str) -> str | None:
    if not value:
        return None
    if is_internal(value):
        return "begins with __, which is reserved for internal topics; choose another name"
    if not is_topic_name(value):
        return f"is not the name of a topic: 1 to {TOPIC_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-'"
    return None


def _count(
    name: str,
    default: int,
    first: int,
    last: int,
    doc: str,
    broker_name: str | None = None,
    *,
    is_long: bool = False,
    allowed: str = "",
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        ConfigType.LONG if is_long else ConfigType.INT,
        str(default),
        broker_name,
        doc,
        whole_number(first, last),
        allowed or f"{first} to {last}",
    )


GROUP_DEFINITIONS: dict[str, ConfigDefinition] = table_of(
    _count(
        LOCK_DURATION,
        30_000,
        1_000,
        3_600_000,
        "How long a lease lasts, in ms. After that, a record that was not settled is delivered again.",
        "group.share.record.lock.duration.ms",
        allowed="15000 to 60000, unless the cluster has other limits",
    ),
    _count(
        DELIVERIES_MAX,
        5,
        2,
        10,
        "Deliveries of a record before it is given up. It is checked when a delivery ends: after the limit was "
        "lowered, a record that is available is delivered once more.",
        "group.share.delivery.count.limit",
    ),
    _count(
        LOCKS_MAX,
        10_000,
        100,
        50_000,
        "Records of one partition that are leased at a time, to all members together. Kafka has 2000, which four "
        "fast members use up.",
        "group.share.partition.max.record.locks",
    ),
    ConfigDefinition(
        START,
        ConfigType.STRING,
        "latest",
        None,
        "Where the group begins in a partition that it has not worked on: at the end of the log, at its start, or at "
        "the first record that is not older than a duration. A partition that is added to a topic on which the group "
        "works already begins at its start.",
        _start_problem,
        allowed="`latest`, `earliest`, `by_duration:PnDTnHnMn.nS`",
    ),
    ConfigDefinition(
        ISOLATION,
        ConfigType.STRING,
        "read_uncommitted",
        None,
        "Which records of transactions are delivered. There are no transactions yet, so both values do the same.",
        one_of("read_uncommitted", "read_committed", why="there are no other levels"),
        allowed="`read_uncommitted`, `read_committed`",
    ),
    ConfigDefinition(
        RENEWS,
        ConfigType.BOOLEAN,
        "true",
        None,
        "Whether a member may renew its leases. If not, a renewal is refused with INVALID_RECORD_STATE.",
        boolean,
        allowed="`true`, `false`",
    ),
    _count(
        HEARTBEAT_INTERVAL,
        5_000,
        5_000,
        15_000,
        "How often a member reports to its coordinator, in ms. It learns of a new assignment with a report.",
        "group.share.heartbeat.interval.ms",
    ),
    _count(
        SESSION_TIMEOUT,
        45_000,
        45_000,
        60_000,
        "How long a member may be silent before it is removed from the group, in ms. Its leases end by their own time.",
        "group.share.session.timeout.ms",
    ),
    ConfigDefinition(
        DEAD_LETTER_TOPIC,
        ConfigType.STRING,
        "dlq.GROUP",
        None,
        "The topic for records that are given up. By default its name is the prefix of the cluster "
        f"(`{DEAD_LETTER_PREFIX}`) and the name of the group. If it is set to an empty text, records that are given up "
        "are dropped.",
        _dead_letter_topic_problem,
        allowed="a name that begins with the prefix, or empty",
    ),
    ConfigDefinition(
        DEAD_LETTER_COPY,
        ConfigType.BOOLEAN,
        "true",
        None,
        "Whether a dead letter has the key, the value and the headers of its record. If not, it has only headers that "
        "say where the record is, and why it was given up.",
        boolean,
        allowed="`true`, `false`",
    ),
    _count(
        BACKOFF,
        0,
        0,
        _DAY_MS,
        "How long a record waits after its first failed delivery, in ms. 0: it is available again at once. A record "
        "whose lease ran out does not wait.",
        is_long=True,
    ),
    ConfigDefinition(
        BACKOFF_FACTOR,
        ConfigType.DOUBLE,
        "2.0",
        None,
        "By how much the wait grows with each further failed delivery.",
        number(1, 100),
        allowed="1 to 100",
    ),
    _count(
        BACKOFF_MAX,
        3_600_000,
        0,
        7 * _DAY_MS,
        "The longest wait after a failed delivery, in ms.",
        is_long=True,
    ),
    ConfigDefinition(
        BACKOFF_JITTER,
        ConfigType.DOUBLE,
        "0.2",
        None,
        "The share of a wait that is random, so that records that failed together do not return together.",
        number(0, 1),
        allowed="0 to 1",
    ),
    _count(
        PARKED_MAX,
        100_000,
        1,
        1_000_000,
        "Records of one partition that wait for a retry. While there are as many, no new record is leased from the "
        "partition. Each run of them needs 32 bytes of memory.",
    ),
)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings in effect for one lease group."""

    lock_duration_ms: int
    deliveries_max: int
    locks_max: int
    start_age_ms: int | None
    """How long before now a queue begins, in ms: 0 at the end of the log, None at its start."""
    renews: bool
    heartbeat_interval_ms: int
    session_timeout_ms: int
    dead_letter_topic: str | None
    """None: records that are given up are dropped."""
    copies_dead_letters: bool
    backoff_ms: int
    backoff_factor: float
    backoff_max_ms: int
    backoff_jitter: float
    parked_max: int


def default_dead_letter_topic(prefix: str, group: str) -> str:
    """The dead-letter topic of a group that names none. Characters that no topic name may have are replaced."""
    return (prefix + _ILLEGAL.sub("_", group))[:TOPIC_NAME_LENGTH_MAX]


def default_group_texts(group: str, broker_configs: BrokerConfigs) -> dict[str, str]:
    """The settings of a group that sets nothing itself, by name."""
    texts = {name: definition.default for name, definition in GROUP_DEFINITIONS.items()}
    texts[DEAD_LETTER_TOPIC] = default_dead_letter_topic(cluster_config(broker_configs, DEAD_LETTER_PREFIX), group)
    return texts


def effective_group(group: str, configs: Mapping[str, str], broker_configs: BrokerConfigs) -> GroupConfig:
    """The settings in effect: those of the group, and the defaults for the rest."""
    texts = default_group_texts(group, broker_configs) | dict(configs)
    return GroupConfig(
        lock_duration_ms=int(texts[LOCK_DURATION]),
        deliveries_max=int(texts[DELIVERIES_MAX]),
        locks_max=int(texts[LOCKS_MAX]),
        start_age_ms=_start_age_ms(texts[START]),
        renews=texts[RENEWS].lower() == "true",
        heartbeat_interval_ms=int(texts[HEARTBEAT_INTERVAL]),
        session_timeout_ms=int(texts[SESSION_TIMEOUT]),
        dead_letter_topic=texts[DEAD_LETTER_TOPIC] or None,
        copies_dead_letters=texts[DEAD_LETTER_COPY].lower() == "true",
        backoff_ms=int(texts[BACKOFF]),
        backoff_factor=float(texts[BACKOFF_FACTOR]),
        backoff_max_ms=int(texts[BACKOFF_MAX]),
        backoff_jitter=float(texts[BACKOFF_JITTER]),
        parked_max=int(texts[PARKED_MAX]),
    )


def changed_group_configs(
    present: GroupConfigs,
    level: int,
    broker_configs: BrokerConfigs,
    group: str,
    changes: Mapping[str, str | None],
    *,
    replace_all: bool,
) -> list[Fact]:
    """The facts that change settings of a group, at this level of `metadata.version`. Raises `ApiError`.

    A value of None resets a setting, if it is set. With `replace_all`, so do settings that are not in `changes`.
    """
    if not is_group_id(group):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{group[:80]!r} is no group: a name has 1 to {GROUP_ID_BYTES_MAX} bytes"
        )
    before = dict(present.get(group, {}))
    configs = {} if replace_all else {name: value for name, value in before.items() if name not in changes}
    for name, value in changes.items():
        if value is not None:
            check_value(GROUP_DEFINITIONS, "group", name, value)
            _check_limits(broker_configs, name, value)
            configs[name] = value
    if configs == before:
        return []
    if level < GROUP_CONFIGS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "settings of groups cannot be changed before the upgrade of the cluster is finalized; see "
            "`drmq cluster features`, then `drmq cluster upgrade --finalize`",
        )
    if configs and not before and len(present) >= GROUPS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{GROUPS_MAX} groups have settings of their own, as many as may; reset those of groups that are not used",
        )
    return [GroupConfigsSet(group, configs)]


def _check_limits(broker_configs: BrokerConfigs, name: str, value: str) -> None:
    """Raise `ApiError` if a value is outside the limits that the cluster sets."""
    if name == LOCK_DURATION:
        first, last = (int(cluster_config(broker_configs, each)) for each in (LOCK_DURATION_MIN, LOCK_DURATION_MAX))
        if not first <= int(value) <= last:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{name}={value!r} is outside {first} to {last}, the limits of the cluster ({LOCK_DURATION_MIN} and "
                f"{LOCK_DURATION_MAX}, settings of all brokers)",
            )
    prefix = cluster_config(broker_configs, DEAD_LETTER_PREFIX)
    if name == DEAD_LETTER_TOPIC and value and not value.startswith(prefix):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name}={value!r} does not begin with {prefix!r}, as dead-letter topics of this cluster do "
            f"({DEAD_LETTER_PREFIX}, a setting of all brokers)",
        )


def with_group_configs(present: GroupConfigs, fact: GroupConfigsSet) -> GroupConfigs:
    """The settings after a fact."""
    changed = {group: configs for group, configs in present.items() if group != fact.group_id}
    return changed | {fact.group_id: fact.configs} if fact.configs else changed
