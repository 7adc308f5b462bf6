"""A disk that is really full: appends fail and leave nothing, reads go on, and all is well once there is space.

Runs on a small tmpfs, and is skipped where one cannot be mounted.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drmq.model import Offset
from drmq.storage import DiskFull, Log, LogOptions, SegmentLog, StorageError, Writer
from support.polling import eventually
from support.processes import BrokerProcess
from support.raw_client import KAFKA_STORAGE_ERROR, RawClient, RequestFailed, read_produced
from support.storage_samples import apply_retention, batch, joined, read_all, row
from support.wire import batch as wire_batch
from support.wire import produce


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_stops_appends_and_nothing_else(small_disk: Path) -> None:
    log = SegmentLog(f"{small_disk}/log", LogOptions(segment_bytes=256 * 1024))
    kept = []

    def fill() -> None:
        for one in row(0, 1000, size=50_000):
            log.append([one])
            kept.append(one)

    with pytest.raises(DiskFull):
        fill()
    assert len(kept) > 30
    log.flush()
    assert read_all(log) == joined(kept)
    for _ in range(3):
        with pytest.raises(DiskFull):
            log.append([batch(log.end_offset, size=1_900_000)])
    assert apply_retention(log, 0, retention_bytes=600_000) > 0
    again = row(log.end_offset, 5, size=50_000)
    log.append(again)
    log.flush()
    log.close()
    log = SegmentLog(f"{small_disk}/log", LogOptions(segment_bytes=256 * 1024))
    assert read_all(log) == joined([one for one in kept if one[0].base_offset >= log.start_offset] + again)


def test_the_writer_serves_other_disks_and_resumes_when_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    story: list[tuple[str, int]] = []

    class Events:
        def on_written(self, results: list[tuple[Log, Offset]]) -> None:
            raise AssertionError(results)

        def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
            story.extend((os.path.basename(log.name), offset) for log, offset in results)

        def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
            assert isinstance(error, DiskFull)
            story.append((f"{os.path.basename(log.name)} failed", end_offset))

        def on_crashed(self, error: BaseException) -> None:
            raise AssertionError from error

    full, other = SegmentLog(f"{small_disk}/full"), SegmentLog(f"{tmp_path}/other")
    writer = Writer(Events())
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1_500_000))
    for header, data in row(0, 3, size=400_000):
        writer.submit(full, header, data)
        writer.submit(other, header, data)
    writer.run_cycle()
    assert story == [("full failed", 0), ("other", 3)]
    filler.unlink()
    writer.resume(full)
    for header, data in row(0, 3, size=400_000):
        writer.submit(full, header, data)
    writer.run_cycle()
    assert story[-1] == ("full", 3)
    writer.stop()
    assert read_all(full) == read_all(other)


# ---- a whole broker -----------------------------------------------------------------------------

VALUE_SIZE = 50_000


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with 24 MB of disk, of which a file that nobody needs takes 8."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        (disk / "ballast").write_bytes(bytes(8_000_000))
        broker = BrokerProcess(disk / "data")
        broker.log_path = tmp_path / "broker.log"
        with broker:
            yield broker
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(client: RawClient, topic: str, acked: dict[int, bytes]) -> None:
    """Produce until the broker refuses, and then in smaller and smaller batches until nothing fits."""
    number, size = len(acked), VALUE_SIZE
    while size > 50:
        value = b"%d " % number * (size // 8)
        try:
            acked[client.produce(topic, [value])] = value
            number += 1
        except RequestFailed as error:
            if error.code != KAFKA_STORAGE_ERROR:
                raise
            size //= 2
            wait_until_recovered(client, topic)


def wait_until_recovered(client: RawClient, topic: str) -> None:
    """A partition cleans up after a failed append before it takes the next; until then it refuses everything."""
    invalid = wire_batch([b"x"], crc_error=1)

    def code() -> int:
        number = client.next_id()
        try:
            read_produced(client.connection.ask(produce(topic, invalid, number), number))
        except RequestFailed as error:
            return error.code
        raise AssertionError("a damaged batch was accepted")

    eventually(code, lambda found: found != KAFKA_STORAGE_ERROR, what="the partition takes appends again")


def test_broker_on_a_full_disk(crowded: BrokerProcess) -> None:
    """Producers hear KAFKA_STORAGE_ERROR, nothing acknowledged is lost, readers go on; with space all works again."""
    acked: dict[int, bytes] = {}
    with RawClient(crowded.bootstrap) as client:
        client.create_topic("full", 2, {"segment.bytes": "4000000"})
        client.produce("full", [b"before"], partition=1)
        client.commit("group", "full", 1)
        fill(client, "full", acked)
        assert len(acked) > 100
        assert client.fetch_all("full") == acked
        for acks in (-1, 1):
            with pytest.raises(RequestFailed) as refused:
                client.produce("full", [bytes(VALUE_SIZE)], acks=acks)
            assert refused.value.code == KAFKA_STORAGE_ERROR
        assert client.fetch_all("full", partition=1) == {0: b"before"}
        assert client.committed("group", "full") == 1
        assert crowded.running
        for _ in range(500):
            with pytest.raises(RequestFailed):
                client.produce("full", [bytes(VALUE_SIZE)])
        assert crowded.log_text().count("refuses appends") < 5, "said once, not for every attempt"

        (crowded.data_dir.parent / "ballast").unlink()

        def produce_again() -> int | None:
            try:
                return client.produce("full", [b"again"])
            except RequestFailed as error:
                if error.code != KAFKA_STORAGE_ERROR:
                    raise
                return None

        offset = eventually(produce_again, lambda found: found is not None)
        assert offset == max(acked) + 1
        acked[offset] = b"again"
        client.commit("group", "full", 2)
    crowded.restart(crash=True)
    with RawClient(crowded.bootstrap) as client:
        assert client.fetch_all("full") == acked
        assert client.committed("group", "full") == 2
    assert "Traceback" not in crowded.log_text()


def test_broker_starts_on_a_full_disk(crowded: BrokerProcess) -> None:
    """A restart on the full disk serves what is there; deleting a topic makes room without another one."""
    acked: dict[int, bytes] = {}
    with RawClient(crowded.bootstrap) as client:
        client.create_topic("full", 1, {"segment.bytes": "4000000"})
        client.create_topic("spare", 1)
        for _ in range(40):
            client.produce("spare", [bytes(VALUE_SIZE)])
        fill(client, "full", acked)
    for crash in (True, False, True):
        crowded.restart(crash=crash)
        with RawClient(crowded.bootstrap) as client:
            assert client.fetch_all("full") == acked
            with pytest.raises(RequestFailed) as refused:
                client.produce("full", [bytes(VALUE_SIZE)])
            assert refused.value.code == KAFKA_STORAGE_ERROR
    with RawClient(crowded.bootstrap) as client:
        client.delete_topic("spare")
        wait_until_recovered(client, "full")
        assert client.produce("full", [bytes(VALUE_SIZE)]) == len(acked)
    assert "Traceback" not in crowded.log_text()


def test_administration_on_a_full_disk(crowded: BrokerProcess) -> None:
    """Topics cannot be made and offsets not be committed while there is no space; reads go on, and later they can."""
    acked: dict[int, bytes] = {}
    with RawClient(crowded.bootstrap) as client:
        client.create_topic("full", 1, {"segment.bytes": "4000000"})
        fill(client, "full", acked)
        refused = 0
        for number in range(200):
            for attempt in (
                lambda number=number: client.create_topic(f"more-{number}", 1),
                lambda number=number: client.commit(f"group-{number}", "full", number),
                client.init_producer_id,
            ):
                try:
                    attempt()
                except RequestFailed:
                    refused += 1
        for number in range(200):
            # Each is a record in the metadata log.
            try:
                client.alter_config("full", "retention.ms", str(10**9 + number))
            except RequestFailed:
                refused += 1
        assert refused > 100, "the disk was not full"
        assert crowded.running, crowded.log_text()[-2_000:]
        assert client.fetch_all("full") == acked
        (crowded.data_dir.parent / "ballast").unlink()
        wait_until_recovered(client, "full")

        def works(attempt: Callable[[], object]) -> bool:
            try:
                attempt()
            except RequestFailed:
                return False
            return True

        eventually(lambda: works(lambda: client.commit("group", "full", 5)), what="a commit")
        eventually(lambda: works(client.init_producer_id), what="a producer id")
        eventually(lambda: works(lambda: client.create_topic("after", 1)), what="a topic")
        assert client.produce("after", [b"x"]) == 0
    crowded.restart(crash=True)
    with RawClient(crowded.bootstrap) as client:
        assert client.fetch_all("full") == acked
        assert client.committed("group", "full") == 5
        assert client.fetch_all("after") == {0: b"x"}
    assert "Traceback" not in crowded.log_text()
