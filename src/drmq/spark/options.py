"""Parses and checks the user's `.option(...)` values, and reports all problems at once, each with its remedy.

The names are those of Spark's own Kafka source, so that a job is ported by changing the name of the format.
`definitions` lists them; this module parses the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from drmq.model import TopicPartition
from drmq.model.address import parse_bootstrap
from drmq.spark.definitions import ALIASES, DEFINITIONS, READ_SETTINGS_WITHOUT_EFFECT, REFUSED_SETTINGS, Use
from drmq.spark.errors import OptionsError
from drmq.spark.filters import EVERYTHING, Filter, parse_filter
from drmq.spark.times import time_ms

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_INT64_MAX = 2**63 - 1
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Where:
    """A position in each partition: one for all (`earliest`, `latest`, a time), or one for each.

    `kind` is `earliest`, `latest`, `time`, `offsets` or `times`; `each` has offsets or times in milliseconds.
    """

    kind: str
    time_ms: int = 0
    each: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read; exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options that determine the columns of the table."""

    columns: tuple[str, ...]
    include_headers: bool
    value_format: str
    value_schema: str | None
    error_column: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a read. Names with `max` or `min` are limits; None is no limit."""

    bootstrap: str
    client_id: str
    timeout_s: float
    selection: Selection
    start: Where
    end: Where
    missing_time_is_latest: bool
    fail_on_data_loss: bool
    rows_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    rows_per_trigger_min: int | None
    trigger_delay_s_max: float
    partitions_min: int | None
    records_per_partition_max: int | None
    read_committed: bool
    group_id: str | None
    fail_on_recreated: bool
    filter: Filter
    fetch_bytes: int
    table: TableOptions


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All options of a write; `settings` is passed to librdkafka unchanged."""

    bootstrap: str
    client_id: str
    timeout_s: float
    topic: str | None
    include_headers: bool
    settings: Mapping[str, str]


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """The options of a read. Raises `OptionsError`."""
    given = _Given(options, Use.STREAM if is_stream else Use.BATCH)
    table = _table(given)
    result = ReadOptions(
        bootstrap=given.bootstrap(),
        client_id=given.get("kafka.client.id", "drmq-spark", str),
        timeout_s=given.get("timeoutMs", 60_000, _timeout_ms) / 1000,
        selection=_selection(given),
        start=_start(given, is_stream),
        end=Where("latest") if is_stream else _end(given),
        missing_time_is_latest=given.get("startingOffsetsByTimestampStrategy", "error", _one_of("error", "latest"))
        == "latest",
        fail_on_data_loss=given.get("failOnDataLoss", True, _boolean),
        rows_per_trigger_max=given.get("maxOffsetsPerTrigger", None, _positive),
        bytes_per_trigger_max=given.get("maxBytesPerTrigger", None, _bytes),
        rows_per_trigger_min=given.get("minOffsetsPerTrigger", None, _positive),
        trigger_delay_s_max=given.get("maxTriggerDelay", 900.0, _duration_s),
        partitions_min=given.get("minPartitions", None, _positive),
        records_per_partition_max=given.get("maxRecordsPerPartition", None, _positive),
        read_committed=given.get("isolationLevel", "read_committed", _one_of("read_committed", "read_uncommitted"))
        == "read_committed",
        group_id=given.get("groupId", None, _name),
        fail_on_recreated=given.get("onTopicRecreated", "fail", _one_of("fail", "earliest")) == "fail",
        filter=given.get("filter", EVERYTHING, parse_filter),
        fetch_bytes=given.get("fetchBytes", 4 << 20, _bytes),
        table=table,
    )
    if (result.rows_per_trigger_min or 0) > (result.rows_per_trigger_max or _INT64_MAX):
        given.problem(
            "`minOffsetsPerTrigger` is larger than `maxOffsetsPerTrigger`, so no batch could have that size. Lower it."
        )
    given.finish()
    return result


def table_options(options: Mapping[str, str]) -> TableOptions:
    """The options that determine the schema. Raises `OptionsError` only for these: a sink has other options."""
    given = _Given(options, Use.READ, check_names=False)
    found = _table(given)
    given.finish()
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write. Raises `OptionsError`."""
    given = _Given(options, Use.WRITE)
    result = WriteOptions(
        bootstrap=given.bootstrap(),
        client_id=given.get("kafka.client.id", "drmq-spark", str),
        timeout_s=given.get("timeoutMs", 60_000, _timeout_ms) / 1000,
        topic=given.get("topic", None, _name),
        include_headers=given.get("includeHeaders", True, _boolean),
        settings=given.kafka_settings(),
    )
    _check_acks(given, result.settings)
    given.finish()
    return result


# ---- groups of options -------------------------------------------------------------------------------


def _table(given: _Given) -> TableOptions:
    include_headers = given.get("includeHeaders", False, _boolean)
    value_format = given.get("valueFormat", "raw", _one_of("raw", "json"))
    value_schema = given.get("valueSchema", None, _name)
    error_column = given.get("errorColumn", "_error", _name)
    default = [name for name in COLUMNS if name != "headers" or include_headers]
    if value_format == "json":
        default.append(error_column)
    columns = given.get("columns", tuple(default), _names)
    known = {*COLUMNS, *([error_column] if value_format == "json" else [])}
    for name in columns:
        if name not in known:
            given.problem(f"`columns` names `{name}`, which is not a column{_did_you_mean(name, known)}.")
    if len(set(columns)) < len(columns):
        given.problem(f"`columns` names a column twice: {','.join(columns)}.")
    if value_format == "json" and value_schema is None:
        given.problem('`valueFormat=json` needs `valueSchema`, such as "origin string, delay int".')
    if value_format == "raw" and value_schema is not None:
        given.problem("`valueSchema` is set, but `valueFormat` is raw. Set `valueFormat` to json.")
    if error_column in COLUMNS:
        given.problem(f"`errorColumn` is `{error_column}`, which already is a column. Choose another name.")
    return TableOptions(columns, include_headers or "headers" in columns, value_format, value_schema, error_column)


def _check_acks(given: _Given, settings: Mapping[str, str]) -> None:
    """Checked here because librdkafka would report it in a task, with the names of its own settings and no remedy."""
    acks = settings.get("acks", settings.get("request.required.acks", "all"))
    if acks not in ("all", "-1") and settings.get("enable.idempotence", "true").lower() != "false":
        given.problem(
            f"`kafka.acks` is {acks!r}, but idempotent writes need all. Leave it out, or set "
            "`kafka.enable.idempotence` to false. Then written records can be lost if a node fails, and others can be "
            "written twice."
        )


def _selection(given: _Given) -> Selection:
    topics = given.get("subscribe", None, _names)
    pattern = given.get("subscribePattern", None, _pattern)
    partitions = given.get("assign", None, _assignment)
    chosen = [
        name
        for name, value in (("subscribe", topics), ("subscribePattern", pattern), ("assign", partitions))
        if value is not None
    ]
    if len(chosen) > 1:
        given.problem(f"`{'` and `'.join(chosen)}` cannot be combined. Keep one.")
    if not chosen and not any(given.has(name) for name in ("subscribe", "subscribePattern", "assign")):
        given.problem("There is nothing to read. Set `subscribe`, `subscribePattern` or `assign`.")
    return Selection(topics or (), pattern, partitions or ())


def _start(given: _Given, is_stream: bool) -> Where:
    default = Where("latest") if is_stream else Where("earliest")
    where = given.get("startingOffsets", default, lambda text: _where(text, ("earliest", "latest")))
    where = given.get("startingOffsetsByTimestamp", where, lambda text: Where("times", each=_per_partition(text, 0)))
    where = given.get("startingTimestamp", where, lambda text: Where("time", time_ms(text)))
    if not is_stream and where.kind == "latest":
        given.problem(
            "`startingOffsets` is latest, so a batch would be empty. Use earliest, offsets or `startingTimestamp`."
        )
    return where


def _end(given: _Given) -> Where:
    where = given.get("endingOffsets", Where("latest"), lambda text: _where(text, ("latest",)))
    if EARLIEST in where.each.values():
        given.problem("`endingOffsets` has -2 (earliest), so a batch would be empty. Use offsets or -1 (latest).")
    where = given.get("endingOffsetsByTimestamp", where, lambda text: Where("times", each=_per_partition(text, 0)))
    return given.get("endingTimestamp", where, lambda text: Where("time", time_ms(text)))


# ---- values ------------------------------------------------------------------------------------------


class _Given:
    """The options of one use. Collects problems instead of raising the first one."""

    def __init__(self, options: Mapping[str, str], use: Use, *, check_names: bool = True) -> None:
        self._values = {str(name).lower(): str(value) for name, value in options.items()}
        self._use = use
        self._problems: list[str] = []
        for alias, name in ALIASES.items():
            if alias in self._values:
                self._values.setdefault(name, self._values[alias])
        if check_names:
            for name in sorted(self._values):
                self._check_name(name)

    def _check_name(self, name: str) -> None:
        if name in ALIASES:
            return
        if name in REFUSED_SETTINGS:
            self.problem(f"`{name}` cannot be set: {REFUSED_SETTINGS[name]}.")
        elif name.startswith(("kafka.sasl.", "kafka.ssl.")) or (
            name == "kafka.security.protocol" and self._values[name].upper() != "PLAINTEXT"
        ):
            self.problem(f"`{name}` is not supported: DRMQ has no encryption and no authentication yet. Leave it out.")
        elif name in DEFINITIONS:
            self._check_use(name)
        elif name.startswith("kafka."):
            if Use.WRITE not in self._use and name not in READ_SETTINGS_WITHOUT_EFFECT | {"kafka.security.protocol"}:
                known = READ_SETTINGS_WITHOUT_EFFECT | {n for n in DEFINITIONS if n.startswith("kafka.")} | set(ALIASES)
                self.problem(f"`{name}` is not a known setting for reading{_did_you_mean(name, known)}.")
        elif name != "path":
            names = {n: d.name for n, d in DEFINITIONS.items() if self._use & d.use}
            self.problem(f"`{name}` is not an option{_did_you_mean(name, names)}.")

    def _check_use(self, name: str) -> None:
        definition = DEFINITIONS[name]
        if definition.accepted or self._use & definition.use:
            return
        if self._use is Use.STREAM and definition.use is Use.BATCH:
            self.problem(f"`{definition.name}` applies to batches only; a stream has no end. Leave it out.")
        elif self._use is Use.WRITE:
            self.problem(f"`{definition.name}` applies to reading only. Leave it out.")
        elif definition.use is Use.WRITE:
            remedy = "use `subscribe`" if name == "topic" else "leave it out"
            self.problem(f"`{definition.name}` applies to writing only; {remedy}.")
        # The remaining case is an option of streams in a batch, which Spark's own source accepts as well.

    def problem(self, text: str) -> None:
        self._problems.append(text)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        """The value of an option, or the default if it is not set or invalid."""
        text = self._values.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ValueError as error:
            self.problem(f"`{name}` is {text!r}: {error}.")
            return default

    def bootstrap(self) -> str:
        text = self._values.get("kafka.bootstrap.servers")
        if text is None:
            self.problem("`kafka.bootstrap.servers` is required: the address of a broker, such as localhost:9092.")
            return ""
        try:
            parse_bootstrap(text)
        except ValueError as error:
            self.problem(f"`kafka.bootstrap.servers` is {text!r}: {error}.")
        return text

    def kafka_settings(self) -> dict[str, str]:
        """The settings for librdkafka: every `kafka.*` setting without its prefix."""
        ours = {"kafka.bootstrap.servers", "kafka.client.id", *ALIASES}
        return {
            name.removeprefix("kafka."): value
            for name, value in self._values.items()
            if name.startswith("kafka.") and name not in ours
        }

    def finish(self) -> None:
        if self._problems:
            raise OptionsError(self._problems)


def _did_you_mean(name: str, known: Mapping[str, str] | set[str] | frozenset[str]) -> str:
    close = get_close_matches(name.lower(), [candidate.lower() for candidate in known], 1, 0.6)
    if not close:
        return ""
    shown = known[close[0]] if isinstance(known, Mapping) else next(k for k in known if k.lower() == close[0])
    return f"; perhaps you meant `{shown}`"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _INT64_MAX):
        raise ValueError("allowed is a whole number above 0")
    return int(text)


def _timeout_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _DAY_MS):
        raise ValueError("allowed are milliseconds from 1 to 86400000, which is a day")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("allowed is a number of bytes above 0, such as 1048576, 512k or 64m")
    return min(_INT64_MAX, int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]])


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"(\d{1,15})\s*(ms|s|m|min|h|d|)", text.lower())
    if match is None:
        raise ValueError("allowed is a duration such as 500ms, 30s, 15m, 1h or 1d; a number alone is milliseconds")
    # A number without a unit is milliseconds, as in Spark's own source.
    return int(match[1]) * {"": 0.001, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[match[2]]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("allowed are true and false")
    return text.lower() == "true"


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"allowed are {' and '.join(allowed)}")
        return text.lower()

    return parse


def _name(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("it is empty")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(_name(text))
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from None
    return text


def _where(text: str, words: tuple[str, ...]) -> Where:
    if text.lower() in ("earliest", "latest"):
        if text.lower() not in words:
            raise ValueError(f"allowed are {' and '.join(words)}, or offsets as JSON")
        return Where(text.lower())
    return Where("offsets", each=_per_partition(text, EARLIEST))


def _per_partition(text: str, smallest: int) -> dict[TopicPartition, int]:
    found = {}
    try:
        for topic, partitions in _json_object(text).items():
            for index, number in partitions.items():
                if isinstance(number, bool) or not isinstance(number, int) or not smallest <= number <= _INT64_MAX:
                    raise ValueError(
                        f"{number!r} of partition {index} of `{topic}` is not a number of {smallest} or more"
                    )
                found[TopicPartition(topic, _partition(index))] = number
    except AttributeError:
        raise ValueError('allowed is JSON like {"topic":{"0":23}}') from None
    return found


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    found = set()
    for topic, indexes in _json_object(text).items():
        if not isinstance(indexes, list):
            raise ValueError('allowed is JSON like {"topic":[0,1]}')
        found |= {TopicPartition(topic, _partition(index)) for index in indexes}
    if not found:
        raise ValueError("it contains no partition")
    return tuple(sorted(found))


def _partition(index: object) -> int:
    text = str(index)
    if isinstance(index, bool) or not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise ValueError(f"{index!r} is not a partition")
    return int(text)


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
