"""A caller survives its way between nodes, and requests without one are told apart from those with one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.broker.services.caller import ANONYMOUS, Caller, MalformedCaller, node_caller, unwrap, wrap
from drmq.model import ApiError, DrmqError, ErrorCode, NodeId
from drmq.wire import APIS, ApiKey, write_request
from drmq.wire.messages.api_versions import ApiVersionsRequest

texts = st.text(max_size=300)
callers = st.builds(Caller, texts, texts, texts, texts)


def joined(caller: Caller, request: bytes) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in wrap(caller, request)))


@given(callers, st.binary(max_size=100))
def test_what_is_wrapped_comes_out_again(caller: Caller, request: bytes) -> None:
    found, rest = unwrap(joined(caller, request))
    assert (found, bytes(rest)) == (caller, request)


@pytest.mark.parametrize("api", sorted(APIS))
def test_a_request_of_an_older_node_has_no_caller(api: int) -> None:
    """No api key looks like the mark."""
    frame = memoryview(api.to_bytes(2, "big") + bytes(20))
    assert unwrap(frame) == (None, frame)


@given(st.text(max_size=50))
def test_a_topic_name_of_an_older_node_has_no_caller(name: str) -> None:
    found, rest = unwrap(memoryview(name.encode()))
    assert (found, bytes(rest).decode()) == (None, name)


def test_a_frame_keeps_its_bytes_behind_the_caller() -> None:
    frame = bytes(write_request(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest()))[4:]
    _, rest = unwrap(joined(Caller(ANONYMOUS, "c", "10.0.0.1", "KAFKA"), frame))
    assert bytes(rest) == frame


@given(callers, st.data())
def test_a_caller_that_is_cut_is_refused(caller: Caller, data: st.DataObject) -> None:
    whole = joined(caller, b"")
    size = data.draw(st.integers(2, max(2, len(whole) - 1)))
    if size < len(whole):
        with pytest.raises(MalformedCaller):
            unwrap(whole[:size])


@given(st.binary(max_size=80))
def test_whatever_follows_the_mark_is_a_caller_or_an_error_of_ours(tail: bytes) -> None:
    with suppress(DrmqError):
        unwrap(memoryview(b"\xff\xff" + tail))


def test_a_form_that_is_not_known_is_refused_and_not_guessed() -> None:
    newer = bytearray(joined(Caller(ANONYMOUS, "", "", ""), b"request"))
    newer[2] = 9
    with pytest.raises(ApiError) as caught:
        unwrap(memoryview(newer))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_node_is_no_client() -> None:
    assert node_caller(NodeId(3)).is_node
    assert not Caller(ANONYMOUS, "", "", "").is_node
