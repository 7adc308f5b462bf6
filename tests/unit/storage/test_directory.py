"""The data directory: one process, one identity, and no path outside it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from drmq.model import NodeId, TopicId
from drmq.storage import (
    DataDirectory,
    DirectoryLocked,
    DirectoryMismatch,
    DirectoryTooNew,
    DirectoryUnreadable,
    InvalidName,
    SegmentLog,
    check_name,
)
from drmq.testing.files import FakeFiles, PowerCut
from support.storage_samples import append

TOPIC = TopicId(bytes(range(16)))
ONE = NodeId(1)


def test_a_new_directory_is_described_and_found_again() -> None:
    files = FakeFiles()
    directory = DataDirectory("/var/drmq/", ONE, files=files)
    directory_id = directory.directory_id
    assert (directory.path, directory.node_id) == ("/var/drmq", 1)
    assert (directory.cluster_id, directory.incarnation) == (None, 0)
    assert len(bytes.fromhex(directory_id)) == 16
    directory.close()
    again = DataDirectory("/var/drmq", ONE, files=files)
    assert (again.directory_id, again.cluster_id, again.incarnation) == (directory_id, None, 0)
    described = json.loads(files.content("/var/drmq/drmq.json"))
    assert (described["format_version"], described["node_id"], described["cluster_id"]) == (3, 1, None)


def test_two_new_directories_are_not_taken_for_each_other() -> None:
    first, second = (DataDirectory("/d", ONE, files=FakeFiles()) for _ in range(2))
    assert first.directory_id != second.directory_id


def test_every_start_counts() -> None:
    """Also on a full disk, and after a power cut at any step: no number is seen twice by a process that could start."""
    files = FakeFiles()
    for count in range(1, 6):
        directory = DataDirectory("/d", ONE, files=files)
        assert directory.starts == count
        directory.close()
    step = 0
    while True:
        step += 1
        broken = files.after_power_cut(0)
        broken.crash_at = broken.step + step
        try:
            DataDirectory("/d", ONE, files=broken)
        except PowerCut:
            again = DataDirectory("/d", ONE, files=broken.after_power_cut(step))
            assert again.starts in (6, 7)
            continue
        assert DataDirectory("/d", ONE, files=broken.after_power_cut(step)).starts == 7
        break
    assert step > 1


def test_the_cluster_and_the_incarnation_are_remembered() -> None:
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, files=files)
    directory_id = directory.directory_id
    directory.identify("mine", 3)
    again = DataDirectory("/d", ONE, files=files.after_power_cut(1))
    assert (again.cluster_id, again.incarnation, again.directory_id) == ("mine", 3, directory_id)
    with pytest.raises(AssertionError):
        again.identify("yours", 0)


def test_a_power_cut_while_a_directory_gets_its_cluster_leaves_it_with_or_without() -> None:
    for crash_at in range(1, 50):
        files = FakeFiles()
        directory = DataDirectory("/d", ONE, files=files)
        files.crash_at = files.step + crash_at
        try:
            directory.identify("mine", 2)
        except PowerCut:
            is_noted = False
        else:
            is_noted = True
        for seed in range(6):
            found = DataDirectory("/d", ONE, files=files.after_power_cut(seed))
            assert found.directory_id == directory.directory_id
            assert (found.cluster_id, found.incarnation) in [("mine", 2)] + [(None, 0)] * (not is_noted)
        if is_noted:
            break
    assert crash_at > 3


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    files = FakeFiles()
    DataDirectory("/d", ONE, "mine", files).close()
    with pytest.raises(DirectoryMismatch, match="belongs to node 1"):
        DataDirectory("/d", NodeId(2), "mine", files)
    with pytest.raises(DirectoryMismatch, match="belongs to cluster mine"):
        DataDirectory("/d", ONE, "yours", files)
    assert DataDirectory("/d", ONE, "mine", files).cluster_id == "mine"


def test_a_directory_in_use_is_refused_with_the_process_that_uses_it(tmp_path: Path) -> None:
    directory = DataDirectory(str(tmp_path), ONE)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        DataDirectory(str(tmp_path), ONE)
    script = f"from drmq.storage import DataDirectory\nDataDirectory({str(tmp_path)!r}, 1)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "DirectoryLocked" in result.stderr
    assert f"process {os.getpid()}" in result.stderr
    directory.close()
    DataDirectory(str(tmp_path), ONE).close()


def test_damage_to_the_description_is_refused_whichever_bit_it_is() -> None:
    reference = FakeFiles()
    DataDirectory("/d", ONE, "cluster", reference).close()
    size = len(reference.content("/d/drmq.json"))
    for position in range(size):
        files = FakeFiles()
        DataDirectory("/d", ONE, "cluster", files).close()
        good = json.loads(files.content("/d/drmq.json"))
        files.flip_bit("/d/drmq.json", position, position % 7)
        try:
            same = json.loads(files.content("/d/drmq.json")) == good
        except ValueError:
            same = False
        if same:  # a blank became another blank
            continue
        with pytest.raises((DirectoryUnreadable, DirectoryTooNew)):
            DataDirectory("/d", ONE, "cluster", files)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\0" * 100, b'{"format_version": "1"}'])
def test_an_unreadable_description_is_refused(content: bytes) -> None:
    files = FakeFiles()
    DataDirectory("/d", ONE, files=files).close()
    files.replace_content("/d/drmq.json", content)
    with pytest.raises(DirectoryUnreadable, match=r"drmq\.json"):
        DataDirectory("/d", ONE, files=files)


def test_a_missing_description_beside_data_is_refused() -> None:
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, files=files)
    SegmentLog(directory.log_path("t", TOPIC, 0), None, files)
    directory.close()
    files.remove("/d/drmq.json")
    with pytest.raises(DirectoryUnreadable, match="missing"):
        DataDirectory("/d", ONE, files=files)


def test_a_later_version_is_refused_in_clear_words() -> None:
    files = FakeFiles()
    DataDirectory("/d", ONE, files=files).close()
    files.replace_content("/d/drmq.json", b'{"format_version": 5}')
    with pytest.raises(DirectoryTooNew, match=r"format version 5.*up to 4"):
        DataDirectory("/d", ONE, files=files)


def test_a_directory_is_kept_from_older_releases_only_when_it_must_be() -> None:
    """Until then they read it, and afterwards this release goes on with what it was."""
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, "cluster", files)
    assert json.loads(files.content("/d/drmq.json"))["format_version"] == 3
    files.fail("write", errno.ENOSPC, path_part="drmq.json", fail_count=1)
    with pytest.raises(OSError, match="No space left"):
        directory.require_feature_levels()
    assert json.loads(files.content("/d/drmq.json"))["format_version"] == 3
    directory.require_feature_levels()
    directory.require_feature_levels()
    directory.close()
    assert json.loads(files.content("/d/drmq.json"))["format_version"] == 4
    again = DataDirectory("/d", ONE, "cluster", files)
    assert (again.directory_id, again.journal_secret) == (directory.directory_id, directory.journal_secret)
    again.identify("cluster", 1)
    assert json.loads(files.content("/d/drmq.json"))["format_version"] == 4


def test_a_directory_from_before_the_journal_is_taken_over() -> None:
    files = FakeFiles()
    DataDirectory("/d", ONE, "cluster", files).close()
    described = json.loads(files.content("/d/drmq.json"))
    del described["checksum"], described["journal_secret"]
    described["format_version"] = 2
    compact = json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    files.replace_content("/d/drmq.json", json.dumps(described | {"checksum": crc32c(compact)}).encode())
    assert DataDirectory("/d", ONE, "cluster", files).directory_id == described["directory_id"]
    # A DRMQ that knows nothing of the journal must refuse it from now on.
    taken_over = json.loads(files.content("/d/drmq.json"))
    assert taken_over["format_version"] == 3
    assert taken_over["journal_secret"]


def test_a_directory_has_a_secret_that_is_not_its_public_id() -> None:
    """Clients know the id (DescribeQuorum). With it they could forge records that look like the journal's own."""
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, files=files)
    assert directory.journal_secret
    assert directory.journal_secret != directory.directory_id
    directory.close()
    assert DataDirectory("/d", ONE, files=files).journal_secret == directory.journal_secret
    assert DataDirectory("/e", ONE, files=files).journal_secret != directory.journal_secret


def test_an_earlier_version_is_refused_in_clear_words() -> None:
    files = FakeFiles()
    DataDirectory("/d", ONE, files=files).close()
    files.replace_content("/d/drmq.json", b'{"format_version": 1}')
    with pytest.raises(DirectoryUnreadable, match=r"format version 1.*before it had clusters"):
        DataDirectory("/d", ONE, files=files)


def test_the_first_start_survives_a_power_cut_at_any_step() -> None:
    for crash_at in range(1, 100):
        files = FakeFiles(crash_at=crash_at)
        known = None
        try:
            known = DataDirectory("/var/d", ONE, files=files).directory_id
            SegmentLog("/var/d/topics/x", None, files)
        except PowerCut:
            for seed in range(6):
                found = DataDirectory("/var/d", ONE, files=files.after_power_cut(seed)).directory_id
                assert known in (None, found)
        else:
            break
    assert crash_at > 10


def test_paths_stay_inside_and_name_the_topic() -> None:
    directory = DataDirectory("/d", ONE, files=FakeFiles())
    assert directory.log_path("orders", TOPIC, 3) == "/d/topics/orders.000102030405060708090a0b0c0d0e0f/3"
    long = directory.log_path("x" * 249, TOPIC, 0)
    assert long == f"/d/topics/{'x' * 80}.{TOPIC.hex()}/0"
    assert directory.internal_path("catalog") == "/d/internal/catalog/0"
    assert max(map(len, long.split("/"))) < 255


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "a" * 250, "ä", "a b", "a\n", "/"])
def test_names_that_could_leave_the_directory_are_refused(name: str) -> None:
    directory = DataDirectory("/d", ONE, files=FakeFiles())
    with pytest.raises(InvalidName):
        directory.log_path(name, TOPIC, 0)
    with pytest.raises(InvalidName):
        directory.internal_path(name)
    with pytest.raises(InvalidName):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "...", "a.b_c-D9", "x" * 249, "__consumer_offsets"])
def test_valid_names_pass(name: str) -> None:
    assert check_name(name) == name


def test_a_scan_lists_logs_and_leaves_the_rest_alone() -> None:
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, files=files)
    assert directory.scan() == []
    other = TopicId(bytes(16))
    for topic, topic_id, partition in (("a.b", TOPIC, 0), ("a.b", TOPIC, 11), ("z", other, 2)):
        SegmentLog(directory.log_path(topic, topic_id, partition), None, files)
    files.make_directory("/d/topics/what is this")
    files.make_directory(f"/d/topics/z.{other.hex()}/x")
    found = [(one.shown_name, one.topic_id, one.partition) for one in directory.scan()]
    assert found == [("a.b", TOPIC, 0), ("a.b", TOPIC, 11), ("z", other, 2)]
    assert directory.remove_deleted() == 0
    assert files.exists("/d/topics/what is this")


def test_a_deleted_topic_is_gone_and_a_half_deleted_one_goes_at_the_next_start() -> None:
    outcomes = set()
    for crash_at in range(1, 100):
        files = FakeFiles()
        directory = DataDirectory("/d", ONE, files=files)
        for partition in range(2):
            log = SegmentLog(directory.log_path("t", TOPIC, partition), None, files)
            append(log, 3)
            log.close()
        files.crash_at = files.step + crash_at
        try:
            directory.delete_topic("t", TOPIC)
        except PowerCut:
            for seed in range(4):
                disk = files.after_power_cut(seed)
                again = DataDirectory("/d", ONE, files=disk)
                again.remove_deleted()
                found = again.scan()
                assert len(found) in (0, 2)
                outcomes.add(len(found))
                if not found:
                    assert disk.list("/d/topics") == []
        else:
            assert files.list("/d/topics") == []
            break
    assert outcomes == {0, 2}
    directory.delete_topic("t", TOPIC)


def test_a_log_deleted_halfway_goes_at_the_next_start() -> None:
    files = FakeFiles()
    directory = DataDirectory("/d", ONE, files=files)
    path = directory.log_path("t", TOPIC, 1)
    SegmentLog(path, None, files).close()
    files.rename(path, path + ".deleted")
    assert directory.remove_deleted() == 1
    assert directory.scan() == []


def test_free_space_is_known() -> None:
    directory = DataDirectory("/d", ONE, files=FakeFiles(capacity_bytes=5000))
    assert 0 < directory.free_bytes() < 5000
