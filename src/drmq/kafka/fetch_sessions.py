"""Fetch sessions (KIP-227): a client lists its partitions once, and then sends only changes.

Sessions take memory, so their number, the number of their partitions and the length of the names in them are limited. A
client that gets no session (session id 0) continues to send full requests, which is correct and only costs bytes. When
the number of sessions has reached its limit, the least recently used session is evicted if it has been idle for a
while.

Epochs: 0 with session id 0 asks for a new session. -1 asks for no session, and with an id also closes that session. Any
other epoch must be the next one of an existing session; if it is not, the client gets an error and starts again with a
full request.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from drmq.model import ApiError, ErrorCode
from drmq.model.names import TOPIC_NAME_LENGTH_MAX
from drmq.wire.fetch import FetchData, FetchPartition, FetchResult
from drmq.wire.topics import Topic

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
PARTITIONS_MAX = 10_000
ALL_PARTITIONS_MAX = 500_000
"""Partitions of all sessions together. Limits the memory for clients that may never return."""
_IDLE_BEFORE_EVICTION_MS = 120_000

Key = tuple[Topic, int]


@dataclass(slots=True)
class SessionPartition:
    """The client's request for one partition, and the offsets that were last sent to it."""

    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    session_id: int
    uses_ids: bool
    epoch: int
    last_used_ms: int
    partitions: OrderedDict[Key, SessionPartition] = field(default_factory=OrderedDict)

    def update(self, data: FetchData) -> None:
        for entry in data.partitions:
            key = (entry.topic, entry.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(entry)
            else:
                known.asked = entry
        for key in data.forgotten:
            self.partitions.pop(key, None)

    def asked(self) -> list[FetchPartition]:
        return [entry.asked for entry in self.partitions.values()]

    def changed(self, results: list[FetchResult]) -> list[FetchResult]:
        """Reduce `results` to those that are new to the client. Partitions with records move to the end.

        Moving them prevents a busy partition from starving those behind it when answers are full.
        """
        kept = []
        for result in results:
            known = self.partitions.get((result.topic, result.partition))
            if known is None:
                continue
            is_new = (
                bool(result.records)
                or result.error_code != 0
                or result.preferred_read_replica >= 0
                or result.high_watermark != known.high_watermark
                or result.log_start_offset != known.log_start_offset
            )
            if is_new:
                kept.append(result)
            self.remember(known, result)
            if result.records:
                self.partitions.move_to_end((result.topic, result.partition))
        return kept

    def remember(self, known: SessionPartition, result: FetchResult) -> None:
        # After an error, the next result without one must be sent, even if the offsets have not changed.
        healthy = result.error_code == 0
        known.high_watermark = result.high_watermark if healthy else -1
        known.log_start_offset = result.log_start_offset if healthy else -1


class FetchSessions:
    """The sessions of one node."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def wanted(self, data: FetchData) -> list[FetchPartition]:
        """The partitions of a request, including those of its session. Changes nothing."""
        session = None
        if data.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._sessions.get(data.session_id)
        return data.partitions if session is None else [*session.asked(), *data.partitions]

    def open(self, data: FetchData, uses_ids: bool, now_ms: int) -> tuple[FetchSession | None, list[FetchPartition]]:
        """The session of a request, if it has one, and the partitions to read.

        Raises `ApiError` with the error code of the whole answer.
        """
        if data.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if data.session_id != NO_SESSION:
                self._forget(data.session_id)
            if data.session_epoch == FINAL_EPOCH:
                return None, data.partitions
            return self._create(data, uses_ids, now_ms), data.partitions
        session = self._sessions.get(data.session_id)
        if session is None:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {data.session_id} does not exist; start a new one with a full request",
            )
        if data.session_epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"the session epoch is {data.session_epoch}, but {session.epoch} is expected; start a new session",
            )
        if uses_ids != session.uses_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "the session mixes topic names and topic ids; start a new session",
            )
        if not _may_be_kept(data):
            self._forget(session.session_id)
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                "the session was closed, because a name is longer than topics have",
            )
        known_count = len(session.partitions)
        session.update(data)
        grown = len(session.partitions) - known_count
        self._partition_count += grown
        if grown > 0 and (len(session.partitions) > PARTITIONS_MAX or self._partition_count > ALL_PARTITIONS_MAX):
            self._forget(session.session_id)
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                "the session was closed, because it or all sessions together had too many partitions",
            )
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        if not session.partitions:
            self._forget(session.session_id)
            return None, []
        return session, session.asked()

    def _create(self, data: FetchData, uses_ids: bool, now_ms: int) -> FetchSession | None:
        count = len(data.partitions)
        if not 0 < count <= PARTITIONS_MAX or not _may_be_kept(data) or not self._make_room(now_ms):
            return None
        if self._partition_count + count > ALL_PARTITIONS_MAX:
            return None
        session_id = secrets.randbelow(2**31 - 1) + 1
        while session_id in self._sessions:
            session_id = secrets.randbelow(2**31 - 1) + 1
        session = FetchSession(session_id, uses_ids, 1, now_ms)
        session.update(data)
        self._sessions[session_id] = session
        self._partition_count += len(session.partitions)
        return session

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < _IDLE_BEFORE_EVICTION_MS:
            return False
        self._forget(oldest.session_id)
        return True


def _may_be_kept(data: FetchData) -> bool:
    """Whether no name is longer than that of any topic. A name may have 32 KiB on the wire."""
    return all(len(entry.topic) <= TOPIC_NAME_LENGTH_MAX for entry in data.partitions)
