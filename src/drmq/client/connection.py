"""One connection to one broker: a request out, its answer back, all within a deadline.

Blocking, and mostly one request at a time: an administration client has nothing to gain from more.
Who reads a lot sends a request ahead with `send` and takes its answer later with `receive`; answers
come in the order of the requests, and may all be received into the same memory. The connection asks for
the broker's versions once and then speaks the newest version of each API that both sides know.

After any failure the connection is closed, because the position in the stream of answers is lost.
"""

from __future__ import annotations

import mmap
import select
import socket
import time
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded, Refused, Unreachable, refusal
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.wire import ApiKey, ProtocolError, decode, read_response, write_request
from drmq.wire.fields import spec_of
from drmq.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

T = TypeVar("T")

RESPONSE_BYTES_MAX = 256 * 1024 * 1024
"""An answer that claims to be longer is not an answer: most likely this is not a Kafka port."""

_LENGTH = Struct(">i")

_HUGE_PAGE_BYTES = 2 * 1024 * 1024

_ATTEMPT_S_MIN = 0.5
"""With less time than this an attempt is not worth making: what is left is then one attempt."""


class Deadline:
    """A moment after which a call has failed. Passed down, so that all steps of a call share one."""

    def __init__(self, timeout_s: float) -> None:
        self._began = time.monotonic()
        self._at = self._began + timeout_s
        self.timeout_s = timeout_s

    def part(self, share: float) -> Deadline:
        """The deadline of one attempt, which has a share (0 to 1) of what is left, and at least a little.

        It belongs to the same call: its errors name the call's time, and it has begun when the call did.
        """
        part = Deadline(self.timeout_s)
        part._began = self._began
        part._at = min(self._at, time.monotonic() + max(self.left_s() * share, _ATTEMPT_S_MIN))
        return part

    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    def left_s(self) -> float:
        """Seconds that are left, 0 at the end."""
        return max(0.0, self._at - time.monotonic())

    def left_ms(self) -> int:
        """What is left in whole milliseconds, for requests that tell a broker how long it may take; at least 1."""
        return max(1, int(self.left_s() * 1000))

    def check(self, doing: str) -> float:
        """Seconds that are left; raises `DeadlineExceeded` if there are none."""
        left = self.left_s()
        if left <= 0:
            raise DeadlineExceeded(
                f"No answer within {self.timeout_s:g} s while {doing}",
                code=ErrorCode.REQUEST_TIMED_OUT,
                retriable=True,
                advice="The broker may be overloaded or stopped; `drmq status` tells, `--timeout` waits longer.",
            )
        return left


class Sent(NamedTuple):
    """A request that is on its way: what is needed to understand its answer."""

    api_key: int
    version: int
    correlation_id: int


class ReceiveMemory:
    """Memory that one large answer after the other is received into. Owned by one thread.

    An answer that was received into this holds only until the next one is. Fresh memory for each costs
    more than all else about receiving: it is cleared, handed out page by page, and begins anywhere, while the
    system copies several times faster to the beginning of a page, and of a huge one at that.
    """

    def __init__(self, size_kept_max: int) -> None:
        self._size_kept_max = size_kept_max
        self._kept: mmap.mmap | bytearray = bytearray()

    def take(self, size: int) -> memoryview:
        """Room for `size` bytes: the same as last time, unless that is too small or `size` too large to keep."""
        if size > self._size_kept_max:
            return memoryview(bytearray(size))
        if len(self._kept) < size:
            # The old one goes when its last view does. One page more, since a mapping need not begin with one.
            page_count = -(-size // _HUGE_PAGE_BYTES) + 1
            # Private: a process that is forked from this one has its own, and most systems have no huge pages to share.
            self._kept = mmap.mmap(-1, page_count * _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # A system without huge pages has the memory all the same.
                    self._kept.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(self._kept)[:size]


class Connection:
    """A connection that is open and whose broker has told its versions. Owned by one thread."""

    def __init__(self, address: Address, client_id: str, deadline: Deadline) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._due_count = 0
        """Requests that were sent and whose answers were not taken yet."""
        self._versions: dict[int, tuple[int, int]] = {}
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
            raise Unreachable(f"Cannot connect to {self.address}: it does not answer") from None
        except OSError as error:
            raise Unreachable(
                f"Cannot connect to {self.address}: {error.strerror or error}",
                advice="Is a broker running there? `drmq up` starts one, `--bootstrap` names another.",
            ) from None
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def _learn_versions(self, deadline: Deadline) -> None:
        request = ApiVersionsRequest(client_software_name="drmq", client_software_version="1")
        # Version 3 is understood since Kafka 2.4. A broker that does not know it answers in version 0, with an error.
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
            raise refusal(answer.error_code, f"{self.address} does not tell its versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _not_kafka(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"What answers at {self.address} does not speak the Kafka protocol: {error}",
            advice="Check host and port.",
        )

    def supports(self, api_key: ApiKey) -> bool:
        return api_key in self._versions

    def version_of(self, request_class: type, version_max: int = 32767) -> int:
        """The newest version of a request that both sides know, and that is at most `version_max`."""
        spec = spec_of(request_class)
        name = ApiKey(spec.api_key).name
        theirs = self._versions.get(spec.api_key)
        if theirs is None:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"The broker at {self.address} does not offer {name}")
        version = min(spec.last_version, theirs[1], version_max)
        if version < max(spec.first_version, theirs[0]):
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker at {self.address} speaks {name} in versions {theirs[0]} to {theirs[1]}, "
                f"this client in {spec.first_version} to {min(spec.last_version, version_max)}",
            )
        return version

    def call(self, request: object, response_class: type[T], deadline: Deadline, version_max: int = 32767) -> T:
        """Send a request and wait for its answer. Raises `ClientError`; codes inside the answer are the caller's."""
        return self.receive(self.send(request, deadline, version_max), response_class, deadline)

    def send(self, request: object, deadline: Deadline, version_max: int = 32767) -> Sent:
        """Send a request without waiting for its answer, which `receive` must take next."""
        return self._send(request, self.version_of(type(request), version_max), deadline)

    def receive(
        self, sent: Sent, response_class: type[T], deadline: Deadline, memory: ReceiveMemory | None = None
    ) -> T:
        """The answer to the oldest request that has none. Raises `ClientError`.

        Bytes in it are views of `memory`, if that is given.
        """
        frame = self._receive_answer(sent, deadline, memory)
        try:
            _, answer = read_response(sent.api_key, sent.version, frame)
        except ProtocolError as error:
            self.close()
            raise ClientError(f"The answer of {self.address} cannot be read: {error}") from None
        assert isinstance(answer, response_class), (type(answer), response_class)
        return answer

    def _exchange(self, request: object, version: int, deadline: Deadline) -> memoryview:
        """The frame of the answer, without its size."""
        return self._receive_answer(self._send(request, version, deadline), deadline)

    def _send(self, request: object, version: int, deadline: Deadline) -> Sent:
        api_key = spec_of(type(request)).api_key
        self._correlation_id += 1
        sent = Sent(api_key, version, self._correlation_id)
        try:
            self._socket.settimeout(deadline.check(self._doing(sent)))
            self._socket.sendall(write_request(api_key, version, self._correlation_id, self._client_id, request))
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
            raise self._not_kafka(ValueError(f"answer {correlation_id} to request {sent.correlation_id}"))
        return frame

    def _doing(self, sent: Sent) -> str:
        return f"asking {self.address} for {ApiKey(sent.api_key).name}"

    def _broken(self, sent: Sent, error: OSError | ClientError, deadline: Deadline) -> ClientError:
        """What to raise for a failure in the middle of a request; the connection is closed."""
        self.close()
        if isinstance(error, ClientError):
            return error
        if isinstance(error, TimeoutError):
            try:
                deadline.check(self._doing(sent))
            except DeadlineExceeded as exceeded:
                return exceeded
            return Unreachable(f"{self.address} stopped answering", sent=True)
        return Unreachable(
            f"The connection to {self.address} broke while waiting for {ApiKey(sent.api_key).name}: "
            f"{error.strerror or error}",
            sent=True,
        )

    def _receive(self, deadline: Deadline, doing: str, memory: ReceiveMemory | None) -> memoryview:
        (length,) = _LENGTH.unpack(self._fill(memoryview(bytearray(4)), deadline, doing))
        if not 4 <= length <= RESPONSE_BYTES_MAX:
            raise self._not_kafka(ValueError(f"a frame of {length} bytes"))
        # Fresh memory is only promised by the system until it is written to, so a length that a stranger
        # claims costs nothing before the bytes are there.
        room = memoryview(bytearray(length)) if memory is None else memory.take(length)
        return self._fill(room, deadline, doing)

    def _fill(self, room: memoryview, deadline: Deadline, doing: str) -> memoryview:
        """Receive as many bytes as there is room for."""
        filled = 0
        while filled < len(room):
            self._socket.settimeout(deadline.check(doing))
            size = self._socket.recv_into(room[filled:])
            if not size:
                raise Unreachable(
                    f"{self.address} closed the connection while {doing}",
                    sent=True,
                    advice="The broker stopped, or it is cut off from most other nodes (`drmq cluster health` tells), "
                    "or this is not a Kafka port.",
                )
            filled += size
        return room

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent. A broker that hung up since the last answer is noticed here.

        Noticed only by sending, it would leave the fate of the request open, and nobody would dare to send
        it again: after every restart of a broker the next change of an idle client would fail.
        """
        if self._socket.fileno() < 0:
            return False
        if self._due_count:
            # What can be read now is an answer that somebody will take.
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(0):
            # No answer is due, so this is the end of the stream, an error, or bytes that belong to nothing.
            self.close()
            return False
        return True

    def close(self) -> None:
        self._socket.close()
