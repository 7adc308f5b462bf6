"""Filters of dead letters: what each field means, and which filters are refused."""

from __future__ import annotations

import json

import pytest

from drmq.broker.services.redrive.letter_filter import FIELDS, LetterFilter
from drmq.broker.services.redrive.letters import Letter
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import Codec, Record

LETTER = Letter(
    partition=0,
    record=Record(Offset(4), 0, b"k1", b'{"amount": 5}', (("trace", b"7"), ("empty", None))),
    codec=Codec.NONE,
    topic="orders",
    origin_partition=2,
    origin_offset=9,
    topic_id=None,
    group="billing",
    attempts=3,
    reason="it was rejected",
    first_failed_ms=100,
    last_failed_ms=200,
    has_record=True,
    redrive_count=1,
)
MATCHING = {
    "group": "billing",
    "topic": "orders",
    "partition": 2,
    "key": "k1",
    "value_contains": '"amount": 5',
    "reason": "rejected",
    "header": {"trace": "7", "empty": ""},
    "attempts_min": 3,
    "redrives_max": 1,
    "failed_since_ms": 200,
    "failed_until_ms": 201,
}
OTHERS = {
    "group": "bill",
    "topic": "order",
    "partition": 1,
    "key": "k",
    "value_contains": "amount: 5",
    "reason": "expired",
    "header": {"trace": "7", "other": "1"},
    "attempts_min": 4,
    "redrives_max": 0,
    "failed_since_ms": 201,
    "failed_until_ms": 200,
}


def matches(wanted: dict[str, object]) -> bool:
    return LetterFilter.parse(json.dumps(wanted)).matches(LETTER)


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_decides(name: str) -> None:
    assert matches({name: MATCHING[name]})
    assert not matches({name: OTHERS[name]})


def test_all_fields_must_match() -> None:
    assert matches(MATCHING)
    for name in FIELDS:
        assert not matches(MATCHING | {name: OTHERS[name]}), name


@pytest.mark.parametrize("text", ["", "{}", None])
def test_an_empty_filter_means_all(text: str | None) -> None:
    empty = LetterFilter.parse(text)
    assert empty.matches(LETTER)
    assert empty.text == ""


def test_the_text_of_a_filter_is_a_filter() -> None:
    text = LetterFilter.parse(json.dumps(MATCHING)).text
    assert LetterFilter.parse(text).text == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 20_000, "longer than"),
        ("[" * 10_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"colour": "red"}', "there is no field 'colour'"),
        ('{"attempts_min": "3"}', "attempts_min must be a whole number"),
        ('{"attempts_min": true}', "attempts_min must be a whole number"),
        ('{"key": 5}', "key must be a text"),
        ('{"header": {"a": 1}}', "header must be an object of texts"),
        ('{"key": "\\ud800"}', "surrogates"),
    ],
)
def test_a_bad_filter_is_refused_and_says_why(text: str, problem: str) -> None:
    with pytest.raises(ApiError, match=problem) as refused:
        LetterFilter.parse(text)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
