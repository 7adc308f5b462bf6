"""What a user sees when something is wrong: the reason, in words that name option and remedy, and not a wall of frames.

Spark prints an error of a Python source with all frames, twice. Here every mistake is made through a real session, and
what comes back is looked at as a person would: where is the reason, and how much stands around it?
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

import drmq
from drmq.model import Offset, TopicId, topic_id_text
from drmq.records import Record, encode_batch
from drmq.spark import sink
from drmq.spark.errors import FetchFailed
from drmq.spark.offsets import Range
from drmq.spark.options import read_options
from drmq.spark.reading import read_range
from drmq.spark.shell import reason_of
from drmq.wire import ApiKey
from drmq.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from support.fake_broker import FakeBroker

from .conftest import QUERY_TIMEOUT_S, Collected, Topics

NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1"}
OUR_PACKAGE = f"{Path(drmq.__file__).parent}/"
"""In the path of each of our frames. The clone may be in a directory of that name as well."""
OUR_FRAMES_MAX = 1


def failure(action: Callable[[], Any]) -> str:
    """What Spark says, after a look at how it says it."""
    with pytest.raises(PySparkException) as raised:
        action()
    text = str(raised.value)
    assert "During handling of the above exception" not in text
    assert text.count(OUR_PACKAGE) <= OUR_FRAMES_MAX, "frames of ours that help nobody"
    # The prompt of `drmq spark shell` shows only this.
    reason = reason_of(raised.value)
    assert reason is not None, text
    assert reason in text
    return reason


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"TOPIC":{"0":1'}, '`startingOffsets` is \'{"TOPIC":{"0":1\': not JSON'),
        ({"startingOffsets": '{"TOPIC":{"0":999}}'}, "which has offsets from 0 to 5. Choose one of these"),
        ({"startingOffsets": '{"TOPIC":{"1":0}}'}, "It must contain every partition"),
        ({"subscribe": "nowhere"}, "Topic `nowhere` does not exist"),
        ({"assign": '{"TOPIC":[0]}', "subscribe": "TOPIC"}, "`subscribe` and `assign` cannot be combined. Keep one"),
        ({"assign": '{"TOPIC":[7]}'}, "`assign` contains partition 7"),
        (NOWHERE, "Cannot connect to 127.0.0.1:1: Connection refused. Is a broker running there? `kafka.bootstrap"),
        ({"timeoutMs": "9" * 15}, "allowed are milliseconds from 1 to 86400000"),
        ({"maxRecordsPerPartition": "-1"}, "`maxRecordsPerPartition` is '-1': allowed is a whole number above 0"),
        ({"valueFormat": "json", "valueSchema": "a interval"}, "`valueSchema` contains interval, which cannot be read"),
        ({"valueFormat": "json", "valueSchema": "a int, m array<struct<x: map<string, int>>>"}, "contains map<string,"),
        ({"valueFormat": "json", "valueSchema": "a varchar(3)"}, "`valueSchema` contains varchar(3)"),
        ({"filter": "value = 3"}, "`value` is not one of topic, partition, offset, timestamp, key"),
    ],
)
def test_a_batch_that_cannot_be_read(topics: Topics, options: dict[str, str], words: str) -> None:
    topic = topics.create()
    topics.fill(topic, 5)
    options = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    words = words.replace("TOPIC", topic)
    assert words in failure(lambda: topics.read(topic, **options).collect())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetsPerTrigger": "-1"}, "`maxOffsetsPerTrigger` is '-1': allowed is a whole number above 0"),
        ({"maxOfsetsPerTrigger": "5"}, "perhaps you meant `maxOffsetsPerTrigger`"),
        ({"endingOffsets": "latest"}, "applies to batches only; a stream has no end"),
        ({"subscribe": "nowhere"}, "Topic `nowhere` does not exist"),
        (NOWHERE, "Cannot connect to 127.0.0.1:1"),
        ({"valueFormat": "json", "valueSchema": "m map<string, int>"}, "`valueSchema` contains map<string,int>"),
    ],
)
def test_a_stream_that_cannot_start(
    topics: Topics, collect: Callable[..., Collected], options: dict[str, str], words: str
) -> None:
    """Spark would add a complaint of its own behind ours if the reader could not even be made."""
    topic = topics.create()
    assert words in failure(lambda: collect(topics.stream(topic, **options)).finish())


def test_a_schema_that_is_none(topics: Topics) -> None:
    """Spark parses it before we are asked anything; it points at the place, beside which the option's name stands."""
    topic = topics.create()
    with pytest.raises(PySparkException) as raised:
        topics.read(topic, valueFormat="json", valueSchema="name string, n intt").collect()
    text = str(raised.value)
    assert '"INTT"' in text
    assert "/* the option valueSchema: */ name string, n intt" in text


HEADERS = "array(named_struct('key', cast(null AS string), 'value', cast('x' AS binary))) AS headers"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["'a' AS value", "77 AS partition"], {}, "`drmq topic describe TOPIC` lists its partitions"),
        (["'a' AS value", "-1 AS partition"], {}, "A row has -1 in the column `partition`. Use null"),
        (["'a' AS value", HEADERS], {}, "A row has a header without a name"),
        (["repeat('a', 2000000) AS value"], {}, "`kafka.message.max.bytes` (1000000 if it is not set)"),
        (["'a' AS value"], {"topic": "a b"}, "Topic names consist of letters, digits"),
        (
            ["'a' AS value"],
            {**NOWHERE, "timeoutMs": "3000"},
            "Is there a broker at 127.0.0.1:1, and does the topic exist?",
        ),
        (["1 AS n"], {}, "The DataFrame has no column `value`, only n."),
    ],
)
def test_a_write_that_fails(topics: Topics, columns: list[str], options: dict[str, str], words: str) -> None:
    topic = topics.create()
    chosen = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "timeoutMs": "20000", **options}
    writer = topics.spark.range(1).selectExpr(*columns).write.format("drmq").options(**chosen).mode("append")
    assert words.replace("TOPIC", topic) in failure(writer.save)
    assert topics.read(topic).count() == 0


def test_a_bad_topic_name_is_named_whichever_error_librdkafka_reports() -> None:
    """The broker's refusal can arrive before `produce` returns, which then raises "unknown topic"."""
    for code in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC):
        assert "Topic names consist of letters" in sink._advice(code, "a b", None, "127.0.0.1:1")
    assert "does the topic exist?" in sink._advice(KafkaError._UNKNOWN_TOPIC, "ab", None, "127.0.0.1:1")


def test_other_errors_of_spark_are_left_to_spark(topics: Topics) -> None:
    """The prompt shortens what is ours, and nothing else."""
    with pytest.raises(PySparkException) as raised:
        topics.spark.sql("select nothing from nowhere").collect()
    assert reason_of(raised.value) is None
    assert reason_of(ValueError("drmq.spark.errors.FetchFailed: x")) is None


def test_update_mode_is_named(topics: Topics, tmp_path: Path) -> None:
    """Spark refuses it by itself; what it says must at least name the mode and the sink."""
    source, target = topics.create(), topics.create()
    topics.fill(source, 1)
    counted = topics.stream(source).groupBy("partition").count().selectExpr("cast(count AS string) AS value")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target, "checkpointLocation": str(tmp_path / "c")}
    query = counted.writeStream.format("drmq").options(**options).outputMode("update").trigger(availableNow=True)
    with pytest.raises(PySparkException, match="drmq does not support Update mode"):
        query.start().awaitTermination(QUERY_TIMEOUT_S)


def test_damaged_records_are_named_by_their_place() -> None:
    """Which partition, which batch, what is wrong with it, and how to go on without it."""
    topic_id = TopicId(bytes(range(16)))
    log = encode_batch([Record(Offset(5), 0, None, b"value")], base_offset=Offset(5))
    log[-1] ^= 1
    partition = FetchResponsePartition(0, high_watermark=6, last_stable_offset=6, records=bytes(log))
    broker = FakeBroker(
        {ApiKey.FETCH: lambda request: FetchResponse(responses=[FetchResponseTopic("orders", topic_id, [partition])])}
    )
    described = MetadataResponseTopic(
        name="orders", topic_id=topic_id, partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)]
    )
    broker.answers[ApiKey.METADATA] = lambda request: broker.metadata(topics=[described])
    try:
        options = read_options(
            {"kafka.bootstrap.servers": str(broker.address), "subscribe": "orders", "columns": "value"}, is_stream=False
        )
        schema = StructType([StructField("value", BinaryType())])
        with pytest.raises(FetchFailed) as raised:
            list(read_range(options, schema, Range("orders", topic_id_text(topic_id), 0, 5, 6)))
    finally:
        broker.close()
    text = str(raised.value)
    assert "partition 0 of `orders` are damaged: the batch at offset 5 cannot be read: its checksum" in text
    assert "`filter` can exclude these offsets" in text
