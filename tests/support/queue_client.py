"""What the tests of the Python client share: short leases, messages to work on, and what a consumer got."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace

import drmq
from drmq.testing import Broker
from support.polling import PATIENCE_S


def set_lease_ms(broker: Broker, duration_ms: int) -> None:
    """Let the leases of a broker in this process end soon. The settings of a group have a minimum of many seconds."""
    leases = broker.node.broker.leases
    before = leases.options_of
    leases.options_of = lambda group: replace(before(group), duration_ms=duration_ms)


def send(bootstrap: str, topic: str, values: Iterable[bytes], **options: object) -> list[drmq.SendResult]:
    with drmq.Producer(bootstrap) as producer:
        sent = [producer.submit(topic, value, **options) for value in values]  # type: ignore[arg-type]
        return [each.result(PATIENCE_S) for each in sent]


def take(consumer: drmq.GroupConsumer[bytes], count: int) -> list[drmq.LeasedMessage[bytes]]:
    """Exactly so many messages."""
    found: list[drmq.LeasedMessage[bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages"
        found += consumer.poll(count - len(found), 1.0)
    return found


def nothing_comes(consumer: drmq.GroupConsumer[bytes], *, for_s: float = 1.5) -> bool:
    """Whether no message comes for a while: longer than a request for records waits."""
    return not consumer.poll(1, for_s)


def client_threads() -> list[str]:
    """The threads that clients have started, by name. Brokers in this process have threads too."""
    ours = ("drmq-consumer", "drmq-producer", "drmq-reader", "drmq-flush", "drmq-close", "drmq-worker", "asyncio")
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(ours))
