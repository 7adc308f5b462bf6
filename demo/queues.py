"""The tour of work queues: workers share a topic. One message is poison, and is brought back once the code is mended.

python -m demo.queues
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from rich.console import Console

import drmq
from demo.cluster import Cluster
from demo.traffic import wait_until

TOPIC, GROUP, NODES = "orders", "billing", 3
ORDER_COUNT, POISON = 300, 137
PATIENCE_S = 180.0


class Shop:
    """What the workers do: they charge orders, and fail on one of them until the code is mended."""

    def __init__(self) -> None:
        self.charged: Counter[int] = Counter()
        self.failures = 0
        self.is_mended = False
        self._lock = threading.Lock()

    def charge(self, message: drmq.LeasedMessage[object]) -> None:
        order = message.value
        assert isinstance(order, dict)
        if order["id"] == POISON and not self.is_mended:
            with self._lock:
                self.failures += 1
            raise ValueError(f"order {POISON} has no address (attempt {message.attempt})")
        with self._lock:
            self.charged[order["id"]] += 1


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="drmq-demo-") as directory:
        cluster = Cluster(Path(directory), NODES)
        console.print(f"[bold]1[/] starting three nodes:      drmq up --nodes {NODES}")
        cluster.up()
        try:
            cluster.create_topic(TOPIC, 1)
            return _tour(console, cluster)
        finally:
            cluster.down()


def _tour(console: Console, cluster: Cluster) -> int:
    # Each failure is logged with its traceback, which is right for a worker and too much here.
    logging.getLogger("drmq.worker").setLevel(logging.CRITICAL)
    servers, shop = cluster.bootstrap_servers, Shop()
    console.print(f"[bold]2[/] sending {ORDER_COUNT} orders to one partition; order {POISON} cannot be charged")
    with drmq.Producer(servers, codec="json") as producer:
        for number in range(ORDER_COUNT):
            producer.submit(TOPIC, {"id": number})
        producer.flush()
    console.print(f'[bold]3[/] eight workers of one group:   @drmq.worker("{TOPIC}", group="{GROUP}", concurrency=8)')
    worker = drmq.worker(TOPIC, group=GROUP, concurrency=8, codec="json", start="earliest")(shop.charge)
    running = threading.Thread(target=worker.run, args=(servers,), name="worker")
    running.start()
    try:
        wait_until(lambda: len(shop.charged) == ORDER_COUNT - 1, PATIENCE_S, _pause)
        console.print(f"  {len(shop.charged)} orders are charged; the poison did not keep the others waiting")
        wait_until(lambda: _waiting(cluster) == 1, PATIENCE_S, _pause)
        console.print(f"  order {POISON} failed {shop.failures} times and is in the dead-letter topic dlq.{GROUP}:")
        console.print(f"  drmq dlq show {GROUP}", style="dim")
        console.print(cluster.drmq("dlq", "show", GROUP, "--bootstrap", servers), highlight=False)
        shop.is_mended = True
        console.print(f"[bold]4[/] the code is mended:         drmq dlq redrive {GROUP}")
        cluster.drmq("dlq", "redrive", GROUP, "--yes", "--bootstrap", servers)
        wait_until(lambda: len(shop.charged) == ORDER_COUNT, PATIENCE_S, _pause)
    finally:
        worker.stop()
        running.join(PATIENCE_S)
    once = all(count == 1 for count in shop.charged.values())
    verdict = once and len(shop.charged) == ORDER_COUNT and _waiting(cluster) == 0
    console.print(
        f"  {len(shop.charged)} of {ORDER_COUNT} orders are charged, each {'once' if once else 'AT LEAST once'}"
    )
    console.print(
        "Nothing was lost, and nothing waited for the poison." if verdict else "A promise was broken; see above."
    )
    return 0 if verdict else 1


def _pause() -> None:
    """There is nothing to show meanwhile."""


def _waiting(cluster: Cluster) -> int:
    """The dead letters that wait."""
    found = json.loads(cluster.drmq("dlq", "ls", "-o", "json", "--bootstrap", cluster.bootstrap_servers))
    return sum(row["waiting"] for row in found)


if __name__ == "__main__":
    sys.exit(main())
