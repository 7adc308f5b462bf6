"""`drmq produce`: what is sent, where, and what is said of the rest."""

import signal
import subprocess
import sys
import uuid

from support.command_line import Cli


def test_bad_line_is_named(cli: Cli, topic: str) -> None:
    """What came before it was sent, and that is said."""
    error = cli.refused(1, "produce", topic, "--input", "json", stdin='{"value": "a"}\n{"value": \n')
    assert "Line 2 is not a valid record" in error
    assert "Records sent before it: 1." in error
    assert cli.ok("consume", topic) == "a\n"


def test_record_that_is_too_large_is_left_out(cli: Cli, topic: str) -> None:
    """One line says which, with the topic's limit and how to raise it; the records before and after it are sent."""
    lines = ["before", *["y" * 300] * 10, "x" * 5000, "after"]
    cli.ok("topic", "alter", topic, "-c", "max.message.bytes=1000")
    done = cli.run("produce", topic, "-p", "0", stdin="\n".join(lines))
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"error: Line 12 was not sent: its value has 5,000 bytes, and topic `{topic}` allows 1000 bytes in a batch "
        f"(MESSAGE_TOO_LARGE). `drmq topic alter {topic} -c max.message.bytes=N` raises the limit.\n"
    )
    assert done.stdout.decode().startswith(f"Sent 12 records to `{topic}`. 1 record too large.\n")
    assert cli.ok("consume", topic).split() == [line for line in lines if len(line) < 1000]


def test_topic_decides_how_large_a_record_may_be(cli: Cli, topic: str) -> None:
    """Not librdkafka, whose own limit is a million bytes; that limit can be had with `-X`."""
    cli.ok("topic", "alter", topic, "-c", "max.message.bytes=5000000")
    line = "x" * 3_000_000
    done = cli.run("produce", topic, "-p", "0", "-X", "message.max.bytes=2000000", stdin=f"{line}\nsmall\n")
    assert done.returncode == 1
    assert done.stderr.decode().startswith("error: Line 1 was not sent: its value has 3,000,000 bytes, and the client")
    cli.ok("produce", topic, "-p", "0", stdin=line)
    assert [len(value) for value in cli.ok("consume", topic).split()] == [5, 3_000_000]


def test_keys_choose_partitions_as_in_java(cli: Cli, topic: str) -> None:
    """The hashes are those that Kafka's own test of its Java client expects."""
    murmur2 = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    cli.ok("topic", "add-partitions", topic, "7")
    cli.ok("produce", topic, "-K", ":", stdin="".join(f"{key}:x\n" for key in murmur2))
    found = dict(line.split() for line in cli.ok("consume", topic, "-f", "%k %p\n").splitlines())
    assert found == {key: str((number & 0x7FFFFFFF) % 7) for key, number in murmur2.items()}


def test_properties_reach_the_client(cli: Cli, topic: str) -> None:
    """Over what the command chooses itself, and in `consume` as in `produce`."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", "-X", "acks=1", "-X", "compression.type=lz4", stdin="x\n")
    error = cli.refused(64, "produce", topic, "-X", "acks=1", "-X", "enable.idempotence=true", stdin="x\n")
    assert "`acks` must be set to `all`" in error
    command = [sys.executable, "-m", "drmq", "consume", topic, "-g", group, "--follow", "-X", "client.id=me"]
    command += ["-X", "session.timeout.ms=300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        assert [member["client_id"] for member in cli.data("group", "describe", group)["members"]] == ["me"]
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130


def test_partition_that_is_not_there(cli: Cli, topic: str) -> None:
    """Sent nowhere, and said at once."""
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli.refused(1, "produce", topic, "-p", "77", "-v", "x", "--timeout", "30")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli.refused(1, "consume", topic, "-p", "77")


def test_topic_that_cannot_exist_is_an_error(cli: Cli) -> None:
    """Not a traceback: librdkafka reports it without a partition."""
    error = cli.refused(1, "produce", "no/such", "-v", "x", "--timeout", "5")
    assert error.startswith("error: Topic `no/such`")


def test_signal_does_not_lose_what_was_read(cli: Cli, topic: str) -> None:
    """Records that wait in the client for their batch are sent first, and counted."""
    lines = [f"{number:04d}" + "x" * 996 for number in range(200)]
    command = [sys.executable, "-m", "drmq", "produce", topic, "-p", "0", "-X", "linger.ms=20000"]
    with subprocess.Popen(
        [*command, "-X", "batch.size=10000000"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than a pipe holds: when this returns, most of it was read.
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read().decode()
        assert process.wait(60) == 143
    sent = cli.ok("consume", topic).split()
    assert said == f"Sent {len(sent)} records to `{topic}`.\n"
    assert len(sent) >= 100
    assert sent == lines[: len(sent)]
