"""`topic('x')` is found where it is a call, and schemas are inferred that every sampled value fits into."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.spark.sql import _ddl, _kind_of, _merged, infer, parse


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("select * from topic('a')", ["a"]),
        ('SELECT * FROM Topic ( "a.b-c" ) t', ["a.b-c"]),
        ("select * from topic('a') join topic('b') using (x) join topic('a')", ["a", "b"]),
        ("select 'topic(''a'')', \"topic('b')\" from `topic('c')`", []),
        ("select 1 -- topic('a')\n/* topic('b') */", []),
        ("select mytopic('a'), topic(a), topics('a')", []),
    ],
)
def test_topics_of_a_query(text: str, topics: list[str]) -> None:
    found = parse(text)
    assert list(found.views) == topics
    if not topics:
        assert found.text == text


def test_a_topic_that_is_named_twice_is_one_view() -> None:
    found = parse("select * from topic('a') x join topic('a') y")
    assert found.text == "select * from `__topic_0` x join `__topic_0` y"


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    assert parse(text).text.count("__topic_") >= len(parse(text).views)


def test_an_inferred_schema() -> None:
    values = [
        b'{"id": 1, "name": "x", "tags": ["a"], "at": {"x": 1}, "ok": true, "none": null, "mixed": 1}',
        b'{"id": 2.5, "tags": [], "at": {"y": null}, "mixed": "one", "ID": 3}',
        b"not json",
        b"[1]",
    ]
    assert infer(values) == (
        "`id` double, `name` string, `tags` array<string>, `at` struct<`x`: bigint, `y`: string>, `ok` boolean, "
        "`none` string, `mixed` string"
    )
    assert infer([b"1", b"[]", b"{}", b"\xff"]) is None


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, json_values)
def test_the_order_of_values_does_not_matter(one: Any, other: Any) -> None:
    """A sample has no meaningful order, so the types must not depend on it."""
    assert _types(_merged(_kind_of(one), _kind_of(other))) == _types(_merged(_kind_of(other), _kind_of(one)))


def _types(kind: Any) -> Any:
    """Without the order of fields, which is the order of their first appearance."""
    if isinstance(kind, dict):
        return sorted((name, str(_types(inner))) for name, inner in kind.items())
    return [_types(kind[0])] if isinstance(kind, list) else kind


@given(st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=4), max_size=4))
def test_a_schema_is_balanced_text(objects: list[dict[str, Any]]) -> None:
    """Names are quoted, so that none of them can end its own type."""
    found = infer([json.dumps(value).encode() for value in objects])
    assert found is None or found.replace("``", "").count("`") % 2 == 0
    assert _ddl(None) == "string"
