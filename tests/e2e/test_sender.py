"""Text that librdkafka's binding cannot take is refused in words.

Otherwise half a surrogate pair ends the process with a signal, and a name is cut off at a NUL.

Each runs in a process of its own, so that a regression is an exit code.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

import drmq
import drmq.aio
from support.polling import PATIENCE_S

BLOCKING = """
import drmq
try:
    with drmq.Producer("127.0.0.1:1", timeout=1) as producer:
        producer.submit({})
except drmq.Error as error:
    print(error)
"""
ASYNCIO = """
import asyncio, drmq, drmq.aio
async def send():
    async with drmq.aio.Producer("127.0.0.1:1", timeout=1) as producer:
        await producer.submit({})
try:
    asyncio.run(send())
except drmq.Error as error:
    print(error)
"""
OPENING = """
import drmq
try:
    drmq.{}
except drmq.Error as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("script", "arguments", "error"),
    [
        (BLOCKING, r"'t', b'x', headers={'a\udcff': b'1'}", r"header 'a\udcff'"),
        (BLOCKING, r"'t', b'x', headers=[('a', b''), ('\ud800', b'1')]", r"header '\ud800'"),
        (BLOCKING, r"'t', b'x', headers={'a\0b': b'1'}", r"header 'a\x00b'"),
        (ASYNCIO, r"'t', b'x', headers={'\udcff': b'1'}", r"header '\udcff'"),
        (BLOCKING, r"'t', b'x', headers={'a': '\udcff'}", "surrogates"),
        (BLOCKING, r"'t', b'x', key='\udcff'", "surrogates"),
        (BLOCKING, r"'\udcff', b'x'", "surrogates"),
        (BLOCKING, r"'a\0b', b'x'", "null character"),
        (OPENING, r"Producer('127.0.0.1:1', properties={'\udcff': 1})", r"'\udcff'"),
        (OPENING, r"Producer('127.0.0.1:1', properties={'client.rack': 'a\0b'})", "'client.rack'"),
        (OPENING, r"Producer('127.0.0.1:1', client_id='\udcff')", "'client.id'"),
        (OPENING, r"Consumer('127.0.0.1:1', '\udcff', mode='single')", "'group.id'"),
        (OPENING, r"Consumer('127.0.0.1:1', 'a\0b', mode='single')", "'group.id'"),
    ],
)
def test_it_is_an_error_of_the_client(script: str, arguments: str, error: str) -> None:
    command = [sys.executable, "-c", script.format(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert error in done.stdout


class FullAtFirst:
    """Stands in for librdkafka's producer."""

    def __init__(self) -> None:
        self.attempts: list[Any] = []

    def poll(self, timeout_s: float) -> None:
        time.sleep(0.001)

    def flush(self, timeout_s: float) -> int:
        return 0

    def produce(self, *message: Any, headers: Any, **optional: Any) -> None:
        self.attempts.append(headers)
        if len(self.attempts) == 1:
            raise BufferError("Local: Queue full")


@pytest.mark.parametrize("is_asyncio", [False, True])
def test_headers_that_can_be_read_once_are_sent_after_a_wait(is_asyncio: bool) -> None:
    """While the queue is full, a message is offered again and again."""
    fake = FullAtFirst()

    async def send() -> None:
        async with drmq.aio.Producer("127.0.0.1:1") as producer:
            producer.sender._producer = fake
            await producer.submit("t", b"x", headers=iter([("a", b"1")]))

    if is_asyncio:
        asyncio.run(send())
    else:
        with drmq.Producer("127.0.0.1:1") as producer:
            producer._sender._producer = fake
            producer.submit("t", b"x", headers=iter([("a", b"1")]))
    assert fake.attempts == [[("a", b"1")]] * 2


@pytest.mark.parametrize("header", [(b"a", b"1"), (1, b"1"), "abc", ("a",), ("a", b"1", b"2")])
def test_headers_that_are_no_pairs_are_named(header: Any) -> None:
    with drmq.Producer("127.0.0.1:1") as producer, pytest.raises(TypeError, match="must be a pair"):
        producer.submit("t", b"x", headers=[header])
