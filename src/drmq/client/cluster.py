"""The brokers behind a list of bootstrap servers, and the one of them that a question must go to.

Administrative requests go to the controller, questions about a group to its coordinator, questions
about a partition to its leader. Each of these moves while a cluster lives, so nothing is kept for
long: an answer that says "not me", and a broker that does not answer at all, make `retry` ask again
who it is, until the call's deadline.

Any broker can say who is who. The one that was asked may be dead, frozen, or cut off from the others
and honestly wrong. So every broker that is known is a candidate, each gets only a share of the time,
and one that failed or whose word turned out wrong goes to the end of the line.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from drmq.client.connection import Connection, Deadline
from drmq.client.errors import WRONG_NODE, ClientError, DeadlineExceeded, Unreachable, refusal
from drmq.model import ErrorCode
from drmq.model.address import Address, parse_bootstrap
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

TIMEOUT_S = 10.0
_BACKOFF_S = 0.1
_BACKOFF_S_MAX = 1.0
_ATTEMPT_SHARE = 0.5
"""Of the time that is left, what one attempt may take where another broker may be the better one to ask."""


class Cluster:
    """Connections to the brokers of one cluster, opened when needed. Owned by one thread; close it."""

    def __init__(self, bootstrap: str, *, client_id: str = "drmq-cli", timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._bootstrap = parse_bootstrap(bootstrap)
        except ValueError as error:
            raise ClientError(f"Bootstrap servers {bootstrap!r}: {error}") from None
        # Many clients that all begin with the first server of the list would be that server's problem.
        random.shuffle(self._bootstrap)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._brokers_are_stale = True
        self._controller_id = -1
        self._was_reached = False
        self._source: Address | None = None
        """Who answered the last question about who is who; asked first the next time."""
        self._failures: dict[Address, int] = {}
        """Who failed, with the number of the last failure: the later, the further back in the line."""
        self._failure_count = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def deadline(self) -> Deadline:
        """The deadline of a call that begins now."""
        return Deadline(self._timeout_s)

    # ---- who is asked ---------------------------------------------------------------------------

    def any_node(self, deadline: Deadline) -> Connection:
        """A connection to whichever broker answers."""
        return self._try_each(lambda connection, share: connection, deadline)

    def ask_any(self, request: object, response_class: type[T], deadline: Deadline) -> T:
        """The answer to a question that every broker can answer, from whichever does.

        It must be one that changes nothing, since several brokers may get it.
        """
        try:
            return self._try_each(lambda connection, share: connection.call(request, response_class, share), deadline)
        except Unreachable as error:
            error.was_question = True
            raise

    def node(self, node_id: int, deadline: Deadline) -> Connection:
        """A connection to this broker."""
        if self._brokers_are_stale or node_id not in self._brokers:
            self.metadata(deadline, topics=[])
        address = self._brokers.get(node_id)
        if address is None:
            raise ClientError(f"Broker {node_id} is not there", code=ErrorCode.BROKER_NOT_AVAILABLE, retriable=True)
        return self._named(address, deadline)

    def controller(self, deadline: Deadline) -> Connection:
        """A connection to the broker that changes topics; any broker where the cluster names none."""
        self.metadata(deadline, topics=[])
        if self._controller_id not in self._brokers:
            return self.any_node(deadline)
        connection = self.node(self._controller_id, deadline)
        # It is the first to know what it changes. Asked elsewhere, the next question may come too early there,
        # and a topic that was just created would not exist.
        self._source = connection.address
        return connection

    def coordinator(self, group: str, deadline: Deadline) -> Connection:
        """A connection to the broker that keeps this group."""
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        answer = self.ask_any(request, FindCoordinatorResponse, deadline)
        what = f"The coordinator of group `{group}` cannot be found"
        if answer.error_code:
            raise refusal(answer.error_code, what, answer.error_message)
        for found in answer.coordinators:
            if found.error_code:
                raise refusal(found.error_code, what, found.error_message)
            return self._named(Address(found.host, found.port), deadline)
        return self._named(Address(answer.host, answer.port), deadline)

    def brokers(self) -> dict[int, Address]:
        """The brokers that the last metadata named."""
        return dict(self._brokers)

    def metadata(self, deadline: Deadline, topics: list[str] | None) -> MetadataResponse:
        """What a broker knows of brokers and topics; None for all topics. Never creates one."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.ask_any(request, MetadataResponse, deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "The cluster does not describe itself")
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._brokers_are_stale = False
        self._controller_id = answer.controller_id
        return answer

    # ---- trying again ---------------------------------------------------------------------------

    def retry(self, action: Callable[[Deadline], T], *, repeatable: bool = True, deadline: Deadline | None = None) -> T:
        """Run an action until it succeeds, fails for good, or its time is over.

        An action that is not `repeatable` (creating, deleting) runs again only when it surely did nothing:
        otherwise its second run would report what its first one did as an error.
        """
        deadline = deadline or self.deadline()
        backoff_s = _BACKOFF_S
        while True:
            try:
                return action(self._attempt(deadline) if repeatable else deadline)
            except ClientError as error:
                if not self._may_retry(error, repeatable, deadline) or deadline.left_s() <= backoff_s:
                    raise
                if error.code in WRONG_NODE or isinstance(error, Unreachable | DeadlineExceeded):
                    self.look_around()
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _attempt(self, deadline: Deadline) -> Deadline:
        """The deadline of one run of an action. A broker that is frozen must leave time for its successor."""
        if not self._brokers:
            # With one broker a run may take all the time there is. Whether there is one must be known before.
            self.metadata(deadline, topics=[])
        return deadline.part(_ATTEMPT_SHARE) if len(self._brokers) > 1 else deadline

    def _may_retry(self, error: ClientError, repeatable: bool, deadline: Deadline) -> bool:
        if not error.retriable or (error.grace_s is not None and deadline.elapsed_s() >= error.grace_s):
            return False
        if isinstance(error, Unreachable):
            # A cluster that never answered is not there: say so now. One that did may be restarting.
            return self._was_reached and (repeatable or not error.sent or error.was_question)
        return repeatable or error.code in WRONG_NODE

    def look_around(self, silent: Address | None = None) -> None:
        """What was believed about the cluster was wrong: ask again, and someone else.

        Someone else than `silent`, a broker that did not answer; or than the one that told what was believed.
        """
        self._brokers_are_stale = True
        doubted = silent or self._source
        if doubted is not None:
            self._step_back(doubted)

    # ---- connections ----------------------------------------------------------------------------

    def _try_each(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """The first success of `use` with a connection to one candidate after the other."""
        candidates = self._candidates()
        failure: ClientError | None = None
        for position, address in enumerate(candidates):
            share = deadline.part(1 / (len(candidates) - position))
            try:
                found = use(self._connection(address, share), share)
            except (Unreachable, DeadlineExceeded) as error:
                failure = error
                self._step_back(address)
            else:
                self._source = address
                self._failures.pop(address, None)
                return found
        assert failure is not None, self._bootstrap
        raise failure

    def _candidates(self) -> list[Address]:
        """Every broker that is known, the most promising first."""
        connected = [address for address, connection in self._connections.items() if connection.is_open]
        known = dict.fromkeys([*connected, *self._bootstrap, *self._brokers.values()])
        return sorted(
            known,
            key=lambda address: (self._failures.get(address, 0), address != self._source, address not in connected),
        )

    def _step_back(self, address: Address) -> None:
        self._failure_count += 1
        self._failures[address] = self._failure_count

    def _named(self, address: Address, deadline: Deadline) -> Connection:
        """A connection to one broker and no other, which leaves time to look for its successor."""
        has_others = any(other != address for other in self._brokers.values())
        try:
            return self._connection(address, deadline.part(_ATTEMPT_SHARE) if has_others else deadline)
        except DeadlineExceeded:
            if not deadline.left_s():
                raise
            raise Unreachable(f"{address} does not answer") from None

    def _connection(self, address: Address, deadline: Deadline) -> Connection:
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        connection = Connection(address, self._client_id, deadline)
        self._was_reached = True
        self._connections[address] = connection
        return connection
