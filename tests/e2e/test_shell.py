"""`drmq shell` as people and scripts use it: in a pipe, at a terminal, alone, and several of one group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drmq import Producer
from drmq.client import Admin, NewTopic
from drmq.model import TopicPartition
from support.command_line import Cli
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.pseudo_terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, PseudoTerminal


@pytest.fixture(scope="module")
def admin(cli_broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(cli_broker.bootstrap, timeout_s=PATIENCE_S) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(cli_broker: BrokerProcess) -> Iterator[Producer[str]]:
    with Producer(cli_broker.bootstrap, codec="text", timeout=PATIENCE_S) as producer:
        yield producer


@pytest.fixture
def orders(admin: Admin) -> str:
    """A topic of one partition, so that messages are in their order."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin.topics.create(NewTopic(name, 1))
    return name


@pytest.fixture
def group(admin: Admin) -> str:
    """A group that begins at the start of the log."""
    name = f"billing-{uuid.uuid4().hex[:8]}"
    admin.configs.alter_group(name, {"share.auto.offset.reset": "earliest"}, [])
    return name


def script(cli: Cli, *lines: str, options: tuple[str, ...] = ()) -> list[str]:
    """The output of a script that must succeed."""
    return cli.ok("shell", *options, stdin="\n".join(lines)).splitlines()


def facts(cli: Cli, *lines: str, options: tuple[str, ...] = ()) -> list[Any]:
    return [json.loads(line) for line in script(cli, *lines, options=(*options, "-o", "json"))]


# ---- in a pipe ------------------------------------------------------------------------------------


def test_messages_are_sent_leased_and_settled(cli: Cli, orders: str, group: str) -> None:
    lines = script(
        cli,
        "# sends, then works on what it has sent",
        f"send {orders} -k 42 -H shop=north coffee and cake",
        f'send {orders} {{"total": 10}}',
        f"send {orders} tea",
        f"group {group}",
        f"subscribe {orders}",
        "poll",
        "ack 2",
        "nack 1 0",
        "reject",
        "poll",
        "ack all",
        "status",
        "lag",
    )
    assert lines[:3] == [f"Stored in {orders}-0 at offset {offset}." for offset in range(3)]
    assert lines[3:5] == [f"The group is now {group}.", f"Sharing `{orders}` with group `{group}`."]
    assert lines[5:8] == [
        f"[1] {orders}-0 offset 0, key 42, shop=north: coffee and cake",
        f'[2] {orders}-0 offset 1: {{"total": 10}}',
        f"[3] {orders}-0 offset 2: tea",
    ]
    assert lines[8:11] == ["[2] acknowledged.", "[1] released.", "[3] rejected."]
    assert lines[11] == f"[4] {orders}-0 offset 0, key 42, shop=north, attempt 2: coffee and cake"
    assert lines[12] == "[4] acknowledged."
    assert lines[13] == f"Mode group, group {group}, topic {orders}, 0 messages held, autocommit off."
    assert lines[14].startswith("Healthy: ")
    found = eventually(lambda: cli.data("group", "describe", group), lambda found: found["dead_letters"] == 1)
    assert found["lag"] == 0


def test_single_mode_reads_from_any_position_and_commits(
    cli: Cli, orders: str, admin: Admin, producer: Producer[str]
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    place = TopicPartition(orders, 0)
    for number in range(10):
        producer.send(orders, str(number))
    found = facts(
        cli,
        f"subscribe {orders} 7",
        "poll 2",
        "lag",
        "seek 2",
        "poll 1",
        f"group {group}",
        f"subscribe {orders} -4",
        "poll 1",
        "commit",
        "seek earliest",
        "stream 3",
        options=("--mode", "single"),
    )
    assert [each["value"] for each in found if "value" in each] == ["7", "8", "2", "6", "0", "1", "2"]
    assert [each["lag"] for each in found if "lag" in each] == [1]
    assert admin.groups.offsets(group)[place].offset == 7
    # A new session of this group goes on there, and commits by itself if it is told to.
    options = ("--mode", "single", "-g", group, "-t", orders)
    again = facts(cli, "autocommit on", "poll 2", options=options)
    assert [each["value"] for each in again if "value" in each] == ["7", "8"]
    assert admin.groups.offsets(group)[place].offset == 9


def test_first_failure_ends_a_script(cli: Cli, orders: str, admin: Admin) -> None:
    """With the number of the line and exit code 1; `--keep-going` goes on, and still reports it."""
    lines = f"send {orders} one\nack\nsend {orders} two\n"
    done = cli.run("shell", stdin=lines)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("error: line 2: No message is held.")
    place = TopicPartition(orders, 0)
    assert admin.topics.bounds([place])[place].end == 1
    done = cli.run("shell", "--keep-going", stdin=lines)
    assert (done.returncode, done.stdout.decode().count("Stored")) == (1, 2)


def test_failures_in_plain_words(cli: Cli) -> None:
    """What happened, and what to do; never a traceback."""
    lines = {
        "sned x y": "Did you mean `send`?",
        "poll": "No topic is subscribed",
        "subscribe x": "`subscribe` needs a group",
        "commit": "`commit` is for single mode",
        "group no-such-group": None,
        "lag": "GROUP_ID_NOT_FOUND",
        "subscribe x 7": "the group decides where it is",
        "subscribe no-such-topic": "UNKNOWN_TOPIC_OR_PARTITION",
        "mode single": None,
        "ack": "In single mode nothing is leased",
        "subscribe no-such-topic latest": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    done = cli.run("shell", "--keep-going", stdin="\n".join(lines))
    assert done.returncode == 1
    expected = [(number, words) for number, words in enumerate(lines.values(), 1) if words is not None]
    errors = done.stderr.decode().splitlines()
    assert len(errors) == len(expected), errors
    for (number, words), error in zip(expected, errors, strict=True):
        assert error.startswith(f"error: line {number}: ")
        assert words in error


def test_no_broker_in_plain_words(cli: Cli) -> None:
    error = cli.refused(1, "shell", "-b", "127.0.0.1:1", "--timeout", "2", stdin="topics\n")
    assert "Cannot connect to 127.0.0.1:1" in error
    assert "Traceback" not in error


# ---- several shells -------------------------------------------------------------------------------


def test_two_shells_share_a_group(cli: Cli, orders: str, group: str, producer: Producer[str]) -> None:
    """Each message is with one of them, and both together have all."""
    for number in range(20):
        producer.send(orders, str(number))
    command = [sys.executable, "-m", "drmq", "shell", "-g", group, "-t", orders, "-o", "json"]
    shells = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cli.environment, text=True)
        for _ in range(2)
    ]
    try:
        values: list[list[str]] = [[], []]
        for _ in range(3):
            for shell, mine in zip(shells, values, strict=True):
                assert shell.stdin is not None
                shell.stdin.write("poll 4\nstatus\n")
                shell.stdin.flush()
                mine += polled(shell)
        for shell, mine in zip(shells, values, strict=True):
            assert mine, values
            shell.stdin.write("ack all\nexit\n")  # type: ignore[union-attr]
            shell.communicate(timeout=PATIENCE_S)
            assert shell.returncode == 0
    finally:
        for shell in shells:
            shell.kill()
            shell.communicate()
    both = sorted(values[0] + values[1], key=int)
    assert len(both) == len(set(both)), "a message was with both"
    rest = cli.ok("consume", orders, "-g", group, "--lease").split()
    assert sorted(both + rest, key=int) == [str(number) for number in range(20)]


def polled(shell: subprocess.Popen[str]) -> list[str]:
    """The values that `poll` prints, up to the reply to `status`."""
    assert shell.stdout is not None
    found: list[str] = []
    for line in shell.stdout:
        reply = json.loads(line)
        if "value" in reply:
            found.append(reply["value"])
        if "cluster" in reply:
            return found
    raise AssertionError("the shell ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_gives_back_what_is_held(
    cli: Cli, orders: str, group: str, admin: Admin, producer: Producer[str], number: signal.Signals
) -> None:
    producer.send(orders, "one")
    command = [sys.executable, "-m", "drmq", "shell", "-g", group, "-t", orders, "-o", "json"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=cli.environment,
        text=True,
    ) as shell:
        assert shell.stdin is not None
        shell.stdin.write("poll\nstatus\nstream\n")
        shell.stdin.flush()
        assert polled(shell) == ["one"]
        shell.send_signal(number)
        assert shell.wait(PATIENCE_S) == 128 + number
    assert_given_back(admin, group)


def assert_given_back(admin: Admin, group: str) -> None:
    """Nothing is leased to a member that is gone: the message can be leased at once."""
    [queue] = admin.lease_groups.state(group).queues
    assert (queue.held, queue.returned, queue.parked, queue.lag) == (0, 1, 0, 1)
    assert admin.groups.describe(group).members == ()


# ---- at a terminal --------------------------------------------------------------------------------


def terminal(cli: Cli, home: Path, *options: str) -> PseudoTerminal:
    environment = {**cli.environment, "XDG_STATE_HOME": str(home)}
    return PseudoTerminal([sys.executable, "-m", "drmq", "shell", *options], environment)


def test_a_prompt_completes_and_shows_where_one_is(cli: Cli, orders: str, group: str, tmp_path: Path) -> None:
    with terminal(cli, tmp_path, "-g", group) as shell:
        shell.expect("drmq>")
        shell.expect(f"group mode · group {group} · topic - · 0 held")
        shell.type(f"send {orders[:-3]}{TAB}")
        shell.expect(orders[-3:])
        shell.type(f"hello{ENTER}")
        shell.expect(f"Stored in {orders}-0 at offset 0.")
        shell.type(f"subs{TAB}")
        shell.expect("cribe")
        shell.type(f"{orders}{ENTER}")
        shell.expect(f"Sharing `{orders}`")
        shell.type(f"poll{ENTER}")
        shell.expect("[1] ")
        shell.expect("1 held")
        shell.type(f"ack{ENTER}")
        shell.expect("[1] acknowledged.")
        shell.type(f"nonsense{ENTER}")
        shell.expect("error: There is no command `nonsense`.")
        shell.expect("drmq>")
        shell.type(CTRL_D)
        assert shell.end() == 0
        assert "Traceback" not in shell.output


def test_ctrl_c_ends_the_command_and_not_the_shell(
    cli: Cli, orders: str, producer: Producer[str], tmp_path: Path
) -> None:
    with terminal(cli, tmp_path, "--mode", "single") as shell:
        shell.expect("drmq>")
        shell.type(f"half a line{CTRL_C}")
        shell.type(f"subscribe {orders} earliest{ENTER}")
        shell.expect("Reading")
        for text in ("first", "second"):
            shell.type(f"stream{ENTER}")
            producer.send(orders, text)
            shell.expect(f": {text}")
            shell.type(CTRL_C)
            shell.expect("Interrupted.")
        shell.type(f"exit{ENTER}")
        assert shell.end() == 0
        assert "Traceback" not in shell.output


def test_history_is_kept_for_the_next_shell(cli: Cli, orders: str, tmp_path: Path) -> None:
    with terminal(cli, tmp_path) as shell:
        shell.expect("drmq>")
        shell.type(f"topics{ENTER}")
        shell.expect(orders)
        shell.expect("drmq>")
        shell.type(CTRL_D)
        assert shell.end() == 0
    with terminal(cli, tmp_path) as shell:
        shell.expect("drmq>")
        # The history is read in the background.
        shell.type_until(UP, "topics")
        shell.type(ENTER)
        shell.expect(orders)
        shell.expect("drmq>")
        shell.type(CTRL_D)
        assert shell.end() == 0
    [path] = tmp_path.rglob("shell_history")
    assert path.stat().st_mode & 0o077 == 0


def test_sigterm_at_the_prompt_gives_back(
    cli: Cli, orders: str, group: str, admin: Admin, producer: Producer[str], tmp_path: Path
) -> None:
    producer.send(orders, "one")
    with terminal(cli, tmp_path, "-g", group, "-t", orders) as shell:
        shell.expect("drmq>")
        shell.type(f"poll{ENTER}")
        shell.expect("[1] ")
        shell.expect("1 held")
        shell.process.send_signal(signal.SIGTERM)
        assert shell.end() == 128 + signal.SIGTERM
        assert "Traceback" not in shell.output
    assert_given_back(admin, group)
