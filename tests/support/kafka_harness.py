"""A Kafka server without sockets: frames in, answers out, on the harness's loop and clock."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, cast

from drmq.kafka import KafkaServer
from drmq.transport import Answer, Connection
from drmq.transport.connection import Stopwatch
from drmq.wire import APIS, ApiKey, read_response, write_request
from drmq.wire.fields import spec_of
from support.broker_harness import Harness

ANSWER_S_MAX: Final = 30.0


class PaperConnection:
    """Stands in for a connection: keeps answers in order, remembers why it was closed."""

    def __init__(self) -> None:
        self.peer = "127.0.0.1:50000"
        self.client_id = ""
        self.software = ""
        self.stopwatch: Stopwatch | None = None
        self.request: object = None
        self.closed = False
        self.is_abandoned = False
        self.reason: str | None = None
        self.unread_bytes = 0
        self.paused: list[object] = []
        self.answers: list[Answer] = []

    def open_answer(self) -> Answer:
        answer = Answer(cast(Connection, self), self.stopwatch, 0.0)
        self.answers.append(answer)
        return answer

    def flush_answers(self, ready: Answer) -> None: ...

    def pause(self, reason: object) -> None:
        self.paused.append(reason)

    def resume(self, reason: object) -> None:
        self.paused.remove(reason)

    def close(self, reason: str | None = None) -> None:
        self.closed = True
        self.reason = reason


class KafkaHarness:
    """One client of a server that runs on a harness's broker."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.server = KafkaServer(harness.broker)
        self.paper = PaperConnection()
        self.connection = cast(Connection, self.paper)
        self._next_id = 0
        self._sent: list[tuple[int, int]] = []

    def send(self, request: object, version: int) -> None:
        """Hand a request to the server, as bytes."""
        api_key = spec_of(type(request)).api_key
        self._next_id += 1
        self._sent.append((api_key, version))
        self.send_frame(bytes(write_request(api_key, version, self._next_id, "test", request))[4:])

    def send_frame(self, frame: bytes) -> None:
        async def deliver() -> None:
            self.server.on_frame(self.connection, memoryview(bytearray(frame)))

        self._harness.run(deliver())
        self._harness.settle()

    def answered(self) -> int:
        return sum(answer.buffers is not None for answer in self.paper.answers)

    def answer(self, index: int = -1) -> Any:
        """The answer to the last request, or to that of this index; fails if there is none yet."""
        buffers = self.paper.answers[index].buffers
        assert buffers is not None, "not answered yet"
        frame = b"".join(bytes(buffer) for buffer in buffers)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        api_key, version = self._sent[index]
        correlation_id, message = read_response(api_key, version, frame[4:])
        assert correlation_id == (index % len(self._sent)) + 1
        return message

    def ask(self, request: object, version: int) -> Any:
        """Send a request and return its answer, which may need other threads: on a busy machine they take a moment."""
        self.send(request, version)
        deadline = time.monotonic() + ANSWER_S_MAX
        while self.paper.answers[-1].buffers is None and time.monotonic() < deadline:
            self._harness.run(asyncio.sleep(0.005))
            self._harness.settle()
        return self.answer()


def versions(api_key: ApiKey) -> range:
    """All versions of an API that are served."""
    api = APIS[api_key]
    return range(api.version_min, api.version_max + 1)
