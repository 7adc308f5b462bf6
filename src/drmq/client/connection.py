"""One connection to one broker: sends requests and receives responses, within a deadline.

It blocks, and mostly handles one request at a time: an administration client would gain nothing from more. A caller
that reads a lot can send a request early with `send` and take its response later with `receive`; responses arrive in
the order of the requests, and can all be received into the same memory. The connection asks for the broker's versions
once and then uses the newest version of each API that both sides know.

After any failure the connection is closed, because the position in the stream of responses is lost.
"""

from __future__ import annotations

import mmap
import select
import socket
import time
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded, Unreachable, refusal
from drmq.client.versions import VERSION_MAX, newest_version
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.telemetry import request_ids
from drmq.wire import ApiKey, ProtocolError, decode, read_response, write_request
from drmq.wire.fields import spec_of
from drmq.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
"""A longer response is not plausible: most likely this is not a Kafka port."""

_LENGTH = Struct(">i")

_HUGE_PAGE_BYTES = 2 * 1024 * 1024

_ATTEMPT_S_MIN = 0.5
"""The minimum time of an attempt. If less is left, all of it goes to one attempt."""


class Deadline:
    """The time at which a call fails. All steps of a call share one deadline."""

    def __init__(self, timeout_s: float) -> None:
        self._began = time.monotonic()
        self._at = self._began + timeout_s
        self.timeout_s = timeout_s

    def part(self, share: float) -> Deadline:
        """The deadline of one attempt: a share (0 to 1) of the remaining time, with a small minimum.

        It belongs to the same call: its errors name the timeout of the call, and `elapsed_s` counts from the call's
        start.
        """
        part = Deadline(self.timeout_s)
        part._began = self._began
        part._at = min(self._at, time.monotonic() + max(self.left_s() * share, _ATTEMPT_S_MIN))
        return part

    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    def left_s(self) -> float:
        """The remaining seconds, 0 after the deadline."""
        return max(0.0, self._at - time.monotonic())

    def left_ms(self) -> int:
        """The remaining time in whole milliseconds, at least 1, for requests that carry a timeout."""
        return max(1, int(self.left_s() * 1000))

    def check(self, doing: str) -> float:
        """The remaining seconds. Raises `DeadlineExceeded` if there are none."""
        left = self.left_s()
        if left <= 0:
            raise DeadlineExceeded(
                f"No response within {self.timeout_s:g} s while {doing}",
                code=ErrorCode.REQUEST_TIMED_OUT,
                retriable=True,
                advice="The broker may be overloaded or stopped. Check `drmq status`, or use a longer `--timeout`.",
            )
        return left


class Sent(NamedTuple):
    """A request in flight: what is needed to decode its response."""

    api_key: int
    version: int
    correlation_id: int


class ReceiveMemory:
    """Memory for large responses, reused for one after the other. Owned by one thread.

    A response in this memory is valid only until the next one is received. Fresh memory for each response would cost
    more than everything else about receiving: the system zeroes it, maps it page by page, and places it anywhere,
    whereas copying to the start of a page, and of a huge page in particular, is several times faster.
    """

    def __init__(self, size_kept_max: int) -> None:
        self._size_kept_max = size_kept_max
        self._kept: mmap.mmap | bytearray = bytearray()

    def take(self, size: int) -> memoryview:
        """A view of `size` bytes of the same memory as before, unless it is too small or `size` too large to keep."""
        if size > self._size_kept_max:
            return memoryview(bytearray(size))
        if len(self._kept) < size:
            # The old mapping is freed with its last view. One page more, since a mapping need not start at a huge page.
            page_count = -(-size // _HUGE_PAGE_BYTES) + 1
            # Private: a forked process gets its own copy, and most systems have no huge pages for shared memory.
            self._kept = mmap.mmap(-1, page_count * _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # Without huge pages the memory works all the same.
                    self._kept.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(self._kept)[:size]


class Connection:
    """An open connection whose broker has reported its versions. Owned by one thread."""

    def __init__(self, address: Address, client_id: str, deadline: Deadline) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._due_count = 0
        """Requests that were sent and whose responses were not received yet."""
        self._versions: dict[int, tuple[int, int]] = {}
        self.supported_features: dict[str, tuple[int, int]] = {}
        """By name: the lowest and the highest level of each feature that the broker supports."""
        self.finalized_features: dict[str, int] = {}
        """The levels that its cluster has finalized, and in `finalized_epoch` how new that is."""
        self.finalized_epoch = -1
        self._socket = self._connect(deadline)
        try:
            self._learn_versions(deadline)
        except BaseException:
            self.close()
            raise

    def _connect(self, deadline: Deadline) -> socket.socket:
        left = deadline.check(f"connecting to {self.address}")
        try:
            opened = socket.create_connection(self.address, timeout=left)
        except TimeoutError:
            deadline.check(f"connecting to {self.address}")
            raise Unreachable(f"Cannot connect to {self.address}: no response") from None
        except socket.gaierror:
            raise Unreachable(
                f"Cannot connect to {self.address}: the host name cannot be resolved",
                advice="Check the name. `-b` or DRMQ_BOOTSTRAP sets the address.",
            ) from None
        except OSError as error:
            raise Unreachable(
                f"Cannot connect to {self.address}: {error.strerror or error}",
                advice="Is a broker running there? `drmq up` starts one on this machine; `-b` or DRMQ_BOOTSTRAP sets "
                "another address.",
            ) from None
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def _learn_versions(self, deadline: Deadline) -> None:
        request = ApiVersionsRequest(client_software_name="drmq", client_software_version="1")
        # Kafka 2.4 and later know version 3. An older broker responds in version 0, with an error.
        frame = self._exchange(request, 3, deadline)
        try:
            if int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
                frame = self._exchange(ApiVersionsRequest(), 0, deadline)
                answer = decode(ApiVersionsResponse, 0, frame, 4)
            else:
                answer = decode(ApiVersionsResponse, 3, frame, 4)
        except ProtocolError as error:
            raise self._not_kafka(error) from None
        if answer.error_code:
            raise refusal(answer.error_code, f"{self.address} does not report its versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.supported_features = {
            feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
        }
        self.finalized_features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        self.finalized_epoch = answer.finalized_features_epoch

    def _not_kafka(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"The server at {self.address} does not speak the Kafka protocol: {error}",
            advice="Check the host and the port.",
        )

    def supports(self, api_key: ApiKey) -> bool:
        return api_key in self._versions

    def version_of(self, request_class: type, version_max: int = VERSION_MAX) -> int:
        """The newest version of a request that both sides know, up to `version_max`."""
        return newest_version(request_class, self._versions, self.address, version_max)

    def call(self, request: object, response_class: type[T], deadline: Deadline, version_max: int = VERSION_MAX) -> T:
        """Send a request and wait for its response, whose error codes the caller checks. Raises `ClientError`."""
        return self.receive(self.send(request, deadline, version_max), response_class, deadline)

    def send(self, request: object, deadline: Deadline, version_max: int = VERSION_MAX) -> Sent:
        """Send a request without waiting for its response, which the caller takes with `receive`."""
        return self._send(request, self.version_of(type(request), version_max), deadline)

    def receive(
        self, sent: Sent, response_class: type[T], deadline: Deadline, memory: ReceiveMemory | None = None
    ) -> T:
        """The response to the oldest request without one. Raises `ClientError`.

        Bytes in the response are views of `memory`, if given.
        """
        frame = self._receive_answer(sent, deadline, memory)
        try:
            _, answer = read_response(sent.api_key, sent.version, frame)
        except ProtocolError as error:
            self.close()
            raise ClientError(f"The response of {self.address} cannot be decoded: {error}") from None
        assert isinstance(answer, response_class), (type(answer), response_class)
        return answer

    def _exchange(self, request: object, version: int, deadline: Deadline) -> memoryview:
        """The frame of the response, without its length prefix."""
        return self._receive_answer(self._send(request, version, deadline), deadline)

    def _send(self, request: object, version: int, deadline: Deadline) -> Sent:
        api_key = spec_of(type(request)).api_key
        self._correlation_id += 1
        sent = Sent(api_key, version, self._correlation_id)
        try:
            self._socket.settimeout(deadline.check(self._doing(sent)))
            client_id = request_ids.with_id(self._client_id)
            self._socket.sendall(write_request(api_key, version, self._correlation_id, client_id, request))
        except (OSError, ClientError) as error:
            raise self._broken(sent, error, deadline) from None
        self._due_count += 1
        return sent

    def _receive_answer(self, sent: Sent, deadline: Deadline, memory: ReceiveMemory | None = None) -> memoryview:
        self._due_count -= 1
        try:
            frame = self._receive(deadline, self._doing(sent), memory)
        except (OSError, ClientError) as error:
            raise self._broken(sent, error, deadline) from None
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != sent.correlation_id:
            self.close()
            raise self._not_kafka(ValueError(f"response {correlation_id} to request {sent.correlation_id}"))
        return frame

    def _doing(self, sent: Sent) -> str:
        return f"requesting {ApiKey(sent.api_key).name} from {self.address}"

    def _broken(self, sent: Sent, error: OSError | ClientError, deadline: Deadline) -> ClientError:
        """The error to raise for a failure in the middle of a request. Closes the connection."""
        self.close()
        if isinstance(error, ClientError):
            return error
        if isinstance(error, TimeoutError):
            try:
                deadline.check(self._doing(sent))
            except DeadlineExceeded as exceeded:
                return exceeded
            return Unreachable(f"{self.address} stopped responding", sent=True)
        return Unreachable(
            f"The connection to {self.address} broke while waiting for {ApiKey(sent.api_key).name}: "
            f"{error.strerror or error}",
            sent=True,
        )

    def _receive(self, deadline: Deadline, doing: str, memory: ReceiveMemory | None) -> memoryview:
        (length,) = _LENGTH.unpack(self._fill(memoryview(bytearray(4)), deadline, doing))
        if not 4 <= length <= RESPONSE_BYTES_MAX:
            raise self._not_kafka(ValueError(f"a frame of {length} bytes"))
        # The system backs fresh memory with pages only when it is written, so a false length from an unknown server
        # costs nothing before the bytes arrive.
        room = memoryview(bytearray(length)) if memory is None else memory.take(length)
        return self._fill(room, deadline, doing)

    def _fill(self, room: memoryview, deadline: Deadline, doing: str) -> memoryview:
        """Receive exactly as many bytes as fit into `room`."""
        filled = 0
        while filled < len(room):
            self._socket.settimeout(deadline.check(doing))
            size = self._socket.recv_into(room[filled:])
            if not size:
                raise Unreachable(
                    f"The broker closed the connection ({doing})",
                    sent=True,
                    advice="Either the broker stopped, or it has lost contact with most other nodes "
                    "(check with `drmq cluster health`), or this is not a Kafka port.",
                )
            filled += size
        return room

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent. Detects that the broker has closed the connection since the last response.

        If this were detected only by sending, it would be unknown whether the broker executed the request, so it could
        not be repeated: after every restart of a broker the next change by an idle client would fail.
        """
        if self._socket.fileno() < 0:
            return False
        if self._due_count:
            # The readable bytes may be a response that will still be received.
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(0):
            # No response is outstanding, so this is the end of the stream, an error, or unexpected bytes.
            self.close()
            return False
        return True

    def close(self) -> None:
        self._socket.close()
