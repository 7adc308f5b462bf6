"""A fetcher follows leaders, notices what is gone, and gives up in time. Brokers here answer as they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType

from drmq.model import ErrorCode, Offset, TopicId, TopicPartition, topic_id_text
from drmq.records import Record, encode_batch
from drmq.spark.errors import DataLoss, FetchFailed, TopicChanged
from drmq.spark.fetching import Fetcher, end_of_batches, topic_id_from_text
from drmq.spark.offsets import Range
from drmq.spark.options import read_options
from drmq.spark.reading import close_fetchers, fetcher_of, read_range
from drmq.wire import ApiKey
from drmq.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from drmq.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from drmq.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.fake_broker import FakeBroker

ID = TopicId(bytes(range(16)))
PART = Range("orders", topic_id_text(ID), 0, 0, 10)
HIGH_WATERMARK = 10


def batch(start: int, end: int) -> bytes:
    records = [Record(Offset(offset), 0, None, str(offset).encode()) for offset in range(start, end)]
    return bytes(encode_batch(records, base_offset=Offset(start)))


class Cluster:
    """Fake brokers that share one opinion about who leads."""

    def __init__(self, count: int = 1) -> None:
        self.leader = 0
        self.topic_id: bytes = ID
        self.topic_error = 0
        self.first_offset = 0
        self.answers: list[Callable[[int, int], Any]] = []
        """What the next fetches are answered: from the number of the broker and the offset."""
        self.asked: list[tuple[int, int]] = []
        self.brokers = [FakeBroker(self._answers(number)) for number in range(count)]

    def _answers(self, number: int) -> dict[ApiKey, Callable[[Any], Any]]:
        return {
            ApiKey.METADATA: lambda request: self.metadata(),
            ApiKey.FETCH: lambda request: self.fetch(number, request),
            ApiKey.LIST_OFFSETS: lambda request: ListOffsetsResponse(
                topics=[ListOffsetsResponseTopic("orders", [ListOffsetsResponsePartition(0, offset=self.first_offset)])]
            ),
        }

    def metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=self.leader)
        topic = MetadataResponseTopic(
            error_code=self.topic_error, name="orders", topic_id=self.topic_id, partitions=[partition]
        )
        brokers = [
            MetadataResponseBroker(node_id=number, host=broker.address.host, port=broker.address.port)
            for number, broker in enumerate(self.brokers)
        ]
        return MetadataResponse(brokers=brokers, topics=[topic])

    def fetch(self, number: int, request: Any) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        self.asked.append((number, offset))
        answer = self.answers.pop(0)(number, offset) if self.answers else self.log(number, offset)
        if not isinstance(answer, FetchResponsePartition):
            return answer
        return FetchResponse(responses=[FetchResponseTopic("orders", ID, [answer])])

    def log(self, number: int, offset: int) -> FetchResponsePartition:
        """Batches of two, one to an answer."""
        if number != self.leader:
            return refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        start = offset - offset % 2
        return FetchResponsePartition(
            0, high_watermark=HIGH_WATERMARK, last_stable_offset=HIGH_WATERMARK, records=batch(start, start + 2)
        )

    def fetcher(self, timeout_s: float = 5.0) -> Fetcher:
        address = self.brokers[0].address
        return Fetcher(str(address), client_id="test", timeout_s=timeout_s, read_committed=True, fetch_bytes=100)

    def read(self, part: Range = PART, *, fail_on_data_loss: bool = True, timeout_s: float = 5.0) -> list[int]:
        """The offsets of all batches that a fetcher hands out, from its positions on."""
        fetcher = self.fetcher(timeout_s)
        try:
            found: list[int] = []
            for fetched in fetcher.read(part, fail_on_data_loss=fail_on_data_loss):
                found += range(fetched.position, end_of_batches(fetched.records) or 0)
            return found
        finally:
            fetcher.close()


def refusal(code: ErrorCode) -> FetchResponsePartition:
    return FetchResponsePartition(0, error_code=code, high_watermark=-1)


def empty(high_watermark: int = HIGH_WATERMARK, records: bytes = b"") -> FetchResponsePartition:
    return FetchResponsePartition(0, high_watermark=high_watermark, last_stable_offset=high_watermark, records=records)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(2)
    yield made
    for broker in made.brokers:
        broker.close()


def test_a_range_is_read_once(cluster: Cluster) -> None:
    """From its start to its end, though batches begin before and end after."""
    assert cluster.read(Range("orders", PART.topic_id, 0, 3, 9)) == [3, 4, 5, 6, 7, 8, 9]
    assert cluster.asked == [(0, 3), (0, 4), (0, 6), (0, 8)]


def test_brokers_see_the_name_that_was_given(cluster: Cluster) -> None:
    given = {"kafka.bootstrap.servers": str(cluster.brokers[0].address), "subscribe": "orders"}
    for more, name in [({}, "drmq-spark"), ({"kafka.client.id": "nightly-report"}, "nightly-report")]:
        cluster.brokers[0].client_ids.clear()
        fetcher = fetcher_of(read_options({**given, **more}, is_stream=False))
        assert list(fetcher.read(PART, fail_on_data_loss=True))
        assert cluster.brokers[0].client_ids == {name}
    close_fetchers()


def test_answers_are_received_into_the_same_memory(cluster: Cluster) -> None:
    """Each holds what the broker sent until the next one is asked for."""
    fetcher = Fetcher(
        str(cluster.brokers[0].address), client_id="test", timeout_s=5, read_committed=True, fetch_bytes=4096
    )
    places = []
    for number, fetched in enumerate(fetcher.read(PART, fail_on_data_loss=True)):
        assert bytes(fetched.records) == batch(2 * number, 2 * number + 2)
        places.append(id(fetched.records.obj))
    assert len(places) == 5
    assert len(set(places)) == 1
    fetcher.close()


def test_no_more_is_asked_for_than_a_broker_may_answer(cluster: Cluster) -> None:
    """However large `fetchBytes` is, and however often an answer was too small for a whole batch."""
    sizes: list[int] = []

    def fetch(request: Any) -> Any:
        sizes.append(request.topics[0].partitions[0].partition_max_bytes)
        return cluster.fetch(0, request)

    cluster.brokers[0].answers[ApiKey.FETCH] = fetch
    cluster.answers = [lambda number, offset: empty(records=batch(0, 2)[:30])] * 2
    fetcher = Fetcher(
        str(cluster.brokers[0].address), client_id="test", timeout_s=5, read_committed=True, fetch_bytes=1 << 40
    )
    assert [fetched.position for fetched in fetcher.read(PART, fail_on_data_loss=True)] == [0, 2, 4, 6, 8]
    assert set(sizes) == {64 << 20}
    fetcher.close()


@pytest.mark.parametrize("read_committed", [True, False])
def test_the_isolation_level_reaches_the_broker(cluster: Cluster, read_committed: bool) -> None:
    levels: list[int] = []

    def fetch(request: Any) -> Any:
        levels.append(request.isolation_level)
        return cluster.fetch(0, request)

    cluster.brokers[0].answers[ApiKey.FETCH] = fetch
    address = str(cluster.brokers[0].address)
    fetcher = Fetcher(address, client_id="test", timeout_s=5, read_committed=read_committed, fetch_bytes=100)
    assert len(list(fetcher.read(PART, fail_on_data_loss=True))) == 5
    fetcher.wait({TopicPartition("orders", 0): 10}, 0.1)
    assert len(levels) == 6
    assert set(levels) == {int(read_committed)}
    fetcher.close()


def test_the_size_of_a_record_is_that_of_its_batch(cluster: Cluster) -> None:
    """Shared by all in it; 0 where nothing can be told, which is left to whoever reads the range."""
    fetcher = cluster.fetcher(timeout_s=0.3)
    assert fetcher.record_size(PART, 5) == len(batch(4, 6)) / 2
    cluster.answers = [lambda number, offset: empty()]
    assert fetcher.record_size(PART, 5) == 0
    cluster.answers = [lambda number, offset: refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert fetcher.record_size(PART, 5) == 0
    cluster.first_offset = 8
    cluster.answers = [lambda number, offset: refusal(ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert fetcher.record_size(PART, 5) == 0
    fetcher.close()


def test_the_new_leader_is_found(cluster: Cluster) -> None:
    """In the middle of a range, with a request on its way to the old one."""

    def move(number: int, offset: int) -> FetchResponsePartition:
        cluster.leader = 1
        return refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.answers = [cluster.log, cluster.log, move]
    assert cluster.read() == list(range(10))
    assert {number for number, _ in cluster.asked} == {0, 1}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
                                  ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR])  # fmt: skip
def test_states_that_pass_are_waited_for(cluster: Cluster, code: ErrorCode) -> None:
    cluster.answers = [lambda number, offset: refusal(code)] * 2
    assert cluster.read() == list(range(10))


def test_a_broken_connection_is_opened_again(cluster: Cluster) -> None:
    cluster.answers = [cluster.log, lambda number, offset: None, cluster.log, lambda number, offset: None]
    assert cluster.read() == list(range(10))


def test_a_leader_that_falls_silent_leaves_time_for_its_successor(cluster: Cluster) -> None:
    """Frozen in the middle of a range, with its connection still open, while the other one leads already."""

    def freeze(number: int, offset: int) -> FetchResponsePartition:
        cluster.leader = 1
        cluster.brokers[0].freeze()
        return refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.answers = [cluster.log, cluster.log, freeze]
    assert cluster.read(timeout_s=3) == list(range(10))


def test_a_leader_that_stays_silent(cluster: Cluster) -> None:
    """The reason and the remedy, each of them once."""

    def freeze(number: int, offset: int) -> FetchResponsePartition:
        cluster.brokers[0].freeze()
        return refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.answers = [freeze]
    with pytest.raises(FetchFailed) as raised:
        cluster.read(timeout_s=1)
    assert str(raised.value).count("`timeoutMs`") == 1


def test_the_deadline_ends_the_wait(cluster: Cluster) -> None:
    """With the place, the reason and the option that waits longer."""
    cluster.answers = [lambda number, offset: refusal(ErrorCode.LEADER_NOT_AVAILABLE)] * 100
    with pytest.raises(FetchFailed) as raised:
        cluster.read(timeout_s=0.5)
    text = str(raised.value)
    assert "Partition 0 of `orders` could not be read at offset 0 within 0.5 s" in text
    assert "LEADER_NOT_AVAILABLE" in text
    assert "`timeoutMs`" in text


def test_an_error_that_does_not_pass_is_told_at_once(cluster: Cluster) -> None:
    cluster.answers = [lambda number, offset: refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(FetchFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        cluster.read()


def test_a_recreated_topic_is_not_read(cluster: Cluster) -> None:
    """The id in the request does not fit, and the metadata says why."""
    cluster.topic_id = bytes(16)[:15] + b"x"
    cluster.answers = [lambda number, offset: refusal(ErrorCode.UNKNOWN_TOPIC_ID)]
    with pytest.raises(TopicChanged, match="created again"):
        cluster.read()
    cluster.answers = [lambda number, offset: refusal(ErrorCode.UNKNOWN_TOPIC_ID)]
    assert cluster.read(fail_on_data_loss=False) == []


def test_what_is_left_of_an_earlier_topic_may_be_left_out(cluster: Cluster) -> None:
    """Where the new one is to be read: the logged range of the old one would otherwise fail at each restart."""
    cluster.topic_id = bytes(16)[:15] + b"x"
    cluster.answers = [lambda number, offset: refusal(ErrorCode.UNKNOWN_TOPIC_ID)]
    given = {"kafka.bootstrap.servers": str(cluster.brokers[0].address), "subscribe": "orders"}
    options = read_options({**given, "onTopicRecreated": "earliest", "columns": "value"}, is_stream=True)
    schema = StructType().add("value", BinaryType())
    assert list(read_range(options, schema, PART)) == []
    cluster.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    close_fetchers()
    with pytest.raises(TopicChanged, match="was deleted while"):
        list(read_range(options, schema, PART))
    close_fetchers()


def test_a_broker_that_does_not_know_the_topic_yet(cluster: Cluster) -> None:
    """Metadata says that it is there: then it will be."""
    cluster.answers = [lambda number, offset: refusal(ErrorCode.UNKNOWN_TOPIC_ID)] * 2
    assert cluster.read() == list(range(10))


def test_a_deleted_topic(cluster: Cluster) -> None:
    cluster.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TopicChanged, match="was deleted"):
        cluster.read()


@pytest.mark.parametrize("topic_id", [None, TopicId(b"the one before..")])
def test_one_broker_that_is_behind_is_not_believed(cluster: Cluster, topic_id: TopicId | None) -> None:
    """It does not know the topic yet, or knows an earlier one. The others are asked before the range is given up."""

    def behind(request: Any) -> Any:
        answer = cluster.metadata()
        answer.topics = [
            MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="orders")
            if topic_id is None
            else MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=answer.topics[0].partitions)
        ]
        return answer

    cluster.leader = 1
    cluster.brokers[0].answers[ApiKey.METADATA] = behind
    if topic_id is not None:
        cluster.answers = [lambda number, offset: refusal(ErrorCode.UNKNOWN_TOPIC_ID)]
    assert cluster.read(fail_on_data_loss=False) == list(range(10))


def test_deleted_records(cluster: Cluster) -> None:
    """A loss, or a jump to what is left."""
    cluster.first_offset = 6
    cluster.answers = [lambda number, offset: refusal(ErrorCode.OFFSET_OUT_OF_RANGE)]
    with pytest.raises(DataLoss, match="Offsets 0 to 5 of partition 0 of `orders`"):
        cluster.read()
    cluster.answers = [lambda number, offset: refusal(ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert cluster.read(fail_on_data_loss=False) == [6, 7, 8, 9]


def test_an_offset_that_the_leader_does_not_have_yet(cluster: Cluster) -> None:
    """A new leader may be behind for a moment: neither a loss nor an end."""
    cluster.answers = [lambda number, offset: empty(high_watermark=0)] * 8
    assert cluster.read() == list(range(10))


def test_a_leader_that_never_gets_there(cluster: Cluster) -> None:
    """Every wait has an end, also one in which the broker answers all the time."""
    cluster.answers = [cluster.log, *[lambda number, offset: empty(high_watermark=2)] * 10_000]
    with pytest.raises(FetchFailed, match="serves records only up to 2 of 2, and the query was planned up to 10"):
        cluster.read(timeout_s=0.3)


def test_a_hole_at_the_end(cluster: Cluster) -> None:
    """The log goes on, and still has nothing: gone for good."""
    cluster.answers = [cluster.log, *[lambda number, offset: empty()] * 4]
    with pytest.raises(DataLoss, match="no records from offset 2 on"):
        cluster.read()
    cluster.answers = [cluster.log, *[lambda number, offset: empty()] * 4]
    assert cluster.read(fail_on_data_loss=False) == [0, 1]


def test_batches_before_the_position_are_no_progress(cluster: Cluster) -> None:
    """Whole or not: a broker that sends them again and again must not keep a task for ever."""
    cluster.answers = [lambda number, offset: empty(records=batch(0, 2))] * 10_000
    part = Range("orders", PART.topic_id, 0, 5, 10)
    with pytest.raises(FetchFailed, match="returns records that end at 2, before the requested offset"):
        cluster.read(part, timeout_s=0.3, fail_on_data_loss=False)
    cluster.answers = [lambda number, offset: empty(records=batch(0, 2))] * 5
    assert cluster.read(part) == [5, 6, 7, 8, 9]


def test_half_a_batch_is_asked_for_again(cluster: Cluster) -> None:
    cluster.answers = [lambda number, offset: empty(records=batch(0, 2)[:40])]
    assert cluster.read() == list(range(10))


def test_an_abandoned_reader_leaves_nothing_behind(cluster: Cluster) -> None:
    """The answer to the request that was sent ahead must not be taken for that of the next task."""
    fetcher = cluster.fetcher()
    for _ in range(3):
        reading = fetcher.read(PART, fail_on_data_loss=True)
        assert next(reading).position == 0
        reading.close()  # type: ignore[attr-defined]
    found = [fetched.position for fetched in fetcher.read(PART, fail_on_data_loss=True)]
    assert found == [0, 2, 4, 6, 8]
    fetcher.close()


def test_ids_as_text() -> None:
    assert topic_id_from_text(topic_id_text(ID)) == ID
