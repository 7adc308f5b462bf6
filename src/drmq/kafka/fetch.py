"""Fetch (1): return stored batches from an offset on, at once or when there are some.

The hot path. Reading, waiting, and the rules that clients depend on are in `broker/services/reads.py`. This module has
what is specific to the protocol: sessions (KIP-227), leader hints (KIP-951), and the limits of the connection. A client
that does not read its answers gets no more records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from drmq.broker.services.gate import Permission
from drmq.broker.services.reads import Read, ReadResult
from drmq.kafka.exchange import NO_FRAME, Exchange
from drmq.kafka.leader_hints import with_hints
from drmq.kafka.permissions import RULES
from drmq.model import ApiError, ErrorCode
from drmq.wire import APIS, ApiKey, ProtocolError, RequestHeader
from drmq.wire.fetch import FetchData, FetchPartition, FetchResult, read_fetch, write_fetch_response
from drmq.wire.topics import NodeEndpoint, Topic

if TYPE_CHECKING:
    from drmq.kafka.fetch_sessions import FetchSession
    from drmq.transport import Answer

_TOPIC_ID_FROM = 13
_HINTS_FROM = 16
_READ_COMMITTED = 1
_RACK_KEPT_MAX = 255
_new = tuple.__new__
_API = APIS[ApiKey.FETCH]
_RULE = RULES[ApiKey.FETCH]


def parse(frame: memoryview, header: RequestHeader) -> FetchData:
    """Parse the partitions to read, or the changes to those of a session."""
    version = header.api_version
    if not _API.serves(version):
        raise ProtocolError(f"FETCH v{version} is not supported, only v{_API.version_min} to v{_API.version_max}")
    return read_fetch(frame, header.body_position, version)


def needs(exchange: Exchange) -> Iterable[Permission]:
    """The permissions that a request needs: to read each topic of the request and of its session."""
    cluster = exchange.server.broker.services.cluster
    wanted = exchange.server.fetch_sessions.wanted(exchange.request)
    return (needed for entry in wanted if (needed := _RULE.each(cluster, entry)) is not None)


def handle(exchange: Exchange, refused: frozenset[Permission]) -> None:
    """Serve a Fetch request now, or park it."""
    server, connection, header = exchange.server, exchange.connection, exchange.header
    assert connection is not None
    data: FetchData = exchange.request
    version = header.api_version
    answer = connection.open_answer()
    now_ms = server.broker.clock.monotonic_ms()
    try:
        session, wanted = server.fetch_sessions.open(data, version >= _TOPIC_ID_FROM, now_ms)
    except ApiError as error:
        answer.send(write_fetch_response(version, header.correlation_id, (), error_code=error.code))
        return
    refused_topics = _refused_topics(exchange, wanted, refused) if refused else ()
    Fetch(exchange, answer, session, wanted, refused_topics).start()


def refuse_all(exchange: Exchange, refused: ApiError) -> None:
    """Answer a request that is refused as a whole."""
    connection, header = exchange.connection, exchange.header
    assert connection is not None
    wanted = exchange.server.fetch_sessions.wanted(exchange.request)
    results = [FetchResult(entry.topic, entry.partition, refused.code) for entry in wanted]
    connection.open_answer().send(write_fetch_response(header.api_version, header.correlation_id, results))


def _refused_topics(exchange: Exchange, wanted: Iterable[FetchPartition], refused: frozenset[Permission]) -> set[Topic]:
    cluster = exchange.server.broker.services.cluster
    return {entry.topic for entry in wanted if _RULE.each(cluster, entry) in refused}


class Fetch(Read):
    """One Fetch request from its arrival to its answer."""

    __slots__ = ("_answer", "_connection", "_exchange", "_refused", "_session")

    def __init__(
        self,
        exchange: Exchange,
        answer: Answer,
        session: FetchSession | None,
        wanted: list[FetchPartition],
        refused: Collection[Topic],
    ) -> None:
        data: FetchData = exchange.request
        rack = data.rack_id[:_RACK_KEPT_MAX]
        # It may wait for long, so it keeps what it needs, and not a frame of 4 MiB.
        exchange.frame = NO_FRAME
        if data.forgotten or rack != data.rack_id:
            exchange.request = data._replace(forgotten=[], rack_id=rack)
        wait_ms = data.max_wait_ms
        if refused:
            # Authorization errors are sent at once.
            wanted, wait_ms = [entry for entry in wanted if entry.topic not in refused], 0
        Read.__init__(self, exchange.server.broker.services.reads, wanted, wait_ms, data.min_bytes, rack)
        assert exchange.connection is not None
        self._exchange = exchange
        self._connection = exchange.connection
        self._answer: Answer | None = answer
        self._session = session
        self._refused = refused

    def room(self) -> int:
        data: FetchData = self._exchange.request
        return self._exchange.room(min(data.max_bytes, self._exchange.server.broker.options.fetch_bytes_max))

    @property
    def caller(self) -> str:
        return self._exchange.caller.address

    def on_parked(self) -> None:
        self._exchange.server.park(self._connection, self)

    def on_unparked(self) -> None:
        self._exchange.server.unpark(self._connection, self)

    def on_bug(self, error: BaseException) -> None:
        if not self._connection.closed:
            self._exchange.server.on_bug(self._connection, error, self._exchange.header)

    def on_results(self, results: list[ReadResult], is_misdirected: bool) -> None:
        answer, self._answer = self._answer, None
        if answer is None or self._connection.closed:
            return
        exchange, session = self._exchange, self._session
        data: FetchData = exchange.request
        aborted = () if data.isolation_level == _READ_COMMITTED else None
        answered = []
        for entry, (error, visible, start_offset, found, nearer) in zip(self.wanted, results, strict=True):
            if not error:
                records = (found,) if found else ()
                place = entry.topic, entry.partition
                found_here = (*place, 0, visible, visible, start_offset, records, aborted, nearer, None, None)
                answered.append(_new(FetchResult, found_here))
            else:
                answered.append(FetchResult(entry.topic, entry.partition, error, visible, -1, start_offset))
        if self._refused:
            answered += self._refusals()
        session_id = 0
        if session is not None:
            session_id = session.session_id
            changed = session.changed(answered)
            if data.session_epoch > 0:
                answered = changed
        version, correlation_id = exchange.header.api_version, exchange.header.correlation_id
        endpoints: Sequence[NodeEndpoint] = ()
        if is_misdirected and version >= _HINTS_FROM:
            answered, endpoints = with_hints(exchange.server.broker.services.cluster, answered)
        answer.send(
            write_fetch_response(
                version,
                correlation_id,
                answered,
                throttle_time_ms=exchange.throttle_ms,
                session_id=session_id,
                node_endpoints=endpoints,
            )
        )

    def _refusals(self) -> list[FetchResult]:
        data: FetchData = self._exchange.request
        asked = self._session.asked() if self._session is not None else data.partitions
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [FetchResult(entry.topic, entry.partition, code) for entry in asked if entry.topic in self._refused]
