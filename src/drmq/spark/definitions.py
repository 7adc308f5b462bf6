"""Every option of the data source: its name, where it applies, its allowed values, and its meaning.

`docs/reference/spark-options.md` is generated from this table, and a test compares them. `options` parses the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto


class Use(Flag):
    """Where an option applies."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()
    READ = BATCH | STREAM


@dataclass(frozen=True, slots=True)
class Definition:
    """One option. `default` is a text for users; `accepted` means that the option is allowed but has no effect."""

    name: str
    use: Use
    allowed: str
    default: str
    doc: str
    accepted: bool = False


def _read(name: str, allowed: str, default: str, doc: str) -> Definition:
    return Definition(name, Use.READ, allowed, default, doc)


def _batch(name: str, allowed: str, default: str, doc: str) -> Definition:
    return Definition(name, Use.BATCH, allowed, default, doc)


def _stream(name: str, allowed: str, default: str, doc: str) -> Definition:
    return Definition(name, Use.STREAM, allowed, default, doc)


def _write(name: str, allowed: str, default: str, doc: str) -> Definition:
    return Definition(name, Use.WRITE, allowed, default, doc)


def _without_effect(name: str, doc: str) -> Definition:
    return Definition(name, Use.READ | Use.WRITE, "anything", "none", doc, accepted=True)


_OFFSETS_JSON = '`{"topic":{"0":23,"1":-2}}`'
_TIMES_JSON = '`{"topic":{"0":1767225600000}}`'

_ALL = (
    Definition(
        "kafka.bootstrap.servers",
        Use.READ | Use.WRITE,
        "`HOST:PORT`, several separated by commas",
        "required",
        "The brokers to connect to first.",
    ),
    Definition(
        "kafka.client.id",
        Use.READ | Use.WRITE,
        "a name",
        "`drmq-spark`",
        "The client id that brokers see.",
    ),
    Definition(
        "timeoutMs",
        Use.READ | Use.WRITE,
        "milliseconds, at most a day",
        "`60000`",
        "How long one call may take without any progress, including retries: a broker that restarts within this time "
        "is waited for.",
    ),
    _read("subscribe", "topics separated by commas", "none", "The topics to read. One of `subscribe`, "
          "`subscribePattern` and `assign` is required."),
    _read("subscribePattern", "a regular expression", "none", "Read every topic whose whole name matches, including "
          "topics that are created later."),
    _read("assign", '`{"topic":[0,1]}`', "none", "Read exactly these partitions."),
    _read("startingOffsets", f"`earliest`, `latest` or {_OFFSETS_JSON}", "`latest` in a stream, `earliest` in a batch",
          "Where to start. In JSON, -2 is earliest and -1 latest. In a stream this applies to the first start only; "
          "later starts continue from the checkpoint. Partitions that appear later are read from their beginning."),
    _read("startingTimestamp", "milliseconds since 1970, or ISO 8601", "none", "Start with the first record that is "
          "not older. Takes precedence over `startingOffsetsByTimestamp`, which precedes `startingOffsets`."),
    _read("startingOffsetsByTimestamp", _TIMES_JSON, "none", "The same for each partition."),
    _read("startingOffsetsByTimestampStrategy", "`error` or `latest`", "`error`", "What to do in a partition where no "
          "record is that new: fail, or start at the end."),
    _batch("endingOffsets", f"`latest` or {_OFFSETS_JSON}", "`latest`", "Where to stop: before this offset. -1 is "
           "latest."),
    _batch("endingTimestamp", "milliseconds since 1970, or ISO 8601", "none", "Stop before the first record that is "
           "not older; if there is none, at the end."),
    _batch("endingOffsetsByTimestamp", _TIMES_JSON, "none", "The same for each partition."),
    _read("failOnDataLoss", "`true` or `false`", "`true`", "If records were deleted before the query has read them: "
          "fail (true), or continue with the remaining records (false)."),
    _stream("maxOffsetsPerTrigger", "a number", "none", "The maximum number of offsets in a micro-batch, divided among "
            "the partitions in proportion to what they contain."),
    _stream("maxBytesPerTrigger", "a number, optionally with `k`, `m`, `g`", "none", "The size of a micro-batch on the "
            "broker's disk, estimated from the average record size of each partition; fewer records are read if the "
            "first or the last of them are larger than average."),
    _stream("minOffsetsPerTrigger", "a number", "none", "Wait until this number of offsets is available, for at most "
            "`maxTriggerDelay`. Ignored by `availableNow` and `once`."),
    _stream("maxTriggerDelay", "`500ms`, `30s`, `15m`, `1h`, `1d`, or milliseconds", "`15m`", "The longest wait for "
            "`minOffsetsPerTrigger`."),
    _read("minPartitions", "a number", "none", "The minimum number of tasks; the longest ranges are split first."),
    _read("maxRecordsPerPartition", "a number", "none", "The maximum number of offsets in a task."),
    _read("includeHeaders", "`true` or `false`", "`false`", "Whether the table has a column `headers`."),
    _read("isolationLevel", "`read_committed` or `read_uncommitted`", "`read_committed`", "`read_committed` skips the "
          "records of open and aborted transactions. `kafka.isolation.level` is the same."),
    _stream("groupId", "a name", "none", "Commit the progress of the query for this consumer group, so that every tool "
            "for groups shows its lag. The query never joins the group and never reads its committed offsets. "
            "`kafka.group.id` is the same."),
    _stream("onTopicRecreated", "`fail` or `earliest`", "`fail`", "What to do if a topic was deleted and created again "
            "with the same name: fail, or read the new one from its beginning."),
    _read("columns", "names separated by commas", "all", "Read only these columns, in this order. Spark cannot tell a "
          "Python source which columns a query needs, so use this option to read less."),
    _read("valueFormat", "`raw` or `json`", "`raw`", "With `json`, the column `value` is a struct with the fields of "
          "`valueSchema`."),
    _read("valueSchema", "DDL: `name string, n int`", "none", "The fields of a JSON value. Other fields are ignored, "
          "missing fields are null."),
    _read("errorColumn", "a name", "`_error`", "With `valueFormat=json`: a column with the reason why a value could "
          "not be parsed, or null. Rows that cannot be parsed have a null `value`."),
    _read("filter", "`offset >= 90 and key = 'DL'`", "none", "Read only matching records; the others never reach "
          "Spark. Comparisons of `topic`, `partition`, `offset`, `timestamp` and `key`, combined with `and`."),
    _read("fetchBytes", "a number, optionally with `k`, `m`, `g`", "`4m`", "How many bytes to request from a broker at "
          "once, at most 64 MiB. `kafka.max.partition.fetch.bytes` is the same."),
    _write("topic", "a name", "the column `topic`", "The topic to write to; takes precedence over the column `topic`."),
    _write("includeHeaders", "`true` or `false`", "`true`", "Whether the column `headers` is written."),
    Definition("checkpointLocation", Use.WRITE, "a path", "Spark's own", "An option of Spark, not of DRMQ."),
    _without_effect("groupIdPrefix", "The source never joins a group."),
    _without_effect("kafkaConsumer.pollTimeoutMs", "Use `timeoutMs`."),
    _without_effect("fetchOffset.numRetries", "Calls are retried until `timeoutMs`."),
    _without_effect("fetchOffset.retryIntervalMs", "Calls are retried until `timeoutMs`."),
)  # fmt: skip

DEFINITIONS: dict[str, Definition] = {}
"""By name in lower case, as Spark passes options. `includeHeaders` applies to reading and writing."""
for _definition in _ALL:
    _known = DEFINITIONS.get(_definition.name.lower())
    if _known is None:
        DEFINITIONS[_definition.name.lower()] = _definition
    else:
        DEFINITIONS[_definition.name.lower()] = Definition(
            _known.name,
            _known.use | _definition.use,
            _known.allowed,
            f"{_known.default} for reading, {_definition.default} for writing",
            f"{_known.doc} Writing: {_definition.doc[0].lower()}{_definition.doc[1:]}",
        )

ALIASES = {
    "kafka.isolation.level": "isolationlevel",
    "kafka.group.id": "groupid",
    "kafka.max.partition.fetch.bytes": "fetchbytes",
    "kafka.fetch.max.bytes": "fetchbytes",
}
"""Settings of Kafka's consumer that correspond to options here."""

READ_SETTINGS_WITHOUT_EFFECT = frozenset(
    f"kafka.{name}"
    for name in (
        "allow.auto.create.topics",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
    )
)
"""Settings of Kafka's consumer that tune its polling. There is no polling here, so they are accepted and ignored."""

REFUSED_SETTINGS = {
    "kafka.auto.offset.reset": "the source manages positions itself; use `startingOffsets`",
    "kafka.enable.auto.commit": "the source does not read from committed offsets; set `groupId` to publish progress",
    "kafka.interceptor.classes": "there is no Java client that could run them",
    "kafka.key.deserializer": "keys are binary; cast them with DataFrame operations",
    "kafka.value.deserializer": "values are binary, or parsed with `valueFormat`",
    "kafka.key.serializer": "write binary or string keys",
    "kafka.value.serializer": "write binary or string values",
    "kafka.partitioner.class": "records with a key go to the same partitions as with Kafka's own clients; to choose "
    "others, add a column `partition`",
    "kafka.transactional.id": "the sink is at-least-once and does not support transactions yet",
}
"""Settings that cannot be supported, each with the reason or an alternative."""
