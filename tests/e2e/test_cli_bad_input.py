"""What people type by mistake: an error that says what and why, and never a traceback or a crash of the interpreter."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from support.command_line import Cli
from support.polling import PATIENCE_S

NOT_UTF8 = os.fsdecode(b"x\xff\xfe")
HUGE = "9" * 20
MANY_DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topic", "create", "x", "--partitions", "99999999999"], "is not in the range 1<=x<=2147483647"),
        (["topic", "create", "x", "--replicas", "40000"], "is not in the range 1<=x<=32767"),
        (["topic", "add-partitions", "x", "99999999999"], "is not in the range"),
        (["produce", "x", "-v", "x", "-p", "99999999999"], "is not in the range"),
        (["topic", "trim", "x", "--before", f"@{HUGE}", "--yes"], "before 1970 or after the year 9999"),
        (["consume", "x", "--from", f"@{HUGE}"], "before 1970 or after the year 9999"),
        (["consume", "x", "--from", "0001-01-01"], "before 1970 or after the year 9999"),
        (["group", "reset", "g", "--topic", "x", "--to", f"@{HUGE}"], "before 1970 or after the year 9999"),
        (["offsets", "x", "--time", HUGE], "before 1970 or after the year 9999"),
        (["dlq", "show", "x", "--since", MANY_DIGITS], "before 1970 or after the year 9999"),
        (["consume", "x", "--from", f"@{MANY_DIGITS}d"], "before 1970 or after the year 9999"),
        (["consume", "x", "-p", MANY_DIGITS], "is not a valid integer"),
        (["topic", "create", "x", "-c", f"segment.bytes={MANY_DIGITS}"], "this is not a whole number"),
        (["topic", "create", "x", "-c", f"segment.bytes={MANY_DIGITS}.0GB"], "this is not a whole number"),
        (["topic", "ls", "--timeout", "1e300"], "is not in the range"),
        (["topic", "ls", "--timeout", "inf"], "is not in the range"),
        (["topic", "ls", "--timeout", "nan"], "is not a number of seconds"),
        (["down", "--timeout", "nan"], "is not a number of seconds"),
        (["up", "--nodes", "99999999"], "is not in the range 1<=x<=100"),
        (["up", "--port", "0", "--data-dir", ""], "The name is empty"),
        (["down", "--data-dir", ""], "The name is empty"),
        (["node", "ls", "--data-dir", ""], "The name is empty"),
        (["topic", "ls", "-b", "..:9092"], "is not a host"),
        (["topic", "ls", "-b", "a" * 300], "is not a host"),
        (["topic", "ls", "-b", f"{NOT_UTF8}:9092"], "is not a host"),
        (["topic", "ls", "-b", "http://127.0.0.1:9092"], "not a URL"),
        (["server", "--port", "0", "--data-dir", "never", "--host", "..."], "is not a host"),
        (["server", "--port", "0", "--data-dir", "never", "--rack", NOT_UTF8], "this is not UTF-8 text"),
        (["server", "--port", "0", "--data-dir", "never", "--advertise", NOT_UTF8], "this is not UTF-8 text"),
        (["consume", "x", "-g", NOT_UTF8], "is not UTF-8 text"),
        (["shell", "-g", NOT_UTF8, "-t", "x"], "is not UTF-8 text"),
        (["shell", "-g", "g", "-t", NOT_UTF8], "is not UTF-8 text"),
        (["worker", "run", "time:sleep", "-g", NOT_UTF8, "-t", "x"], "is not UTF-8 text"),
        (["worker", "run", "time:sleep", "-g", "g", "-t", NOT_UTF8], "is not UTF-8 text"),
        (["consume", "x", "-X", f"{NOT_UTF8}=1"], "is not UTF-8 text"),
        (["consume", "x", "-X", f"client.id={NOT_UTF8}"], "is not UTF-8 text"),
        (["produce", "x", "-v", "x", "--header", f"{NOT_UTF8}=1"], "is not UTF-8 text"),
        (["topic", "create", "x", "-c", f"{NOT_UTF8}=1"], "is not UTF-8 text"),
        (["topic", "create", NOT_UTF8], "is not UTF-8 text"),
        (["topic", "delete", NOT_UTF8, "--yes"], "is not UTF-8 text"),
        (["consume", NOT_UTF8], "is not UTF-8 text"),
        (["produce", NOT_UTF8, "-v", "x"], "is not UTF-8 text"),
        (["offsets", NOT_UTF8], "is not UTF-8 text"),
        (["group", "describe", NOT_UTF8], "is not UTF-8 text"),
        (["dlq", "show", NOT_UTF8], "is not UTF-8 text"),
        (["debug", "counters", NOT_UTF8], "is not UTF-8 text"),
    ],
)
def test_it_is_refused_in_words(cli: Cli, arguments: Sequence[str], text: str) -> None:
    error = cli.refused(64, *arguments)
    assert text in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", [r"\udcff", r"\ud800", r"a\u0000b"])
def test_a_header_name_that_cannot_be_sent_is_refused(cli: Cli, topic: str, name: str) -> None:
    record = f'{{"value": "x", "headers": {{"{name}": "y"}}}}'
    assert "Line 1 is not a valid record" in cli.refused(1, "produce", topic, "--input", "json", stdin=record)


@pytest.mark.parametrize("header", [b"\xff=1", b"a\0b=1"])
def test_the_shell_refuses_such_a_header_too(cli: Cli, topic: str, header: bytes) -> None:
    error = cli.refused(1, "shell", stdin=b"send %s -H %s hello\n" % (topic.encode(), header))
    assert error.startswith("error: line 1: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape", "ascii:strict"])
def test_a_line_of_the_shell_that_is_not_utf8_is_an_error_like_others(cli: Cli, topic: str, encoding: str) -> None:
    """With its number, and `--keep-going` goes on."""
    cli = Cli(cli.environment["DRMQ_BOOTSTRAP"])
    cli.environment["PYTHONIOENCODING"] = encoding
    lines = f"send {topic} first\nsend {topic} ".encode() + b"\xff\n" + f"send {topic} größer\n".encode()
    error = cli.refused(1, "shell", "--keep-going", stdin=lines)
    assert error.startswith("error: line 2: ")
    assert "is not UTF-8 text" in error
    assert "Traceback" not in error
    assert sorted(cli.ok("consume", topic).splitlines()) == ["first", "größer"]


def test_an_answer_that_is_not_utf8_is_a_no(cli: Cli, topic: str) -> None:
    cli = Cli(cli.environment["DRMQ_BOOTSTRAP"])
    cli.environment["PYTHONIOENCODING"] = "utf-8:strict"
    assert "Nothing was changed" in cli.refused(1, "topic", "delete", topic, stdin=b"\xff\n")


def test_a_value_may_be_any_bytes(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-v", NOT_UTF8)
    assert cli.run("consume", topic, "-f", "%v").stdout.startswith(os.fsencode(NOT_UTF8))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_bug(cli: Cli, topic: str, closed: str) -> None:
    script = f'"$0" -m drmq produce "$1" {closed} && "$0" -m drmq topic ls {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, topic],
        env=cli.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_nothing_is_promised_of_what_the_broker_refuses(cli: Cli, topic: str) -> None:
    """A dry run of a command that deletes: internal topics, and ordinary ones that were taken for dead letters."""
    cli.ok("produce", topic, "-v", "precious")
    cli.run("consume", topic, "-g", f"{topic}-readers")  # so that there is the internal topic
    assert "is internal" in cli.refused(1, "topic", "delete", "__consumer_offsets", "--dry-run")
    assert "is internal" in cli.refused(1, "topic", "trim", "__consumer_offsets", "--before", "end", "--dry-run")
    for chosen in ("--dry-run", "--yes"):
        assert "takes no dead letters" in cli.refused(1, "dlq", "purge", topic, chosen)
    assert cli.ok("consume", topic, "-f", "%v") == "precious"
