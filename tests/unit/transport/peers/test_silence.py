"""How long a peer may be silent: the limit follows the pauses between its messages, between a floor and a ceiling."""

from __future__ import annotations

import pytest

from drmq.transport.peers.silence import CEILING, Silence

FLOOR_S = 1.0


@pytest.fixture
def silence() -> Silence:
    made = Silence(FLOOR_S)
    made.on_started(0.0)
    return made


def heard(silence: Silence, now: float, *pauses: float) -> float:
    for pause in pauses:
        now += pause
        silence.on_heard(now)
    return now


def test_the_floor_holds_for_a_peer_that_is_in_time(silence: Silence) -> None:
    now = heard(silence, 0.0, *[0.1] * 50)
    assert silence.limit_s == FLOOR_S
    assert not silence.is_too_long(now + 0.99)
    assert silence.is_too_long(now + 1.01)


def test_the_limit_follows_pauses_and_forgets_them(silence: Silence) -> None:
    now = heard(silence, 0.0, 0.1, 0.8, 0.1)
    assert silence.limit_s == pytest.approx(2.4, abs=0.1)
    heard(silence, now, *[0.1] * 100)
    assert silence.limit_s == FLOOR_S


def test_a_limit_that_was_too_short_grows_with_each_mistake_up_to_the_ceiling(silence: Silence) -> None:
    now = heard(silence, 0.0, 60.0)
    assert silence.limit_s == 3 * FLOOR_S
    now = heard(silence, now, 60.0)
    assert silence.limit_s == 9 * FLOOR_S
    heard(silence, now, 60.0)
    assert silence.limit_s == CEILING * FLOOR_S


def test_a_new_process_is_as_quick_as_any(silence: Silence) -> None:
    now = heard(silence, 0.0, 60.0, 60.0)
    silence.on_started(now + 60.0)
    assert silence.limit_s == FLOOR_S


def test_time_that_this_process_lost_is_no_silence(silence: Silence) -> None:
    silence.forgive(5.25, 5.5)
    assert silence.length_s(5.5) == 0.25
    silence.on_heard(5.55)
    assert silence.limit_s == FLOOR_S
    silence.forgive(5.0, 5.75)
    assert silence.length_s(5.75) == 0.0


def test_who_was_never_heard_is_silent_for_ever() -> None:
    silence = Silence(FLOOR_S)
    assert silence.is_too_long(0.0)
    silence.on_heard(1_000.0)
    assert silence.limit_s == FLOOR_S
    assert not silence.is_too_long(1_000.5)
