"""The command line against a real broker, each command as a process of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Cli
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess


def test_life_of_a_topic(cli: Cli) -> None:
    """Created, seen, changed, grown, deleted, gone."""
    name = f"life-{uuid.uuid4().hex[:8]}"
    assert cli.data("topic", "create", name, "-p", "2", "-c", "retention.ms=5000") == {
        "topic": name,
        "partitions": 2,
        "created": True,
    }
    assert "TOPIC_ALREADY_EXISTS" in cli.refused(1, "topic", "create", name)
    assert cli.data("topic", "create", name, "--if-missing")["created"] is False
    assert [row["partitions"] for row in cli.data("topic", "ls") if row["topic"] == name] == [2]
    configs = {c["name"]: c for c in cli.data("topic", "describe", name)["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("5000", "topic")
    cli.ok("topic", "alter", name, "-c", "retention.bytes=1000", "--reset", "retention.ms")
    assert "unknown topic setting 'retention.mss'" in cli.refused(1, "topic", "alter", name, "--reset", "retention.mss")
    configs = {c["name"]: c["value"] for c in cli.data("topic", "describe", name)["configs"]}
    assert configs["retention.bytes"] == "1000"
    assert "retention.ms" not in configs
    assert "INVALID_CONFIG" in cli.refused(1, "topic", "alter", name, "-c", "no.such.setting=1")
    cli.ok("topic", "add-partitions", name, "4")
    assert len(cli.data("topic", "describe", name)["partitions"]) == 4
    assert "INVALID_PARTITIONS" in cli.refused(1, "topic", "add-partitions", name, "3")
    assert "Deleted" in cli.ok("topic", "delete", name, "--yes")
    error = cli.refused(1, "topic", "describe", name)
    assert error == (
        f"error: Topic `{name}` does not exist (UNKNOWN_TOPIC_OR_PARTITION). `drmq topic ls` lists all topics.\n"
    )


def test_dry_run_creates_nothing(cli: Cli) -> None:
    """What could be done is said, and not done."""
    name = f"dry-{uuid.uuid4().hex[:8]}"
    assert "could be created" in cli.ok("topic", "create", name, "-p", "2", "--dry-run")
    assert name not in cli.ok("topic", "ls")
    assert "INVALID_TOPIC_EXCEPTION" in cli.refused(1, "topic", "create", "no spaces", "--dry-run")


def test_destruction_asks_first(cli: Cli, topic: str) -> None:
    """No and silence leave everything as it was; yes deletes."""
    assert "Nothing was changed" in cli.refused(1, "topic", "delete", topic, stdin="n\n")
    assert "`--yes`" in cli.refused(1, "topic", "delete", topic)
    assert topic in cli.ok("topic", "ls")
    cli.ok("topic", "delete", topic, stdin="y\n")
    assert topic not in cli.ok("topic", "ls")


def test_lines_go_in_and_come_out(cli: Cli, topic: str) -> None:
    """Lines become records with keys, and are printed as they were."""
    report = cli.data("produce", topic, "-K", ":", stdin="".join(f"k{i}:v{i}\n" for i in range(100)))
    assert sum(row["records"] for row in report) == 100
    printed = cli.ok("consume", topic, "-f", "%k:%v\\n").splitlines()
    assert sorted(printed) == sorted(f"k{i}:v{i}" for i in range(100))
    assert len(cli.ok("consume", topic, "-n", "7").splitlines()) == 7


def test_json_goes_round(cli: Cli, topic: str) -> None:
    """What is consumed as JSON can be produced as JSON: nulls, bytes, headers, partitions and timestamps."""
    records: list[dict[str, Any]] = [
        {"value": "text", "key": "k", "headers": [["h", "1"], ["h", "2"]], "partition": 1, "timestamp_ms": 1000},
        {"value": None, "key": "gone", "partition": 1, "timestamp_ms": 2000},
        {"value": {"base64": "/wA="}, "key": None, "partition": 1, "timestamp_ms": 3000},
    ]
    cli.ok("produce", topic, "--input", "json", stdin="".join(json.dumps(record) + "\n" for record in records))
    lines = [json.loads(line) for line in cli.ok("consume", topic, "-o", "json").splitlines()]
    for sent, received in zip(records, lines, strict=True):
        assert {key: received[key] for key in sent} == sent


def test_binary_values_are_printed_as_they_are(cli: Cli, topic: str) -> None:
    """Standard output carries bytes, not a guess at text."""
    cli.ok("produce", topic, stdin=b"\xff\xfe\x00end\n")
    assert cli.run("consume", topic).stdout == b"\xff\xfe\x00end\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(cli: Cli, topic: str, codec: str) -> None:
    """Every codec comes back."""
    cli.ok("produce", topic, "-z", codec, "-p", "0", stdin="same\n" * 50)
    assert cli.ok("consume", topic) == "same\n" * 50


def test_single_record_says_where_it_went(cli: Cli, topic: str) -> None:
    """The sentence of the first ten minutes."""
    assert (
        cli.ok("produce", topic, "-v", "hello", "-p", "2") == f"Sent 1 record to `{topic}`, partition 2 at offset 0.\n"
    )


def test_positions(cli: Cli, topic: str) -> None:
    """From the beginning, the end, an offset, n before the end and a time."""
    cli.ok("topic", "alter", topic, "-c", "retention.ms=-1")
    lines = "".join(
        json.dumps({"value": str(i), "partition": 0, "timestamp_ms": 1_700_000_000_000 + i * 1000}) + "\n"
        for i in range(20)
    )
    cli.ok("produce", topic, "--input", "json", stdin=lines)
    expected = {
        "begin": range(20),
        "end": range(0),
        "-3": range(17, 20),
        "15": range(15, 20),
        "0:18": range(18, 20),
        "@1700000010000": range(10, 20),
        "@2023-11-14T22:13:29.5Z": range(10, 20),
    }
    for position, values in expected.items():
        assert cli.ok("consume", topic, "--from", position).split() == [str(value) for value in values], position
    rows = cli.data("offsets", topic, "--time", "1700000005000")
    assert [row["offset"] for row in rows] == [5, None, None]
    assert [row["end_offset"] for row in cli.data("offsets", topic)] == [20, 0, 0]


def test_trim(cli: Cli, topic: str) -> None:
    """The preview counts; the deed deletes just that."""
    cli.ok("produce", topic, "-p", "0", stdin="x\n" * 10)
    assert cli.data("topic", "trim", topic, "--before", "0:4", "--dry-run")[0]["records"] == 4
    assert len(cli.ok("consume", topic).split()) == 10
    cli.ok("topic", "trim", topic, "--before", "0:4", "--yes")
    assert cli.data("offsets", topic)[0]["start_offset"] == 4
    assert len(cli.ok("consume", topic).split()) == 6


def test_group_reads_commits_and_is_moved(cli: Cli, topic: str) -> None:
    """A group goes on where it stopped; lag, reset and deletion."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", stdin="".join(f"{i}\n" for i in range(10)))
    assert cli.ok("consume", topic, "-g", group, "-n", "4").split() == ["0", "1", "2", "3"]
    lag = {row["partition"]: row["lag"] for row in cli.data("group", "lag", group)}
    assert lag[0] == 6
    assert cli.ok("consume", topic, "-g", group).split() == ["4", "5", "6", "7", "8", "9"]
    assert cli.data("group", "describe", group)["state"] == "Empty"
    listed = {"group": group, "type": "classic", "state": "Empty", "protocol_type": "consumer"}
    assert listed in cli.data("group", "ls")
    preview = cli.data("group", "reset", group, "--to", "-2", "--dry-run")
    assert {row["partition"]: row["to_offset"] for row in preview}[0] == 8
    assert cli.ok("consume", topic, "-g", group) == ""
    cli.ok("group", "reset", group, "--to", "0:7", "--yes")
    assert cli.ok("consume", topic, "-g", group).split() == ["7", "8", "9"]
    cli.ok("group", "delete", group, "--yes")
    assert "GROUP_ID_NOT_FOUND" in cli.refused(1, "group", "describe", group)


def test_group_lag_counts_what_was_never_read(cli: Cli, topic: str) -> None:
    """A partition without a commit counts from its start: all of it is still to be read."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", stdin="x\n" * 3)
    cli.ok("group", "reset", group, "--to", "0:2", "-t", topic, "--yes")
    cli.ok("produce", topic, "-p", "2", stdin="x\n" * 5)
    cli.ok("topic", "trim", topic, "--before", "2:1", "--yes")
    rows = cli.data("group", "lag", group)
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in rows] == [
        (0, 2, 1),
        (1, None, 0),
        (2, None, 4),
    ]
    shown = cli.ok("group", "lag", group).splitlines()
    assert shown[3].split() == [topic, "2", "-", "5", "4", "-"]
    assert shown[-1] == "5 records behind."


def test_settings_of_a_topic_take_units(cli: Cli) -> None:
    """As those of a server do; brokers get plain numbers."""
    name = f"units-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-c", "segment.bytes=16MiB")
    assert cli.data("topic", "alter", name, "-c", "retention.ms=1h")["set"] == {"retention.ms": "3600000"}
    configs = {c["name"]: c["value"] for c in cli.data("topic", "describe", name)["configs"]}
    assert (configs["segment.bytes"], configs["retention.ms"]) == (str(16 << 20), "3600000")


def test_dry_runs_destroy_nothing(cli: Cli, topic: str) -> None:
    """Each says what would be gone, and a refusal that would come comes."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, stdin="1\n2\n3\n")
    cli.ok("consume", topic, "-g", group)
    assert cli.ok("topic", "delete", topic, "--dry-run") == f"Topic `{topic}` with 3 records would be deleted.\n"
    assert cli.data("topic", "delete", topic, "--dry-run") == [{"topic": topic, "deleted": False, "records": 3}]
    assert cli.data("topic", "add-partitions", topic, "5", "--dry-run") == {
        "topic": topic,
        "partitions": 5,
        "added": False,
    }
    assert "INVALID_PARTITIONS" in cli.refused(1, "topic", "add-partitions", topic, "2", "--dry-run")
    assert "would be deleted" in cli.ok("group", "delete", group, "--dry-run")
    assert "Node 1 cannot be removed" in cli.refused(1, "cluster", "remove", "1", "--dry-run")
    assert cli.ok("cluster", "remove", "1", "--vote-only", "--dry-run").startswith("Node 1 would no longer vote")
    assert len(cli.data("topic", "describe", topic)["partitions"]) == 3
    assert cli.data("group", "describe", group)["state"] == "Empty"
    assert [row["metadata"] for row in cli.data("cluster", "members")] == ["leader"]


def test_shell_completes_names(cli: Cli, topic: str) -> None:
    """Of topics and groups, from the cluster of the variable or of the line; without one there are none."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("group", "reset", group, "--to", "begin", "-t", topic, "--yes")

    def complete(*words: str, **environment: str) -> list[str]:
        variables = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run(
            [sys.executable, "-m", "drmq"],
            env={**cli.environment, **variables, "_DRMQ_COMPLETE": "bash_complete", **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.split()

    bootstrap = cli.environment["DRMQ_BOOTSTRAP"]
    assert complete("drmq", "topic", "describe", topic[:-2]) == [f"plain,{topic}"]
    assert complete("drmq", "consume", topic, "-g", group[:-2]) == [f"plain,{group}"]
    nowhere = {"DRMQ_BOOTSTRAP": "127.0.0.1:1"}
    assert complete("drmq", "topic", "delete", "-b", bootstrap, topic[:-2], **nowhere) == [f"plain,{topic}"]
    assert complete("drmq", "-b", bootstrap, "group", "lag", group[:-2], **nowhere) == [f"plain,{group}"]
    assert complete("drmq", "topic", "describe", topic[:-2], **nowhere) == []
    assert "_DRMQ_COMPLETE=bash_complete" in cli.ok("completion", "bash")


def test_status(cli: Cli, topic: str) -> None:
    """Healthy is 0, with facts for machines."""
    found = cli.data("status")
    assert found["status"] == "healthy"
    assert [broker["id"] for broker in found["brokers"]] == [1]
    assert cli.ok("status").startswith("Healthy: 1 broker,")
    command = [sys.executable, "-m", "drmq", "status", "--watch", "--every", "0.1", "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        # A monitor must see each line at once, and not when Python has collected a buffer of them.
        assert [json.loads(process.stdout.readline())["status"] for _ in range(3)] == ["healthy"] * 3
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "yaml"])
def test_every_form(cli: Cli, topic: str, form: str) -> None:
    """Whatever prints, prints in every form."""
    for arguments in (
        ["topic", "ls"],
        ["topic", "describe", topic],
        ["offsets", topic],
        ["status"],
        ["version"],
        ["server", "--print-config"],
    ):
        assert cli.ok(*arguments, "-o", form)


ONE, TWO = "one" * 500, "two" * 500
"""Long enough to be worth compressing: clients send what does not shrink as it is."""


def documented_keys(command: str) -> set[str]:
    """The outermost keys that the manual promises for a command."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
    (line,) = (line for line in page.read_text().splitlines() if line.startswith(f"| `{command}` |"))
    keys = re.findall(r"`([^`]+)`", line)[1].removeprefix("[").removesuffix("]" if "`[" in line else "")
    while "[" in keys:
        keys = re.sub(r" \[[^\[\]]*\]", "", keys)
    return set(keys.split(", "))


def test_machine_output_is_as_documented(cli: Cli, topic: str) -> None:
    """Scripts rely on these keys, so none is missing and none is undocumented."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    outputs = {
        "produce": cli.data("produce", topic, "-v", "x"),
        "topic ls": cli.data("topic", "ls"),
        "topic describe": cli.data("topic", "describe", topic),
        "topic alter": cli.data("topic", "alter", topic, "-c", "retention.ms=-1"),
        "topic add-partitions": cli.data("topic", "add-partitions", topic, "4"),
        "topic trim": cli.data("topic", "trim", topic, "--before", "begin", "--dry-run"),
        "consume": json.loads(cli.ok("consume", topic, "-g", group, "-o", "json")),
        "offsets": cli.data("offsets", topic),
        "group ls": cli.data("group", "ls"),
        "group describe": cli.data("group", "describe", group),
        "group alter": cli.data("group", "alter", group, "--reset", "share.delivery.count.limit", "--dry-run"),
        "group lag": cli.data("group", "lag", group),
        "group reset": cli.data("group", "reset", group, "--to", "end", "--yes"),
        "group delete": cli.data("group", "delete", group, "--yes"),
        "status": cli.data("status"),
        "server --print-config": cli.data("server", "--print-config"),
        "topic delete": cli.data("topic", "delete", topic, "--yes"),
        "version": cli.data("version"),
    }
    for command, output in outputs.items():
        first = output[0] if isinstance(output, list) else output
        assert set(first) == documented_keys(command), command


def test_log_files(tmp_path: Path) -> None:
    """Dump and verify read what a broker left, and find a flipped bit."""
    with BrokerProcess(tmp_path / "data") as broker:
        cli = Cli(broker.bootstrap)
        cli.ok("topic", "create", "files", "-p", "1")
        cli.ok("produce", "files", "-z", "gzip", "--key", "k", stdin=f"{ONE}\n{TWO}\n")
        broker.terminate()
    data = str(tmp_path / "data")
    assert cli.ok("log", "verify", data).startswith("Intact: ")
    (segment,) = (tmp_path / "data" / "topics").glob("files.*/0/*.log")
    batches = [json.loads(line) for line in cli.ok("log", "dump", str(segment), "--records", "-o", "json").splitlines()]
    assert sum(batch["records"] for batch in batches) == 2
    assert {batch["codec"] for batch in batches} == {"gzip"}
    assert all(batch["crc_ok"] for batch in batches)
    assert [record["value"] for batch in batches for record in batch["content"]] == [ONE, TWO]
    assert "crc ok" in cli.ok("log", "dump", str(segment))
    shown = [json.loads(line) for line in cli.ok("log", "dump", str(segment), "--records").splitlines() if "{" in line]
    assert [(record["key"], record["value"]) for record in shown] == [("k", ONE), ("k", TWO)]
    whole = segment.read_bytes()
    sound = json.loads(cli.ok("log", "verify", data, "-o", "json"))
    segment.write_bytes(whole + os.urandom(1000))
    said = cli.ok("log", "verify", data)
    assert f"has a torn tail of 1000 B at position {len(whole)}" in said
    assert "Intact: " in said
    segment.write_bytes(whole)
    content = bytearray(whole)
    content[70] ^= 1
    segment.write_bytes(content)
    done = cli.run("log", "verify", data, "-o", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [(damage["position"], damage["torn_tail"]) for damage in found["damage"]] == [(0, False)]
    assert found["records"] == sound["records"] - 2
    assert "WRONG" in cli.run("log", "dump", str(segment)).stdout.decode()


def test_copies_that_were_set_aside_are_named_and_are_no_damage(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        cli = Cli(broker.bootstrap)
        cli.ok("topic", "create", "files", "-p", "1")
        cli.ok("produce", "files", stdin=f"{ONE}\n")
        broker.terminate()
    data = str(tmp_path / "data")
    sound = json.loads(cli.ok("log", "verify", data, "-o", "json"))
    assert set(sound) == documented_keys("log verify")
    assert sound["set_aside"] == []
    (partition,) = (tmp_path / "data" / "topics").glob("files.*/0")
    kept = partition.with_name("0.lost")
    shutil.copytree(partition, kept)
    (segment,) = kept.glob("*.log")
    flip(segment, 70)
    said = cli.ok("log", "verify", data)
    assert f"Note: {kept} is a damaged copy that was replaced and set aside" in said
    assert f"rm -r {kept}" in said
    assert "Intact: " in said
    found = json.loads(cli.ok("log", "verify", data, "-o", "json"))
    assert [copy["path"] for copy in found["set_aside"]] == [str(kept)]
    assert found["set_aside"][0]["size_bytes"] >= segment.stat().st_size
    assert {key: found[key] for key in found if key != "set_aside"} == {
        key: sound[key] for key in sound if key != "set_aside"
    }
    # Named itself, it is looked at like any other log.
    assert cli.run("log", "verify", str(kept)).returncode == 1
    # And it does not hide what is wrong with the one that is in use.
    (live,) = partition.glob("*.log")
    flip(live, 70)
    assert cli.run("log", "verify", data).returncode == 1


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_damaged_partitions_are_named(tmp_path: Path) -> None:
    """A partition that is stopped, and one whose old records cannot be read: who asks is told, and soon."""
    with BrokerProcess(tmp_path / "data") as broker:
        cli = Cli(broker.bootstrap)
        cli.ok("topic", "create", "bad", "-p", "2", "-c", "segment.bytes=1024")
        for _ in range(4):
            cli.ok("produce", "bad", "-p", "0", "-v", "x" * 600)
            cli.ok("produce", "bad", "-p", "1", "-v", "x" * 600)
        cli.ok("group", "reset", "reader", "--to", "begin", "-t", "bad", "--yes")
        broker.terminate()
        (folder,) = (broker.data_dir / "topics").glob("bad.*")
        flip(min((folder / "0").glob("*.log")), 100)
        flip(max((folder / "1").glob("*.log")), 100)
        broker.start().wait_ready()

        error = cli.refused(1, "consume", "bad", "-p", "0", "--timeout", "5")
        assert "Partition 0 of topic `bad` cannot be read" in error
        assert "at offset 0 (KAFKA_STORAGE_ERROR). The node's log contains" in error
        assert "drmq log verify" in error
        assert "KAFKA_STORAGE_ERROR" in cli.refused(1, "consume", "bad", "-p", "0", "--follow", "--timeout", "5")
        assert cli.ok("consume", "bad", "-p", "0", "--from", "3") == "x" * 600 + "\n"

        error = cli.refused(1, "consume", "bad", "-p", "1")
        assert "Partition 1 of topic `bad` has no leader: it is stopped" in error
        assert "(LEADER_NOT_AVAILABLE)" in error
        assert "drmq log verify" in error

        error = cli.refused(1, "produce", "bad", "-p", "1", "-v", "x", "--timeout", "5")
        assert "Partition 1 of topic `bad` has no leader: it is stopped" in error
        assert "Acknowledged before: 0 records." in error

        done = cli.run("status", "-o", "json")
        assert done.returncode == 1
        found = json.loads(done.stdout)
        assert (found["status"], found["leaderless"]) == ("degraded", [{"topic": "bad", "partition": 1}])
        assert (
            "1 partition is without a leader: bad-1 (stopped; the log of the node contains the reason)"
            in found["reason"]
        )

        rows = cli.data("group", "lag", "reader")
        assert [(row["partition"], row["lag"]) for row in rows] == [(0, 4), (1, None)]
        assert "unknown for 1 partition (deleted, or without a leader)" in cli.ok("group", "lag", "reader")


def test_full_disk_is_named(tmp_path: Path) -> None:
    """`produce` ends after its timeout and says what is the matter, and `status` is degraded."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        with BrokerProcess(disk / "data", extra_args=["--offsets-topic-partitions", "1"]) as broker:
            cli = Cli(broker.bootstrap)
            cli.ok("topic", "create", "full", "-p", "1")
            error = cli.refused(1, "produce", "full", "--timeout", "10", stdin=("x" * 10_000 + "\n") * 1000)
            assert "Partition 0 of topic `full` cannot be written: the disk of broker 1 is full" in error
            assert "(KAFKA_STORAGE_ERROR). Free space" in error
            done = cli.run("status")
            assert done.returncode == 1
            assert b"the disk of broker 1 is" in done.stdout
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_busy_port_is_named_before_anything_is_made(tmp_path: Path, cli_broker: BrokerProcess) -> None:
    """A sentence with the port and the way out, and no data directory."""
    done = subprocess.run(
        [sys.executable, "-m", "drmq", "server", "--port", str(cli_broker.port), "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"the node cannot start: Cannot listen on 127.0.0.1:{cli_broker.port}: Address already in use. Stop"
        in done.stderr
    )
    assert "--port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_busy_port_for_peers_is_named_too(tmp_path: Path, cli_broker: BrokerProcess) -> None:
    """It has an option of its own, and is found as early."""
    flags = ["--port", "0", "--peer-port", str(cli_broker.port), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-m", "drmq", "server", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"Cannot listen on 127.0.0.1:{cli_broker.port}: Address already in use. Stop the process that uses the port"
        in done.stderr
    )
    assert "with --peer-port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_server_in_the_foreground(tmp_path: Path) -> None:
    """Ctrl-C ends it in order, its log is JSON if wanted, and a second node on its directory is refused."""
    with BrokerProcess(tmp_path / "data", extra_args=["--log-format", "json"]) as broker:
        second = subprocess.run(
            [sys.executable, "-m", "drmq", "server", "--port", "0", "--data-dir", str(broker.data_dir)],
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert second.returncode == 1
        assert b"data" in second.stderr
        os.kill(broker.pid, signal.SIGINT)
        assert eventually(broker.exit_status, lambda status: status is not None, what="the end") == 0
        for line in broker.log_text().splitlines():
            assert {"time", "level", "logger", "message"} <= set(json.loads(line))
