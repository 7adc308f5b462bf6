"""Connections of clients that stand still, with a server of its own whose limit is short."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from drmq.gateway.http_connection import HttpConnection
from support.polling import PATIENCE_S, eventually

SIZE = 32 * 1024 * 1024


class ShortConnection(HttpConnection):
    SILENCE_S = 1.0
    LOOK_EVERY_S = 0.2
    lost: ClassVar[list[Exception | None]] = []

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.append(exc)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """A large answer at once, or a short one after more than the limit."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        continue
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * ShortConnection.SILENCE_S)
    body = b"x" * (SIZE if scope["path"] == "/large" else 5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def server() -> Iterator[uvicorn.Server]:
    config = uvicorn.Config(
        answer, port=0, http=ShortConnection, log_config=None, timeout_keep_alive=60, lifespan="off"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    eventually(lambda: running.started)
    yield running
    running.should_exit = True
    thread.join(PATIENCE_S)


def connect(server: uvicorn.Server, sent: bytes) -> socket.socket:
    """A client with a small buffer that has sent this."""
    client = socket.socket()
    client.settimeout(PATIENCE_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.connect(server.servers[0].sockets[0].getsockname())
    client.sendall(sent)
    return client


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /large HTT",
        b"POST /short HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345",
        b"",
    ],
    ids=["reads nothing", "reads nothing, last request", "half a head", "half a body", "sends nothing"],
)
def test_a_client_that_stands_still_is_disconnected(server: uvicorn.Server, sent: bytes) -> None:
    before = len(ShortConnection.lost)
    with connect(server, sent):
        eventually(lambda: len(ShortConnection.lost) > before, what="it is disconnected")
    assert not server.server_state.connections


def test_an_answer_that_takes_long_is_waited_for(server: uvicorn.Server) -> None:
    with connect(server, b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as client:
        found = b""
        while part := client.recv(65_536):
            found += part
    assert found.endswith(b"xxxxx")
