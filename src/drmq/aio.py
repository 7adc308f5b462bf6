"""DRMQ for asyncio: the classes of `drmq`, with `async with`, `async for` and `await`.

    async with drmq.aio.Consumer("localhost:9092", "billing") as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            async with message:
                await charge(message.value)

A task that is cancelled gives its message back.
"""

from drmq.client.aio import Consumer, GroupConsumer, LeasedMessage, Producer, SingleConsumer
from drmq.client.errors import ClientError as Error
from drmq.client.errors import Closed, DeadlineExceeded, LeaseLost, Refused, Unreachable
from drmq.client.messages import Message, SendResult

__all__ = [
    "Closed",
    "Consumer",
    "DeadlineExceeded",
    "Error",
    "GroupConsumer",
    "LeaseLost",
    "LeasedMessage",
    "Message",
    "Producer",
    "Refused",
    "SendResult",
    "SingleConsumer",
    "Unreachable",
]
