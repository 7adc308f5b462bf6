"""The brokers behind a list of bootstrap servers, and the one of them that a question must go to.

Administrative requests go to the controller, questions about a group to its coordinator, questions
about a partition to its leader. Each of these moves while a cluster lives, so nothing is kept for
long: an answer that says "not me" makes `retry` ask again who it is, until the call's deadline.
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
        self._controller_id = -1
        self._was_reached = False

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

    def any_node(self, deadline: Deadline) -> Connection:
        """A connection to whichever broker answers."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failure: ClientError | None = None
        for address in [*self._bootstrap, *self._brokers.values()]:
            try:
                return self._connection(address, deadline)
            except (Unreachable, DeadlineExceeded) as error:
                failure = error
        assert failure is not None, self._bootstrap
        raise failure

    def node(self, node_id: int, deadline: Deadline) -> Connection:
        """A connection to this broker."""
        if node_id not in self._brokers:
            self.metadata(deadline, topics=[])
        address = self._brokers.get(node_id)
        if address is None:
            raise ClientError(f"Broker {node_id} is not there", code=ErrorCode.BROKER_NOT_AVAILABLE, retriable=True)
        return self._connection(address, deadline)

    def controller(self, deadline: Deadline) -> Connection:
        """A connection to the broker that changes topics; any broker where the cluster names none."""
        self.metadata(deadline, topics=[])
        if self._controller_id in self._brokers:
            return self.node(self._controller_id, deadline)
        return self.any_node(deadline)

    def coordinator(self, group: str, deadline: Deadline) -> Connection:
        """A connection to the broker that keeps this group."""
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        answer = self.any_node(deadline).call(request, FindCoordinatorResponse, deadline)
        what = f"The coordinator of group `{group}` cannot be found"
        if answer.error_code:
            raise refusal(answer.error_code, what, answer.error_message)
        for found in answer.coordinators:
            if found.error_code:
                raise refusal(found.error_code, what, found.error_message)
            return self._connection(Address(found.host, found.port), deadline)
        return self._connection(Address(answer.host, answer.port), deadline)

    def brokers(self) -> dict[int, Address]:
        """The brokers that the last metadata named."""
        return dict(self._brokers)

    def metadata(self, deadline: Deadline, topics: list[str] | None) -> MetadataResponse:
        """What a broker knows of brokers and topics; None for all topics. Never creates one."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.any_node(deadline).call(request, MetadataResponse, deadline)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._controller_id = answer.controller_id
        return answer

    def retry(self, action: Callable[[Deadline], T], *, repeatable: bool = True, deadline: Deadline | None = None) -> T:
        """Run an action until it succeeds, fails for good, or its time is over.

        An action that is not `repeatable` (creating, deleting) runs again only when it surely did nothing:
        otherwise its second run would report what its first one did as an error.
        """
        deadline = deadline or self.deadline()
        backoff_s = _BACKOFF_S
        while True:
            try:
                return action(deadline)
            except ClientError as error:
                if not self._may_retry(error, repeatable) or deadline.left_s() <= backoff_s:
                    raise
                if error.code in WRONG_NODE:
                    self._brokers.clear()
            time.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)

    def _may_retry(self, error: ClientError, repeatable: bool) -> bool:
        if isinstance(error, DeadlineExceeded) or not error.retriable:
            return False
        if isinstance(error, Unreachable):
            # A cluster that never answered is not there: say so now. One that did may be restarting.
            return self._was_reached and (repeatable or not error.sent)
        return repeatable or error.code in WRONG_NODE

    def _connection(self, address: Address, deadline: Deadline) -> Connection:
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        connection = Connection(address, self._client_id, deadline)
        self._was_reached = True
        self._connections[address] = connection
        return connection
