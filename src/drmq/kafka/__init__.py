"""The Kafka door: the Kafka protocol, with one module per API, each with a function `handle`.

`server` receives frames from connections and `pipeline` finds the handler. A handler calls the broker and encodes the
result. Errors of the layers below are translated to Kafka's error codes here and nowhere else. `produce` and `fetch`
are the hot path: they read their frames and write their answers with their own code.
"""

from drmq.kafka.preload import import_all
from drmq.kafka.server import KafkaServer

__all__ = ["KafkaServer", "import_all"]
