"""Headers of every version, whole frames there and back, and frames that are not what they claim."""

from __future__ import annotations

import io
import random
from typing import cast

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer

from drmq.wire import (
    KNOWN_APIS,
    Api,
    ApiKey,
    Buffer,
    Pieces,
    ProtocolError,
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
    write_response_buffers,
)
from drmq.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from drmq.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from drmq.wire.messages.lease_fetch import (
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
    LeaseFetchResponseTopic,
)

from .samples import filled

each_version = pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in KNOWN_APIS.values() for version in range(api.version_min, api.version_max + 1)],
    ids=lambda case: case.key.name if isinstance(case, Api) else f"v{case}",
)


@each_version
def test_request_frame_round_trip(api: Api, version: int) -> None:
    """A request is read as it was written, and its size is what follows the size."""
    message = filled(api.request, version)
    frame = bytes(write_request(api.key, version, 77, "me", message))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(frame[4:])
    assert header[:4] == (api.key, version, 77, "me")
    assert read_request(frame[4:], header) == message
    assert read_request(memoryview(frame)[4:], header) == message


@each_version
def test_response_frame_round_trip(api: Api, version: int) -> None:
    message = filled(api.response, version)
    frame = bytes(write_response(api.key, version, -5, message))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert read_response(api.key, version, frame[4:]) == (-5, message)


@pytest.mark.parametrize("client_id", [None, "", "me", "é" * 300])
@pytest.mark.parametrize(("version", "kio"), [(3, KioHeader1), (4, KioHeader2)])
def test_request_header_is_kafkas(client_id: str | None, version: int, kio: type) -> None:
    """A flexible request has header v2, in which the client id keeps its two-byte length."""
    expected = io.BytesIO()
    entity = kio(request_api_key=12, request_api_version=version, correlation_id=9, client_id=client_id)
    entity_writer(kio)(expected, entity)
    written = write_request(ApiKey.HEARTBEAT, version, 9, client_id, HeartbeatRequest())[4:]
    assert written.startswith(expected.getvalue())
    header = read_request_header(written)
    assert header == RequestHeader(12, version, 9, client_id, len(expected.getvalue()))


def test_response_header_of_api_versions_is_always_the_oldest() -> None:
    """A client cannot know yet whether the broker writes tags, so there are none."""
    assert write_response(ApiKey.API_VERSIONS, 3, 1, ApiVersionsResponse())[4:9] == b"\0\0\0\x01\0"
    assert len(write_response(ApiKey.API_VERSIONS, 3, 1, ApiVersionsResponse())) == 4 + 4 + 2 + 1 + 4 + 1
    assert len(write_response(ApiKey.HEARTBEAT, 4, 1, HeartbeatResponse())) == 4 + 4 + 1 + 4 + 2 + 1
    assert read_request_header(write_request(18, 3, 1, "x", ApiVersionsRequest())[4:]).body_position == 12


def test_unknown_api_is_read_as_far_as_all_versions_agree() -> None:
    """The caller learns the request and its client, and can answer or close the connection with a reason."""
    frame = b"\x03\xe7\x00\x09\x00\x00\x00\x05\x00\x02me" + b"whatever"
    assert read_request_header(frame) == RequestHeader(999, 9, 5, "me", 12)


def test_version_above_the_table_is_read_for_the_answer() -> None:
    """ApiVersions of the future is answered with error 35, so its header must be readable."""
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x05\xff\xff\x00" + b"whatever"
    assert read_request_header(frame) == RequestHeader(18, 99, 5, None, 11)


def test_tags_in_a_request_header_are_skipped() -> None:
    frame = b"\x00\x12\x00\x03\x00\x00\x00\x05\xff\xff" + b"\x01\x00\x02ab" + b"\x01\x01\x00"
    header = read_request_header(frame)
    assert header.body_position == 15
    assert read_request(frame, header) == ApiVersionsRequest()


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x0c\x00\x04\x00\x00\x00\x05\x00\x02\xff\xfe\x00",  # a client id that is not UTF-8
        b"\x00\x0c\x00\x04\x00\x00\x00\x05\xff\xfe\x00",  # a client id of -2 bytes
        b"\x00\x0c\x00\x04\x00\x00\x00\x05\x00\x09ab",  # a client id beyond the end
        b"\x00\x0c\x00\x04\x00\x00\x00\x05\xff\xff\x7f\x00",  # more tags than bytes
        b"\x00\x0c\x00\x04\x00\x00\x00\x05\xff\xff\x01\x00\x09",  # a tag beyond the end
    ],
)
def test_malformed_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame)


def test_truncated_headers_are_refused() -> None:
    """A header cut at any byte is a protocol error, in requests and in responses."""
    frame = write_request(ApiKey.HEARTBEAT, 4, 1, "me", HeartbeatRequest())[4:]
    for stop in range(13):
        with pytest.raises(ProtocolError):
            read_request_header(frame[:stop])
    frame = write_response(ApiKey.HEARTBEAT, 4, 1, HeartbeatResponse())[4:]
    for stop in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_response(ApiKey.HEARTBEAT, 4, frame[:stop])


def test_random_frames_give_a_value_or_a_protocol_error() -> None:
    chance = random.Random(0)
    for _ in range(5000):
        frame = bytes([0, chance.randrange(80), 0, chance.randrange(14)]) + chance.randbytes(chance.randrange(60))
        try:
            header = read_request_header(frame)
            api = KNOWN_APIS.get(header.api_key)
            if api is not None and api.serves(header.api_version):
                read_request(frame, header)
        except ProtocolError:
            continue


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (100, 0, 70_000)])
def test_pieces_are_written_without_a_copy_and_read_as_one(sizes: tuple[int, ...]) -> None:
    pieces = [memoryview(bytes([number]) * size) for number, size in enumerate(sizes)]
    whole = b"".join(pieces)

    def response(records: list[Buffer]) -> LeaseFetchResponse:
        partitions = [LeaseFetchResponsePartition(number, token=9, records=each) for number, each in enumerate(records)]
        return LeaseFetchResponse(lease_ms=7, topics=[LeaseFetchResponseTopic(bytes(16), partitions)])

    plain = write_response(ApiKey.LEASE_FETCH, 0, 5, response([b"x", whole, whole]))
    two = [cast("Buffer", Pieces(pieces)) for _ in range(2)]
    buffers = write_response_buffers(ApiKey.LEASE_FETCH, 0, 5, response([b"x", *two]))
    assert b"".join(buffers) == bytes(plain)
    assert sum(buffer is piece for buffer in buffers for piece in pieces) == 2 * len(pieces)
    assert bytes(write_response(ApiKey.LEASE_FETCH, 0, 5, response([b"x", *two]))) == bytes(plain)


def test_a_message_without_pieces_is_one_buffer() -> None:
    [buffer] = write_response_buffers(ApiKey.HEARTBEAT, 4, 5, HeartbeatResponse())
    assert bytes(buffer) == bytes(write_response(ApiKey.HEARTBEAT, 4, 5, HeartbeatResponse()))
