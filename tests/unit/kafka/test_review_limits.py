"""What one client may cost the others, and what may never be left unanswered: found in a review."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest

from drmq import groups
from drmq.broker.partitions.partition import Partition
from drmq.broker.services import reads as reads_module
from drmq.broker.services.reads import Read, ReadResult, WantedPartition
from drmq.kafka import KafkaServer
from drmq.kafka.fetch import Fetch
from drmq.kafka.fetch_sessions import ALL_PARTITIONS_MAX, PARTITIONS_MAX, FetchSessions
from drmq.model import ApiError, ErrorCode, Offset
from drmq.wire import ApiKey, write_request
from drmq.wire.fetch import FetchData, FetchPartition
from drmq.wire.fields import spec_of
from drmq.wire.messages.fetch import FetchRequest, FetchRequestForgottenTopic, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.broker_harness import Harness, subscription
from support.kafka_harness import KafkaHarness

VERSION = 12


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    harness.create_topic("t", 2)
    return KafkaHarness(harness)


def a_fetch(*partitions: int, wait_ms: int = 60_000, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    entries = [FetchRequestPartition(partition=index, partition_max_bytes=1 << 20) for index in partitions]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequestTopic("t", bytes(16), entries)] if entries else [],
    )


# ---- fetches ---------------------------------------------------------------------------------------


def test_a_fetch_of_nothing_does_not_wait(line: KafkaHarness) -> None:
    """A consumer that closes ends its session so, and waits for the answer."""
    opened = line.ask(a_fetch(0, wait_ms=0, session=(0, 0)), VERSION)
    assert opened.session_id
    closed = line.ask(a_fetch(session=(opened.session_id, -1)), VERSION)
    assert closed.error_code == 0
    assert len(line.server.fetch_sessions) == 0


def test_a_session_without_partitions_is_over(line: KafkaHarness) -> None:
    opened = line.ask(a_fetch(0, wait_ms=0, session=(0, 0)), VERSION)
    request = a_fetch(session=(opened.session_id, 1))
    request.forgotten_topics_data = [FetchRequestForgottenTopic("t", bytes(16), [0])]
    answer = line.ask(request, VERSION)
    assert answer.session_id == 0
    assert len(line.server.fetch_sessions) == 0


def test_one_who_does_not_read_gets_no_more_records(harness: Harness, line: KafkaHarness) -> None:
    """Each answer may be large, and a hundred may be on their way."""
    harness.produce("t")
    line.paper.unread_bytes = 2_000_000
    assert not line.ask(a_fetch(0, wait_ms=0), VERSION).responses[0].partitions[0].records
    line.paper.unread_bytes = 0
    assert line.ask(a_fetch(0, wait_ms=0), VERSION).responses[0].partitions[0].records


def test_slow_readers_can_take_only_so_much(harness: Harness, line: KafkaHarness) -> None:
    for _ in range(3):
        harness.produce("t", values=[bytes(1_000)])
    listener = line.server.listener

    def fetched() -> int:
        return len(line.ask(a_fetch(0, wait_ms=0), VERSION).responses[0].partitions[0].records or b"")

    everything = fetched()
    listener.blocked_bytes = listener.options.response_bytes_max // 2 + 1
    assert 0 < fetched() < everything
    # Below half of a limit that is smaller than what is asked for: no more than what is left.
    listener.options = replace(listener.options, response_bytes_max=everything)
    listener.blocked_bytes = everything // 3
    assert 0 < fetched() <= everything - listener.blocked_bytes
    listener.blocked_bytes = listener.options.response_bytes_max
    assert fetched() == 0
    # Half of it is taken, which is not congested yet: an answer may have the other half.
    listener.options = replace(listener.options, response_bytes_max=everything)
    listener.blocked_bytes = everything // 2
    assert 0 < fetched() < everything


def test_only_so_many_reads_from_disk_are_begun(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been read and not been sent is in no count, so there may be little of it."""
    harness.produce("t")
    begun: list[asyncio.Future[object]] = []

    def blocking(function: Callable[[], object]) -> asyncio.Future[object]:
        begun.append(harness.loop.create_future())
        return begun[-1]

    monkeypatch.setattr(harness.broker, "blocking", blocking)
    log = harness.partition("t").log
    monkeypatch.setattr(type(log), "read", lambda *arguments: None)
    for _ in range(10):
        line.send(a_fetch(0, wait_ms=0), VERSION)
    harness.run(asyncio.sleep(0.01))
    assert len(begun) == 4
    begun[0].set_result(([], 0, False))
    harness.run(asyncio.sleep(0.01))
    assert len(begun) == 5
    for future in begun:
        future.cancel()


def test_only_so_many_partitions_are_waited_for(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_module, "_PARKED_PARTITIONS_MAX", 5)
    for _ in range(2):
        line.send(a_fetch(0, 1), VERSION)
    assert line.answered() == 0
    line.send(a_fetch(0, 1), VERSION)
    assert line.answered() == 1
    harness.advance(61_000)
    assert line.answered() == 3
    line.send(a_fetch(0, 1), VERSION)
    assert line.answered() == 3
    harness.call(lambda: line.server.on_close(line.connection))
    line.send(a_fetch(0, 1), VERSION)
    line.send(a_fetch(0, 1), VERSION)
    assert line.answered() == 3


def test_a_bug_in_a_parked_fetch_ends_its_connection_and_nobody_elses_wait(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is woken among others: those who wait for the same sync must hear of it all the same."""
    line.send(a_fetch(0), VERSION)
    partition = harness.partition("t")

    def fail(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(type(partition.log), "read", fail)
    harness.produce("t")
    assert line.paper.closed
    assert partition.high_watermark == 1


# ---- fetch sessions --------------------------------------------------------------------------------


def session_data(first: int, count: int, session: tuple[int, int]) -> FetchData:
    entries = [FetchPartition("t", first + index, -1, 0, -1, 0, 100) for index in range(count)]
    return FetchData(-1, -1, 0, 0, 0, 0, session[0], session[1], entries, [], "")


def test_a_session_cannot_grow_without_end() -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(session_data(0, PARTITIONS_MAX, (0, 0)), False, 0)
    assert session is not None
    # What it knows already may come again, with other offsets.
    same, _ = sessions.open(session_data(0, PARTITIONS_MAX, (session.session_id, 1)), False, 0)
    assert same is session
    with pytest.raises(ApiError) as caught:
        sessions.open(session_data(PARTITIONS_MAX, 1, (session.session_id, 2)), False, 0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_all_sessions_together_are_bounded() -> None:
    sessions = FetchSessions(1_000)
    opened = [sessions.open(session_data(0, PARTITIONS_MAX, (0, 0)), False, 0)[0] for _ in range(60)]
    kept = [session for session in opened if session is not None]
    assert sum(len(session.partitions) for session in kept) == ALL_PARTITIONS_MAX
    sessions.open(session_data(0, 0, (kept[0].session_id, -1)), False, 0)
    assert sessions.open(session_data(0, PARTITIONS_MAX, (0, 0)), False, 0)[0] is not None


@pytest.mark.parametrize("is_first", [True, False])
def test_a_session_keeps_no_names_that_no_topic_has(is_first: bool) -> None:
    """A name has up to 32 KiB on the wire, and a session 10,000 of them."""
    sessions = FetchSessions(10)
    entries = [FetchPartition("t" * 250, 0, -1, 0, -1, 0, 100)]
    if is_first:
        session, wanted = sessions.open(session_data(0, 0, (0, 0))._replace(partitions=entries), False, 0)
        assert session is None
        assert wanted == entries
    else:
        session, _ = sessions.open(session_data(0, 1, (0, 0)), False, 0)
        assert session is not None
        with pytest.raises(ApiError) as caught:
            sessions.open(session_data(0, 0, (session.session_id, 1))._replace(partitions=entries), False, 0)
        assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


# ---- requests that wait ----------------------------------------------------------------------------


def is_kept(frame: bytearray) -> bool:
    """Whether something still refers to the frame: a bytearray with views does not grow."""
    try:
        frame.append(0)
    except BufferError:
        return True
    return False


def hand_over(harness: Harness, line: KafkaHarness, request: object, version: int) -> bytearray:
    """Send a request, and return the buffer of its frame."""
    key = spec_of(type(request)).api_key
    frame = write_request(key, version, 1, "test", request)[4:]

    async def deliver() -> None:
        line.server.on_frame(line.connection, memoryview(frame))

    harness.run(deliver())
    harness.settle()
    return frame


def test_a_parked_fetch_keeps_little_of_its_request(harness: Harness, line: KafkaHarness) -> None:
    """What a fetch does not need may have 4 MiB, and each connection may park 128 of them."""
    request = a_fetch(0)
    request.rack_id = "r" * 100_000
    request.forgotten_topics_data = [FetchRequestForgottenTopic("x" * 10_000, bytes(16), [0])]
    frame = hand_over(harness, line, request, VERSION)
    [parked] = line.server._reads[line.connection]
    assert isinstance(parked, Fetch)
    assert not is_kept(frame)
    data = parked._exchange.request
    assert len(data.rack_id) + len(parked._rack) < 1_000
    assert not data.forgotten


def test_a_parked_request_of_a_group_keeps_nothing_of_its_frame(harness: Harness) -> None:
    """The first of two members waits for the second as long as their rebalance timeout."""
    line = KafkaHarness(harness)
    harness.join("readers")

    request = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        group_instance_id="second",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription(["t"]))],
        reason="r" * 10_000,
    )
    frame = hand_over(harness, line, request, 8)
    assert not line.answered()
    [waiting] = line.server._parked.values()
    assert waiting
    assert not is_kept(frame)


def slow_lookups(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], asyncio.Event]:
    """Lookups by time take until the event is set. Returns the times of those that began, too."""
    begun: list[int] = []
    may_end = asyncio.Event()

    async def slow(partition: Partition, timestamp: int) -> tuple[Offset, int] | None:
        begun.append(timestamp)
        await may_end.wait()
        return None

    monkeypatch.setattr(harness.broker.services.lookups, "offset_at_time", slow)
    return begun, may_end


def lookup(*timestamps: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsRequestPartition(0, -1, timestamp) for timestamp in timestamps]
    return ListOffsetsRequest(topics=[ListOffsetsRequestTopic("t", partitions)])


def test_lookups_end_with_their_connection(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for much and goes must not leave the work behind: it could come again as often as it likes."""
    harness.produce("t")
    begun, may_end = slow_lookups(harness, monkeypatch)
    frame = hand_over(harness, line, lookup(1, 2, 3), 5)
    assert begun == [1]
    assert is_kept(frame)
    harness.call(lambda: line.server.on_close(line.connection))
    harness.call(may_end.set)
    harness.settle()
    assert begun == [1]
    assert not is_kept(frame)


def test_of_many_lookups_of_a_client_that_goes_none_begins(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is not read during the first, so nothing tells that it has gone; the others are received."""
    harness.create_topic("t")
    harness.produce("t")
    begun, _ = slow_lookups(harness, monkeypatch)
    server = KafkaServer(harness.broker)
    frames = [write_request(ApiKey.LIST_OFFSETS, 5, number, "test", lookup(number)) for number in range(1, 200)]

    async def ask_and_go() -> None:
        host, port = await server.open("127.0.0.1", 0)
        _, writer = await asyncio.open_connection(host, port)
        writer.writelines(frames)
        while not begun:  # noqa: ASYNC110  # the server has no event for this
            await asyncio.sleep(0.001)
        writer.close()
        deadline = time.monotonic() + 60
        while server.listener.connections and time.monotonic() < deadline:
            harness.loop.ahead_s += 1
            await asyncio.sleep(0.001)
        assert not server.listener.connections
        assert not server._lookups
        await server.close()

    harness.run(ask_and_go())
    assert begun == [1]


def test_a_lookup_that_ends_before_its_first_step_leaves_nothing(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.produce("t")
    begun, _ = slow_lookups(harness, monkeypatch)
    frame = bytes(write_request(ApiKey.LIST_OFFSETS, 5, 1, "test", lookup(1)))[4:]

    def ask_and_end() -> None:
        line.server.on_frame(line.connection, memoryview(bytearray(frame)))
        line.paper.is_abandoned = True
        line.server._end_abandoned()
        assert line.paper.closed
        line.server.on_close(line.connection)

    harness.call(ask_and_end)
    harness.settle()
    assert begun == []
    assert not line.server._lookups
    assert not line.server._tasks


def test_many_lookups_have_one_timer(harness: Harness, line: KafkaHarness) -> None:
    """It looks at the connections of those that are carried out, and ends when there are none."""
    harness.produce("t")
    request = ListOffsetsRequest(topics=[ListOffsetsRequestTopic("t", [ListOffsetsRequestPartition(0, -1, 1)])])
    timers = set()
    for _ in range(3):
        hand_over(harness, line, request, 5)
        timers.add(line.server._abandoned_poll)
    assert len(timers) == 1
    assert None not in timers
    assert not line.server._lookups
    harness.advance(1_000)
    assert line.server._abandoned_poll is None


def test_a_fetch_of_an_unknown_topic_leaves_nothing_to_the_collector(harness: Harness) -> None:
    """The error of a partition must not keep its request alive until the collector finds the two."""

    class Noted(Read):
        def room(self) -> int:
            return 1_000

        def on_results(self, results: list[ReadResult], is_misdirected: bool) -> None:
            assert [result.error for result in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    read = Noted(harness.broker.services.reads, [WantedPartition("unknown", 0, 0, 1_000)])
    kept = weakref.ref(read)
    gc.disable()
    try:
        read.start()
        del read
        assert kept() is None
    finally:
        gc.enable()


# ---- produce ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_request_with_a_million_partitions_is_refused(line: KafkaHarness, version: int) -> None:
    """Eight bytes each on the wire would become hundreds each in memory."""
    topic = ProduceRequestTopic("t", bytes(16), [ProduceRequestPartition(0, None)] * 150_000)
    line.send(ProduceRequest(None, -1, 1_000, [topic, topic]), version)
    assert line.paper.closed
    assert "300000" in (line.paper.reason or "")


# ---- groups ----------------------------------------------------------------------------------------


def test_a_bug_in_one_answer_of_a_group_is_that_request_s_alone(harness: Harness) -> None:
    """Answers are given from among all who wait for a sync; an exception there would reach the wrong ones."""

    def translate(answer: object) -> object:
        raise AssertionError("a bug")

    async def go() -> object:
        request = groups.OffsetFetchRequest("readers", None)
        ask = harness.broker.services.groups.ask
        commit = groups.OffsetCommitRequest("readers", (groups.OffsetToCommit("t", 0, 1),))  # type: ignore[arg-type]
        first = ask("readers", commit, groups.OffsetCommitResponse, translate)
        second = ask("readers", request, groups.OffsetFetchResponse, lambda answer: answer)
        with pytest.raises(AssertionError):
            await first  # type: ignore[misc]
        return await second  # type: ignore[misc]

    assert isinstance(harness.run(go()), groups.OffsetFetchResponse)
