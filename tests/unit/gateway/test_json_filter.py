"""Conditions about fields of JSON values, as the message browser takes them."""

from __future__ import annotations

import pytest

from drmq.gateway.json_filter import compile_conditions
from drmq.gateway.problems import ProblemError

ORDER = b"""
{"total": 10.5, "paid": true, "note": null, "items": [{"sku": "7"}], "customer": {"country": "DE", "name": "A and B"}}
"""
DEEP = b"[" * 3_000 + b"]" * 3_000


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("total", True),
        ("discount", False),
        ("total >= 10.5", True),
        ("total>10.5", False),
        ("total < 11 and customer.country = DE", True),
        ("total < 11 and customer.country = FR", False),
        ("$.customer.country != FR", True),
        ("discount != 1", False),
        ('customer.name = "A and B"', True),
        ("items.0.sku = 7", True),
        ("items.1.sku", False),
        (f"items.{'9' * 5_000}.sku", False),
        ("paid = true", True),
        ("paid = 1", False),
        ("note = null", True),
        ("note < 1", False),
        ("customer.country > 1", False),
        ("customer.country < EU", True),
        ("total.deeper = 1", False),
    ],
)
def test_conditions(text: str, is_found: bool) -> None:
    assert compile_conditions(text)(ORDER) is is_found


@pytest.mark.parametrize("value", [None, b"", b"no json", b"\xff\x00", b"[" * 100_000, DEEP, b"7"])
def test_values_without_the_field(value: bytes | None) -> None:
    assert not compile_conditions("total = 10")(value)


@pytest.mark.parametrize("text", ["", "= 3", "total >=", "a = 1 or b = 2", 'a = "open', "a = 1 and", "a b"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        compile_conditions(text)
