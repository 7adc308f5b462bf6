"""The Kafka protocol's door: one module per API, each with a `handle`.

`server` takes frames from connections and finds the handler; a handler asks the broker and says the
answer in the protocol's words. Errors of the layers below become Kafka's codes here, and nowhere
else. `produce` and `fetch` are the hot path and have a form of their own.
"""

from drmq.kafka.server import KafkaServer

__all__ = ["KafkaServer"]
