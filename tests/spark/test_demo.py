"""The Spark half of `make demo`, with a month instead of a year."""

from __future__ import annotations

from typing import Any

from demo.spark import MONTH, run
from rich.console import Console


def test_the_demo_counts_every_flight_once(spark: Any) -> None:
    """A leader is killed in the middle, some flights come again too late, and every sum is that of the data set."""
    outcome = run(Console(quiet=True), spark, MONTH)
    assert outcome.wrong == []
    # Those that came again, too late, are not among them.
    assert sum(flights for flights, *_ in outcome.found.values()) == MONTH.flight_count
    # The kill came while flights were on their way, and behind it the query went on to the end of the topic.
    assert MONTH.flight_count // 2 <= outcome.killed_at < MONTH.record_count
    assert outcome.lag == 0
