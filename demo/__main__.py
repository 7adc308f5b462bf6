"""`make demo`: a year of flights through three nodes, read by a group of two; the leader is killed in the middle.

Exits 0 only if every acknowledged record was received, unchanged, from the place it was acknowledged
for, and none is in the log twice.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.cluster import Cluster
from demo.flights import FLIGHT_COUNT, flights
from demo.traffic import Place, Reader, Sender, wait_until

TOPIC, GROUP, PARTITIONS, NODES = "flights", "arrivals", 4, 3
KILL_AT = FLIGHT_COUNT // 2
PATIENCE_S = 180.0


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="drmq-demo-") as directory:
        cluster = Cluster(Path(directory), NODES)
        console.print(f"[bold]1[/] starting three nodes:      drmq up --nodes {NODES}")
        cluster.up()
        try:
            return _tour(console, cluster)
        finally:
            cluster.down()


def _tour(console: Console, cluster: Cluster) -> int:
    create = f"drmq topic create {TOPIC} --partitions {PARTITIONS} --replicas {NODES}"
    console.print(f"[bold]2[/] creating a topic:          {create}")
    cluster.create_topic(TOPIC, PARTITIONS)
    console.print(f"[bold]3[/] sending {FLIGHT_COUNT:,} flights, read by a group of two; at half of them a leader dies")
    started = time.monotonic()
    sender = Sender(cluster.bootstrap_servers, TOPIC, flights())
    readers: list[Reader] = []

    def received() -> int:
        return len(set().union(*(reader.received for reader in readers)))

    finished = False
    readers += [Reader(cluster.bootstrap_servers, TOPIC, GROUP, lambda: finished) for _ in range(2)]
    bar = Progress(
        TextColumn("  {task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with bar:
        acknowledged_bar = bar.add_task("acknowledged", total=FLIGHT_COUNT)
        received_bar = bar.add_task("received", total=FLIGHT_COUNT)

        def tick() -> None:
            bar.update(acknowledged_bar, completed=len(sender.acknowledged))
            bar.update(received_bar, completed=sum(len(reader.received) for reader in readers))

        for thread in (sender, *readers):
            thread.start()
        wait_until(lambda: len(sender.acknowledged) >= KILL_AT or not sender.is_alive(), PATIENCE_S, tick)
        killed_at = len(sender.acknowledged)
        leader = cluster.leader_of(TOPIC, 0)
        pid = cluster.kill(leader)
        bar.console.print(
            f"  drmq node kill {leader}: process {pid}, the leader of {TOPIC}-0, is gone after {killed_at:,} records"
        )
        wait_until(lambda: not sender.is_alive(), PATIENCE_S, tick)
        successor = cluster.leader_of(TOPIC, 0)
        bar.console.print(f"  node {successor} has taken over, and two nodes of three have taken all the rest")
        cluster.up()
        bar.console.print(f"  drmq up --nodes {NODES}: node {leader} is back and catches up")
        wait_until(lambda: received() >= len(sender.acknowledged), PATIENCE_S, tick)
        tick()
        finished = True
        for reader in readers:
            reader.join(30)
    return _report(console, sender, readers, time.monotonic() - started)


def _report(console: Console, sender: Sender, readers: list[Reader], seconds: float) -> int:
    received: dict[Place, int] = {}
    for reader in readers:
        received |= reader.received
    missing = sender.acknowledged.keys() - received.keys()
    changed = [place for place, crc in sender.acknowledged.items() if received.get(place, crc) != crc]
    twice = len(received) - len(sender.acknowledged)
    table = Table(title=f"{FLIGHT_COUNT:,} flights in {seconds:.0f} s, a leader killed in the middle", min_width=66)
    table.add_column("checked")
    table.add_column("count", justify="right")
    table.add_column("verdict")
    rows = [
        ("sent", sender.sent, sender.sent == FLIGHT_COUNT),
        ("acknowledged (fsynced by a majority)", len(sender.acknowledged), len(sender.acknowledged) == sender.sent),
        ("refused", len(sender.refused), not sender.refused),
        ("received by the group", len(received), len(received) == sender.sent),
        ("acknowledged but not received", len(missing), not missing),
        ("received with other bytes than sent", len(changed), not changed),
        ("in the log more than once", max(0, twice), twice <= 0),
    ]
    for name, count, is_right in rows:
        table.add_row(name, f"{count:,}", "ok" if is_right else "WRONG", style=None if is_right else "bold red")
    again = sum(reader.deliveries for reader in readers) - len(received)
    table.add_row("delivered again after the crash", f"{again:,}", "allowed")
    console.print(table)
    verdict = all(is_right for _, _, is_right in rows)
    console.print("Nothing that was acknowledged was lost." if verdict else "A promise was broken; see above.")
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(main())
