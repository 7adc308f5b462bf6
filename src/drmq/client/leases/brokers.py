"""The brokers of a cluster, and the connections to them, for asyncio.

Any broker answers a question about the cluster. Every broker that was ever named is a candidate, the bootstrap servers
in random order; one that failed moves to the end of the list.

Each purpose has its own connection to a broker, because a broker answers the requests of a connection in their order:
a request that waits for records must not hold back an acknowledgement or a heartbeat.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded, Unreachable, refusal
from drmq.client.leases.link import Link
from drmq.model.address import Address, parse_bootstrap
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0


class Purpose(Enum):
    """What a connection is for."""

    QUESTIONS = auto()
    TAKING = auto()
    SETTLING = auto()


class Brokers:
    """Connections to the brokers of one cluster, opened when needed. Owned by one event loop."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        try:
            self._bootstrap = parse_bootstrap(bootstrap)
        except ValueError as error:
            raise ClientError(f"Bootstrap servers {bootstrap!r}: {error}") from None
        # If all clients began with the first server of the list, that server would carry all the load.
        random.shuffle(self._bootstrap)
        self._client_id = client_id
        self._links: dict[tuple[Address, Purpose], Link] = {}
        self._opening: dict[tuple[Address, Purpose], asyncio.Lock] = {}
        self._addresses: dict[int, Address] = {}
        self._failures: dict[Address, int] = {}
        self._failure_count = 0
        self.was_reached = False
        """Whether any broker has ever answered."""

    @property
    def node_ids(self) -> list[int]:
        """The brokers of the last metadata."""
        return list(self._addresses)

    def knows(self, node_id: int) -> bool:
        return node_id in self._addresses

    def address_of(self, node_id: int) -> Address:
        """Where a broker answers. Raises `Unreachable` if the cluster does not name it."""
        address = self._addresses.get(node_id)
        if address is None:
            raise Unreachable(f"Broker {node_id} is not available")
        return address

    async def link_to(self, node_id: int, purpose: Purpose) -> Link:
        """A connection to this broker. Raises `ClientError`."""
        return await self.link(self.address_of(node_id), purpose)

    async def link(self, address: Address, purpose: Purpose) -> Link:
        key = (address, purpose)
        async with self._opening.setdefault(key, asyncio.Lock()):
            known = self._links.get(key)
            if known is None or not known.is_open:
                try:
                    known = self._links[key] = await Link.open(address, self._client_id, CONNECT_TIMEOUT_S)
                except Unreachable:
                    self._demote(address)
                    raise
                self._failures.pop(address, None)
                self.was_reached = True
            return known

    async def metadata(self, topics: Sequence[str], *, create: bool = False) -> MetadataResponse:
        """The brokers, and the leaders of these topics. Raises `ClientError`."""
        return await self._metadata([MetadataRequestTopic(name=name) for name in topics], create)

    async def metadata_by_id(self, topic_ids: Iterable[bytes]) -> MetadataResponse:
        """The same, for topics that are known by their ids."""
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return await self._metadata(wanted, create=False)

    async def _metadata(self, topics: list[MetadataRequestTopic], create: bool) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        answer = await self.ask_any(request, MetadataResponse)
        if answer.error_code:
            raise refusal(answer.error_code, "The cluster cannot be described")
        if answer.brokers:
            self._addresses = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        return answer

    async def coordinator(self, group: str) -> Link:
        """A connection to the coordinator of a group. Raises `ClientError`."""
        answer = await self.ask_any(
            FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group]), FindCoordinatorResponse
        )
        what = f"The coordinator of group `{group}` cannot be found"
        for found in answer.coordinators:
            if found.error_code:
                raise refusal(found.error_code, what, found.error_message)
            return await self.link(Address(found.host, found.port), Purpose.QUESTIONS)
        raise refusal(answer.error_code, what, answer.error_message)

    async def ask_any(self, request: object, response_class: type[T]) -> T:
        """The response to a request that every broker can answer, from the first broker that does."""
        failure: ClientError | None = None
        for address in self._candidates():
            try:
                link = await self.link(address, Purpose.QUESTIONS)
                return await link.call(request, response_class, REQUEST_TIMEOUT_S)
            except (Unreachable, DeadlineExceeded) as error:
                failure = error
                self._demote(address)
        assert failure is not None, self._bootstrap
        raise failure

    def _candidates(self) -> list[Address]:
        known = dict.fromkeys([*self._bootstrap, *self._addresses.values()])
        return sorted(known, key=lambda address: self._failures.get(address, 0))

    def _demote(self, address: Address) -> None:
        self._failure_count += 1
        self._failures[address] = self._failure_count

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
