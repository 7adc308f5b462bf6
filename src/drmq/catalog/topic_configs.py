"""The settings of a topic: their names, the allowed values, and the defaults.

Names and meanings are Kafka's, and every setting of Kafka is here. A value is allowed if DRMQ does what it says, also
where it never does anything else. Any other value is refused with the reason: if it were accepted and ignored, its user
would find out too late.

A topic stores the settings that were set on it, as text. `TopicConfig` is the effective result, typed, with the
broker's defaults filled in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from drmq.catalog.config_definitions import (
    INT32_MAX,
    INT64_MAX,
    ConfigDefinition,
    ConfigType,
    boolean,
    check_value,
    number,
    one_of,
    only_false,
    table_of,
    whole_number,
)
from drmq.model import ApiError, ErrorCode
from drmq.records import Codec

_REPLICA = re.compile(r"[0-9]{1,9}:[0-9]{1,9}", re.ASCII)
SEGMENT_BYTES_MIN = 1_024
DEAD_LETTERS_ALLOWED = "errors.deadletterqueue.group.enable"


class TimestampType(IntEnum):
    """Which clock the timestamps of a topic come from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(NamedTuple):
    """How the batches of a topic are compressed, whatever their producers chose."""

    codec: Codec
    level: int | None
    """None for a codec that has no levels."""


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
    segment_jitter_ms: int
    index_interval_bytes: int
    min_insync_replicas: int
    before_max_ms: int
    after_max_ms: int
    """How far timestamps of producers may be behind and ahead of the clock."""
    compression: Compression | None
    """None if batches are kept as their producers compressed them."""

    def check_times(self, first_ms: int, last_ms: int, now_ms: int) -> None:
        """Raise `ApiError` (INVALID_TIMESTAMP) if a timestamp of a batch is too far from the clock; -1 is none."""
        for time_ms, limit_ms, name, where in (
            (first_ms, now_ms - self.before_max_ms, "message.timestamp.before.max.ms", "behind"),
            (last_ms, now_ms + self.after_max_ms, "message.timestamp.after.max.ms", "ahead of"),
        ):
            if time_ms != -1 and (time_ms < limit_ms if where == "behind" else time_ms > limit_ms):
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"timestamp {time_ms} is {abs(time_ms - now_ms)} ms {where} the broker's clock, and {name} allows "
                    f"{abs(limit_ms - now_ms)}; check the producer's clock, or change the setting",
                )


def throttled_replicas(value: str) -> frozenset[tuple[int, int]] | None:
    """The replicas, as pairs of partition and node, that a setting names; None for all (`*`). Raises `ValueError`."""
    if value.strip() == "*":
        return None
    pairs = [item.strip() for item in value.split(",") if item.strip()]
    if not all(_REPLICA.fullmatch(pair) for pair in pairs):
        raise ValueError(value)
    return frozenset((int(pair.partition(":")[0]), int(pair.partition(":")[2])) for pair in pairs)


def _throttled_replicas_problem(value: str) -> str | None:
    try:
        throttled_replicas(value)
    except ValueError:
        return "is not a list of partition:node, such as 0:1,1:2, and not *"
    return None


_SIZE_MAX, _PARTITION_SIZE_MAX = 4_096, 256
"""Characters of all settings of a topic, and what each partition adds: two lists name all of its replicas."""
_KEPT = "producer"
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVEL_NAMES = {codec: f"compression.{codec.name.lower()}.level" for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)}
_NO_COMPACTION = "Has an effect only on compacted topics, which do not exist yet."
_NO_TIERS = "there is no tiered storage"


def _cleanup_policy(value: str) -> str | None:
    """A check that a value is the only policy that is offered."""
    if value == "delete":
        return None
    if "compact" in value.lower():
        return "is not offered: there is no compaction by key yet; the only policy is delete"
    return "is not a policy; the only one is delete, in lower case and given once"


DEFINITIONS: dict[str, ConfigDefinition] = table_of(
    ConfigDefinition(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "log.cleanup.policy",
        "What happens to old records: `delete` removes whole segments by time and size.",
        _cleanup_policy,
    ),
    ConfigDefinition(
        "compression.gzip.level",
        ConfigType.INT,
        "-1",
        "compression.gzip.level",
        "How hard the broker compresses. Has an effect with `compression.type=gzip` only.",
        one_of("-1", *map(str, range(1, 10)), why="gzip has no other levels"),
    ),
    ConfigDefinition(
        "compression.lz4.level",
        ConfigType.INT,
        "9",
        "compression.lz4.level",
        "How hard the broker compresses. Has an effect with `compression.type=lz4` only.",
        whole_number(1, 17),
    ),
    ConfigDefinition(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "compression.type",
        "`producer` keeps batches as their producers compressed them. With a codec, the broker recompresses those that "
        "have another one, which takes processor time.",
        one_of(_KEPT, *_CODECS, why="not all clients know other codecs, and no other names"),
    ),
    ConfigDefinition(
        "compression.zstd.level",
        ConfigType.INT,
        "3",
        "compression.zstd.level",
        "How hard the broker compresses. Has an effect with `compression.type=zstd` only.",
        whole_number(-131_072, 22),
    ),
    ConfigDefinition(
        "delete.retention.ms",
        ConfigType.LONG,
        "86400000",
        "log.cleaner.delete.retention.ms",
        f"How long deletion markers are kept, in ms. {_NO_COMPACTION}",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        DEAD_LETTERS_ALLOWED,
        ConfigType.BOOLEAN,
        "false",
        None,
        "Whether lease groups may write dead letters to the topic. Set on dead-letter topics that the broker creates.",
        boolean,
    ),
    ConfigDefinition(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "0",
        "log.segment.delete.delay.ms",
        "How long a removed segment stays on the disk, in ms: it is deleted at once.",
        one_of("0", why="files of removed segments are deleted at once, and readers that have them open finish"),
    ),
    ConfigDefinition(
        "flush.messages",
        ConfigType.LONG,
        "1",
        "log.flush.interval.messages",
        "Records after which the log is synced. Every value is met: a record is synced before it is seen.",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        "flush.ms",
        ConfigType.LONG,
        "0",
        "log.flush.interval.ms",
        "Time after which the log is synced, in ms. Every value is met: a record is synced before it is seen.",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        None,
        "New replicas that catch up at `follower.replication.throttled.rate`: `partition:node` each, or `*`.",
        _throttled_replicas_problem,
    ),
    ConfigDefinition(
        "index.interval.bytes",
        ConfigType.INT,
        "4096",
        "log.index.interval.bytes",
        "One index entry for about this many bytes of log; takes effect with the next segment.",
        whole_number(64, 1 << 20),
    ),
    ConfigDefinition(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        None,
        "Leaders that send to new replicas at `leader.replication.throttled.rate`: `partition:node` each, or `*`.",
        _throttled_replicas_problem,
    ),
    ConfigDefinition(
        "local.retention.bytes",
        ConfigType.LONG,
        "-2",
        "log.local.retention.bytes",
        "The part of a log that stays on local disks: -2, all that `retention.bytes` keeps.",
        one_of("-2", why=f"{_NO_TIERS}, so retention.bytes decides"),
    ),
    ConfigDefinition(
        "local.retention.ms",
        ConfigType.LONG,
        "-2",
        "log.local.retention.ms",
        "How long records stay on local disks: -2, as long as `retention.ms` keeps them.",
        one_of("-2", why=f"{_NO_TIERS}, so retention.ms decides"),
    ),
    ConfigDefinition(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        str(INT64_MAX),
        "log.cleaner.max.compaction.lag.ms",
        f"How long a record may stay uncompacted, in ms. {_NO_COMPACTION}",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        "max.message.bytes",
        ConfigType.INT,
        "1048588",
        "message.max.bytes",
        "The largest record batch that the topic accepts, in bytes, as sent.",
        whole_number(0, INT32_MAX),
    ),
    ConfigDefinition(
        "message.downconversion.enable",
        ConfigType.BOOLEAN,
        "false",
        "log.message.downconversion.enable",
        "Whether batches are converted to older formats for old clients: they are not.",
        only_false("batches are sent as they are stored, and clients that need older formats are not served"),
    ),
    ConfigDefinition(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far the timestamps of a producer may be ahead of the broker's clock, in ms. "
        "Not checked with `LogAppendTime`.",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        str(INT64_MAX),
        "log.message.timestamp.before.max.ms",
        "How far the timestamps of a producer may be behind the broker's clock, in ms. "
        "Not checked with `LogAppendTime`.",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "`CreateTime` keeps the producer's timestamps, `LogAppendTime` stamps the broker's.",
        one_of("CreateTime", "LogAppendTime", why="there are no other clocks"),
    ),
    ConfigDefinition(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        f"The uncompacted share of a log from which it is compacted. {_NO_COMPACTION}",
        number(0, 1),
    ),
    ConfigDefinition(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        "0",
        "log.cleaner.min.compaction.lag.ms",
        f"How long a record stays uncompacted at least, in ms. {_NO_COMPACTION}",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        "min.insync.replicas",
        ConfigType.INT,
        "1",
        "min.insync.replicas",
        "Replicas that must hold a record before acks=all is answered, beyond the majority that always must.",
        whole_number(1, INT32_MAX),
    ),
    ConfigDefinition(
        "preallocate",
        ConfigType.BOOLEAN,
        "false",
        "log.preallocate",
        "Whether the file of a new segment gets its full size at once: it grows instead.",
        only_false("segment files grow as they are written; the journal takes the small writes"),
    ),
    ConfigDefinition(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        "false",
        None,
        "A setting of tiered storage, which does not exist.",
        only_false(_NO_TIERS),
    ),
    ConfigDefinition(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        "false",
        None,
        "A setting of tiered storage, which does not exist.",
        only_false(_NO_TIERS),
    ),
    ConfigDefinition(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        None,
        "Whether old segments are kept in tiered storage: they are not.",
        only_false(_NO_TIERS),
    ),
    ConfigDefinition(
        "retention.bytes",
        ConfigType.LONG,
        "-1",
        "log.retention.bytes",
        "Size of a partition above which its oldest segments are removed, in bytes; -1 is no limit.",
        whole_number(-1, INT64_MAX),
    ),
    ConfigDefinition(
        "retention.ms",
        ConfigType.LONG,
        "604800000",
        "log.retention.ms",
        "Age of records above which their segment is removed, in ms by record time; -1 is for ever.",
        whole_number(-1, INT64_MAX),
    ),
    ConfigDefinition(
        "segment.bytes",
        ConfigType.INT,
        "268435456",
        "log.segment.bytes",
        "Size at which a partition begins a new segment file.",
        whole_number(SEGMENT_BYTES_MIN, INT32_MAX),
    ),
    ConfigDefinition(
        "segment.index.bytes",
        ConfigType.INT,
        "10485760",
        "log.index.size.max.bytes",
        "The largest index of a segment file. An index has the size that `index.interval.bytes` gives it.",
        one_of("10485760", why="indexes grow with their segments; use segment.bytes and index.interval.bytes"),
    ),
    ConfigDefinition(
        "segment.jitter.ms",
        ConfigType.LONG,
        "0",
        "log.roll.jitter.ms",
        "By how much `segment.ms` is shortened at most, by a different time in each partition.",
        whole_number(0, INT64_MAX),
    ),
    ConfigDefinition(
        "segment.ms",
        ConfigType.LONG,
        "604800000",
        "log.roll.ms",
        "Age at which a partition begins a new segment file even if it is small, in ms.",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "unclean.leader.election.enable",
        "Whether a replica that lacks records may become the leader: never.",
        only_false("a leader has every acknowledged record; a majority of the replicas must be up"),
    ),
)


def check_config(name: str, value: str | None) -> None:
    """Raise `ApiError` (INVALID_CONFIG) unless the setting exists and the value is allowed."""
    check_value(DEFINITIONS, "topic", name, value)


def checked_configs(configs: Mapping[str, str | None], partition_count: int) -> dict[str, str]:
    """The settings of a topic, all of which are allowed. Raises `ApiError` (INVALID_CONFIG)."""
    # First: to look into a list of megabytes takes seconds.
    check_configs_size(configs, partition_count)
    checked: dict[str, str] = {}
    for name, value in configs.items():
        check_config(name, value)
        assert value is not None
        checked[name] = value
    return checked


def check_configs_size(configs: Mapping[str, str | None], partition_count: int) -> None:
    """Raise `ApiError` (INVALID_CONFIG) if the settings of a topic are too long: every node keeps them in memory."""
    size_max = _SIZE_MAX + _PARTITION_SIZE_MAX * partition_count
    size = sum(len(name) + len(value or "") for name, value in configs.items())
    if size > size_max:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the settings have {size} characters; a topic of {partition_count} partitions may have {size_max}",
        )


def takes_dead_letters(configs: Mapping[str, str]) -> bool:
    """Whether the settings of a topic allow that dead letters are written to it."""
    return configs.get(DEAD_LETTERS_ALLOWED, "").lower() == "true"


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


def _compression(texts: Mapping[str, str]) -> Compression | None:
    codec = _CODECS.get(texts["compression.type"])
    if codec is None:
        return None
    level_name = _LEVEL_NAMES.get(codec)
    return Compression(codec, None if level_name is None else int(texts[level_name]))


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
        segment_jitter_ms=int(texts["segment.jitter.ms"]),
        index_interval_bytes=int(texts["index.interval.bytes"]),
        min_insync_replicas=int(texts["min.insync.replicas"]),
        before_max_ms=int(texts["message.timestamp.before.max.ms"]),
        after_max_ms=int(texts["message.timestamp.after.max.ms"]),
        compression=_compression(texts),
    )
