"""The grammar of the shell: which commands there are, how they are written, what their help says. Needs no broker."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drmq.model import DrmqError
from drmq.model.options import INT32_MAX
from drmq.server.cli.options import not_utf8
from drmq.server.cli.positions import BadPosition, parse_position
from drmq.server.settings import DURATION_UNITS, BadValue, parse_number
from drmq.server.shell.commands import (
    Ack,
    Command,
    Commit,
    Exit,
    Extend,
    Help,
    Lag,
    Nack,
    Poll,
    Reject,
    Seek,
    Send,
    SetAutocommit,
    SetGroup,
    SetMode,
    Status,
    Stream,
    Subscribe,
    Topics,
    Which,
)

MODES = ("group", "single")
_DIGITS_MAX = 18
"""Python does not convert numbers with thousands of digits."""


class BadCommand(DrmqError):
    """A line that is not a command. The message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A command for users: how it is written, what it does, and which words its arguments can be.

    `words` has for each argument the words that are completed; `TOPIC`, `GROUP` and `COMMAND` stand for names.
    """

    name: str
    usage: str
    summary: str
    details: str
    parse: Callable[[Spec, str], Command]
    words: tuple[tuple[str, ...], ...] = ()


def parse(line: str) -> Command | None:
    """The command of a line; None if the line is empty or a comment. Raises `BadCommand`."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise BadCommand(not_utf8(line.strip())) from None
    name, rest = _token(line)
    if name is None or name.startswith("#"):
        return None
    spec = COMMANDS.get(name.lower()) or COMMANDS.get(_SYNONYMS.get(name.lower(), ""))
    if spec is None:
        close = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        guess = f" Did you mean `{close[0]}`?" if close else ""
        raise BadCommand(f"There is no command `{name}`.{guess} `help` lists all commands.")
    try:
        return spec.parse(spec, rest)
    except BadPosition as error:
        raise BadCommand(error.format_message()) from None


def help_text(name: str | None) -> str:
    """All commands with a line each, or one command in detail. Raises `BadCommand` for an unknown one."""
    if name is None:
        width = max(len(spec.usage) for spec in COMMANDS.values())
        return "\n".join(f"{spec.usage.ljust(width)}  {spec.summary}" for spec in COMMANDS.values())
    spec = COMMANDS.get(_SYNONYMS.get(name, name))
    if spec is None:
        raise BadCommand(f"There is no command `{name}`. `help` lists all commands.")
    return f"{spec.usage}\n  {spec.summary}" + (f"\n\n{spec.details}" if spec.details else "")


_TOKEN = re.compile(
    r"""\s*('(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|(?P<plain>[^\s'"]\S*))(?=\s|$)""", re.DOTALL
)


def _token(text: str) -> tuple[str | None, str]:
    """The first word of a text, which may be in quotes, and what follows it."""
    found = _TOKEN.match(text)
    if found is None:
        if text.strip():
            raise BadCommand(f"A quote is not closed, or something follows it directly: {text.strip()}")
        return None, ""
    if found["double"] is not None:
        return re.sub(r"\\(.)", r"\1", found["double"]), text[found.end() :]
    word = found["single"] if found["single"] is not None else found["plain"]
    return word, text[found.end() :]


def _wrong(spec: Spec, why: str) -> BadCommand:
    return BadCommand(f"{why} Usage: {spec.usage}")


def _split(spec: Spec, rest: str, least: int, most: int) -> list[str]:
    """The arguments of a command that has from `least` to `most` of them."""
    try:
        words = shlex.split(rest)
    except ValueError:
        raise BadCommand(f"A quote is not closed: {rest.strip()}") from None
    if len(words) < least:
        raise _wrong(spec, f"`{spec.name}` needs more than that.")
    if len(words) > most:
        raise _wrong(spec, f"`{spec.name}` has no use for {shlex.quote(words[most])}.")
    return words


def _parse_send(spec: Spec, rest: str) -> Command:
    """Options may stand before and after the topic; what comes then is the message, as it was typed."""
    key: str | None = None
    partition: int | None = None
    headers: list[tuple[str, str]] = []
    topic: str | None = None
    while True:
        word, after = _first_word(rest)
        if word == "--" and topic is not None:
            rest = after
            break
        if word in ("-k", "--key", "-H", "--header", "-p", "--partition"):
            value, rest = _token(after)
            if value is None:
                raise _wrong(spec, f"{word} needs a value.")
            if word in ("-k", "--key"):
                key = value
            elif word in ("-p", "--partition"):
                partition = _number(spec, value, 0)
            else:
                name, separator, text = value.partition("=")
                if not separator or not name:
                    raise _wrong(spec, f"{value!r} is not NAME=VALUE.")
                headers.append((name, text))
        elif topic is None and word:
            topic, rest = _token(rest)
        else:
            break
    if topic is None:
        raise _wrong(spec, "`send` needs a topic and a message.")
    message = rest.strip()
    if not message:
        raise _wrong(spec, "`send` needs a message; an empty one is ''.")
    return Send(topic, _unquoted(message), key, tuple(headers), partition)


def _first_word(text: str) -> tuple[str, str]:
    """The first word as it was typed, without regard to quotes."""
    word, _, after = text.strip().partition(" ")
    return word, after


def _unquoted(message: str) -> str:
    """The message without the quotes around all of it, if there are any."""
    found = _TOKEN.fullmatch(message)
    if found is None or found["plain"] is not None:
        return message
    word, _ = _token(message)
    assert word is not None, message
    return word


def _parse_subscribe(spec: Spec, rest: str) -> Command:
    words = _split(spec, rest, 1, 2)
    return Subscribe(words[0], parse_position(words[1]) if len(words) > 1 else None)


def _counted(make: Callable[[int | None], Command]) -> Callable[[Spec, str], Command]:
    def parse_count(spec: Spec, rest: str) -> Command:
        words = _split(spec, rest, 0, 1)
        return make(_number(spec, words[0], 1) if words else None)

    return parse_count


def _chosen(make: Callable[[Which], Command]) -> Callable[[Spec, str], Command]:
    def parse_which(spec: Spec, rest: str) -> Command:
        words = _split(spec, rest, 0, 1)
        return make(_which(spec, words[0]) if words else None)

    return parse_which


def _bare(make: Callable[[], Command]) -> Callable[[Spec, str], Command]:
    def parse_nothing(spec: Spec, rest: str) -> Command:
        _split(spec, rest, 0, 0)
        return make()

    return parse_nothing


def _parse_nack(spec: Spec, rest: str) -> Command:
    words = _split(spec, rest, 0, 2)
    which: Which = None
    if words and (words[0].isdigit() or words[0].lower() == "all"):
        which = _which(spec, words.pop(0))
    elif len(words) == 2:
        which = _which(spec, words[0])
    if not words:
        return Nack(which)
    try:
        if words[0].isdigit() and words[0] != "0":
            raise BadValue("a delay needs a unit")
        return Nack(which, parse_number(words[0], DURATION_UNITS))
    except BadValue as error:
        raise _wrong(spec, f"{words[0]!r} is not a delay such as 500ms, 30s or 5m: {error}.") from None


def _parse_seek(spec: Spec, rest: str) -> Command:
    return Seek(parse_position(_split(spec, rest, 1, 1)[0]))


def _parse_mode(spec: Spec, rest: str) -> Command:
    return SetMode(_one_of(spec, rest, MODES))


def _parse_group(spec: Spec, rest: str) -> Command:
    return SetGroup(_split(spec, rest, 1, 1)[0])


def _parse_autocommit(spec: Spec, rest: str) -> Command:
    return SetAutocommit(_one_of(spec, rest, ("on", "off")) == "on")


def _parse_help(spec: Spec, rest: str) -> Command:
    words = _split(spec, rest, 0, 1)
    return Help(words[0].lower() if words else None)


def _one_of(spec: Spec, rest: str, allowed: Sequence[str]) -> str:
    word = _split(spec, rest, 1, 1)[0].lower()
    if word not in allowed:
        raise _wrong(spec, f"{word!r} is neither {' nor '.join(allowed)}.")
    return word


def _which(spec: Spec, word: str) -> Which:
    if word.lower() == "all":
        return "all"
    if not (word.isascii() and word.isdigit() and len(word) <= _DIGITS_MAX and int(word)):
        raise _wrong(spec, f"{word!r} is not the number of a message, nor `all`.")
    return int(word)


def _number(spec: Spec, word: str, least: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= _DIGITS_MAX and least <= int(word) <= INT32_MAX):
        raise _wrong(spec, f"{word!r} is not a whole number from {least} on.")
    return int(word)


TOPIC, GROUP, COMMAND = "<topic>", "<group>", "<command>"
"""In the words of a command: names that are looked up while the user types."""

_POSITIONS = ("earliest", "latest", "@15m", "-10")
_NUMBERS = (
    "N is the number that `poll` printed before the message. Without it, the oldest message that is held is meant."
)

_SPECS = (
    Spec(
        "send",
        "send TOPIC [-k KEY] [-H NAME=VALUE] [-p PARTITION] MESSAGE",
        "Send a message, and show where it is stored.",
        "The message is the rest of the line, as it is typed; quotes around all of it are removed.\n"
        'Options come before it: send orders -k 42 {"total": 10}',
        _parse_send,
        ((TOPIC,),),
    ),
    Spec(
        "subscribe",
        "subscribe TOPIC [POSITION]",
        "Choose the topic to read.",
        "In single mode, reading begins at POSITION: earliest, latest, an offset, PARTITION:OFFSET, -N (N before\n"
        "the end), or a time such as 2026-11-01T12:00:00Z or @15m. Without it, reading begins where the group has\n"
        "committed or, without a group, at the beginning. In group mode, the group decides where it is.",
        _parse_subscribe,
        ((TOPIC,), _POSITIONS),
    ),
    Spec(
        "poll",
        "poll [N]",
        "Show up to N messages, by default 10; waits a moment for the first.",
        "In group mode, each message is leased, and held until `ack`, `nack` or `reject`. Its lease is renewed.",
        _counted(Poll),
    ),
    Spec(
        "stream",
        "stream [N]",
        "Show messages as they come, until Ctrl-C or until there were N.",
        "In group mode without autocommit, it stops when 100 messages are held.",
        _counted(Stream),
    ),
    Spec(
        "commit",
        "commit",
        "Single mode: commit the position, so that the group continues there.",
        "The position is after the last message that was shown. Needs `group NAME`.",
        _bare(Commit),
    ),
    Spec("ack", "ack [N|all]", "Group mode: a message is done.", _NUMBERS, _chosen(Ack), (("all",),)),
    Spec(
        "nack",
        "nack [N|all] [DELAY]",
        "Group mode: a message failed; it is delivered again, after the delay.",
        f"{_NUMBERS}\nDELAY has a unit: 500ms, 30s, 5m. Without it, the backoff of the group decides.",
        _parse_nack,
        (("all",),),
    ),
    Spec(
        "reject",
        "reject [N|all]",
        "Group mode: give a message up; it goes to the dead letters.",
        _NUMBERS,
        _chosen(Reject),
        (("all",),),
    ),
    Spec(
        "extend",
        "extend [N|all]",
        "Group mode: let the lease of a message last for its full duration again.",
        f"{_NUMBERS}\nThe shell also does this by itself while a message is held.",
        _chosen(Extend),
        (("all",),),
    ),
    Spec(
        "seek",
        "seek POSITION",
        "Single mode: continue at another position.",
        "POSITION is earliest, latest, an offset, PARTITION:OFFSET, -N (N before the end), or a time such as @15m.",
        _parse_seek,
        (_POSITIONS,),
    ),
    Spec(
        "mode",
        "mode group|single",
        "Share messages with a group by leases, or read alone by position.",
        "Changing the mode gives back what is held.",
        _parse_mode,
        (MODES,),
    ),
    Spec(
        "group",
        "group NAME",
        "Choose the group.",
        "In group mode: whose messages are shared. In single mode: where `commit` keeps the position.",
        _parse_group,
        ((GROUP,),),
    ),
    Spec(
        "autocommit",
        "autocommit on|off",
        "Whether what was shown is acknowledged or committed by itself.",
        "Off at the beginning.",
        _parse_autocommit,
        (("on", "off"),),
    ),
    Spec("lag", "lag", "Show how far the group, or this reader, is behind.", "", _bare(Lag)),
    Spec("topics", "topics", "List topics.", "", _bare(Topics)),
    Spec(
        "status",
        "status",
        "Show mode, group, topic and held messages, and the state of the cluster.",
        "",
        _bare(Status),
    ),
    Spec("help", "help [COMMAND]", "Explain the commands.", "", _parse_help, ((COMMAND,),)),
    Spec("exit", "exit", "Give back what is held, and leave. Ctrl-D does the same.", "", _bare(Exit)),
)

COMMANDS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}

_SYNONYMS = {
    "quit": "exit",
    "bye": "exit",
    "?": "help",
    "produce": "send",
    "publish": "send",
    "sub": "subscribe",
    "read": "poll",
    "receive": "poll",
    "consume": "poll",
    "get": "poll",
    "follow": "stream",
    "tail": "stream",
    "fail": "nack",
    "retry": "nack",
    "renew": "extend",
    "ls": "topics",
}
"""Words of other tools that mean the same here."""
