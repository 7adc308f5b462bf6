"""The commands of the shell as values. `grammar` makes them from lines, and `Session` carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drmq.server.cli.positions import Position

Which = int | Literal["all"] | None
"""Held messages: one by its number, all of them, or (None) the oldest one."""


@dataclass(frozen=True, slots=True)
class Send:
    topic: str
    value: str
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    topic: str
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Ack:
    which: Which = None


@dataclass(frozen=True, slots=True)
class Nack:
    which: Which = None
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    which: Which = None


@dataclass(frozen=True, slots=True)
class Extend:
    which: Which = None


@dataclass(frozen=True, slots=True)
class Seek:
    position: Position


@dataclass(frozen=True, slots=True)
class SetMode:
    mode: str


@dataclass(frozen=True, slots=True)
class SetGroup:
    name: str


@dataclass(frozen=True, slots=True)
class SetAutocommit:
    is_on: bool


@dataclass(frozen=True, slots=True)
class Lag:
    pass


@dataclass(frozen=True, slots=True)
class Topics:
    pass


@dataclass(frozen=True, slots=True)
class Status:
    pass


@dataclass(frozen=True, slots=True)
class Help:
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    pass


Command = (
    Send
    | Subscribe
    | Poll
    | Stream
    | Commit
    | Ack
    | Nack
    | Reject
    | Extend
    | Seek
    | SetMode
    | SetGroup
    | SetAutocommit
    | Lag
    | Topics
    | Status
    | Help
    | Exit
)
