"""Requests to a peer: every one gets its answer, or learns that none will come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from drmq.model import ApiError, DrmqError, ErrorCode, NodeId
from drmq.transport.connection import Buffer
from drmq.transport.peers import PeerRefused, PeerUnavailable

from .nodes import HOST, LOOPS, QUICK, TestNode, connected, run, until

pytestmark = pytest.mark.parametrize("loop", sorted(LOOPS))


def test_many_at_once_get_their_own_answers(loop: str) -> None:
    """However they overtake each other."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            await asyncio.sleep(0.002 * (kind % 7))
            return [payload, payload]

        two.handler.serve = serve
        payloads = [bytes([kind]) * (kind * 1_000) for kind in range(50)]
        answers = await asyncio.gather(
            *(one.network.request(two.node_id, kind, [payload], 10) for kind, payload in enumerate(payloads))
        )
        assert answers == [payload + payload for payload in payloads]

    run(loop, scenario, TestNode(1), TestNode(2))


def test_a_request_may_come_before_the_connection(loop: str) -> None:
    """It waits for the first attempt instead of failing because it was early."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        one.dial(two)
        assert await one.network.request(two.node_id, 5, [b"a", b"b"], 5) == b"1 5 ab"

    run(loop, scenario, TestNode(1), TestNode(2))


def test_nobody_there_is_known_at_once(loop: str) -> None:
    """Long before the time is up; and nothing was done."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        one.dial(two)
        with pytest.raises(PeerUnavailable, match="cannot be reached") as caught:
            await one.network.request(two.node_id, 1, [], 1_000)
        assert not caught.value.is_outcome_open
        with pytest.raises(PeerUnavailable, match="cannot be reached"):
            await one.network.request(two.node_id, 1, [], 1_000)
        with pytest.raises(PeerUnavailable, match="not known"):
            await one.network.request(NodeId(9), 1, [], 1_000)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_refusals_carry_code_and_text(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        errors: list[Exception] = [
            ApiError(ErrorCode.NOT_CONTROLLER, "node 3 is the controller"),
            DrmqError("the disk is full"),
            ZeroDivisionError("a bug"),
        ]

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            raise errors[kind]

        two.handler.serve = serve
        expected = [
            (ErrorCode.NOT_CONTROLLER, "node 3 is the controller"),
            (ErrorCode.UNKNOWN_SERVER_ERROR, "the disk is full"),
            (ErrorCode.UNKNOWN_SERVER_ERROR, "a request of kind 2 failed because of a bug; the log of that node has"),
        ]
        for kind, (code, text) in enumerate(expected):
            with pytest.raises(PeerRefused) as caught:
                await one.network.request(two.node_id, kind, [b"x"], 5)
            assert caught.value.code is code
            assert caught.value.text.startswith(text)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_time_that_runs_out_leaves_the_outcome_open(loop: str) -> None:
    """A late answer changes nothing, and the connection goes on."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        release = asyncio.Event()

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            if kind == 1:
                await release.wait()
            return [b"done"]

        two.handler.serve = serve
        with pytest.raises(PeerUnavailable, match="no answer within") as caught:
            await one.network.request(two.node_id, 1, [], 0.05)
        assert caught.value.is_outcome_open
        release.set()
        assert await one.network.request(two.node_id, 2, [], 5) == b"done"

    run(loop, scenario, TestNode(1), TestNode(2))


def test_a_peer_that_goes_ends_the_wait(loop: str) -> None:
    """Whoever waits is told that it may have been done; whoever serves is cancelled."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        outcomes = []
        started = asyncio.Event()

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            try:
                started.set()
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise
            return []

        two.handler.serve = serve
        asking = asyncio.create_task(one.network.request(two.node_id, 1, [], 1_000))
        await started.wait()
        await two.network.close()
        with pytest.raises(PeerUnavailable) as caught:
            await asking
        assert caught.value.is_outcome_open
        await until(lambda: outcomes == ["cancelled"])

    run(loop, scenario, TestNode(1), TestNode(2))


def test_requests_and_answers_have_a_limit(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            return [bytes(20_000)]

        two.handler.serve = serve
        with pytest.raises(PeerRefused, match="the request has 20000 bytes") as caught:
            await one.network.request(two.node_id, 1, [bytes(20_000)], 5)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(PeerRefused, match="the answer has 20000 bytes"):
            await one.network.request(two.node_id, 1, [], 5)

    options = replace(QUICK, request_frame_bytes_max=10_000)
    run(loop, scenario, TestNode(1, options), TestNode(2, options))


def test_too_many_at_once_are_refused(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        release = asyncio.Event()

        async def serve(peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
            await release.wait()
            return [b"done"]

        two.handler.serve = serve
        asking = [asyncio.create_task(one.network.request(two.node_id, 1, [], 10)) for _ in range(5)]
        await until(lambda: sum(task.done() for task in asking) == 2)
        release.set()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert results.count(b"done") == 3
        refused = [result for result in results if isinstance(result, PeerRefused)]
        assert [each.code for each in refused] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
        assert await one.network.request(two.node_id, 1, [], 5) == b"done"

    options = replace(QUICK, requests_in_flight_max=3)
    run(loop, scenario, TestNode(1, options), TestNode(2, options))


def test_a_request_to_one_that_never_answers_the_greeting(loop: str) -> None:
    """It takes the connection and is silent: the attempt has an end, and so has the request."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        writers = []
        server = await asyncio.start_server(lambda reader, writer: writers.append(writer), HOST, 0)
        port = server.sockets[0].getsockname()[1]
        one.network.set_peer(NodeId(2), HOST, port)
        with pytest.raises(PeerUnavailable, match="within 100 ms"):
            await one.network.request(NodeId(2), 1, [], 1_000)
        await one.network.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()

    run(loop, scenario, TestNode(1, replace(QUICK, dial_timeout_ms=100)))
