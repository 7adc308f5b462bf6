"""What the shell is doing: its mode, group, topic and held messages, and how each command is carried out.

A session belongs to one thread. Replies come one by one, and a message that is acknowledged by itself (`autocommit`) is
acknowledged when the next reply is asked for: after it was printed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from drmq.model import DrmqError
from drmq.server.cli.output import plural
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
from drmq.server.shell.grammar import help_text
from drmq.server.shell.replies import Reply, lag_reply, message_reply, reader_lag_reply, status_reply, topics_reply

if TYPE_CHECKING:
    from drmq import LeasedMessage, Producer
    from drmq.client import Admin
    from drmq.server.cli.options import ClusterChoice
    from drmq.server.shell.readers import GroupReader, SingleReader

POLL_COUNT = 10
HELD_MAX = 100
"""Messages that a session holds at a time: nobody has an overview of more, and other members wait for them."""
POLL_WAIT_S = 5.0
"""How long `poll` waits for the first message."""
_MORE_WAIT_S = 0.2
"""How long it waits for more after that."""
_STEP_S = 0.5


class NotNow(DrmqError):
    """A command that makes no sense in this state. The message says what to do first."""


class Session:
    """Carries out commands. A context manager: leaving gives back what is held."""

    def __init__(self, cluster: ClusterChoice, *, group: str | None = None, mode: str = "group") -> None:
        self._cluster = cluster
        self.mode = mode
        self.group = group
        self.topic: str | None = None
        self.autocommit = False
        self.held: dict[int, LeasedMessage[bytes]] = {}
        """Leased messages that are not settled, by the numbers that they were shown with."""
        self._last_number = 0
        self._admin: Admin | None = None
        self._producer: Producer[bytes] | None = None
        self._reader: GroupReader | SingleReader | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is held, leave the group, and close all connections."""
        try:
            self._leave()
        finally:
            if self._producer is not None:
                self._producer.close()
            if self._admin is not None:
                self._admin.close()

    @property
    def summary(self) -> str:
        """The state in one line, for a toolbar."""
        parts = [f"{self.mode} mode", f"group {self.group or '-'}", f"topic {self.topic or '-'}"]
        if self.mode == "group":
            parts.append(f"{len(self.held)} held")
        return " · ".join([*parts, f"autocommit {'on' if self.autocommit else 'off'}"])

    def execute(self, command: Command) -> Generator[Reply]:
        """Carry out a command. Raises `DrmqError`. Closing the iterator gives the command up."""
        match command:
            case Poll(count):
                yield from self._poll(count or POLL_COUNT)
            case Stream(count):
                yield from self._stream(count)
            case Ack(which):
                yield from self._settle(which, "acknowledged", lambda message: message.ack())
            case Nack(which, delay_ms):
                delay_s = None if delay_ms is None else delay_ms / 1000
                yield from self._settle(which, "released", lambda message: message.nack(delay=delay_s))
            case Reject(which):
                yield from self._settle(which, "rejected", lambda message: message.reject())
            case Extend(which):
                yield from self._extend(which)
            case Exit():
                return
            case _:
                yield self._answer(command)

    def _answer(self, command: Command) -> Reply:
        """The reply to a command that has exactly one."""
        match command:
            case Send():
                return self._send(command)
            case Subscribe():
                return self._subscribe(command)
            case Commit():
                return self._commit()
            case Seek():
                return self._seek(command)
            case SetMode(mode):
                return self._change("mode", mode)
            case SetGroup(name):
                return self._change("group", name)
            case SetAutocommit(is_on):
                return self._set_autocommit(is_on)
            case Lag():
                return self._lag()
            case Topics():
                return topics_reply(self._open_admin())
            case Status():
                return status_reply(self._cluster, self._state())
            case Help(name):
                text = help_text(name)
                return Reply(text, {"help": text})
        raise AssertionError(command)

    # ---- sending ------------------------------------------------------------------------------------

    def _send(self, command: Send) -> Reply:
        if self._producer is None:
            import drmq

            self._producer = drmq.Producer(self._cluster.bootstrap, timeout=self._cluster.timeout_s)
        sent = self._producer.send(
            command.topic,
            command.value.encode(),
            key=None if command.key is None else command.key.encode(),
            headers=[(name, value.encode()) for name, value in command.headers],
            partition=command.partition,
        )
        text = f"Stored in {sent.topic}-{sent.partition} at offset {sent.offset}."
        return Reply(text, {"topic": sent.topic, "partition": sent.partition, "offset": sent.offset})

    # ---- choosing what to read ----------------------------------------------------------------------

    def _subscribe(self, command: Subscribe) -> Reply:
        from drmq.server.shell.readers import GroupReader, SingleReader

        given_back = self._leave()
        if self.mode == "group":
            group = self._need_group("subscribe")
            start = self._start_of(command)
            # A consumer would wait for a topic that does not exist; here it is a typing error.
            self._open_admin().topics.describe(command.topic)
            self._reader = GroupReader(self._cluster, group, command.topic, start)
            text = f"Sharing `{command.topic}` with group `{self.group}`."
        else:
            reader = SingleReader(self._cluster, self._open_admin(), command.topic, self.group, command.position)
            self._reader = reader
            text = f"Reading `{command.topic}`, from {reader.position_text}."
        self.topic = command.topic
        return Reply(f"{given_back}{text}", {"topic": self.topic, "mode": self.mode, "group": self.group})

    def _set_autocommit(self, is_on: bool) -> Reply:
        if is_on and self.mode == "single":
            self._need_group("autocommit")
        self.autocommit = is_on
        return Reply(f"Autocommit is {'on' if is_on else 'off'}.", {"autocommit": is_on})

    def _start_of(self, command: Subscribe) -> Literal["earliest", "latest"] | None:
        """Where a new group begins."""
        if command.position is None:
            return None
        if command.position.kind not in ("begin", "end"):
            raise NotNow(
                "In group mode, the group decides where it is; `earliest` or `latest` says where a new group begins. "
                "`drmq group reset` moves a group, and `mode single` reads from any position."
            )
        return "earliest" if command.position.kind == "begin" else "latest"

    def _change(self, what: str, value: str) -> Reply:
        """Another mode or group. What was leased under the old one is given back."""
        if getattr(self, what) == value:
            return Reply(f"The {what} is already {value}.", {what: value})
        given_back = again = ""
        # In single mode, a group is no more than a name for `commit`.
        if self._reader is not None and (what == "mode" or self.mode == "group"):
            given_back = self._leave()
            again = f" `subscribe {self.topic}` continues with it."
        setattr(self, what, value)
        return Reply(f"{given_back}The {what} is now {value}.{again}", {what: value})

    def _leave(self) -> str:
        """Close the reader. Says how many messages were given back, if any."""
        reader, self._reader = self._reader, None
        count = len(self.held)
        self.held.clear()
        if reader is not None:
            reader.close()
        return f"{plural(count, 'message')} given back. " if count else ""

    def _seek(self, command: Seek) -> Reply:
        reader = self._need_single("seek")
        reader.seek(command.position)
        return Reply(
            f"Continuing at {reader.position_text}.", {"topic": self.topic, "positions": reader.position_facts}
        )

    def _commit(self) -> Reply:
        reader = self._need_single("commit")
        reader.commit(self._need_group("commit"))
        text = f"Group `{self.group}` continues at {reader.position_text}."
        return Reply(text, {"group": self.group, "topic": self.topic, "positions": reader.position_facts})

    # ---- reading --------------------------------------------------------------------------------------

    def _poll(self, count: int) -> Iterator[Reply]:
        """Messages come in several answers, one for each broker and batch, so the first is not all that there is."""
        shown = 0
        deadline_s = time.monotonic() + POLL_WAIT_S
        while shown < count and (not shown or self._room(or_fail=False)):
            before = shown
            wait_s = _MORE_WAIT_S if shown else min(_STEP_S, deadline_s - time.monotonic())
            for reply in self._show(min(count - shown, self._room()), wait_s):
                shown += 1
                yield reply
            if shown == before and (shown or time.monotonic() >= deadline_s):
                break
        if not shown:
            yield Reply("No messages.", {"messages": 0})

    def _stream(self, count: int | None) -> Iterator[Reply]:
        shown = 0
        while count is None or shown < count:
            if shown and not self._room(or_fail=False):
                yield Reply(f"{HELD_MAX} messages are held. `ack`, `nack` or `reject` some to continue.", {})
                return
            room = self._room()
            for reply in self._show(room if count is None else min(room, count - shown), _STEP_S):
                shown += 1
                yield reply

    def _room(self, *, or_fail: bool = True) -> int:
        """How many more messages may be shown at once."""
        room = HELD_MAX - len(self.held)
        if not room and or_fail:
            raise NotNow(f"{HELD_MAX} messages are held, which is the most. `ack`, `nack` or `reject` some first.")
        return room

    def _show(self, count: int, wait_s: float) -> Iterator[Reply]:
        from drmq.server.shell.readers import GroupReader

        reader = self._need_reader()
        if isinstance(reader, GroupReader):
            yield from self._show_leased(reader, count, wait_s)
            return
        records = deque(reader.poll(count, wait_s))
        try:
            while records:
                yield message_reply(records[0])
                reader.shown(records.popleft())
        finally:
            if records:
                reader.rewind()
        if self.autocommit and self.group is not None:
            reader.commit(self.group)

    def _show_leased(self, reader: GroupReader, count: int, wait_s: float) -> Iterator[Reply]:
        """Each message is held as soon as it is shown; those that are not shown are given back."""
        from drmq.server.shell.readers import record_of

        messages = deque(reader.poll(count, wait_s))
        try:
            while messages:
                self._last_number += 1
                number = self._last_number
                yield message_reply(record_of(messages[0]), number)
                message = messages.popleft()
                if self.autocommit:
                    message.ack()
                else:
                    self.held[number] = message
        finally:
            for message in messages:
                message.give_back()

    # ---- settling -------------------------------------------------------------------------------------

    def _settle(self, which: Which, done: str, settle: Callable[[Any], None]) -> Iterator[Reply]:
        for number in self._chosen(which, done):
            # Whether it succeeds or the lease is lost: it is not held any more.
            message = self.held.pop(number)
            settle(message)
            yield Reply(f"[{number}] {done}.", {"message": number, "outcome": done})

    def _extend(self, which: Which) -> Iterator[Reply]:
        for number in self._chosen(which, "extended"):
            self.held[number].extend()
            yield Reply(f"[{number}] extended.", {"message": number, "outcome": "extended"})

    def _chosen(self, which: Which, done: str) -> list[int]:
        """The numbers of the held messages that are meant."""
        if self.mode != "group":
            raise NotNow(f"In single mode nothing is leased, so nothing can be {done}. `mode group` changes that.")
        if not self.held:
            raise NotNow("No message is held. `poll` shows and holds some.")
        if which == "all":
            return list(self.held)
        number = min(self.held) if which is None else which
        if number not in self.held:
            held = ", ".join(map(str, self.held))
            raise NotNow(f"Message {number} is not held. These are: {held}.")
        return [number]

    # ---- state ------------------------------------------------------------------------------------------

    def _lag(self) -> Reply:
        from drmq.server.shell.readers import SingleReader

        if isinstance(self._reader, SingleReader):
            return reader_lag_reply(self._reader.positions, self._reader.bounds())
        return lag_reply(self._open_admin(), self._need_group("lag"))

    def _state(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "group": self.group,
            "topic": self.topic,
            "held": sorted(self.held),
            "autocommit": self.autocommit,
        }

    def _open_admin(self) -> Admin:
        if self._admin is None:
            self._admin = self._cluster.admin()
        return self._admin

    def _need_group(self, name: str) -> str:
        if self.group is None:
            raise NotNow(f"`{name}` needs a group: `group NAME` chooses one.")
        return self.group

    def _need_reader(self) -> GroupReader | SingleReader:
        if self._reader is None:
            raise NotNow(f"No topic is subscribed. `subscribe {self.topic or 'TOPIC'}` chooses one.")
        return self._reader

    def _need_single(self, name: str) -> SingleReader:
        from drmq.server.shell.readers import SingleReader

        if self.mode != "single":
            instead = (
                "`ack` settles the messages that are held" if name == "commit" else "the group decides where it is"
            )
            raise NotNow(f"`{name}` is for single mode; in group mode {instead}. `mode single` changes the mode.")
        reader = self._need_reader()
        assert isinstance(reader, SingleReader)
        return reader
