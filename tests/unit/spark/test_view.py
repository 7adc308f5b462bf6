"""What the planner believes of the brokers, with an embedded broker and with one that has lost its leader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from drmq.client import EARLIEST, Admin, NewTopic
from drmq.model import ErrorCode, Offset, TopicPartition
from drmq.records import Record, encode_batch
from drmq.spark.errors import DataLoss, OptionsError, TopicChanged
from drmq.spark.offsets import BEGINNING, Position, from_json, to_json
from drmq.spark.options import ReadOptions, read_options
from drmq.spark.progress import StreamProgress
from drmq.spark.source import StreamReader
from drmq.spark.view import View
from drmq.testing import Broker
from drmq.wire import ApiKey
from drmq.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResponseResult
from drmq.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from drmq.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from drmq.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from drmq.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.fake_broker import FakeBroker


def options(bootstrap: str, **more: str) -> ReadOptions:
    chosen = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest"}
    chosen |= {} if "subscribePattern" in more else {"subscribe": "orders"}
    return read_options({**chosen, **more}, is_stream=True)


Start = Callable[..., StreamProgress]


@pytest.fixture
def start_query() -> Iterator[Start]:
    """Makes the planner's side of a query, and closes it."""
    started: list[StreamProgress] = []

    def start(bootstrap: str, **more: str) -> StreamProgress:
        started.append(StreamProgress(options(bootstrap, **more)))
        return started[-1]

    yield start
    for progress in started:
        progress.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def orders(broker: Broker) -> Iterator[str]:
    """The address of a broker with a fresh topic `orders` of two partitions and three records in each."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.topics.create(NewTopic("orders", partitions=2))
        produce(broker.bootstrap_servers, 6)
        yield broker.bootstrap_servers
        if any(topic.name == "orders" for topic in admin.topics.all()):
            admin.topics.delete("orders")


def produce(bootstrap: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("orders", b"x", partition=number % 2)
    assert producer.flush(10) == 0


def place(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def test_nothing_new_is_the_position_that_was_handed_in(orders: str, start_query: Start) -> None:
    """The very same object: whatever its text was, it is so again."""
    progress = start_query(orders)
    start = progress.initial()
    end = progress.latest(start, is_limited=True)
    assert from_json(end).offsets == {place(0): 3, place(1): 3}
    assert progress.latest(end, is_limited=True) is end


def test_a_wait_ends_when_a_record_arrives(orders: str, start_query: Start) -> None:
    """Sooner than the wait would be over, so that a stream does not lag behind by the length of a poll."""
    progress = start_query(orders)
    end = progress.latest(progress.initial(), is_limited=True)
    sender = threading.Thread(target=produce, args=(orders, 2))
    sender.start()
    found = end
    for _ in range(100):
        found = progress.latest(end, is_limited=True)
        if found is not end:
            break
    sender.join()
    assert sum(from_json(found).offsets.values()) > 6


def test_available_now_ignores_what_comes_later(orders: str, start_query: Start) -> None:
    progress = start_query(orders)
    progress.stop_at_present_end()
    start = progress.initial()
    produce(orders, 4)
    with Admin(orders) as admin:
        admin.topics.add_partitions("orders", 3)
    progress._view.topics(fresh=True)
    end = progress.latest(start, is_limited=True)
    assert from_json(end).offsets == {place(0): 3, place(1): 3}
    assert progress.latest(end, is_limited=True) is end


def test_a_new_partition_is_logged_with_its_beginning(orders: str, start_query: Start) -> None:
    progress = start_query(orders)
    end = progress.latest(progress.initial(), is_limited=True)
    with Admin(orders) as admin:
        admin.topics.add_partitions("orders", 3)
    progress._view.topics(fresh=True)
    after = from_json(progress.latest(end, is_limited=True))
    assert after.offsets[place(2)] == 0
    assert after.starts == {place(2): 0}


def first_end(reader: StreamReader) -> Mapping[str, Any]:
    """The end of a query's first batch, as Spark asks for it."""
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def first_ranges(reader: StreamReader, end: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """The tasks of the first batch, as Spark asks for them: partition, start and end."""
    parts = [task.value for task in reader.partitions(reader.initialOffset(), end)]
    return [(part.partition, part.start, part.end) for part in parts]


@pytest.fixture
def start_source() -> Iterator[Callable[..., StreamReader]]:
    """Makes the source of a query as Spark does at each start, and stops it."""
    started: list[StreamReader] = []

    def start(bootstrap: str, **more: str) -> StreamReader:
        started.append(StreamReader(options(bootstrap, **more), schema=None))
        return started[-1]

    yield start
    for reader in started:
        reader.stop()


Source = Callable[..., StreamReader]


def test_the_first_batch_runs_again_as_it_was_planned(orders: str, start_source: Source) -> None:
    """Spark logs only where it ends. Whatever has been deleted since, a second run begins where the first one did."""
    end = first_end(start_source(orders))
    with Admin(orders) as admin:
        admin.topics.trim({place(0): 2})
    assert first_ranges(start_source(orders), end) == [(0, 0, 3), (1, 0, 3)]


def test_the_first_batch_of_a_query_that_begins_at_the_end(orders: str, start_source: Source) -> None:
    """What arrived before its end was logged is in it, though the end of the topic has moved on since."""
    chosen = {"startingOffsets": "latest", "minOffsetsPerTrigger": "2"}
    reader = start_source(orders, **chosen)
    assert first_ranges(start_source(orders, **chosen), first_end(reader)) == []
    produce(orders, 2)
    end = first_end(reader)
    produce(orders, 2)
    assert first_ranges(reader, end) == first_ranges(start_source(orders, **chosen), end) == [(0, 3, 4), (1, 3, 4)]
    after = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert from_json(after).offsets == {place(0): 5, place(1): 5}
    assert from_json(after).starts == {}


def test_the_first_batch_runs_again_with_more_partitions(orders: str, start_source: Source) -> None:
    """The options do not name them, nor did they have to when the batch was planned."""
    named = {"startingOffsets": '{"orders":{"0":1,"1":2}}'}
    end = first_end(start_source(orders, **named))
    with Admin(orders) as admin:
        admin.topics.add_partitions("orders", 3)
    assert first_ranges(start_source(orders, **named), end) == [(0, 1, 3), (1, 2, 3)]


def test_once_reads_all_there_is(orders: str, start_source: Source) -> None:
    """Also less than a stream would wait for: there is no second batch for the rest."""
    reader = start_source(orders, minOffsetsPerTrigger="1000")
    assert from_json(first_end(reader)).offsets == {place(0): 0, place(1): 0}
    once = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert from_json(once).offsets == {place(0): 3, place(1): 3}


def test_a_first_batch_without_topics(broker: Broker, start_source: Source) -> None:
    """A pattern that nothing fits yet is no reason to begin again: what is created later is read from its beginning."""
    reader = start_source(broker.bootstrap_servers, subscribePattern="orders", startingOffsets="latest")
    end = first_end(reader)
    assert from_json(end).offsets == {}
    with Admin(broker.bootstrap_servers) as admin:
        admin.topics.create(NewTopic("orders"))
        produce(broker.bootstrap_servers, 1)
        reader._progress._view.topics(fresh=True)
        after = from_json(reader.latestOffset(end, reader.getDefaultReadLimit()))
        admin.topics.delete("orders")
    assert after.offsets == {place(0): 1}
    assert after.starts == {place(0): 0}


def test_a_log_that_was_cut(orders: str, start_query: Start) -> None:
    """A partition that ends before what was read: a loss, or a new end."""
    ids = from_json(start_query(orders).initial()).topic_ids
    beyond = to_json(Position(ids, {place(0): 9, place(1): 3}))
    strict = start_query(orders)
    with pytest.raises(DataLoss, match="ends at offset 3, but the query has read it up to 9"):
        strict.latest(beyond, is_limited=True)
    lenient = start_query(orders, failOnDataLoss="false")
    assert from_json(lenient.latest(beyond, is_limited=True)).offsets == {place(0): 3, place(1): 3}


def test_a_deleted_topic_is_asked_for_again_before_it_is_given_up(orders: str, start_query: Start) -> None:
    progress = start_query(orders)
    start = progress.initial()
    with Admin(orders) as admin:
        admin.topics.delete("orders")
    progress._view.topics(fresh=True)
    with pytest.raises(TopicChanged, match="was deleted"):
        progress.latest(start, is_limited=True)
    lenient = start_query(orders, failOnDataLoss="false")
    assert lenient.latest(start, is_limited=True) is start


@pytest.fixture
def old_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which topics there are is not asked for again just because time has passed."""
    monkeypatch.setattr("drmq.spark.view.TOPICS_AGE_S_MAX", 3600)


@pytest.fixture
def refunds(orders: str) -> Iterator[str]:
    """A second topic, which a test may delete."""
    with Admin(orders) as admin:
        admin.topics.create(NewTopic("refunds"))
        yield "refunds"
        if any(topic.name == "refunds" for topic in admin.topics.all()):
            admin.topics.delete("refunds")


@pytest.mark.usefixtures("old_view")
def test_a_topic_is_deleted_under_a_running_query(orders: str, refunds: str, start_query: Start) -> None:
    """Noticed also while the planner still believes in it: the others are read on, or the query says what happened."""
    lenient, strict = (
        start_query(orders, subscribe=f"orders,{refunds}", failOnDataLoss=word) for word in ("false", "true")
    )
    end = lenient.latest(lenient.initial(), is_limited=True)
    assert strict.latest(end, is_limited=True) is end
    with Admin(orders) as admin:
        admin.topics.delete(refunds)
    produce(orders, 2)
    after = from_json(lenient.latest(end, is_limited=True))
    assert after.offsets == {place(0): 4, place(1): 4, TopicPartition(refunds, 0): 0}
    with pytest.raises(TopicChanged, match=f"Topic `{refunds}` was deleted"):
        strict.latest(end, is_limited=True)


@pytest.mark.usefixtures("old_view")
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_is_created_again_under_a_running_query(
    orders: str, start_query: Start, fail_on_data_loss: str
) -> None:
    """Shorter than the old one was, it is not taken for one whose log was cut."""
    progress = start_query(orders, onTopicRecreated="earliest", failOnDataLoss=fail_on_data_loss)
    end = progress.latest(progress.initial(), is_limited=True)
    with Admin(orders) as admin:
        admin.topics.delete("orders")
        admin.topics.create(NewTopic("orders", partitions=2))
    produce(orders, 2)
    after = from_json(progress.latest(end, is_limited=True))
    assert after.offsets == {place(0): 1, place(1): 1}
    assert after.starts == {place(0): 0, place(1): 0}
    assert after.topic_ids != from_json(end).topic_ids


def test_available_now_without_a_topic_that_is_gone(orders: str, refunds: str, start_query: Start) -> None:
    """Named topics must be there, unless the query may go on with what is left."""
    chosen = {"subscribe": f"orders,{refunds}", "failOnDataLoss": "false"}
    first = start_query(orders, **chosen)
    end = first.latest(first.initial(), is_limited=True)
    with Admin(orders) as admin:
        admin.topics.delete(refunds)
    produce(orders, 2)
    second = start_query(orders, **chosen)
    second.stop_at_present_end()
    after = from_json(second.latest(end, is_limited=True))
    assert after.offsets == {place(0): 4, place(1): 4, TopicPartition(refunds, 0): 0}
    with pytest.raises(TopicChanged, match=f"Topic `{refunds}` does not exist"):
        start_query(orders, **{**chosen, "failOnDataLoss": "true"}).stop_at_present_end()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscribe": "nowhere"}, "Topic `nowhere` does not exist"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "does not contain orders-1"),
        ({"startingOffsets": '{"orders":{"0":1,"1":99}}'}, "which has offsets from 0 to 3"),
    ],
)
def test_places_that_do_not_exist(orders: str, start_query: Start, more: dict[str, str], words: str) -> None:
    progress = start_query(orders, **more)
    with pytest.raises((OptionsError, DataLoss, TopicChanged), match=words):
        progress.initial()
    with pytest.raises((OptionsError, DataLoss, TopicChanged), match=words):
        progress.latest(BEGINNING, is_limited=True)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    """Longer than the client by itself would: a node may be restarting."""
    leaders = iter([-1] * 9)

    def metadata(request: Any) -> Any:
        partition = MetadataResponsePartition(partition_index=0, leader_id=next(leaders, 1))
        return fake.metadata(topics=[MetadataResponseTopic(name="orders", partitions=[partition])])

    def list_offsets(request: Any) -> Any:
        found = ListOffsetsResponsePartition(0, ErrorCode.NONE, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic("orders", [found])])

    fake = FakeBroker({ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: list_offsets})
    view = View(options(str(fake.address), timeoutMs="20000"))
    assert view.latest([place(0)]) == {place(0): 7}
    view.close()
    fake.close()


def fake_orders(**answers: Callable[[Any], Any]) -> FakeBroker:
    """A broker with one partition of seven records, which answers everything else as it is told."""

    def metadata(request: Any) -> Any:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1)
        return fake.metadata(topics=[MetadataResponseTopic(name="orders", partitions=[partition])])

    fake = FakeBroker({ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: list_offsets, ApiKey.FETCH: fetch})
    fake.answers.update({ApiKey[name.upper()]: answer for name, answer in answers.items()})
    return fake


def list_offsets(request: Any, error: ErrorCode = ErrorCode.NONE) -> Any:
    offset = 0 if request.topics[0].partitions[0].timestamp == EARLIEST else 7
    found = ListOffsetsResponsePartition(0, error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsResponseTopic("orders", [found])])


def fetch(request: Any) -> Any:
    offset = request.topics[0].partitions[0].fetch_offset
    records = (
        b""
        if offset >= 7
        else bytes(encode_batch([Record(Offset(offset), 0, None, b"x" * 100)], base_offset=Offset(offset)))
    )
    answer = FetchResponsePartition(0, high_watermark=7, last_stable_offset=7, records=records)
    return FetchResponse(responses=[FetchResponseTopic("orders", request.topics[0].topic_id, [answer])])


def test_a_failing_disk_is_waited_for() -> None:
    """As workers do: another replica may take over."""
    errors = iter([ErrorCode.KAFKA_STORAGE_ERROR] * 2)
    fake = fake_orders(list_offsets=lambda request: list_offsets(request, next(errors, ErrorCode.NONE)))
    view = View(options(str(fake.address), timeoutMs="20000"))
    assert view.latest([place(0)]) == {place(0): 7}
    view.close()
    fake.close()


def test_sizes_that_a_broker_does_not_tell(start_query: Start) -> None:
    """They are only a first guess: the records themselves are looked at, and the limit holds."""
    failed = DescribeLogDirsResponseResult(ErrorCode.KAFKA_STORAGE_ERROR, "/data")
    fake = fake_orders(describe_log_dirs=lambda request: DescribeLogDirsResponse(results=[failed]))
    progress = start_query(str(fake.address), maxBytesPerTrigger="400")
    end = from_json(progress.latest(progress.initial(), is_limited=True))
    assert end.offsets == {place(0): 2}
    fake.close()


def test_a_coordinator_that_is_away_does_not_stop_the_query() -> None:
    """Publishing is tried for a moment, then left alone for a while, and once more when the query stops."""
    coordinator_error = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    committed: list[int] = []

    def find_coordinator(request: Any) -> Any:
        address, error = fake.address, coordinator_error[0]
        found = FindCoordinatorResponseCoordinator("readers", 1, address.host, address.port, error, None)
        return FindCoordinatorResponse(coordinators=[found])

    def commit(request: Any) -> Any:
        committed.append(request.topics[0].partitions[0].committed_offset)
        answered = OffsetCommitResponseTopic(name="orders", partitions=[OffsetCommitResponsePartition(0, 0)])
        return OffsetCommitResponse(topics=[answered])

    fake = fake_orders(find_coordinator=find_coordinator, offset_commit=commit)
    progress = StreamProgress(options(str(fake.address), groupId="readers", timeoutMs="600000"))
    ends: list[Any] = []
    planner = threading.Thread(
        target=lambda: ends.append(progress.latest(progress.initial(), is_limited=True)), daemon=True
    )
    planner.start()
    planner.join(60)
    assert ends, "the query waits for the coordinator"
    asked = fake.count(ApiKey.FIND_COORDINATOR)
    assert asked > 0
    progress.publish(to_json(Position(from_json(ends[0]).topic_ids, {place(0): 9})))
    assert fake.count(ApiKey.FIND_COORDINATOR) == asked
    coordinator_error[0] = ErrorCode.NONE
    progress.close()
    assert committed == [9]
    fake.close()
