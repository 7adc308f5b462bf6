"""The types of the client, as a user's type checker sees them. mypy is the test: it reads this file with all others.

An error that is expected has an ignore with its code. If the error goes away, the ignore is unused, which is an error.
"""

from __future__ import annotations

import importlib
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import drmq


@dataclass
class Order:
    total: int


class OrderCodec:
    def encode(self, value: Order) -> bytes:
        return b"%d" % value.total

    def decode(self, data: bytes) -> Order:
        return Order(int(data))


if TYPE_CHECKING:

    def group_mode_yields_messages_that_can_be_settled() -> None:
        with drmq.Consumer("localhost", "billing") as consumer:
            assert_type(consumer, drmq.GroupConsumer[bytes])
            for message in consumer:
                assert_type(message, drmq.LeasedMessage[bytes])
                assert_type(message.value, bytes | Any)
                message.ack()
            consumer.flush()
            consumer.seek("orders", "earliest")  # type: ignore[attr-defined]
            consumer.commit("orders", 3)  # type: ignore[attr-defined]

    def single_mode_yields_messages_that_cannot() -> None:
        with drmq.Consumer("localhost", mode="single") as reader:
            assert_type(reader, drmq.SingleConsumer[bytes])
            for message in reader.poll(100, timeout=1.0):
                assert_type(message, drmq.Message[bytes])
                message.ack()  # type: ignore[attr-defined]
            reader.flush()  # type: ignore[attr-defined]

    def group_mode_needs_a_group() -> None:
        drmq.Consumer("localhost")  # type: ignore[call-overload]

    def options_have_types() -> None:
        drmq.Consumer("localhost", "billing", prefetch="many")  # type: ignore[call-overload]
        drmq.Consumer("localhost", "billing", pre_fetch=3)  # type: ignore[call-overload]
        drmq.Producer("localhost", linger="long")  # type: ignore[call-overload]

    def a_codec_gives_values_their_type() -> None:
        assert_type(drmq.Consumer("localhost", "billing", codec="text"), drmq.GroupConsumer[str])
        assert_type(drmq.Consumer("localhost", "billing", codec="json"), drmq.GroupConsumer[Any])
        assert_type(drmq.Consumer("localhost", "billing", codec=OrderCodec()), drmq.GroupConsumer[Order])
        assert_type(drmq.Consumer("localhost", "billing", codec=OrderCodec().decode), drmq.GroupConsumer[Order])
        assert_type(drmq.Consumer("localhost", mode="single", codec=OrderCodec()), drmq.SingleConsumer[Order])
        producer = drmq.Producer("localhost", codec=OrderCodec())
        assert_type(producer, drmq.Producer[Order])
        assert_type(producer.send("orders", Order(3)), drmq.SendResult)
        assert_type(producer.submit("orders", Order(3)), Future[drmq.SendResult])
        producer.send("orders", b"3")  # type: ignore[arg-type]
        drmq.Producer("localhost").send("orders", "text")  # type: ignore[arg-type]

    async def the_asyncio_twins_are_typed_too() -> None:
        async with drmq.aio.Consumer("localhost", "billing", codec="text") as consumer:
            async for message in consumer:
                assert_type(message, drmq.aio.LeasedMessage[str])
                await message.ack()
        async with drmq.aio.Consumer("localhost", mode="single") as reader:
            for read in await reader.poll():
                assert_type(read, drmq.Message[bytes])
                await read.ack()  # type: ignore[attr-defined]

    def a_worker_keeps_the_type_of_its_function() -> None:
        @drmq.worker("orders", group="billing")
        def charge(message: drmq.LeasedMessage[bytes]) -> int:
            return len(message.value)

        assert_type(charge, drmq.Worker[drmq.LeasedMessage[bytes], int])


@pytest.mark.parametrize("module", ["drmq", "drmq.aio"])
def test_every_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) == {name for name in found.__all__ if getattr(found, name) is not None}


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumers'"):
        drmq.Consumers  # type: ignore[attr-defined]  # noqa: B018
