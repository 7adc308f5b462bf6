"""A connection for asyncio: many requests in flight, answers of any size in any pieces, and every way to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.client.errors import DeadlineExceeded, Refused, Unreachable
from drmq.client.leases.link import RESPONSE_BYTES_MAX, Link
from drmq.model.address import Address
from drmq.wire import ApiKey
from drmq.wire.messages.lease_fetch import LeaseFetchRequest, LeaseFetchResponse
from drmq.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from support.fake_broker import FakeBroker
from support.polling import PATIENCE_S

REQUEST = MetadataRequest(topics=[])


def with_link(broker: FakeBroker, use: Callable[[Link], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            link = await Link.open(broker.address, "test", PATIENCE_S)
            try:
                await use(link)
            finally:
                link.close()

    try:
        asyncio.run(main())
    finally:
        broker.close()


def test_several_requests_at_once() -> None:
    names = [f"topic-{number}" for number in range(50)]

    def answer(request: MetadataRequest) -> MetadataResponse:
        assert request.topics is not None
        return MetadataResponse(topics=[MetadataResponseTopic(name=topic.name) for topic in request.topics])

    async def use(link: Link) -> None:
        from drmq.wire.messages.metadata import MetadataRequestTopic

        calls = [
            link.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), MetadataResponse, PATIENCE_S)
            for name in names
        ]
        answers = await asyncio.gather(*calls)
        assert [answer.topics[0].name for answer in answers] == names

    with_link(FakeBroker({ApiKey.METADATA: answer}), use)


def test_an_answer_that_is_larger_than_the_room() -> None:
    topics = [MetadataResponseTopic(name=f"{number:0200}") for number in range(2_000)]

    async def use(link: Link) -> None:
        answer = await link.call(REQUEST, MetadataResponse, PATIENCE_S)
        assert len(answer.topics) == 2_000
        assert not (await link.call(REQUEST, MetadataResponse, PATIENCE_S)).topics[1_999].partitions

    with_link(FakeBroker({ApiKey.METADATA: lambda request: MetadataResponse(topics=topics)}), use)


@given(
    sizes=st.lists(st.one_of(st.integers(4, 200), st.integers(30_000, 200_000)), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 70_000), min_size=1, max_size=20),
)
def test_frames_are_put_together_whatever_their_pieces(sizes: list[int], cuts: list[int]) -> None:
    link = Link(Address("nowhere", 1), "test")
    frames: list[bytes] = []
    link._on_frame = lambda frame: frames.append(bytes(frame))  # type: ignore[method-assign]
    expected = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in expected)
    position = 0
    while position < len(stream):
        room = link.get_buffer(-1)
        assert len(room) > 0
        size = min(len(room), len(stream) - position, cuts.pop() if cuts else len(stream))
        room[:size] = stream[position : position + size]
        position += size
        link.buffer_updated(size)
    assert frames == expected


def test_a_broker_that_hangs_up_fails_all_requests() -> None:
    async def use(link: Link) -> None:
        results = await asyncio.gather(
            *(link.call(REQUEST, MetadataResponse, PATIENCE_S) for _ in range(3)), return_exceptions=True
        )
        assert {type(result) for result in results} == {Unreachable}
        assert not link.is_open
        with pytest.raises(Unreachable, match="is closed"):
            await link.call(REQUEST, MetadataResponse, PATIENCE_S)

    with_link(FakeBroker({ApiKey.METADATA: lambda request: None}), use)


def test_a_broker_that_does_not_answer() -> None:
    broker = FakeBroker({})

    async def use(link: Link) -> None:
        broker.freeze()
        with pytest.raises(DeadlineExceeded, match="METADATA") as failed:
            await link.call(REQUEST, MetadataResponse, 0.05)
        assert failed.value.retriable
        assert not link.is_open

    with_link(broker, use)


def test_a_call_that_is_cancelled_does_not_disturb_the_next() -> None:
    async def use(link: Link) -> None:
        call = asyncio.ensure_future(link.call(REQUEST, MetadataResponse, PATIENCE_S))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await link.call(REQUEST, MetadataResponse, PATIENCE_S)).cluster_id == "fake"

    with_link(FakeBroker({}), use)


def test_a_broker_that_knows_no_leases() -> None:
    """Apache Kafka has share groups, but not these requests."""

    async def use(link: Link) -> None:
        with pytest.raises(Refused, match="does not support LEASE_FETCH") as refused:
            await link.call(LeaseFetchRequest("g", "m", 0, 0, 0, []), LeaseFetchResponse, PATIENCE_S)
        assert "DRMQ" in refused.value.advice

    with_link(FakeBroker({}, versions={ApiKey.METADATA: (0, 13), ApiKey.API_VERSIONS: (0, 3)}), use)


def test_a_server_that_is_no_kafka_broker() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = Address(*server.sockets[0].getsockname())
            with pytest.raises(Unreachable, match="does not speak the Kafka protocol"):
                await Link.open(address, "test", PATIENCE_S)

    asyncio.run(main())
    assert int.from_bytes(b"HTTP", "big") > RESPONSE_BYTES_MAX


def test_nothing_listens() -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        asyncio.run(Link.open(Address("127.0.0.1", 1), "test", PATIENCE_S))
    with pytest.raises(Unreachable, match="cannot be resolved"):
        asyncio.run(Link.open(Address("no-such-host.invalid", 1), "test", PATIENCE_S))
