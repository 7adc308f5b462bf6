"""Lines of the shell: what they mean, and what a user is told about those that mean nothing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.server.cli.positions import Position
from drmq.server.shell import commands as c
from drmq.server.shell.grammar import COMMANDS, BadCommand, help_text, parse


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("send orders hello", c.Send("orders", "hello")),
        ("send orders  two  words ", c.Send("orders", "two  words")),
        ("send orders 'in quotes'", c.Send("orders", "in quotes")),
        ('send orders "a \\"b\\""', c.Send("orders", 'a "b"')),
        ('send orders {"total": 10}', c.Send("orders", '{"total": 10}')),
        ('send orders "a" and "b"', c.Send("orders", '"a" and "b"')),
        ("send orders it's", c.Send("orders", "it's")),
        ("send orders -5", c.Send("orders", "-5")),
        ("send orders ''", c.Send("orders", "")),
        ("send orders -- -k", c.Send("orders", "-k")),
        ("send -k 42 orders x", c.Send("orders", "x", key="42")),
        ("send orders --key 'a b' -p 3 x -k y", c.Send("orders", "x -k y", key="a b", partition=3)),
        ("send orders -H a=1 --header 'b=2 3' x", c.Send("orders", "x", headers=(("a", "1"), ("b", "2 3")))),
        ("subscribe orders", c.Subscribe("orders")),
        ("SUBSCRIBE Orders latest", c.Subscribe("Orders", Position("end"))),
        ("subscribe orders 3:42", c.Subscribe("orders", Position("offset", 42, 3))),
        ("poll", c.Poll()),
        ("poll 5", c.Poll(5)),
        ("stream", c.Stream()),
        ("stream 7", c.Stream(7)),
        ("commit", c.Commit()),
        ("ack", c.Ack()),
        ("ack 3", c.Ack(3)),
        ("ack ALL", c.Ack("all")),
        ("nack", c.Nack()),
        ("nack 3", c.Nack(3)),
        ("nack 30s", c.Nack(None, 30_000)),
        ("nack 3 5m", c.Nack(3, 300_000)),
        ("nack all 0", c.Nack("all", 0)),
        ("reject 2", c.Reject(2)),
        ("extend all", c.Extend("all")),
        ("seek -10", c.Seek(Position("before_end", 10))),
        ("mode single", c.SetMode("single")),
        ("group billing", c.SetGroup("billing")),
        ("autocommit ON", c.SetAutocommit(True)),
        ("lag", c.Lag()),
        ("topics", c.Topics()),
        ("status", c.Status()),
        ("help", c.Help()),
        ("help ack", c.Help("ack")),
        ("exit", c.Exit()),
        ("quit", c.Exit()),
        ("publish orders x", c.Send("orders", "x")),
        ("", None),
        ("   ", None),
        ("# send orders x", None),
    ],
)
def test_line_means(line: str, command: object) -> None:
    assert parse(line) == command


def understand(line: str) -> None:
    """Parse a line, and look up what it asks help for."""
    command = parse(line)
    if isinstance(command, c.Help):
        help_text(command.command)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sned orders x", "There is no command `sned`. Did you mean `send`?"),
        ("xyzzy", "There is no command `xyzzy`. `help` lists"),
        ("send orders \udcff", "b'send orders \\xff' is not UTF-8 text"),
        ("send", "needs a topic and a message"),
        ("send orders", "an empty one is ''"),
        ("send orders -k", "-k needs a value"),
        ("send orders -k 'a b", "A quote is not closed"),
        ("send orders -H a x", "'a' is not NAME=VALUE"),
        ("send orders -p one x", "'one' is not a whole number from 0 on"),
        ("subscribe", "needs more than that. Usage: subscribe TOPIC"),
        ("subscribe 'orders", "A quote is not closed"),
        ("subscribe orders soon", "'soon' is not a position"),
        ("subscribe orders latest twice", "has no use for twice"),
        ("poll 0", "not a whole number from 1 on"),
        ("poll many", "not a whole number"),
        ("ack 0", "not the number of a message, nor `all`"),
        (f"ack {'9' * 5_000}", "not the number of a message"),
        (f"poll {'9' * 5_000}", "not a whole number"),
        (f"nack {'9' * 5_000}.0s", "is not a delay"),
        ("ack one", "not the number of a message, nor `all`"),
        ("nack 1 2", "'2' is not a delay such as 500ms, 30s or 5m: a delay needs a unit"),
        ("nack one 2s", "not the number of a message"),
        ("nack soon", "'soon' is not a delay"),
        ("mode both", "'both' is neither group nor single"),
        ("autocommit", "needs more than that"),
        ("commit now", "has no use for now"),
        ("help me", "There is no command `me`"),
    ],
)
def test_wrong_line_says_why(line: str, words: str) -> None:
    """What is wrong, and what is allowed."""
    with pytest.raises(BadCommand) as wrong:
        understand(line)
    assert words in str(wrong.value)


@given(st.text(max_size=40), st.sampled_from(["", *COMMANDS]))
def test_any_line_is_a_command_or_refused(rest: str, name: str) -> None:
    """A user may type anything, and never sees a traceback."""
    with contextlib.suppress(BadCommand):
        understand(f"{name} {rest}")


@given(st.text(min_size=1, max_size=30).map(str.strip).filter(lambda text: text and text[0] not in "-'\""))
def test_message_is_sent_as_it_is_typed(message: str) -> None:
    """Quotes, braces and backslashes in a message mean nothing to the shell."""
    assert parse(f"send orders {message}") == c.Send("orders", message)


def test_help_has_every_command() -> None:
    overview = help_text(None).splitlines()
    assert [line.split()[0] for line in overview] == list(COMMANDS)
    for name, spec in COMMANDS.items():
        assert spec.usage.startswith(name)
        assert spec.summary in help_text(name)
