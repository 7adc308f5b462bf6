"""The client for code that blocks: `Producer`, `Consumer` and leased messages.

In group mode a consumer has one thread, which runs the event loop of the lease session (`drmq.client.leases`). A
producer has one thread, which takes the reports of librdkafka. Both end when the client is closed.
"""

from drmq.client.blocking.consumer import Consumer
from drmq.client.blocking.group_consumer import GroupConsumer
from drmq.client.blocking.leased_message import LeasedMessage
from drmq.client.blocking.producer import Producer
from drmq.client.blocking.single_consumer import SingleConsumer

__all__ = ["Consumer", "GroupConsumer", "LeasedMessage", "Producer", "SingleConsumer"]
