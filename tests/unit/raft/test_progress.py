"""What a leader knows about a follower: when it may send, and what old answers must not undo."""

from __future__ import annotations

from drmq.raft import Configuration, LogIndex, ProgressState, RaftOptions, SnapshotMeta, Term
from drmq.raft.progress import Progress
from drmq.raft.snapshot import SnapshotSending, Stage

OPTIONS = RaftOptions(in_flight_messages_max=2, in_flight_bytes_max=100, append_bytes_max=60)


def index(number: int) -> LogIndex:
    return LogIndex(number)


def replicating(match: int = 5) -> Progress:
    progress = Progress(OPTIONS, index(match + 1), 0)
    progress.on_sent(index(match), 1)
    assert progress.on_accepted(index(match), index(1))
    return progress


def test_a_probe_waits_for_its_answer() -> None:
    """One message at a time until it is known where the logs meet."""
    progress = Progress(OPTIONS, index(6), 0)
    progress.on_sent(index(6), 10)
    assert not progress.may_send
    assert progress.next == 6
    assert progress.on_accepted(index(6), index(1))
    assert (progress.state, progress.match, progress.next, progress.may_send) == (ProgressState.REPLICATE, 6, 7, True)


def test_window_is_bounded_by_messages_and_bytes() -> None:
    """Both limits stop the sender, and an answer frees what it covers."""
    progress = replicating()
    allowed = [progress.may_send]
    progress.on_sent(index(6), 10)
    allowed.append(progress.may_send)
    progress.on_sent(index(7), 10)
    allowed.append(progress.may_send)
    progress.on_accepted(index(6), index(1))
    allowed.append(progress.may_send)
    assert allowed == [True, True, False, True]
    progress.on_sent(index(8), 90)
    progress.on_accepted(index(7), index(1))
    assert (progress.in_flight_count, progress.in_flight_bytes) == (1, 90)
    progress.on_sent(index(9), 10)
    assert not progress.may_send


def test_match_never_falls() -> None:
    """A late answer says less than is known, and takes nothing back."""
    progress = replicating(5)
    assert not progress.on_accepted(index(3), index(1))
    assert (progress.match, progress.next) == (5, 6)


def test_late_rejections_are_ignored() -> None:
    """Of what is confirmed nothing can be missing, and of probes only the last one counts."""
    progress = replicating(5)
    assert not progress.on_rejected(index(5), index(2))
    assert progress.state is ProgressState.REPLICATE
    probe = Progress(OPTIONS, index(9), 0)
    assert not probe.on_rejected(index(7), index(3))
    assert probe.on_rejected(index(8), index(3))
    assert probe.next == 4


def test_rejection_while_replicating_goes_back_to_what_is_known() -> None:
    """After a loss: continue from where the follower is, never below what it confirmed."""
    progress = replicating(5)
    progress.on_sent(index(6), 1)
    progress.on_sent(index(7), 1)
    assert progress.on_rejected(index(6), index(2))
    assert (progress.state, progress.next, progress.in_flight_count) == (ProgressState.PROBE, 6, 0)


def test_snapshot_ends_with_its_installation() -> None:
    """No appends during a snapshot transfer; then appends from after it, also if the log now begins later."""
    sending = SnapshotSending(SnapshotMeta(index(20), Term(1), Configuration()), 0)
    progress = Progress(OPTIONS, index(4), 0)
    progress.become_snapshot(sending)
    assert not progress.may_send
    progress.on_accepted(index(3), index(30))
    assert progress.state is ProgressState.SNAPSHOT
    progress.on_accepted(index(20), index(30))
    assert (progress.state, progress.next) == (ProgressState.REPLICATE, 21)


def test_silence_is_two_heartbeats() -> None:
    """After one answered heartbeat an append may still wait for the follower's disk; after two it is lost."""
    progress = replicating()
    assert [progress.on_silence(), progress.on_silence()] == [False, True]
    progress.on_accepted(index(6), index(1))
    assert not progress.on_silence()


def test_a_duplicate_answer_starts_no_second_stream() -> None:
    """Each chunk is fetched once, unless its loss was found out by a new offer."""
    sending = SnapshotSending(SnapshotMeta(index(20), Term(1), Configuration()), 0)
    assert sending.on_answer(0, 1)
    assert not sending.on_answer(0, 1)
    sending.stage = Stage.SENT
    assert not sending.on_answer(0, 1)
    assert sending.on_answer(10, 2)
    sending.stage = Stage.SENT
    sending.offer_again(9)
    assert sending.on_answer(10, 10)
    sending.stage, sending.size_bytes = Stage.SENT, 15
    assert not sending.on_answer(15, 11)
    assert sending.stage is Stage.COMPLETE
    assert sending.on_answer(0, 12)


def test_a_follower_that_is_always_a_little_late_keeps_up_and_one_that_stands_still_does_not() -> None:
    progress = Progress(OPTIONS, index(10), 0)
    assert progress.caught_up_tick(index(10), 0) is None
    for tick in range(1, 20):
        # Each tick ten more are committed, and the follower has what was committed two ticks ago.
        progress.on_accepted(index(max(1, 10 * tick - 20)), index(1))
        progress.look(index(10 * tick), tick)
    caught_up = progress.caught_up_tick(index(190), 19)
    assert caught_up is not None
    assert 19 - 4 <= caught_up < 19
    for tick in range(20, 40):
        progress.look(index(200), tick)
    late = progress.caught_up_tick(index(200), 39)
    assert late is not None
    assert late <= 19
    progress.on_accepted(index(200), index(1))
    assert progress.caught_up_tick(index(200), 39) == 39


def test_who_had_all_that_was_committed_is_not_taken_back_to_when_its_leader_began() -> None:
    """A new leader may hold much that is not committed. That it is reached later says nothing of earlier."""
    progress = Progress(OPTIONS, index(101), 0)
    progress.on_accepted(index(50), index(1))
    for tick in range(1, 10):
        progress.look(index(50), tick)
    progress.on_accepted(index(101), index(1))
    assert progress.caught_up_tick(index(120), 10) == 9


def test_who_must_show_again_what_it_has_is_not_caught_up_before() -> None:
    progress = Progress(OPTIONS, index(10), 0)
    progress.on_accepted(index(10), index(1))
    progress.look(index(10), 1)
    progress.forget()
    progress.look(index(10), 2)
    assert progress.caught_up_tick(index(10), 2) is None
