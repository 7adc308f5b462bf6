"""`drmq consume` as a process that others watch: its group, its pipe, its signals."""

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest

from support.command_line import Cli
from support.polling import eventually


def test_group_with_members_is_not_moved(cli: Cli, topic: str) -> None:
    """Offsets of a group that is being read would be overwritten by its members."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", "-v", "first")
    command = [sys.executable, "-m", "drmq", "consume", topic, "-g", group, "--follow"]
    command += ["-X", "session.timeout.ms=300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        members = cli.data("group", "describe", group)["members"]
        assert [len(member["partitions"]) for member in members] == [3]
        assert "NON_EMPTY_GROUP" in cli.refused(1, "group", "reset", group, "--to", "begin", "--yes", "-t", topic)
        assert "NON_EMPTY_GROUP" in cli.refused(1, "group", "delete", group, "--yes")
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130
    assert cli.data("group", "lag", group)[0]["lag"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_member_and_not_only_its_process(cli: Cli, topic: str, number: signal.Signals) -> None:
    """It commits what it has printed and leaves its group: the next consumer need not wait for a dead member."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", "-v", "first")
    # With a session that outlives the test, so that nothing but leaving can end the membership.
    command = [sys.executable, "-m", "drmq", "consume", topic, "-g", group, "-F", "-X", "session.timeout.ms=300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(number)
        assert process.wait(90) == 128 + number
    assert cli.data("group", "describe", group)["members"] == []
    assert cli.data("group", "lag", group)[0]["lag"] == 0


def test_a_time_in_microseconds_can_be_searched(cli: Cli, topic: str) -> None:
    """Some producers write such times, where a topic allows them."""
    cli.ok("topic", "alter", topic, "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    times = [1_700_000_000_000_000, 1_700_000_000_000_001]
    lines = "".join(f'{{"value": "{time}", "timestamp_ms": {time}, "partition": 0}}\n' for time in times)
    cli.ok("produce", topic, "--input", "json", stdin=lines)
    found = json.loads(cli.ok("consume", topic, "--from", f"@{times[1]}", "-o", "json"))
    assert (found["timestamp_ms"], found["value"]) == (times[1], str(times[1]))
    assert cli.data("offsets", topic, "--time", found["time"])[0]["offset"] == 1


@pytest.mark.parametrize("options", [["-F"], ["-F", "-X", "partition.assignment.strategy=cooperative-sticky"], []])
def test_a_member_that_was_stopped_for_long_goes_on(cli: Cli, topic: str, options: list[str]) -> None:
    """Ctrl-Z and `fg`, or a laptop that sleeps: the group has expired the member, which joins again."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", stdin="first\n" + "filler\n" * 20_000 + "last\n")
    command = [sys.executable, "-m", "drmq", "consume", topic, "-g", group, *options]
    # Heartbeats are sent often enough for it to be a member until it is stopped.
    command += ["-X", "session.timeout.ms=1000", "-X", "heartbeat.interval.ms=300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: cli.data("group", "describe", group)["members"] == [], what="the member expires")
        process.send_signal(signal.SIGCONT)
        if "-F" in options:
            cli.ok("produce", topic, "-p", "1", "-v", "later")
            # What was not committed is printed again.
            for line in process.stdout:
                if line == b"later\n":
                    break
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(90) == 128 + signal.SIGTERM
        else:
            assert process.stdout.readlines()[-1] == b"last\n"
            assert process.wait(90) == 0
            assert cli.data("group", "lag", group)[0]["lag"] == 0


def test_leased_records_are_done_once_they_are_printed(cli: Cli, topic: str) -> None:
    """Those that are not printed are given back at once, however the command ends, and without a failed attempt."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(6)))
    lease = ["consume", topic, "-g", group, "--lease", "--from", "begin"]
    assert cli.ok(*lease, "-n", "2").split() == ["0", "1"]
    found = json.loads(cli.ok(*lease, "-n", "1", "-o", "json"))
    assert (found["value"], found["attempt"]) == ("2", 1)
    command = [sys.executable, "-m", "drmq", *lease, "--follow", "-f", "%v %a\\n"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"3 1\n", b"4 1\n", b"5 1\n"]
        cli.ok("produce", topic, "-p", "1", "-v", "later")
        assert process.stdout.readline() == b"later 1\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 128 + signal.SIGTERM
    described = cli.data("group", "describe", group)
    assert (described["members"], described["lag"], described["out"]) == ([], 0, 0)
    cli.ok("produce", topic, "-p", "2", "-v", "last")
    assert cli.ok(*lease) == "last\n"


def test_closed_pipe_ends_a_member_that_waits(cli: Cli, topic: str) -> None:
    """Also while there is nothing to print; what its reader did not get is not committed."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "drmq", "consume", topic, "-g", group, "-F", "-X", "session.timeout.ms=300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        cli.ok("produce", topic, "-p", "0", "-v", "first")
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        assert process.wait(90) == 0
    assert cli.data("group", "describe", group)["members"] == []
    # A reader that is gone before the first record.
    group = f"group-{uuid.uuid4().hex[:8]}"
    reader, writer = os.pipe()
    os.close(reader)
    command[command.index("-g") + 1] = group
    process = subprocess.Popen(command, stdout=writer, env=cli.environment)
    os.close(writer)
    assert process.wait(90) == 0
    assert cli.data("group", "lag", group) == []


def test_following_sees_what_comes_later(cli: Cli, topic: str) -> None:
    """`--follow` waits at the end, and Ctrl-C ends it with 130."""
    command = [sys.executable, "-m", "drmq", "consume", topic, "--follow", "-n", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        cli.ok("produce", topic, stdin="one\n")
        assert process.stdout.readline() == b"one\n"
        cli.ok("produce", topic, stdin="two\n")
        assert process.stdout.readline() == b"two\n"
        assert process.wait(90) == 0


def test_closed_pipe_is_no_failure(cli: Cli, topic: str) -> None:
    """`drmq consume | head` ends without a word."""
    cli.ok("produce", topic, stdin="line of some length\n" * 20_000)
    command = [sys.executable, "-m", "drmq", "consume", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(90) == 0
        assert process.stderr.read() == b""
