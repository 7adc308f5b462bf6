"""Bytes become frames however they are cut, answers keep their order, and nothing grows without bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.transport import Answer, Connection, ListenerOptions, Pause
from drmq.transport.buffers import BUFFER_SIZE

from .fakes import Line, Recorder, frame

PRODUCE = 0


def test_a_whole_frame_is_handed_over_without_its_size() -> None:
    line = Line()
    line.receive(frame(20))
    assert line.recorder.frames == [frame(20)[4:]]


def test_frames_byte_by_byte() -> None:
    line = Line()
    wire = frame(20) + frame(9, fill=b"y") + frame(5000)
    for index in range(len(wire)):
        line.receive(wire[index : index + 1])
    assert line.recorder.frames == [frame(20)[4:], frame(9, fill=b"y")[4:], frame(5000)[4:]]


def test_several_frames_and_a_tail_in_one_read() -> None:
    line = Line()
    tail = frame(300, fill=b"z")
    line.receive(frame(20) + frame(30) + tail[:7])
    assert len(line.recorder.frames) == 2
    line.receive(tail[7:])
    assert line.recorder.frames[2] == tail[4:]


@given(
    st.lists(st.sampled_from([8, 9, 50, 4_090, 4_097, 65_530, 70_000, 300_000]), min_size=1, max_size=5),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=10),
)
def test_frames_survive_any_cutting(sizes: list[int], cuts: list[int]) -> None:
    """The frames that come out are the frames that were sent, wherever the stream was cut."""
    line = Line()
    wire = b"".join(frame(size, PRODUCE, bytes([index + 65])) for index, size in enumerate(sizes))
    position = 0
    while position < len(wire):
        for cut in cuts:
            line.receive(wire[position : position + cut])
            position += cut
    assert line.recorder.frames == [frame(size, PRODUCE, bytes([i + 65]))[4:] for i, size in enumerate(sizes)]
    assert line.listener.partial_bytes == 0


def test_a_frame_larger_than_a_pooled_buffer() -> None:
    line = Line()
    wire = frame(BUFFER_SIZE + 100_000, PRODUCE)
    for start in range(0, len(wire), 77_777):
        line.receive(wire[start : start + 77_777])
    assert line.recorder.frames == [wire[4:]]


def test_pooled_frames_do_not_overwrite_each_other() -> None:
    """A frame that is still viewed keeps its bytes while the next ones arrive."""
    views: list[memoryview] = []

    class Keeper(Recorder):
        def on_frame(self, connection: Connection, frame: memoryview) -> None:
            views.append(frame)

    line = Line(Keeper())
    for letter in range(30):
        line.receive(frame(100_000, PRODUCE, bytes([65 + letter])))
    assert [bytes(view[2:5]) for view in views] == [bytes([65 + letter]) * 3 for letter in range(30)]


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ((2**31 - 1).to_bytes(4, "big"), "two gigabytes announced"),
        (b"\xff\xff\xff\xff", "a negative length"),
        (b"\0\0\0\0", "an empty frame"),
        (b"GET / HTTP/1.1\r\n", "not our protocol"),
        (frame(5_000_000, 3)[:10], "a request of another kind, longer than such requests may be"),
    ],
)
def test_lengths_that_no_request_has_end_the_connection(prefix: bytes, why: str) -> None:
    line = Line()
    line.receive(prefix)
    assert line.transport.is_aborted, why
    assert line.listener.refused_count == 1


def test_nothing_is_allocated_because_a_header_said_so() -> None:
    """Announcing 100 MB and sending ten bytes costs a page, and not a megabyte."""
    line = Line(options=ListenerOptions(request_bytes_max=104_857_600))
    beginning = (104_857_000).to_bytes(4, "big") + bytes(6)
    for _ in range(100):
        connection, _ = line.connect()
        line.receive(beginning, connection)
    assert line.listener.partial_bytes <= 100 * 4_096


def test_answers_leave_in_the_order_of_requests() -> None:
    answers: list[Answer] = []
    line = Line(Recorder(lambda connection, _: answers.append(connection.open_answer())))
    line.receive(frame(8) * 3)
    answers[2].send([b"third"])
    answers[1].send([b"sec", b"ond"])
    line.loop.turn()
    assert line.transport.written == b""
    answers[0].send([b"first"])
    line.loop.turn()
    assert line.transport.written == b"firstsecondthird"


def test_an_answer_after_the_connection_is_gone_goes_nowhere() -> None:
    answers: list[Answer] = []
    line = Line(Recorder(lambda connection, _: answers.append(connection.open_answer())))
    line.receive(frame(8))
    line.connection.connection_lost(None)
    answers[0].send([b"late"])
    line.loop.turn()
    assert line.transport.written == b""
    assert line.recorder.closed == [line.connection]


def test_too_many_open_requests_pause_reading_and_keep_what_came() -> None:
    answers: list[Answer] = []
    line = Line(
        Recorder(lambda connection, _: answers.append(connection.open_answer())),
        ListenerOptions(requests_in_flight_max=4),
    )
    line.receive(frame(8) * 10)
    assert len(line.recorder.frames) == 4
    assert line.transport.paused()
    for _ in range(10):
        for answer in answers:
            if answer.buffers is None:
                answer.send([b"."])
        line.loop.turn()
    assert len(line.recorder.frames) == 10
    assert not line.transport.paused()
    assert line.transport.written == b"." * 10


def test_a_slow_reader_is_not_read() -> None:
    line = Line()
    line.connection.pause_writing()
    assert line.transport.paused()
    line.connection.resume_writing()
    line.loop.turn()
    assert not line.transport.paused()


def test_a_pause_inside_a_read_holds_the_rest_back() -> None:
    """When a request pauses its connection, the requests behind it in the same read wait."""
    line = Line(Recorder(lambda connection, _: connection.pause(Pause.HANDLER)))
    line.receive(frame(8) + frame(9) + frame(10)[:6])
    assert len(line.recorder.frames) == 1
    line.connection.resume(Pause.HANDLER)
    line.loop.turn()
    assert len(line.recorder.frames) == 2
    line.connection.resume(Pause.HANDLER)
    line.loop.turn()
    assert not line.transport.paused()
    line.receive(frame(10)[6:])
    assert len(line.recorder.frames) == 3


def test_reading_goes_on_only_when_every_reason_is_gone() -> None:
    line = Line()
    line.connection.pause(Pause.DISK)
    line.connection.pause(Pause.ANSWERS)
    line.connection.resume(Pause.DISK)
    line.loop.turn()
    assert line.transport.paused()
    line.connection.resume(Pause.ANSWERS)
    line.loop.turn()
    assert not line.transport.paused()


def test_half_received_frames_share_a_budget() -> None:
    """Past the budget a growing frame waits until another one is done; none is lost."""
    line = Line(options=ListenerOptions(partial_request_bytes_max=3_000_000, request_bytes_max=10_000_000))
    wire = frame(2_000_000, PRODUCE)
    first, first_transport = line.connect()
    second, second_transport = line.connect()
    line.receive(wire[:1_900_000], first)
    for start in range(0, len(wire), 50_000):
        if second_transport.paused():
            break
        line.receive(wire[start : start + 50_000], second)
    assert second_transport.paused()
    assert not first_transport.paused()
    line.receive(wire[1_900_000:], first)
    line.loop.turn()
    assert not second_transport.paused()
    line.receive(wire[start:], second)
    assert line.recorder.frames == [wire[4:]] * 2


def test_answers_of_one_moment_leave_in_one_write() -> None:
    answers: list[Answer] = []
    line = Line(Recorder(lambda connection, _: answers.append(connection.open_answer())))
    line.receive(frame(8) * 5)
    for answer in answers:
        answer.send([b"a", b"b"])
    line.loop.turn()
    assert line.transport.writes == [b"ab" * 5]


def test_large_answers_do_not_gather() -> None:
    """What would fill the socket is written at once, so that a slow reader is noticed before more is made."""
    answers: list[Answer] = []
    line = Line(Recorder(lambda connection, _: answers.append(connection.open_answer())))
    line.receive(frame(8) * 3)
    for answer in answers:
        answer.send([b"x" * 2_000_000])
    assert len(line.transport.written) == 6_000_000
