"""The Python client while nodes of a cluster of processes are killed: nothing is lost, nothing that is done returns."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

import drmq
from support.cluster import ClusterProcesses
from support.polling import PATIENCE_S, eventually
from support.queue_client import client_threads

TOPIC = "orders"
GROUP = "billing"
COUNT = 600


class Work:
    """What the consumers of the test have done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done: set[bytes] = set()
        """Values whose acknowledgement a broker has confirmed."""
        self.returned: list[bytes] = []
        """Values that were delivered although they were done."""
        self.failures: list[BaseException] = []
        self.is_over = threading.Event()

    def run(self, bootstrap: str, *, waits: bool) -> None:
        try:
            with drmq.Consumer(bootstrap, GROUP, start="earliest", timeout=PATIENCE_S) as consumer:
                consumer.subscribe(TOPIC)
                while not self.is_over.is_set():
                    self._handle(consumer, consumer.poll(20, 0.5), waits)
        except BaseException as error:  # noqa: BLE001  # looked at by the test
            self.failures.append(error)

    def _handle(self, consumer: drmq.GroupConsumer[bytes], found: list[drmq.LeasedMessage[bytes]], waits: bool) -> None:
        with self.lock:
            self.returned += [message.value for message in found if message.value in self.done]
        settled: dict[tuple[int, int], bytes] = {}
        for message in found:
            time.sleep(0.002)
            with contextlib.suppress(drmq.LeaseLost):
                message.ack(wait=waits)
                settled[message.partition, message.offset] = message.value
        try:
            consumer.flush()
        except drmq.LeaseLost as error:
            for run in error.lost:
                for offset in range(run.first_offset, run.last_offset + 1):
                    settled.pop((run.partition, offset), None)
        with self.lock:
            self.done.update(settled.values())

    def wait_for_more(self) -> None:
        so_far = len(self.done)
        eventually(lambda: len(self.done) > so_far or self.failures, what="a message that is done")


@pytest.mark.timeout(600)
def test_leaders_are_killed_while_consumers_work(tmp_path: Path) -> None:
    """Leaders of the data, of the shards and of the group: each of three nodes is killed once."""
    with ClusterProcesses(tmp_path, 3) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        servers = cluster.bootstrap
        work = Work()
        threads = [
            threading.Thread(target=work.run, args=(servers,), kwargs={"waits": waits})
            for waits in (True, False, False)
        ]
        for thread in threads:
            thread.start()
        values = [b"%d" % number for number in range(COUNT)]
        try:
            with drmq.Producer(servers, timeout=PATIENCE_S) as producer:
                sending = []
                for number, value in enumerate(values):
                    sending.append(producer.submit(TOPIC, value))
                    if number % (COUNT // 3) == COUNT // 6:
                        work.wait_for_more()
                        victim = 1 + number // (COUNT // 3)
                        cluster[victim].kill()
                        sending.append(producer.submit(TOPIC, b"after %d" % number))
                        work.wait_for_more()
                        cluster[victim].start().wait_ready()
                    time.sleep(0.005)
                sent = {each.result(PATIENCE_S) for each in sending}
            values += [b"after %d" % number for number in range(COUNT // 6, COUNT, COUNT // 3)]
            assert len(sent) == len(values)
            eventually(lambda: work.done >= set(values) or work.failures, timeout_s=PATIENCE_S * 2)
        finally:
            work.is_over.set()
            for thread in threads:
                thread.join()
        assert not work.failures, work.failures
        assert work.done == set(values)
        assert work.returned == []
        assert client_threads() == []
        with drmq.Consumer(servers, GROUP, timeout=PATIENCE_S) as consumer:
            consumer.subscribe(TOPIC)
            assert consumer.poll(1, 1.5) == []
