"""One connection: versions, deadlines, and peers that are not what they should be."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from drmq.client import Connection, Deadline, DeadlineExceeded, Refused, Unreachable
from drmq.client.connection import ReceiveMemory
from drmq.client.errors import ClientError
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.wire import ApiKey
from drmq.wire.messages.fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from drmq.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from drmq.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.fake_broker import broker


def test_the_newest_common_version_is_spoken() -> None:
    """Between what both sides know, the newest wins, and a cap is kept."""
    with broker(versions={ApiKey.METADATA: (2, 7), ApiKey.API_VERSIONS: (0, 4)}) as fake:
        connection = Connection(fake.address, "test", Deadline(5))
        assert connection.call(MetadataRequest(topics=[]), MetadataResponse, Deadline(5)).cluster_id == "fake"
        connection.call(MetadataRequest(topics=[]), MetadataResponse, Deadline(5), version_max=3)
        connection.close()
        assert fake.seen == [(ApiKey.API_VERSIONS, 3), (ApiKey.METADATA, 7), (ApiKey.METADATA, 3)]


def test_old_broker_is_asked_again_in_version_0() -> None:
    """A broker that refuses the version of ApiVersions answers in version 0, and is understood."""
    with broker(versions={ApiKey.METADATA: (0, 5), ApiKey.API_VERSIONS: (0, 2)}) as fake:
        connection = Connection(fake.address, "test", Deadline(5))
        assert connection.version_of(MetadataRequest) == 5
        connection.close()
        assert fake.seen == [(ApiKey.API_VERSIONS, 3), (ApiKey.API_VERSIONS, 0)]


def test_api_that_the_broker_does_not_have() -> None:
    """No request is sent that the broker did not offer, and the error has a code."""
    with broker(versions={ApiKey.METADATA: (90, 99), ApiKey.API_VERSIONS: (0, 4)}) as fake:
        connection = Connection(fake.address, "test", Deadline(5))
        for request, response in ((ListGroupsRequest(), ListGroupsResponse), (MetadataRequest(), MetadataResponse)):
            with pytest.raises(Refused) as caught:
                connection.call(request, response, Deadline(5))
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        connection.close()


@contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Something that listens and is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield Address("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00",
        b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x10\x00\x00\x00",
    ],
)
def test_peer_that_does_not_speak_kafka(answer: bytes) -> None:
    """Whatever comes back, the call ends with a `ClientError` that names the peer."""

    def behave(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(answer)

    with peer(behave) as address, pytest.raises(ClientError) as caught:
        Connection(address, "test", Deadline(5))
    assert str(address) in str(caught.value)


def test_silence_ends_at_the_deadline() -> None:
    """A peer that takes the request and says nothing costs the deadline and no more."""
    done = threading.Event()

    def behave(connection: socket.socket) -> None:
        done.wait(10)

    with peer(behave) as address:
        with pytest.raises(DeadlineExceeded) as caught:
            Connection(address, "test", Deadline(0.05))
        done.set()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "API_VERSIONS" in str(caught.value)


def test_closed_door() -> None:
    """Nobody listens: said at once, and nothing was sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused") as caught:
        Connection(Address("127.0.0.1", port), "test", Deadline(5))
    assert not caught.value.sent


def test_a_request_that_was_sent_ahead_leaves_the_connection_open() -> None:
    """Its answer may be there before anybody asks for it; only bytes that nobody waits for mean the end."""
    with broker({ApiKey.LIST_GROUPS: lambda request: ListGroupsResponse()}) as fake:
        deadline = Deadline(5)
        connection = Connection(fake.address, "test", deadline)
        first = connection.send(ListGroupsRequest(), deadline)
        second = connection.send(ListGroupsRequest(), deadline)
        while fake.count(ApiKey.LIST_GROUPS) < 2:
            assert deadline.check("waiting")
        assert connection.is_open
        assert connection.receive(first, ListGroupsResponse, deadline).groups == []
        assert connection.is_open
        assert connection.receive(second, ListGroupsResponse, deadline).groups == []
        assert connection.is_open
        connection.close()


def test_answers_share_memory_that_is_given() -> None:
    """The bytes of an answer are where they were received, until the next answer takes their place."""
    contents = [b"a" * 5000, b"b" * 3000, b"c" * 9000]

    def answer(request: FetchRequest) -> FetchResponse:
        records = contents[request.session_id]
        return FetchResponse(responses=[FetchResponseTopic(partitions=[FetchResponsePartition(records=records)])])

    with broker({ApiKey.FETCH: answer}) as fake:
        connection = Connection(fake.address, "test", Deadline(5))
        memory = ReceiveMemory(1 << 20)
        found = []
        for number, content in enumerate(contents):
            sent = connection.send(FetchRequest(session_id=number), Deadline(5))
            received = connection.receive(sent, FetchResponse, Deadline(5), memory)
            records = received.responses[0].partitions[0].records
            assert records == content
            found.append(memoryview(records or b""))
        assert found[0].obj is found[1].obj
        assert bytes(found[1][:3000]) != contents[1]
        connection.close()


def test_memory_that_is_too_small_or_too_large() -> None:
    """Grows without touching what is still looked at, and does not keep what only one answer needed."""
    memory = ReceiveMemory(8 << 20)
    first = memory.take(3 << 20)
    first[:] = b"x" * len(first)
    second = memory.take(7 << 20)
    second[:3] = b"yyy"
    assert bytes(first) == b"x" * len(first)
    large = memory.take((8 << 20) + 1)
    assert len(large) == (8 << 20) + 1
    assert large.obj is not second.obj
    assert memory.take(7 << 20).obj is second.obj
    assert len(memory.take(0)) == 0


def test_memory_is_not_shared_with_a_forked_process() -> None:
    """Spark forks its workers: what one receives must not appear under the hands of another."""
    # In a process of its own: one that has threads, as this one has by now, should not be forked.
    program = """
import os
from drmq.client.connection import ReceiveMemory

room = ReceiveMemory(1 << 20).take(1000)
room[:] = b"p" * len(room)
child = os.fork()
if child == 0:
    room[:] = b"c" * len(room)
    os._exit(7 if bytes(room) == b"c" * len(room) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert bytes(room) == b"p" * len(room), "the child wrote into the memory of its parent"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
