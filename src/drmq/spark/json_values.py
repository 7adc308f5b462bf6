"""Parses JSON values into Arrow structs, without a Python object per record, and with a reason for each failure.

Arrow's own reader parses lines of JSON in compiled code, but it stops at the first bad line and does not say which.
Each value is therefore wrapped in an object with its row number, `{"i":7,"v":[…]}`, and all are parsed at once. If that
fails, or the resulting numbers are not 0, 1, 2, …, or a list does not have exactly one value, the rows are halved and
parsed again, down to the single rows that cause the failure.

The list detects values that continue after their end, such as `{"a":1},"x":2`: without it, the rest would be one more
field of the wrapper, and the value would be valid. No value can affect another one: it can add objects but never absorb
the next one, because anything that it leaves open is followed by `]}`, and an extra object shows in the numbers. A
value that was made to fit the wrapper, `{"a":1}],"x":[2`, is parsed as its first part. That is harmless: its author
could have written that part alone.

A null value (a tombstone) and the value `null` are null without an error.

Arrow parses dates only from numbers, but they are commonly written as text. They are therefore read as text and cast.
"""

from __future__ import annotations

from typing import Any

_REASON_LENGTH_MAX = 300


def parse(values: Any, value_type: Any) -> tuple[Any, Any]:
    """Parsed values of `value_type`, and the reasons for those that failed: two arrays as long as `values`."""
    import pyarrow as pa

    parsed: list[Any] = []
    reasons: list[Any] = []
    _parse_into(values, value_type, parsed, reasons)
    if not parsed:
        return pa.array([], value_type), pa.array([], pa.string())
    return pa.concat_arrays(parsed), pa.concat_arrays(reasons)


def _parse_into(values: Any, value_type: Any, parsed: list[Any], reasons: list[Any]) -> None:
    import pyarrow as pa

    count = len(values)
    if count == 0:
        return
    try:
        parsed.append(_parse_all(values, value_type))
        reasons.append(pa.nulls(count, pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if count == 1:
            parsed.append(pa.nulls(1, value_type))
            reasons.append(pa.array([_reason(error)], pa.string()))
            return
        half = count // 2
        _parse_into(values.slice(0, half), value_type, parsed, reasons)
        _parse_into(values.slice(half), value_type, parsed, reasons)


def _reason(error: Exception) -> str:
    """Arrow's message without the row, which is always 0 here, and without the column of our wrapper."""
    text = str(error).removeprefix("JSON parse error: ").replace(" in row 0", "")
    return text.replace("Column(/v/[])", "The value").replace("Column(/v/[]", "Column(")[:_REASON_LENGTH_MAX]


def _parse_all(values: Any, value_type: Any) -> Any:
    """Parse all values at once. Raises `ArrowInvalid` if any of them is not one JSON value of this type."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json as pa_json

    count = len(values)
    numbers = pa.array(range(count), pa.int64())
    lines = pc.binary_join_element_wise(
        pa.scalar(b'{"i":', pa.binary()),
        numbers.cast(pa.string()).cast(pa.binary()),
        pa.scalar(b',"v":[', pa.binary()),
        pc.fill_null(values, pa.scalar(b"null", pa.binary())),
        pa.scalar(b"]}\n", pa.binary()),
        pa.scalar(b"", pa.binary()),
    )
    # The bytes of a binary array without nulls are contiguous, so they already are the lines.
    text = lines.buffers()[2]
    table = pa_json.read_json(
        pa.BufferReader(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema([("i", pa.int64()), ("v", pa.list_(_dates_as_text(value_type)))]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if not table.column("i").combine_chunks().equals(numbers):
        raise pa.ArrowInvalid("more than one JSON value")
    lists = table.column("v").combine_chunks()
    lengths = pc.list_value_length(lists)
    if pc.any(pc.equal(lengths, 0)).as_py():
        raise pa.ArrowInvalid("no JSON value")
    if lengths.null_count or pc.max(lengths).as_py() > 1:
        raise pa.ArrowInvalid("more than one JSON value")
    parsed = lists.flatten().cast(value_type)
    # Spark assumes that strings are UTF-8; the parser accepts other bytes.
    parsed.validate(full=True)
    return parsed


def _dates_as_text(kind: Any) -> Any:
    """The type with every date replaced by a string."""
    import pyarrow as pa

    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_dates_as_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_dates_as_text(kind.value_type)))
    return kind
