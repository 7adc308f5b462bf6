"""A broker that answers as a test tells it to: real sockets and real frames, no state.

Answers are functions from a request to a response, or to None to close the connection without a word.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from drmq.model.address import Address
from drmq.wire import APIS, ApiKey, read_request, read_request_header, write_response
from drmq.wire.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApi
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

Answer = Callable[[Any], Any]


class FakeBroker:
    """Serves connections one after the other, each in its own thread, until the test ends."""

    def __init__(self, answers: dict[ApiKey, Answer], versions: dict[ApiKey, tuple[int, int]] | None = None) -> None:
        self.answers = answers
        self.versions = versions or {ApiKey(key): (api.version_min, api.version_max) for key, api in APIS.items()}
        self.seen: list[tuple[ApiKey, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self.answers.setdefault(ApiKey.METADATA, lambda request: self.metadata())
        threading.Thread(target=self._accept, daemon=True).start()

    def metadata(self, **more: Any) -> MetadataResponse:
        """This broker as the only one, and the controller."""
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)],
            controller_id=1,
            cluster_id="fake",
            **more,
        )

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client may hang up at any time, also while an answer is on its way to it.
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while True:
                start = stream.read(4)
                if len(start) < 4:
                    return
                frame = stream.read(struct.unpack(">i", start)[0])
                answer = self._answer(frame)
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | bytearray | None:
        header = read_request_header(frame)
        key = ApiKey(header.api_key)
        self.seen.append((key, header.api_version))
        if key is ApiKey.API_VERSIONS:
            return self._answer_versions(header.api_version, header.correlation_id)
        response = self.answers[key](read_request(frame, header))
        if response is None or isinstance(response, bytes):
            return response
        return write_response(key, header.api_version, header.correlation_id, response)

    def _answer_versions(self, version: int, correlation_id: int) -> bytearray:
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseApi(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.versions.items()
            ]
        )
        if version > self.versions.get(ApiKey.API_VERSIONS, (0, 5))[1]:
            response.error_code = 35
            version = 0
        return write_response(ApiKey.API_VERSIONS, version, correlation_id, response)


@contextmanager
def broker(
    answers: dict[ApiKey, Answer] | None = None, versions: dict[ApiKey, tuple[int, int]] | None = None
) -> Iterator[FakeBroker]:
    fake = FakeBroker(answers or {}, versions)
    try:
        yield fake
    finally:
        fake.close()
