"""Topics on a disk that fails: what was answered is so after a crash, what was refused leaves nothing."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter

import pytest

from drmq.model import ApiError, ErrorCode
from drmq.model.names import CONSUMER_OFFSETS
from drmq.testing.files import FakeFiles
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest
from support.broker_harness import DATA_DIRECTORY, Harness


def topic_directories(files: FakeFiles) -> list[str]:
    """The directories of topics, other than the broker's own."""
    return [name for name in files.list(f"{DATA_DIRECTORY}/topics") if not name.startswith("__")]


def is_usable(harness: Harness, topic: str, index: int) -> bool:
    try:
        return harness.partition(topic, index).is_serving
    except ApiError:
        return False


@pytest.mark.parametrize("seed", range(5))
def test_topics_and_settings_survive_the_loss_of_power(harness: Harness, files: FakeFiles, seed: int) -> None:
    created = harness.create_topic("orders", 2, retention_ms="1000")
    harness.run(harness.broker.topics.add_partitions("orders", 3))
    harness.run(harness.broker.topics.change_configs("orders", {"segment.ms": "500"}))
    harness.produce("orders", 2)
    harness.crash()
    with Harness(files.after_power_cut(seed)) as again:
        topic = again.broker.catalog.topic("orders")
        assert (topic.topic_id, topic.partition_count) == (created.topic_id, 3)
        assert topic.configs == {"retention.ms": "1000", "segment.ms": "500"}
        assert again.partition("orders", 2).high_watermark == 1
        assert again.partition("orders", 2).config.retention_ms == 1_000


@pytest.mark.parametrize("seed", range(5))
def test_a_deletion_is_finished_after_the_loss_of_power(harness: Harness, files: FakeFiles, seed: int) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders")
    files.fail("rename", errno.EIO, fail_count=1_000)
    files.fail("remove", errno.EIO, path_part="orders", fail_count=1_000)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("orders")))
    assert topic_directories(files)
    harness.crash()
    disk = files.after_power_cut(seed)
    with Harness(disk) as again:
        assert "orders" not in again.broker.catalog.topics
        assert topic_directories(disk) == []


def test_groups_forget_a_topic_although_a_crash_came_before_they_did(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    partitions = [OffsetCommitRequestPartition(0, 5)]
    harness.ask(OffsetCommitRequest("readers", topics=[OffsetCommitRequestTopic("orders", partitions=partitions)]), 9)
    harness.broker.topics.on_deleted = lambda topic: None
    files.fail("rename", errno.EIO, fail_count=1_000)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("orders")))
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        assert again.ask(OffsetFetchRequest("readers", None), 7).topics == []


def test_a_deleted_topic_frees_its_disk(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 1)
    assert len(topic_directories(files)) == 1
    topic = harness.broker.catalog.topic("orders")
    harness.run(harness.broker.topics.delete(topic))
    harness.run(harness.broker.assignments.settled())
    assert topic_directories(files) == []
    with pytest.raises(ApiError, match="has already been deleted"):
        harness.run(harness.broker.topics.delete(topic))


def test_a_topic_whose_files_find_no_room_says_so_and_gets_them_later(harness: Harness, files: FakeFiles) -> None:
    """It is in the catalog of the whole cluster by then. What this node lacks is this node's to mend."""
    files.fail("make_directory", errno.ENOSPC, path_part="orders", skip_count=2)
    with pytest.raises(ApiError, match="cannot be used") as caught:
        harness.create_topic("orders", 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    harness.settle()  # the refusal does not wait for the others, which are still electing themselves
    unusable = [index for index in range(3) if not is_usable(harness, "orders", index)]
    assert len(unusable) == 1
    harness.advance(3_000)
    harness.run(harness.broker.assignments.settled())
    harness.settle()
    assert [harness.produce("orders", index) for index in range(3)] == [0, 0, 0]


def test_partitions_that_could_not_be_added_leave_the_others_alone(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 1)
    files.fail("make_directory", errno.ENOSPC, path_part="orders", skip_count=1)
    with pytest.raises(ApiError) as caught:
        harness.run(harness.broker.topics.add_partitions("orders", 4))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("orders", 1) == 1
    harness.advance(3_000)
    harness.run(harness.broker.assignments.settled())
    harness.settle()
    assert harness.produce("orders", 2) == harness.produce("orders", 3) == 0


def test_a_refused_note_of_what_was_made_stops_new_partitions_only_for_a_while(
    harness: Harness, files: FakeFiles
) -> None:
    """Without the note they must not take part: were their files lost, nobody would know that there were any."""
    harness.create_topic("orders", 2)
    harness.produce("orders", 1)
    files.fail("write", errno.ENOSPC, path_part="made")
    with pytest.raises(ApiError, match="cannot be used") as caught:
        harness.run(harness.broker.topics.add_partitions("orders", 4))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in caught.value.message
    assert harness.produce("orders", 1) == 1
    assert [is_usable(harness, "orders", index) for index in range(4)] == [True, True, False, False]
    harness.advance(3_000)
    harness.run(harness.broker.assignments.settled())
    harness.settle()
    assert [harness.produce("orders", index) for index in range(4)] == [0, 2, 0, 0]
    opened = Counter(path for path, _ in files._open.values() if "/orders." in path)
    assert set(opened.values()) == {1}
    harness.close()
    with Harness(files.after_kill()) as again:
        assert [again.partition("orders", index).high_watermark for index in range(4)] == [1, 3, 1, 1]


def test_a_deletion_overtakes_partitions_that_wait_for_their_note(harness: Harness, files: FakeFiles) -> None:
    offsets_topic_id = harness.broker.catalog.topic(CONSUMER_OFFSETS).topic_id
    files.fail("write", errno.ENOSPC, path_part="made")
    with pytest.raises(ApiError):
        harness.create_topic("orders", 2)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("orders")))
    harness.run(harness.broker.assignments.settled())
    assert topic_directories(files) == []
    harness.advance(3_000)
    harness.run(harness.broker.assignments.settled())
    assert topic_directories(files) == []
    assert {group.topic_id for group in harness.broker.assignments._made} == {offsets_topic_id}


def test_of_two_who_create_the_same_name_one_is_refused(harness: Harness, files: FakeFiles) -> None:
    broker = harness.broker

    async def both() -> list[object]:
        creations = [broker.topics.create("orders", broker.new_topic_id(), count, {}) for count in (1, 2)]
        return list(await asyncio.gather(*creations, return_exceptions=True))

    refused = [each for each in harness.run(both()) if isinstance(each, ApiError)]
    assert [error.code for error in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert len(topic_directories(files)) == 1
    harness.produce("orders")


def test_of_two_who_add_partitions_none_harms_the_other(harness: Harness) -> None:
    harness.create_topic("orders", 1)
    topics = harness.broker.topics

    async def both() -> list[object]:
        growths = [topics.add_partitions("orders", 3), topics.add_partitions("orders", 3)]
        return list(await asyncio.gather(*growths, return_exceptions=True))

    assert sum(isinstance(each, ApiError) for each in harness.run(both())) == 1
    assert [harness.produce("orders", index) for index in range(3)] == [0, 0, 0]


def test_settings_that_change_while_partitions_are_added_hold_for_the_new_ones(harness: Harness) -> None:
    harness.create_topic("orders", 1)
    topics = harness.broker.topics

    async def both() -> None:
        await asyncio.gather(
            topics.add_partitions("orders", 2), topics.change_configs("orders", {"max.message.bytes": "99"})
        )

    harness.run(both())
    assert [harness.partition("orders", index).config.max_message_bytes for index in range(2)] == [99, 99]


def test_growing_and_deleting_at_once(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders", 1)
    topics, topic = harness.broker.topics, harness.broker.catalog.topic("orders")

    async def both() -> list[object]:
        return list(
            await asyncio.gather(topics.add_partitions("orders", 3), topics.delete(topic), return_exceptions=True)
        )

    grown, deleted = harness.run(both())
    assert grown is None or (isinstance(grown, ApiError) and grown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert deleted is None
    harness.run(harness.broker.assignments.settled())
    assert "orders" not in harness.broker.catalog.topics
    assert topic_directories(files) == []


def test_a_name_can_be_used_again_at_once(harness: Harness) -> None:
    for _ in range(3):
        topic = harness.create_topic("orders")
        assert harness.produce("orders") == 0
        harness.run(harness.broker.topics.delete(topic))


def test_producer_ids_are_never_given_out_twice(harness: Harness, files: FakeFiles) -> None:
    before = [harness.run(harness.broker.services.producer_ids.new()) for _ in range(3)]
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        after = [again.run(again.broker.services.producer_ids.new()) for _ in range(3)]
    assert len({*before, *after}) == 6


def test_validation_makes_no_files(harness: Harness, files: FakeFiles) -> None:
    broker = harness.broker
    harness.run(broker.topics.create("orders", broker.new_topic_id(), 2, {}, validate_only=True))
    assert topic_directories(files) == []
    assert "orders" not in broker.catalog.topics


def test_a_metadata_log_that_cannot_be_written_takes_back_what_it_lost(harness: Harness, files: FakeFiles) -> None:
    """The catalog goes back to what the log holds, so clients see no topic and no setting that a restart would undo."""
    kept = harness.create_topic("kept", 1, **{"retention.ms": "1000"})
    given = harness.run(harness.broker.services.producer_ids.new())
    files.fail("write", errno.ENOSPC, path_part="__cluster_metadata/0/0", fail_count=1_000)
    for attempt in (
        lambda: harness.create_topic("orders"),
        lambda: harness.run(harness.broker.topics.change_configs("kept", {"retention.ms": "2000"})),
        lambda: harness.run(harness.broker.topics.delete(kept)),
    ):
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        harness.settle()
    assert harness.fatal == []
    assert "orders" not in harness.broker.catalog.topics
    assert harness.broker.catalog.topics["kept"] == kept
    assert harness.partition("kept").config.retention_ms == 1000
    assert harness.produce("kept") == 0
    files.forget_faults()
    harness.advance(3_000)
    assert harness.run(harness.broker.services.producer_ids.new()) != given
    harness.create_topic("orders")
    assert harness.produce("orders") == 0
