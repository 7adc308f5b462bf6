"""Every message in every version: there and back, cut short, with a tail, damaged, and hostile."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drmq.wire import KNOWN_APIS, Api, ProtocolError, decode
from drmq.wire.fields import spec_of
from drmq.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from drmq.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

from .samples import CASE_IDS, CASES, encoded, filled, floods, messages

each_case = pytest.mark.parametrize(("message", "version"), CASES, ids=CASE_IDS)

ALLOCATION_FACTOR_MAX = 60


@pytest.mark.parametrize("api", KNOWN_APIS.values(), ids=lambda api: api.key.name)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_round_trip(api: Api, data: st.DataObject) -> None:
    """What was written is read again, from bytes, a bytearray or a view, and wherever it starts."""
    message = data.draw(st.sampled_from([api.request, api.response]))
    version = data.draw(st.integers(api.version_min, api.version_max))
    value = data.draw(messages(message, version))
    written = encoded(value, version)
    assert decode(message, version, written) == value
    assert decode(message, version, bytearray(written)) == value
    assert decode(message, version, memoryview(b"head" + written), 4) == value


@each_case
def test_filled_and_null_messages_round_trip(message: type, version: int) -> None:
    """Every field survives when it is set, and every null when it is null."""
    for value in (
        message(),
        filled(message, version),
        filled(message, version, nulls=True),
        filled(message, version, 0),
    ):
        assert decode(message, version, encoded(value, version)) == value


@each_case
def test_truncated_message_is_refused(message: type, version: int) -> None:
    """A message cut at any byte is a protocol error."""
    written = encoded(filled(message, version), version)
    for stop in range(len(written)):
        with pytest.raises(ProtocolError):
            decode(message, version, written[:stop])


@each_case
def test_message_with_a_tail_is_refused(message: type, version: int) -> None:
    written = encoded(filled(message, version), version)
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        decode(message, version, written + b"\0")


@each_case
def test_damaged_message_gives_a_value_or_a_protocol_error(message: type, version: int) -> None:
    """No damage gets past `ProtocolError`, and what is still a message can be written again."""
    chance = random.Random(version)
    written = encoded(filled(message, version), version)
    for _ in range(25):
        damaged = bytearray(written)
        for _ in range(chance.randint(1, 3)):
            where = chance.randrange(len(damaged) + 1)
            stop = where + chance.randint(0, 4)
            damaged[where:stop] = chance.choice([b"", b"\xff" * 4, b"\x7f\xff\xff\xff", chance.randbytes(4)])
        try:
            value: object = decode(message, version, bytes(damaged))
        except ProtocolError:
            continue
        assert decode(message, version, encoded(value, version)) == value


@each_case
def test_damaged_first_bytes_give_a_value_or_a_protocol_error(message: type, version: int) -> None:
    """Every value of the bytes that most often hold lengths, counts and tags is survived."""
    written = encoded(filled(message, version, 1, "a"), version)
    for where in range(min(len(written), 6)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF):
            damaged = bytearray(written)
            damaged[where] = byte
            try:
                decode(message, version, damaged)
            except ProtocolError:
                continue


@pytest.mark.parametrize(
    ("message", "version"),
    [case for case in CASES if case[1] in (spec_of(case[0]).flexible_from, spec_of(case[0]).last_version)],
    ids=lambda case: getattr(case, "__name__", f"v{case}"),
)
def test_memory_grows_with_the_frame(message: type, version: int) -> None:
    """The smallest elements, as many as fit, take no more memory than a fixed multiple of the frame."""
    for value in floods(message, version, 150):
        written = encoded(value, version)
        decode(message, version, written)
        tracemalloc.start()
        decode(message, version, written)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < ALLOCATION_FACTOR_MAX * len(written) + 1000, (peak, len(written))


@pytest.mark.parametrize("count", [2**31 - 1, 10_000_000, 200_001, -2])
def test_hostile_count_raises_before_it_allocates(count: int) -> None:
    """A count that the frame cannot hold is refused when it is read, whatever it claims."""
    classic = count.to_bytes(4, "big", signed=True) + bytes(100)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(MetadataRequest, 4, classic)
    compact = bytearray()
    if count > 0:
        value = count + 1
        while value > 0x7F:
            compact.append(value & 0x7F | 0x80)
            value >>= 7
        compact.append(value)
        with pytest.raises(ProtocolError):
            decode(MetadataRequest, 12, bytes(compact) + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_unknown_tags_are_skipped() -> None:
    """A newer peer may add tagged fields that we do not know."""
    written = encoded(ApiVersionsRequest("a", "b"), 3)
    assert written.endswith(b"\0")
    unknown = written[:-1] + b"\x02" + b"\x07\x03abc" + b"\xc8\x01\x00"
    assert decode(ApiVersionsRequest, 3, unknown) == ApiVersionsRequest("a", "b")


def test_flood_of_tags_is_refused_or_skipped_in_one_pass() -> None:
    """A block that claims more tags than it has bytes is refused, and one that has them is skipped."""
    body = encoded(ApiVersionsRequest("a", "b"), 3)[:-1]
    with pytest.raises(ProtocolError, match="tagged fields"):
        decode(ApiVersionsRequest, 3, body + b"\xff\xff\xff\xff\x0f" + bytes(1000))
    assert decode(ApiVersionsRequest, 3, body + b"\x80\x50" + bytes(2 * 10240)) == ApiVersionsRequest("a", "b")


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02" + b"\x01\x08" + bytes(8) + b"\x01\x08" + bytes(8),  # the same tag twice
        b"\x02" + b"\x03\x01\x01" + b"\x01\x08" + bytes(8),  # tags that descend
        b"\x01" + b"\x01\x07" + bytes(7),  # a size too small for the field
        b"\x01" + b"\x01\x09" + bytes(9),  # a size too large for the field
        b"\x01" + b"\x01\x7f" + bytes(8),  # a size beyond the end
    ],
)
def test_malformed_tags_are_refused(tags: bytes) -> None:
    body = encoded(ApiVersionsResponse(), 3)[:-1]
    with pytest.raises(ProtocolError):
        decode(ApiVersionsResponse, 3, body + tags)


def test_text_must_be_utf8() -> None:
    with pytest.raises(ProtocolError):
        decode(ApiVersionsRequest, 3, b"\x02\xff\x02b\x00")


def test_null_where_the_version_has_none_is_refused() -> None:
    """What could be null in another version must not be null in this one, when read and when written."""
    with pytest.raises(ProtocolError, match="topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ValueError, match="topics cannot be null in version 0"):
        encoded(MetadataRequest(topics=None), 0)
    with pytest.raises(ValueError, match="name cannot be null in version 11"):
        encoded(MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 11)


def test_api_versions_5_names_the_broker() -> None:
    """The bytes of KIP-1242: two plain fields behind those of v3, a null cluster id and -1 for none."""
    value = ApiVersionsRequest("java", "4.4", "cluster", 7)
    assert encoded(value, 5) == b"\x05java\x044.4\x08cluster\x00\x00\x00\x07\x00"
    assert encoded(ApiVersionsRequest("java", "4.4"), 5) == b"\x05java\x044.4\x00\xff\xff\xff\xff\x00"
    assert encoded(value, 4) == b"\x05java\x044.4\x00"
    assert decode(ApiVersionsRequest, 4, encoded(value, 4)).node_id == -1


def test_version_outside_the_schema_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        decode(MetadataRequest, 99, b"")


def test_defaults_are_not_shared() -> None:
    """Changing one message does not change the defaults of the next."""
    first = decode(ApiVersionsResponse, 0, bytes(6))
    first.supported_features.append(first)  # type: ignore[arg-type]  # anything will do
    assert decode(ApiVersionsResponse, 0, bytes(6)).supported_features == []
