"""Every option of the data source: its name, where it counts, what it may be, and what it means.

The table is the reference as well: `docs/reference/spark-options.md` is made from it, and a test
compares. Reading the values is in `options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto


class Use(Flag):
    """Where an option counts."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()
    READ = BATCH | STREAM


@dataclass(frozen=True, slots=True)
class Definition:
    """One option. `default` is in the user's words; `accepted` says that it is taken and has no effect."""

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
        "`HOST:PORT`, several with commas",
        "required",
        "The brokers to ask first.",
    ),
    Definition(
        "kafka.client.id",
        Use.READ | Use.WRITE,
        "a name",
        "`drmq-spark`",
        "The name under which brokers see the connections.",
    ),
    Definition(
        "timeoutMs",
        Use.READ | Use.WRITE,
        "milliseconds, a day at most",
        "`60000`",
        "How long one call may go without any progress, retries included: a broker that restarts within it is "
        "waited for.",
    ),
    _read("subscribe", "topics with commas", "none", "The topics to read. One of `subscribe`, `subscribePattern` and "
          "`assign` is required."),
    _read("subscribePattern", "a regular expression", "none", "Read every topic whose whole name matches, also those "
          "that are created later."),
    _read("assign", '`{"topic":[0,1]}`', "none", "Read exactly these partitions."),
    _read("startingOffsets", f"`earliest`, `latest` or {_OFFSETS_JSON}", "`latest` in a stream, `earliest` in a batch",
          "Where to begin; in JSON -2 is earliest and -1 latest. In a stream this counts for the first start only, "
          "later ones go on where the checkpoint ends. Partitions that appear later are read from their beginning."),
    _read("startingTimestamp", "milliseconds since 1970, or ISO 8601", "none", "Begin with the first record that "
          "is not "
          "older. Counts before `startingOffsetsByTimestamp`, and that before `startingOffsets`."),
    _read("startingOffsetsByTimestamp", _TIMES_JSON, "none", "The same for each partition."),
    _read("startingOffsetsByTimestampStrategy", "`error` or `latest`", "`error`", "What to do where no record is that "
          "new: fail, or begin at the end."),
    _batch("endingOffsets", f"`latest` or {_OFFSETS_JSON}", "`latest`", "Where to end, before this offset; -1 is "
           "latest."),
    _batch("endingTimestamp", "milliseconds since 1970, or ISO 8601", "none", "End before the first record that is not "
           "older; where there is none, at the end."),
    _batch("endingOffsetsByTimestamp", _TIMES_JSON, "none", "The same for each partition."),
    _read("failOnDataLoss", "`true` or `false`", "`true`", "Whether the query fails when records are gone before it "
          "has read them, or goes on with what is left."),
    _stream("maxOffsetsPerTrigger", "a number", "none", "At most so many offsets in a micro-batch, shared between the "
            "partitions in proportion to what they hold."),
    _stream("maxBytesPerTrigger", "a number, or with `k`, `m`, `g`", "none", "So many bytes on the broker's disk in a "
            "micro-batch: as many records as by the average size in their partition, and fewer where the first or the "
            "last of them are larger."),
    _stream("minOffsetsPerTrigger", "a number", "none", "Wait until so many offsets are there, for "
            "`maxTriggerDelay` at "
            "most. Without meaning for `availableNow` and `once`."),
    _stream("maxTriggerDelay", "`500ms`, `30s`, `15m`, `1h`, `1d`, or milliseconds", "`15m`", "How long "
            "`minOffsetsPerTrigger` may wait."),
    _read("minPartitions", "a number", "none", "Split into at least so many tasks; the longest ranges first."),
    _read("maxRecordsPerPartition", "a number", "none", "At most so many offsets in a task."),
    _read("includeHeaders", "`true` or `false`", "`false`", "Whether there is a column `headers`."),
    _read("isolationLevel", "`read_committed` or `read_uncommitted`", "`read_committed`", "Whether records of open and "
          "aborted transactions are left out. `kafka.isolation.level` is the same."),
    _stream("groupId", "a name", "none", "Commit the progress of the query for this consumer group, so that every tool "
            "for groups shows its lag. The query never joins the group and never reads what is committed. "
            "`kafka.group.id` is the same."),
    _stream("onTopicRecreated", "`fail` or `earliest`", "`fail`", "What to do when a topic was deleted and "
            "created again "
            "under its name: fail, or read the new one from its beginning."),
    _read("columns", "names with commas", "all", "Only these columns, in this order. Spark cannot tell a Python source "
          "which columns a query needs, so this is how to read less."),
    _read("valueFormat", "`raw` or `json`", "`raw`", "With `json` the column `value` is a struct of `valueSchema`."),
    _read("valueSchema", "DDL: `name string, n int`", "none", "The fields of a JSON value. Fields that are not "
          "named are "
          "left out, fields that are missing are null."),
    _read("errorColumn", "a name", "`_error`", "With `valueFormat=json`: why a value could not be parsed; null "
          "where it "
          "could. The row is there either way, with a null `value`."),
    _read("filter", "`offset >= 90 and key = 'DL'`", "none", "Only records that pass, decided before Spark sees them: "
          "comparisons of `topic`, `partition`, `offset`, `timestamp` and `key`, joined with `and`."),
    _read("fetchBytes", "a number, or with `k`, `m`, `g`", "`4m`", "How much to ask a broker for at once, "
          "64 MiB at most. `kafka.max.partition.fetch.bytes` is the same."),
    _write("topic", "a name", "the column `topic`", "Where to write; counts before the column `topic`."),
    _write("includeHeaders", "`true` or `false`", "`true`", "Whether a column `headers` is written."),
    Definition("checkpointLocation", Use.WRITE, "a path", "Spark's own", "Spark's, and only passed on to the sink."),
    _without_effect("groupIdPrefix", "There is no group that could have it: the source never joins one."),
    _without_effect("kafkaConsumer.pollTimeoutMs", "`timeoutMs` is its successor."),
    _without_effect("fetchOffset.numRetries", "Calls are tried again until `timeoutMs`."),
    _without_effect("fetchOffset.retryIntervalMs", "Calls are tried again until `timeoutMs`."),
)  # fmt: skip

DEFINITIONS: dict[str, Definition] = {}
"""By name in lower case, as Spark hands options over. `includeHeaders` counts for reading and writing."""
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
"""Settings of Kafka's consumer that are options here."""

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
"""Settings of Kafka's consumer that tune how it polls. There is none here, so they are taken and change nothing."""

REFUSED_SETTINGS = {
    "kafka.auto.offset.reset": "the source keeps positions itself; use `startingOffsets`",
    "kafka.enable.auto.commit": "the source commits nothing for reading; `groupId` publishes progress",
    "kafka.interceptor.classes": "there is no Java client to run them",
    "kafka.key.deserializer": "keys are binary; cast them with DataFrame operations",
    "kafka.value.deserializer": "values are binary, or parsed with `valueFormat`",
    "kafka.key.serializer": "write binary or string keys",
    "kafka.value.serializer": "write binary or string values",
    "kafka.partitioner.class": "keyed records go where Kafka's own clients send them; or set a column `partition`",
    "kafka.transactional.id": "this sink is at-least-once, and has no transactions yet",
}
"""Settings that cannot be honoured, each with what to do instead."""
