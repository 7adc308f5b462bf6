"""The settings of a topic: their names, the allowed values, and the defaults.

Names and meanings are Kafka's. Only settings that DRMQ honours are listed here. Any other setting is refused: if it
were accepted and ignored, its user would find out too late.

A topic stores the settings that were set on it, as text. `TopicConfig` is the effective result, typed, with the
broker's defaults filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from drmq.model import ApiError, ErrorCode

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
SEGMENT_BYTES_MIN = 1_024


class ConfigType(IntEnum):
    """The type of a setting, with the protocol's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class TimestampType(IntEnum):
    """Which clock the timestamps of a topic come from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The broker's defaults for topics."""

    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    segment_bytes: int = 268_435_456
    segment_ms: int = 604_800_000
    min_insync_replicas: int = 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings in effect for one topic."""

    max_message_bytes: int
    timestamp_type: TimestampType
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One setting: its name, type and default, and the name of its broker-wide form in Kafka's tools."""

    name: str
    type: ConfigType
    default: str
    broker_name: str
    doc: str
    problem: Callable[[str], str | None]
    """Returns what is wrong with a value, or None."""


def _whole_number(first: int, last: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        # Narrower than `int`: "1_000" would be stored as text, and clients could not read it.
        if not _WHOLE_NUMBER.fullmatch(value):
            return "is not a whole number"
        if not first <= int(value) <= last:
            return f"is outside {first} to {last}"
        return None

    return problem


def _one_of(*allowed: str, why: str) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        return None if value in allowed else f"is not {' or '.join(allowed)}: {why}"

    return problem


DEFINITIONS: dict[str, ConfigDefinition] = {
    definition.name: definition
    for definition in (
        ConfigDefinition(
            "cleanup.policy",
            ConfigType.LIST,
            "delete",
            "log.cleanup.policy",
            "What happens to old records: `delete` removes whole segments by time and size.",
            _one_of("delete", why="compaction by key is not offered yet"),
        ),
        ConfigDefinition(
            "compression.type",
            ConfigType.STRING,
            "producer",
            "compression.type",
            "Batches are kept as the producer compressed them.",
            _one_of("producer", why="the broker keeps batches as they came and never recompresses"),
        ),
        ConfigDefinition(
            "index.interval.bytes",
            ConfigType.INT,
            "4096",
            "log.index.interval.bytes",
            "One index entry for about this many bytes of log; takes effect with the next segment.",
            _whole_number(64, 1 << 20),
        ),
        ConfigDefinition(
            "max.message.bytes",
            ConfigType.INT,
            "1048588",
            "message.max.bytes",
            "The largest record batch that the topic accepts, in bytes, as sent.",
            _whole_number(0, _INT32_MAX),
        ),
        ConfigDefinition(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            "log.message.timestamp.type",
            "`CreateTime` keeps the producer's timestamps, `LogAppendTime` stamps the broker's.",
            _one_of("CreateTime", "LogAppendTime", why="there are no other clocks"),
        ),
        ConfigDefinition(
            "min.insync.replicas",
            ConfigType.INT,
            "1",
            "min.insync.replicas",
            "Replicas that must hold a record before acks=all is answered, beyond the majority that always must.",
            _whole_number(1, _INT32_MAX),
        ),
        ConfigDefinition(
            "retention.bytes",
            ConfigType.LONG,
            "-1",
            "log.retention.bytes",
            "Size of a partition above which its oldest segments are removed, in bytes; -1 is no limit.",
            _whole_number(-1, _INT64_MAX),
        ),
        ConfigDefinition(
            "retention.ms",
            ConfigType.LONG,
            "604800000",
            "log.retention.ms",
            "Age of records above which their segment is removed, in ms by record time; -1 is for ever.",
            _whole_number(-1, _INT64_MAX),
        ),
        ConfigDefinition(
            "segment.bytes",
            ConfigType.INT,
            "268435456",
            "log.segment.bytes",
            "Size at which a partition begins a new segment file.",
            _whole_number(SEGMENT_BYTES_MIN, _INT32_MAX),
        ),
        ConfigDefinition(
            "segment.ms",
            ConfigType.LONG,
            "604800000",
            "log.roll.ms",
            "Age at which a partition begins a new segment file even if it is small, in ms.",
            _whole_number(1, _INT64_MAX),
        ),
    )
}


def check_config(name: str, value: str | None) -> None:
    """Raise `ApiError` (INVALID_CONFIG) unless the setting exists and the value is allowed."""
    definition = DEFINITIONS.get(name)
    if definition is None:
        known = ", ".join(DEFINITIONS)
        raise ApiError(ErrorCode.INVALID_CONFIG, f"unknown topic setting {name!r}; known are: {known}")
    if value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} has no value")
    problem = definition.problem(value)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}={value!r} {problem}")


def default_texts(defaults: TopicDefaults) -> dict[str, str]:
    """The settings of a topic that sets nothing itself, by name."""
    texts = {name: definition.default for name, definition in DEFINITIONS.items()}
    texts["max.message.bytes"] = str(defaults.max_message_bytes)
    texts["retention.ms"] = str(defaults.retention_ms)
    texts["retention.bytes"] = str(defaults.retention_bytes)
    texts["segment.bytes"] = str(defaults.segment_bytes)
    texts["segment.ms"] = str(defaults.segment_ms)
    texts["min.insync.replicas"] = str(defaults.min_insync_replicas)
    return texts


def effective(configs: Mapping[str, str], defaults: TopicDefaults) -> TopicConfig:
    """The settings in effect: those of the topic, and the broker's defaults for the rest."""
    texts = default_texts(defaults) | dict(configs)
    append_time = texts["message.timestamp.type"] == "LogAppendTime"
    return TopicConfig(
        max_message_bytes=int(texts["max.message.bytes"]),
        timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
        retention_ms=int(texts["retention.ms"]),
        retention_bytes=int(texts["retention.bytes"]),
        segment_bytes=int(texts["segment.bytes"]),
        segment_ms=int(texts["segment.ms"]),
        index_interval_bytes=int(texts["index.interval.bytes"]),
        min_insync_replicas=int(texts["min.insync.replicas"]),
    )
