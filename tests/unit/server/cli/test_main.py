"""The command line as a whole: help, wrong usage, exit codes. No broker is needed here."""

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from drmq.server.cli import COMMANDS, main
from drmq.server.cli.nouns import NOUNS, VERBS
from drmq.server.docs import all_commands

from .scripted_cluster import scripted_cluster


def test_first_lines_are_those_of_the_commands() -> None:
    """The overview repeats each command's first line so that it need not import it; the two must agree."""
    for name, (module, first_line) in COMMANDS.items():
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        assert command.help is not None
        assert command.help.partition("\n")[0] == first_line, name


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["topic", "--help"], ["topic"], ["server", "-h"], ["consume", "-h"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help is not a failure, and neither is asking for nothing; a noun without a verb is wrong usage, which shows the
    verbs on standard error."""
    assert main(arguments) == (64 if arguments == ["topic"] else 0)
    captured = capsys.readouterr()
    assert "Usage: drmq" in (captured.err if arguments == ["topic"] else captured.out)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """As a flag, which people try first, and as a command."""
    assert main(["--version"]) == main(["version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert first.startswith("drmq ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["tipic"], "drmq topic"),
        (["topics", "ls"], "drmq topic"),
        (["brokers"], "drmq cluster members"),
        (["start"], "drmq up"),
        (["list"], "drmq topic ls"),
        (["consumer-groups"], "drmq group"),
        (["verify"], "drmq log verify"),
        (["topic", "list"], "drmq topic ls"),
        (["topic", "rm", "x"], "drmq topic delete"),
        (["group", "show", "x"], "drmq group describe"),
        (["cluster", "rebalence"], "drmq cluster rebalance"),
        (["group", "seek"], "drmq group reset"),
    ],
)
def test_mistyped_command_gets_a_suggestion(typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its letters, and by the words of other tools; what is suggested exists."""
    assert main(typed) == 64
    error = capsys.readouterr().err
    assert error.startswith("error: No such command '")
    assert f". Did you mean `{meant}`?\n" in error
    assert main([*meant.split()[1:], "--help"]) == 0


def test_no_suggestion_is_better_than_a_wrong_one(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["xyzzy"], ["help"], ["node", "help"], ["cluster", "help"]):
        assert main(arguments) == 64
        command = " ".join(["drmq", *arguments[:-1]])
        expected = f"error: No such command '{arguments[-1]}'.\n`{command} --help` shows the usage.\n"
        assert capsys.readouterr().err == expected


def test_every_synonym_is_a_command() -> None:
    """Of the root, or as a verb of some noun."""
    verbs = {path[-1] for path, _ in all_commands()}
    assert set(VERBS.values()) <= verbs
    for meant in NOUNS.values():
        assert main([*(word for word in meant.split() if not word.startswith("-")), "--help"]) == 0, meant


def test_bootstrap_may_come_before_the_noun(capsys: pytest.CaptureFixture[str]) -> None:
    """It means the same there; the one after the verb wins, and a command that does not connect refuses it."""
    assert main(["-b", "127.0.0.1:2", "topic", "ls"]) == 1
    assert main(["-b", "127.0.0.1:2", "topic", "ls", "-b", "127.0.0.1:3"]) == 1
    assert [line.split(":")[2].strip() for line in capsys.readouterr().err.splitlines()] == ["2", "3"]
    for arguments in (["up"], ["node", "ls"], ["version"]):
        assert main(["-b", "127.0.0.1:2", *arguments]) == 64
        assert "-b has no effect" in capsys.readouterr().err


def test_suggested_commands_ask_the_same_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Without `-b` they would ask another one, and mislead."""
    with scripted_cluster(1) as cluster:
        address = str(cluster.fakes[1].address)
        assert main(["raft", "describe", "__cluster_metadata", "7", "-b", address]) == 1
        assert f"`drmq raft describe __cluster_metadata 0 -b {address}`" in capsys.readouterr().err


CHANGES_NOTHING = {
    *("status", "top", "dashboard", "offsets", "sql", "simulate", "completion", "version"),
    *("node ls", "cluster features", "cluster health", "cluster info", "cluster members", "raft describe", "raft ls"),
    *("debug counters", "topic describe", "topic ls", "group describe", "group lag", "group leases", "group ls"),
    *("group members", "dlq ls", "dlq show", "dlq status", "spark doctor", "log dump", "log verify"),
}
DESTROYS_NOTHING = {
    # Programs that run until they end, and do what they are told meanwhile.
    *("server", "proxy", "produce", "consume", "shell", "worker run", "spark shell", "spark submit"),
    # Nodes of a cluster on this machine, whose data stays; each has an opposite.
    *("up", "down", "node cut", "node forget", "node heal", "node kill", "node pause", "node resume", "node start"),
    "node stop",
    # The opposites are `cluster remove`, another transfer and another redrive; no data is deleted.
    *("cluster add", "raft transfer", "dlq stop"),
}
ASKS_NOTHING = {"topic add-partitions", "topic create", "group alter"}
"""Can be tried without effect, but do not ask first: they delete no data."""


def test_every_destructive_command_has_a_dry_run() -> None:
    """It also asks for confirmation. A new command has to be put into one of the lists, or have both options."""
    commands = {" ".join(path): command for path, command in all_commands() if not isinstance(command, click.Group)}
    assert not CHANGES_NOTHING & DESTROYS_NOTHING
    assert commands.keys() >= CHANGES_NOTHING | DESTROYS_NOTHING | ASKS_NOTHING, "a list has a command that is gone"
    for name, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        if name in CHANGES_NOTHING | DESTROYS_NOTHING:
            assert not options & {"--yes", "--dry-run"}, f"{name} has the options of a destructive command"
        else:
            assert "--dry-run" in options, name
            assert ("--yes" in options) == (name not in ASKS_NOTHING), name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tipic"], "No such command"),
        (["topic", "creat"], "No such command"),
        (["topic", "create"], "Missing argument 'NAME'"),
        (["topic", "ls", "--bogus"], "--bogus"),
        (["topic", "ls", "-o", "xml"], "'table', 'json', 'jsonl', 'yaml'"),
        (["topic", "ls", "-b", "host:port"], "1 to 65535"),
        (["consume", "x", "-g", ""], "needs the name of a group"),
        (["topic", "create", "x", "-c", "novalue"], "NAME=VALUE"),
        (["topic", "alter", "x"], "Nothing to change"),
        (["topic", "alter", "x", "--set", "retention.ms=1"], "--config"),
        (["topic", "create", "x", "--set", "retention.ms=1"], "--config"),
        (["topic", "alter", "x", "-c", "retention.ms=1parsec"], "'parsec' is not an allowed unit"),
        (["topic", "create", "x", "-c", "segment.bytes=7d"], "64KiB, 1MiB, 2GB"),
        (["consume", "x", "--from", "sometime"], "not a position"),
        (["consume", "x", "-f", "%z"], "%z is not a valid field"),
        (["consume", "x", "--follow", "--until-end"], "cannot be combined"),
        (["consume", "x", "-g", "g", "--from", "7"], "drmq group reset"),
        (["consume", "x", "--lease"], "--lease needs a group"),
        (["consume", "x", "-g", "g", "--lease", "-p", "1"], "--partition is not allowed"),
        (["group", "alter", "g"], "Nothing to change"),
        (["group", "alter", "g", "share.delivery.count.limit"], "NAME=VALUE"),
        (["group", "alter", "g", "share.record.lock.duration.ms=1parsec"], "'parsec' is not an allowed unit"),
        (["shell", "--mode", "both"], "'group', 'single'"),
        (["produce", "x", "-K", ":", "--key", "k"], "-K cannot be combined with"),
        (["offsets", "x", "--time", "noon"], "not a time"),
        (["server", "--port", "x"], "flag --port"),
        (["server", "--log-level", "loud"], "debug or info"),
        (["server", "--config", "/no/such/file"], "cannot be read"),
        (["up", "--nodes", "0"], "0 is not in the range"),
        (["server", "--peers", "2:localhost"], "flag --peers"),
        (["server", "--roles", "leader"], "'leader' is not a role"),
        (["node", "kill"], "Missing argument 'ID'"),
        (["cluster", "remove", "three"], "'three' is not a valid integer"),
        (["raft", "transfer", "t", "0"], "Missing option '--to'"),
        (["log", "dump"], "Missing argument 'PATH'"),
        (["topic", "ls", "-X", "linger"], "NAME=VALUE"),
        (["topic", "ls", "-X", "linger.msec=5"], "Did you mean linger.ms?"),
        (["group", "ls", "-X", "linger.ms=soon"], "linger.ms=soon: Invalid value"),
        (["consume", "x", "-X", "group.id=g"], "Use -g"),
        (["produce", "x", "-X", "bootstrap.servers=b"], "Use -b"),
        (["status", "-X", "security.protocol=ssl"], "no encryption and no authentication yet"),
        (["produce", "x", "-X", "error_cb=f"], "callable"),
    ],
)
def test_wrong_usage_is_64_and_says_why(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is on standard error, and nothing is on standard output."""
    assert main(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert expected in captured.err


def test_every_command_that_connects_takes_properties() -> None:
    """`-X` is where `-b` is."""
    for path, command in all_commands():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("-b" in options) == ("-X" in options), path


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "ls"],
        ["topic", "create", "x"],
        ["topic", "delete", "x", "--yes"],
        ["offsets", "x"],
        ["consume", "x"],
        ["produce", "x", "-v", "1"],
        ["group", "ls"],
        ["group", "reset", "x", "--to", "begin"],
        ["cluster", "info"],
        ["cluster", "members"],
        ["cluster", "add", "4"],
        ["cluster", "remove", "4", "--yes"],
        ["cluster", "rebalance"],
        ["raft", "ls"],
        ["raft", "describe", "x", "0"],
        ["raft", "transfer", "x", "0", "--to", "2"],
    ],
)
def test_no_broker_is_1_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for a timeout to learn that nothing listens there."""
    assert main([*arguments, "-b", "127.0.0.1:1"]) == 1
    assert "Cannot connect to 127.0.0.1:1: Connection refused" in capsys.readouterr().err


def test_status_of_nothing_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    """A monitor reads 2."""
    assert main(["status", "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().out.startswith("Down: Cannot connect")


def test_health_of_nothing_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    """As with `status`, a monitor reads 2."""
    assert main(["cluster", "health", "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().out.startswith("Down: Cannot connect")


@pytest.mark.parametrize("verb", ["ls", "kill", "pause", "resume", "start", "stop"])
def test_node_of_no_cluster(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error that says how to make one, and nothing is made by asking."""
    place = tmp_path / "nothing"
    assert main(["node", verb, *([] if verb == "ls" else ["1"]), "--data-dir", str(place)]) == 1
    assert f"`drmq up --data-dir {place}` creates one" in capsys.readouterr().err
    assert not place.exists()


def test_directory_that_cannot_be_made_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the system refused, why, and what next: no traceback, and nothing left behind."""
    (tmp_path / "lines.txt").write_text("1\n")
    for path in ("lines.txt/x", "lines.txt/x/y"):
        assert main(["up", "--data-dir", str(tmp_path / path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {tmp_path / 'lines.txt'}")
        assert "cannot be used: Not a directory. Part of the path is a file. Choose another directory." in error
    assert main(["up", "--data-dir", "/proc/nope"]) == 1
    assert capsys.readouterr().err == (
        "error: /proc/nope cannot be used: No such file or directory. Check the path, or choose another one.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_server_says_in_words_why_it_cannot_start(tmp_path: Path) -> None:
    """No number of an error, and what to do."""
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "drmq", "server", "--port", "0", "--data-dir", str(tmp_path / "file" / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"{tmp_path / 'file'} cannot be used: Not a directory. Part of the path is a file." in done.stderr
    assert "Errno" not in done.stderr


def test_bootstrap_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flag beats the variable."""
    monkeypatch.setenv("DRMQ_BOOTSTRAP", "127.0.0.1:2")
    main(["topic", "ls"])
    main(["topic", "ls", "-b", "127.0.0.1:3"])
    assert [line.split(":")[2].strip() for line in capsys.readouterr().err.splitlines()] == ["2", "3"]


def test_print_config(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every value with its origin."""
    monkeypatch.setenv("DRMQ_CONNECTIONS_MAX", "7")
    assert main(["server", "--print-config", "--port", "0"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["port"].split() == ["server", "port", "0", "flag", "--port"]
    assert lines["connections_max"].split() == ["listener", "connections_max", "7", "variable", "DRMQ_CONNECTIONS_MAX"]
    assert lines["segment_ms"].endswith("default")


def test_help_imports_nothing_heavy() -> None:
    """What makes help slow stays out of it; the time itself is measured, not tested."""
    code = (
        "import sys\n"
        "from drmq.server.cli import main\n"
        "main(['--help']); main(['topic', '--help']); main(['consume', '--help'])\n"
        "main(['cluster', '--help']); main(['raft', '--help']); main(['node', '--help']); main(['up', '--help'])\n"
        "heavy = {'rich', 'confluent_kafka', 'asyncio', 'socket', 'drmq.wire', 'drmq.broker', 'drmq.client'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "heavy: []"


def test_importing_drmq_imports_nothing() -> None:
    """Every project that has DRMQ installed pays for this import in its tests."""
    code = "import sys; import drmq; print(sorted(name for name in sys.modules if name.startswith('drmq.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
