"""A connection to one broker for asyncio: many requests in flight, each with a deadline.

A broker answers the requests of a connection in their order, so a request that waits for records holds back the answers
to those behind it. The owner therefore uses connections of their own for what must not wait (`brokers`).

After any failure the connection is closed, and every request in flight fails with `Unreachable`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from struct import Struct
from typing import NamedTuple, TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded, Unreachable, refusal
from drmq.client.versions import newest_version
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.wire import ApiKey, ProtocolError, decode, read_response, write_request
from drmq.wire.fields import spec_of
from drmq.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
"""A longer response is not plausible: most likely this is not a Kafka port."""

_ROOM_BYTES = 64 * 1024
"""Answers up to this size are cut out of what one read returned. A larger one is received into its own memory."""

_LENGTH = Struct(">i")
_LENGTH_BYTES = 4


class _Pending(NamedTuple):
    """A request in flight."""

    api_key: int
    version: int
    answer: asyncio.Future[memoryview]


class Link(asyncio.BufferedProtocol):
    """An open connection whose broker has reported its versions. Owned by one event loop."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        """An answer that is larger than the room, and how much of it is here."""
        self._large_filled = 0

    @classmethod
    async def open(cls, address: Address, client_id: str, timeout_s: float) -> Link:
        """Connect, and learn the versions of the broker. Raises `ClientError`."""
        loop = asyncio.get_running_loop()
        link: Link | None = None
        try:
            async with asyncio.timeout(timeout_s):
                _, link = await loop.create_connection(lambda: cls(address, client_id), *address)
                await link._learn_versions()
        except TimeoutError:
            if link is not None:
                link.close()
            raise Unreachable(f"Cannot connect to {address}: no response within {timeout_s:g} s") from None
        except socket.gaierror:
            raise Unreachable(
                f"Cannot connect to {address}: the host name cannot be resolved", advice="Check the bootstrap servers."
            ) from None
        except OSError as error:
            raise Unreachable(
                f"Cannot connect to {address}: {os.strerror(error.errno) if error.errno else error}",
                advice="Is a broker running there? `drmq up` starts one on this machine.",
            ) from None
        except BaseException:
            if link is not None:
                link.close()
            raise
        return link

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def call(self, request: object, response_class: type[T], timeout_s: float) -> T:
        """Send a request and wait for its response, whose error codes the caller checks. Raises `ClientError`."""
        version = newest_version(type(request), self._versions, self.address)
        pending = self._send(request, version)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await pending.answer
        except TimeoutError:
            # The broker may be frozen. A new connection fails fast if it is, and loses nothing if it is not.
            self.close()
            raise DeadlineExceeded(
                f"{self.address} did not respond to {ApiKey(pending.api_key).name} within {timeout_s:g} s",
                code=ErrorCode.REQUEST_TIMED_OUT,
                retriable=True,
                advice="The broker may be overloaded or stopped. Check `drmq status`.",
            ) from None
        try:
            _, answer = read_response(pending.api_key, version, frame)
        except ProtocolError as error:
            self.close()
            raise ClientError(f"The response of {self.address} cannot be decoded: {error}") from None
        assert isinstance(answer, response_class), (type(answer), response_class)
        return answer

    def _send(self, request: object, version: int) -> _Pending:
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(f"The connection to {self.address} is closed")
        api_key = spec_of(type(request)).api_key
        self._correlation_id += 1
        pending = _Pending(api_key, version, asyncio.get_running_loop().create_future())
        self._pending[self._correlation_id] = pending
        self._transport.write(write_request(api_key, version, self._correlation_id, self._client_id, request))
        return pending

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="drmq", client_software_version="1")
        frame = await self._send(request, 3).answer
        try:
            answer = decode(ApiVersionsResponse, 3, frame, _LENGTH_BYTES)
        except ProtocolError as error:
            raise self._not_kafka(error) from None
        if answer.error_code:
            raise refusal(answer.error_code, f"{self.address} does not report its versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _not_kafka(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"The server at {self.address} does not speak the Kafka protocol: {error}",
            advice="Check the host and the port.",
        )

    def close(self) -> None:
        """Close at once. Requests in flight fail."""
        if self._transport is not None:
            self._transport.abort()
        self._fail_all(Unreachable(f"The connection to {self.address} was closed", sent=True))

    def _fail_all(self, error: ClientError) -> None:
        pending, self._pending = self._pending, {}
        for each in pending.values():
            if not each.answer.done():
                each.answer.set_exception(error)

    # ---- asyncio.BufferedProtocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write"), transport
        self._transport = transport  # type: ignore[assignment]  # uvloop's transport has no common base class
        found = transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        said = f": {error}" if error is not None else ""
        self._fail_all(Unreachable(f"The broker at {self.address} closed the connection{said}", sent=True))

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._room[self._filled :]

    def buffer_updated(self, size: int) -> None:
        if self._large is not None:
            self._large_filled += size
            if self._large_filled == len(self._large):
                frame, self._large = self._large, None
                self._on_frame(frame)
            return
        self._filled += size
        self._cut_frames()

    def _cut_frames(self) -> None:
        room, at = self._room, 0
        while self._filled - at >= _LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(room, at)
            if not _LENGTH_BYTES <= length <= RESPONSE_BYTES_MAX:
                self._fail_all(self._not_kafka(ValueError(f"a frame of {length} bytes")))
                self.close()
                return
            start, here = at + _LENGTH_BYTES, self._filled - at - _LENGTH_BYTES
            if here >= length:
                at = start + length
                self._on_frame(memoryview(bytes(room[start:at])))
            elif length + _LENGTH_BYTES > _ROOM_BYTES // 2:
                self._large = memoryview(bytearray(length))
                self._large[:here] = room[start : start + here]
                self._large_filled, at = here, self._filled
            else:
                break
        left = self._filled - at
        if at and left:
            room[:left] = bytes(room[at : self._filled])
        self._filled = left

    def _on_frame(self, frame: memoryview) -> None:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        pending = self._pending.pop(correlation_id, None)
        # The caller may have been cancelled: then nobody waits for this.
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(frame)
