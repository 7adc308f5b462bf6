"""How much is leased ahead: enough for a fast application, little for a slow one, never more than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drmq.client.leases.prefetch import FIRST_LIMIT, Prefetch


def drain(prefetch: Prefetch, now_s: float) -> int:
    """The application uses up all that a request may bring. Returns how much that was."""
    count = prefetch.room(0, 0)
    prefetch.on_received(count, count)
    prefetch.on_taken(count, 0, now_s)
    return count


def test_it_doubles_while_the_application_uses_everything_up() -> None:
    prefetch = Prefetch(1_000, 0.0)
    assert [drain(prefetch, 0.1) for _ in range(8)] == [16, 32, 64, 128, 256, 512, 1_000, 1_000]


def test_a_queue_that_is_empty_does_not_raise_it() -> None:
    """Messages that arrive one by one are used up one by one, and that says nothing about a burst."""
    prefetch = Prefetch(1_000, 0.0)
    for _ in range(10):
        prefetch.on_received(1, prefetch.room(0, 0))
        prefetch.on_taken(1, 0, 0.1)
    assert prefetch.limit == FIRST_LIMIT


def test_it_falls_to_what_the_application_takes_in_a_second() -> None:
    prefetch = Prefetch(1_000, 0.0)
    for _ in range(8):
        drain(prefetch, 0.1)
    prefetch.on_taken(1, 500, 60.0)
    prefetch.on_taken(3, 500, 61.0)
    assert prefetch.limit == 4


def test_nothing_is_asked_for_while_half_is_there() -> None:
    prefetch = Prefetch(100, 0.0)
    assert prefetch.room(FIRST_LIMIT // 2 + 1, 0) == 0
    assert prefetch.room(FIRST_LIMIT // 2, 0) == FIRST_LIMIT // 2


def test_what_is_waited_for_comes_on_top() -> None:
    assert Prefetch(0, 0.0).room(0, 0) == 0
    assert Prefetch(0, 0.0).room(0, 500) == 500


def test_what_had_to_be_given_back_is_not_taken_again_until_the_application_returns() -> None:
    prefetch = Prefetch(100, 0.0)
    prefetch.on_unused()
    assert prefetch.room(0, 0) == 0
    assert prefetch.room(0, 1) == 1
    prefetch.on_received(1, 1)
    prefetch.on_taken(1, 0, 0.5)
    assert prefetch.room(0, 0) == 1


@given(
    most=st.integers(0, 50),
    events=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.floats(0, 5)), max_size=30),
)
def test_it_never_exceeds_its_maximum(most: int, events: list[tuple[int, int, float]]) -> None:
    prefetch = Prefetch(most, 0.0)
    now_s = 0.0
    for count, left, elapsed_s in events:
        now_s += elapsed_s
        prefetch.on_received(count, prefetch.room(0, 0))
        prefetch.on_taken(count, left, now_s)
        assert 0 <= prefetch.limit <= most
        assert prefetch.room(left, 0) <= most
