"""Timers agree with a dictionary that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drmq.model import Timers

KEYS = ["a", "b", "c", "d"]
operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("take"), st.just(KEYS[0]), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(operations)
def test_timers_behave_like_a_searched_dictionary(script: list[tuple[str, str, int]]) -> None:
    timers, model = Timers[str](), dict[str, int]()
    for operation, key, time_ms in script:
        if operation == "set":
            timers.set(key, time_ms)
            model[key] = time_ms
        elif operation == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            taken = timers.take_due(time_ms)
            earliest = min(model.values(), default=None)
            if taken is None:
                assert earliest is None or earliest > time_ms
            else:
                assert model.pop(taken) == earliest
        assert timers.next_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all(timers.get(each) == model.get(each) for each in KEYS)


def test_ties_come_in_the_order_of_setting() -> None:
    timers = Timers[str]()
    for key in KEYS:
        timers.set(key, 5)
    assert [timers.take_due(5) for _ in range(5)] == [*KEYS, None]


def test_heartbeats_do_not_fill_the_heap() -> None:
    """A deadline that only moves away costs one entry, however often it moves."""
    timers = Timers[str]()
    for time_ms in range(1_000):
        timers.set(KEYS[0], time_ms)
    assert len(timers._heap) == 1
    assert timers.next_ms() == 999
