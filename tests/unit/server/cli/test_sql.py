"""`drmq sql` without Spark: schemas for topics, names of columns, and words of errors."""

from __future__ import annotations

from drmq.server.cli.sql import _schemas, _unique, _words
from drmq.spark.sql import plain


def test_a_schema_for_all_topics_or_for_one() -> None:
    topics = ["orders", "a=b"]
    assert _schemas(("n int",), topics) == {"orders": "n int", "a=b": "n int"}
    assert _schemas(("orders=n int", "s string"), topics) == {"orders": "n int", "a=b": "s string"}
    assert _schemas((), topics) == {}


def test_columns_of_the_same_name() -> None:
    """JSON objects cannot have a key twice."""
    assert _unique(["n", "count", "n", "n"]) == ["n", "count", "n_2", "n_3"]


def test_an_error_is_one_line_about_topics() -> None:
    """Without Spark's plan, stack and inner names."""
    text = "[TABLE_X] `__topic_0` has no column `a`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]\n+- View\n"
    assert _words(text, {"orders": "`__topic_0`"}) == (
        "[TABLE_X] topic('orders') has no column `a`. SQLSTATE: 42703; line 1 pos 7"
    )
    assert _words("broken\n== SQL (line 1) ==\nselect", {}) == "broken"


def test_values_as_json_has_them() -> None:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    class Row(tuple[object, ...]):
        def asDict(self) -> dict[str, object]:
            return {"a": b"x", "b": [Decimal("1.5"), Decimal(2)]}

    assert plain(Row()) == {"a": "x", "b": [1.5, 2]}
    assert plain(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00+00:00"
    assert plain({1: date(2026, 1, 1)}) == {"1": "2026-01-01"}
    assert plain(b"\xff") == "\\xff"
    assert plain(None) is None
