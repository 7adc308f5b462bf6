"""Options are read as Spark's Kafka source reads them, and every mistake is named with its remedy."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import TopicPartition
from drmq.spark.definitions import DEFINITIONS, Use
from drmq.spark.errors import OptionsError
from drmq.spark.options import Where, read_options, table_options, write_options
from drmq.spark.table import ddl
from drmq.spark.times import time_ms

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def problems(options: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(OptionsError) as raised:
        read_options(options, is_stream=is_stream)
    return str(raised.value)


def test_the_least_that_works() -> None:
    """Two options are enough, and the defaults are those of Spark's Kafka source."""
    batch = read_options(BASE, is_stream=False)
    assert batch.selection.topics == ("orders",)
    assert (batch.start, batch.end) == (Where("earliest"), Where("latest"))
    assert batch.fail_on_data_loss
    assert read_options(BASE, is_stream=True).start == Where("latest")
    assert batch.table.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_names_are_the_same_in_any_case() -> None:
    """Spark hands them over in lower case."""
    options = read_options({**BASE, "INCLUDEHEADERS": "TRUE", "maxoffsetspertrigger": "5"}, is_stream=True)
    assert options.table.include_headers
    assert options.rows_per_trigger_max == 5


def test_all_problems_at_once() -> None:
    """A user mends everything in one go."""
    text = problems({"subscrib": "a", "failOnDataLoss": "perhaps", "minPartitions": "0"})
    assert "4 options" in text or "5 options" in text
    assert "`subscrib` is not an option; perhaps you meant `subscribe`" in text
    assert "`kafka.bootstrap.servers` is required" in text
    assert "`failOnDataLoss` is 'perhaps': allowed are true and false" in text
    assert "`minPartitions` is '0'" in text


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("startingOffsets", "latest", "a batch would be empty"),
        ("startingOffsets", "newest", "not JSON"),
        ("startingOffsets", '{"orders":{"0":-3}}', "is not a number of -2 or more"),
        ("startingOffsets", '{"orders":[0]}', 'allowed is JSON like {"topic":{"0":23}}'),
        ("endingOffsets", "earliest", "allowed are latest"),
        ("endingOffsets", '{"orders":{"0":-2}}', "a batch would be empty"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("startingTimestamp", "99999999999999999999", "a time from 1970 to 9999"),
        ("startingTimestamp", "9" * 5000, "a time from 1970 to 9999"),
        ("startingTimestamp", "1969-12-31T23:59:59.999Z", "a time from 1970 to 9999"),
        ("filter", "timestamp >= 99999999999999999", "a time from 1970 to 9999"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-5}}', "is not a number of 0 or more"),
        ("subscribePattern", "(", "not a regular expression"),
        ("assign", '{"orders":0}', 'allowed is JSON like {"topic":[0,1]}'),
        ("assign", '{"orders":[true]}', "is not a partition"),
        ("assign", "{}", "contains no partition"),
        ("maxBytesPerTrigger", "lots", "512k or 64m"),
        ("maxTriggerDelay", "soon", "500ms, 30s"),
        ("timeoutMs", "0", "milliseconds from 1 to 86400000"),
        ("timeoutMs", "86400001", "milliseconds from 1 to 86400000"),
        ("isolationLevel", "none", "read_committed and read_uncommitted"),
        ("columns", "value,ofset", "`ofset`, which is not a column; perhaps you meant `offset`"),
        ("columns", "value,value", "twice"),
        ("valueFormat", "json", "needs `valueSchema`"),
        ("valueSchema", "a int", "`valueFormat` is raw"),
        ("errorColumn", "offset", "already is a column"),
        ("kafka.auto.offset.reset", "earliest", "use `startingOffsets`"),
        ("kafka.sasl.mechanism", "PLAIN", "no encryption and no authentication"),
        ("kafka.security.protocol", "SSL", "no encryption and no authentication"),
        ("kafka.fetch.max.byte", "1", "perhaps you meant `kafka.fetch.max.bytes`"),
        ("kafka.bootstrap.servers", "host:port", "no valid port"),
        ("topic", "orders", "applies to writing only; use `subscribe`"),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(option: str, value: str, words: str) -> None:
    base = {
        name: text for name, text in BASE.items() if option not in ("subscribePattern", "assign") or name != "subscribe"
    }
    text = problems({**base, option: value})
    assert words in text
    assert f"`{option}" in text


def test_selections_exclude_each_other() -> None:
    assert "`subscribe` and `assign` cannot be combined" in problems({**BASE, "assign": '{"orders":[0]}'})
    nothing = {"kafka.bootstrap.servers": "localhost"}
    assert "Set `subscribe`, `subscribePattern` or `assign`" in problems(nothing)


def test_options_of_batches_are_refused_in_streams_and_not_the_other_way_round() -> None:
    """As in Spark's own source: a stream with an end is a mistake, a batch with a limit only a leftover."""
    assert "applies to batches only" in problems({**BASE, "endingOffsets": "latest"}, is_stream=True)
    assert read_options({**BASE, "maxOffsetsPerTrigger": "5"}, is_stream=False).start.kind == "earliest"


def test_settings_of_a_ported_job_are_taken() -> None:
    """Those that tune a poll that is not there change nothing; those with a meaning here have it."""
    options = read_options(
        {
            **BASE,
            "kafka.max.poll.records": "500",
            "kafka.security.protocol": "PLAINTEXT",
            "groupIdPrefix": "x",
            "kafka.group.id": "billing",
            "kafka.isolation.level": "read_uncommitted",
            "kafkaConsumer.pollTimeoutMs": "1",
        },
        is_stream=True,
    )
    assert options.group_id == "billing"
    assert not options.read_committed


def test_places_in_time_and_by_offset() -> None:
    place = TopicPartition("orders", 1)
    by_offset = read_options({**BASE, "startingOffsets": '{"orders":{"1":-2}}'}, is_stream=True)
    assert by_offset.start == Where("offsets", each={place: -2})
    by_time = read_options({**BASE, "startingOffsetsByTimestamp": '{"orders":{"1":77}}'}, is_stream=True)
    assert by_time.start == Where("times", each={place: 77})
    for text in ("1767225600000", "2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01T01:00:00+01:00"):
        at = read_options({**BASE, "startingTimestamp": text, "startingOffsets": "earliest"}, is_stream=False)
        assert at.start == Where("time", 1_767_225_600_000), text


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine in another zone too: driver and workers must not mean different moments."""
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert time.timezone == 5 * 3600
        for text in ("2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00.000"):
            options = {**BASE, "startingTimestamp": text, "endingTimestamp": text}
            found = read_options(options, is_stream=False)
            assert (found.start, found.end) == (Where("time", 1_767_225_600_000),) * 2, text
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("512k", 512 << 10), ("64m", 64 << 20), ("2GB", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert read_options({**BASE, "maxBytesPerTrigger": text}, is_stream=True).bytes_per_trigger_max == size


def test_limits_must_be_possible() -> None:
    text = problems({**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, is_stream=True)
    assert "`minOffsetsPerTrigger` is larger than `maxOffsetsPerTrigger`" in text


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5), st.booleans())
def test_nothing_but_an_options_error(options: dict[str, str], is_stream: bool) -> None:
    """Whatever is written there."""
    with suppress(OptionsError):
        read_options({**BASE, **options}, is_stream=is_stream)
    with suppress(OptionsError):
        write_options({**BASE, **options})


@given(st.sampled_from(sorted(DEFINITIONS)), st.text(max_size=30))
def test_any_value_of_any_option_is_taken_or_refused(name: str, value: str) -> None:
    with suppress(OptionsError):
        read_options({**BASE, name: value}, is_stream=True)


# ---- the table ---------------------------------------------------------------------------------------


def test_the_schema_follows_the_options() -> None:
    assert ddl(table_options({"columns": "offset,value"})) == "struct<`offset`: bigint not null, `value`: binary>"
    assert "`headers`: array<struct<key:string,value:binary>>" in ddl(table_options({"includeHeaders": "true"}))
    parsed = {"valueFormat": "json", "valueSchema": "a int, b string", "columns": "value,oops", "errorColumn": "oops"}
    value = "struct</* the option valueSchema: */ a int, b string>"
    assert ddl(table_options(parsed)) == f"struct<`value`: {value}, `oops`: string>"


# ---- writing -----------------------------------------------------------------------------------------


def test_settings_go_to_the_producer() -> None:
    options = write_options({"kafka.bootstrap.servers": "localhost", "kafka.linger.ms": "50", "topic": "out"})
    assert options.settings == {"linger.ms": "50"}
    assert options.topic == "out"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("subscribe", "applies to reading only"),
        ("topics", "perhaps you meant `topic`"),
        ("kafka.value.serializer", "write binary or string values"),
        ("kafka.transactional.id", "at-least-once"),
    ],
)
def test_a_wrong_option_of_a_write(option: str, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        write_options({"kafka.bootstrap.servers": "localhost", option: "x"})


def test_every_option_counts_somewhere() -> None:
    """No definition is left over: each is accepted by one of the three uses."""
    for definition in DEFINITIONS.values():
        assert definition.use & (Use.READ | Use.WRITE)
        assert definition.doc.endswith(".")


def test_times_are_exact() -> None:
    """To the millisecond, whatever binary fractions make of it; and as late as a text can say."""
    assert time_ms("2023-11-14T22:13:20.001Z") == 1_700_000_000_001
    moments = range(1_700_000_000_000, 1_700_000_003_000)
    texts = [f"2023-11-14T22:13:{20 + ms // 1000 % 10}.{ms % 1000:03}Z" for ms in moments]
    assert [time_ms(text) for text in texts] == list(moments)
    assert time_ms("9999-12-31T23:59:59.999Z") == time_ms("253402300799999") == 253_402_300_799_999


@pytest.mark.parametrize(("text", "seconds"), [("60000", 60), ("1d", 86400), ("15 min", 900), ("500ms", 0.5)])
def test_delays_as_spark_writes_them(text: str, seconds: float) -> None:
    assert read_options({**BASE, "maxTriggerDelay": text}, is_stream=True).trigger_delay_s_max == seconds


def test_acknowledgements_of_one_replica() -> None:
    """Refused when the write is planned, with the setting as it was given and both ways out."""
    given = {"kafka.bootstrap.servers": "localhost", "topic": "orders", "kafka.acks": "1"}
    with pytest.raises(OptionsError, match=r"`kafka.acks` is '1'.*`kafka.enable.idempotence` to false"):
        write_options(given)
    assert write_options({**given, "kafka.enable.idempotence": "false"}).settings["acks"] == "1"
    assert write_options({**given, "kafka.acks": "-1"}).settings["acks"] == "-1"
