"""The client for asyncio: the same classes as `drmq.client.blocking`, with `async with`, `async for` and `await`.

In group mode everything runs as tasks of the event loop. Producers and consumers in single mode use librdkafka, which
blocks: each has a thread for it. Tasks and threads end when the client is closed.
"""

from drmq.client.aio.consumer import Consumer
from drmq.client.aio.group_consumer import GroupConsumer
from drmq.client.aio.leased_message import LeasedMessage
from drmq.client.aio.producer import Producer
from drmq.client.aio.single_consumer import SingleConsumer

__all__ = ["Consumer", "GroupConsumer", "LeasedMessage", "Producer", "SingleConsumer"]
