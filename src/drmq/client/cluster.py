"""The brokers behind a list of bootstrap servers, and which of them a request must go to.

Administrative requests go to the controller, requests about a group to its coordinator, requests about a partition to
its leader. Each of these roles moves during the life of a cluster, so nothing is cached for long: after a response that
says "not here", or no response at all, `retry` looks up the responsible broker again, until the deadline of the call.

Every broker can answer such a lookup. But the broker that was asked may be dead, frozen, or partitioned from the others
and out of date. Every known broker is therefore a candidate, each gets only a share of the time, and a broker that
failed or whose answer turned out to be wrong moves to the end of the list.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
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
"""The share of the remaining time that one attempt may take if another broker might be the better one to ask."""


class Cluster:
    """Connections to the brokers of one cluster, opened when needed. Owned by one thread, which closes it."""

    def __init__(self, bootstrap: str, *, client_id: str = "drmq-cli", timeout_s: float = TIMEOUT_S) -> None:
        try:
            self._bootstrap = parse_bootstrap(bootstrap)
        except ValueError as error:
            raise ClientError(f"Bootstrap servers {bootstrap!r}: {error}") from None
        # If all clients began with the first server of the list, that server would carry all the load.
        random.shuffle(self._bootstrap)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._brokers_are_stale = True
        self._controller_id = -1
        self._was_reached = False
        self._source: Address | None = None
        """The broker that answered the last lookup. It is asked first the next time."""
        self._changed_at: Address | None = None
        """The controller that received the last change, until it is taken."""
        self._failures: dict[Address, int] = {}
        """Brokers that failed, with the number of their last failure: the later, the further back in the list."""
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

    # ---- choosing a broker ---------------------------------------------------------------------------

    def any_node(self, deadline: Deadline) -> Connection:
        """A connection to any broker that answers."""
        return self._try_each(lambda connection, share: connection, deadline)

    def ask_any(self, request: object, response_class: type[T], deadline: Deadline) -> T:
        """The response to a request that every broker can answer, from the first broker that does.

        The request must not change anything, since several brokers may receive it.
        """
        try:
            return self._try_each(lambda connection, share: connection.call(request, response_class, share), deadline)
        except Unreachable as error:
            error.was_read_only = True
            raise

    def node(self, node_id: int, deadline: Deadline) -> Connection:
        """A connection to this broker."""
        if self._brokers_are_stale or node_id not in self._brokers:
            self.metadata(deadline, topics=[])
        address = self._brokers.get(node_id)
        if address is None:
            raise ClientError(f"Broker {node_id} is not available", code=ErrorCode.BROKER_NOT_AVAILABLE, retriable=True)
        return self._named(address, deadline)

    def controller(self, deadline: Deadline) -> Connection:
        """A connection to the controller; to any broker if the cluster names none."""
        self.metadata(deadline, topics=[])
        if self._controller_id not in self._brokers:
            return self.any_node(deadline)
        connection = self.node(self._controller_id, deadline)
        # The controller is the first broker to know its own changes. On another broker, the next request might not see
        # them yet: a topic that was just created would not exist.
        self._source = self._changed_at = connection.address
        return connection

    def take_changed_at(self) -> Address | None:
        """The broker that received a change since the last call, if any did."""
        changed_at, self._changed_at = self._changed_at, None
        return changed_at

    def ask_first(self, address: Address) -> None:
        """Ask this broker first from now on, as long as it answers."""
        self._source = address

    def coordinator(self, group: str, deadline: Deadline) -> Connection:
        """A connection to the coordinator of this group."""
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

    def coordinators(self, groups: Sequence[str], deadline: Deadline) -> dict[Address, list[str]]:
        """The coordinators of many groups, each with its groups; without the groups that have none now."""
        request = FindCoordinatorRequest(key=groups[0], key_type=0, coordinator_keys=list(groups))
        answer = self.ask_any(request, FindCoordinatorResponse, deadline)
        found: dict[Address, list[str]] = {}
        for each in answer.coordinators:
            if not each.error_code:
                found.setdefault(Address(each.host, each.port), []).append(each.key)
        return found

    def connect(self, address: Address, deadline: Deadline) -> Connection:
        """A connection to the broker at an address that the cluster has named."""
        return self._named(address, deadline)

    def brokers(self) -> dict[int, Address]:
        """The brokers in the last metadata response."""
        return dict(self._brokers)

    def metadata(self, deadline: Deadline, topics: list[str] | None) -> MetadataResponse:
        """Metadata about brokers and topics, from any broker; None for all topics. Never creates a topic."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.ask_any(request, MetadataResponse, deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "The cluster cannot be described")
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._brokers_are_stale = False
        self._controller_id = answer.controller_id
        return answer

    # ---- retrying ---------------------------------------------------------------------------

    def retry(self, action: Callable[[Deadline], T], *, repeatable: bool = True, deadline: Deadline | None = None) -> T:
        """Run an action until it succeeds, fails permanently, or runs out of time.

        An action that is not `repeatable` (creating, deleting) is repeated only if it certainly had no effect:
        otherwise the second run would report the effect of the first one as an error.
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
                    self.suspect_view()
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _attempt(self, deadline: Deadline) -> Deadline:
        """The deadline of one run of an action. A frozen broker must leave time for its successor."""
        if not self._brokers:
            # With a single broker, a run may take all the time, so the number of brokers must be known first.
            self.metadata(deadline, topics=[])
        return deadline.part(_ATTEMPT_SHARE) if len(self._brokers) > 1 else deadline

    def _may_retry(self, error: ClientError, repeatable: bool, deadline: Deadline) -> bool:
        if not error.retriable or (error.grace_s is not None and deadline.elapsed_s() >= error.grace_s):
            return False
        if isinstance(error, Unreachable):
            # If the cluster never answered, report that now. If it did, it may be restarting.
            return self._was_reached and (repeatable or not error.sent or error.was_read_only)
        return repeatable or error.code in WRONG_NODE

    def suspect_view(self, unresponsive: Address | None = None) -> None:
        """The cached view of the cluster was wrong: refresh it, from another broker.

        The broker to avoid is `unresponsive`, or else the one that provided the view.
        """
        self._brokers_are_stale = True
        suspect = unresponsive or self._source
        if suspect is not None:
            self._demote(suspect)

    # ---- connections ----------------------------------------------------------------------------

    def _try_each(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """The first success of `use`, with a connection to one candidate after the other."""
        candidates = self._candidates()
        failure: ClientError | None = None
        for position, address in enumerate(candidates):
            share = deadline.part(1 / (len(candidates) - position))
            try:
                found = use(self._connection(address, share), share)
            except (Unreachable, DeadlineExceeded) as error:
                failure = error
                self._demote(address)
            else:
                self._source = address
                self._failures.pop(address, None)
                return found
        assert failure is not None, self._bootstrap
        raise failure

    def _candidates(self) -> list[Address]:
        """Every known broker, the most promising first."""
        connected = [address for address, connection in self._connections.items() if connection.is_open]
        known = dict.fromkeys([*connected, *self._bootstrap, *self._brokers.values()])
        return sorted(
            known,
            key=lambda address: (self._failures.get(address, 0), address != self._source, address not in connected),
        )

    def _demote(self, address: Address) -> None:
        self._failure_count += 1
        self._failures[address] = self._failure_count

    def _named(self, address: Address, deadline: Deadline) -> Connection:
        """A connection to exactly this broker, made in a share of the time so that its successor can still be tried."""
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
        try:
            connection = Connection(address, self._client_id, deadline)
        except Unreachable as error:
            if address not in self._bootstrap and not error.sent:
                error.advice = (
                    "The cluster names this address for one of its brokers. Either that broker is down, or clients "
                    "cannot reach it at this address: `advertise` sets the address of a node for clients."
                )
            raise
        self._was_reached = True
        self._connections[address] = connection
        return connection
