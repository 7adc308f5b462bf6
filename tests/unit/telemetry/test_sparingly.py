"""Dear values are found out seldom, cheap ones always."""

from __future__ import annotations

from drmq.telemetry.sparingly import CHEAP_NS, REUSED_FACTOR, Sparingly


def test_a_dear_value_takes_a_small_share_of_the_time_however_many_ask() -> None:
    now_ns, count, cost_ns = 0, 0, 6_000_000

    def find() -> int:
        nonlocal now_ns, count
        now_ns += cost_ns
        count += 1
        return count

    value = Sparingly(find, lambda: now_ns)
    spent = [value()]
    for _ in range(10_000):
        now_ns += 1_000_000
        spent.append(value())
    assert count * cost_ns <= now_ns / REUSED_FACTOR + cost_ns
    assert spent == sorted(spent)
    assert spent[-1] == count > 3, "it is found out again after a while"


def test_a_cheap_value_is_always_new() -> None:
    now_ns, count = 0, 0

    def find() -> int:
        nonlocal now_ns, count
        now_ns += CHEAP_NS
        count += 1
        return count

    value = Sparingly(find, lambda: now_ns)
    assert [value() for _ in range(5)] == [1, 2, 3, 4, 5]
