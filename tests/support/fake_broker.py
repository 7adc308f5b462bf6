"""Brokers that give the answers of a test: real sockets and real frames, no state.

Answers are functions from a request to a response, or to None to close the connection without an answer. A
`FakeCluster` is several of them with the same metadata about each other.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from drmq.model.address import Address
from drmq.wire import KNOWN_APIS, ApiKey, read_request, read_request_header, write_response
from drmq.wire.messages.api_versions import (
    ApiVersionsResponse,
    ApiVersionsResponseApi,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

Answer = Callable[[Any], Any]


class FakeBroker:
    """Serves connections one after the other, each in its own thread, until the test ends."""

    def __init__(self, answers: dict[ApiKey, Answer], versions: dict[ApiKey, tuple[int, int]] | None = None) -> None:
        self.answers = answers
        self.versions = versions or {ApiKey(key): (api.version_min, api.version_max) for key, api in KNOWN_APIS.items()}
        self.seen: list[tuple[ApiKey, int]] = []
        self.client_ids: set[str | None] = set()
        self.supported_features: list[ApiVersionsResponseSupportedFeature] = []
        self.finalized_features: list[ApiVersionsResponseFinalizedFeature] = []
        self.finalized_epoch = -1
        self._connections: list[socket.socket] = []
        self._is_awake = threading.Event()
        self._is_awake.set()
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

    def count(self, key: ApiKey) -> int:
        """How many requests of an API have arrived."""
        return [seen for seen, _ in self.seen].count(key)

    def freeze(self) -> None:
        """From now on take connections and requests and answer nothing, as a stopped process does."""
        self._is_awake.clear()

    def hang_up(self) -> None:
        """Close all connections, as a broker that restarts does."""
        while self._connections:
            with suppress(OSError):
                self._connections.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            # Closed alone, the socket would take one more connection for the thread that waits in `accept`.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._is_awake.set()
        self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client may hang up at any time, also while an answer is on its way to it.
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while True:
                start = stream.read(4)
                if len(start) < 4:
                    return
                frame = stream.read(struct.unpack(">i", start)[0])
                self._is_awake.wait(30)
                answer = self._answer(frame)
                self._is_awake.wait(30)
                if answer is None:
                    return
                with suppress(OSError):
                    connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | bytearray | None:
        header = read_request_header(frame)
        key = ApiKey(header.api_key)
        self.seen.append((key, header.api_version))
        self.client_ids.add(header.client_id)
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
            ],
            supported_features=self.supported_features,
            finalized_features=self.finalized_features,
            finalized_features_epoch=self.finalized_epoch,
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


class FakeCluster:
    """Brokers 1 to n, whose metadata is what the fields here say at that moment."""

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.controller_id = 1
        self.topics: list[MetadataResponseTopic] = []
        for fake in brokers:
            fake.answers[ApiKey.METADATA] = lambda request: self.metadata()

    def __getitem__(self, node_id: int) -> FakeBroker:
        return self.brokers[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(str(fake.address) for fake in self.brokers.values())

    def answer(self, key: ApiKey, answer: Answer) -> None:
        """Let every broker answer an API in the same way."""
        for fake in self.brokers.values():
            fake.answers[key] = answer

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=fake.address.host, port=fake.address.port)
                for node_id, fake in self.brokers.items()
            ],
            controller_id=self.controller_id,
            cluster_id="fake",
            topics=self.topics,
        )

    def counts(self, key: ApiKey) -> list[int]:
        """How many requests of an API each broker got."""
        return [fake.count(key) for fake in self.brokers.values()]


@contextmanager
def fake_cluster(count: int) -> Iterator[FakeCluster]:
    with ExitStack() as stack:
        yield FakeCluster([stack.enter_context(broker()) for _ in range(count)])
