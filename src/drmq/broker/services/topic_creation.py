"""Creates topics because a client uses them: a client's topic by name, and the internal topic that stores groups.

The controller creates them. Any other node asks the controller, with the caller, and continues once its own catalog has
the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from drmq.broker.cluster.membership import Buffer, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.broker.coordination.internal_topics import InternalTopics
from drmq.broker.options import BrokerOptions
from drmq.broker.services.caller import Caller, node_caller, unknown_caller
from drmq.broker.services.gate import Gate, Operation, on_topic, refusal, single
from drmq.broker.services.router import Router
from drmq.broker.services.topics import TopicService
from drmq.model import ApiError, ErrorCode, NodeId, Offset, TopicId
from drmq.model.names import is_internal

_API = Request.AUTO_CREATE.name


class TopicCreation:
    """Creates topics with the default settings, on this node or through the controller."""

    def __init__(
        self,
        node_id: NodeId,
        metadata: Metadata,
        topics: TopicService,
        internal_topics: InternalTopics,
        options: BrokerOptions,
        router: Router,
        gate: Callable[[], Gate],
        new_topic_id: Callable[[], TopicId],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._topics = topics
        self._internal_topics = internal_topics
        self._options = options
        self._router = router
        self._gate = gate
        self._new_topic_id = new_topic_id

    async def auto_create(self, caller: Caller, name: str, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, because a client uses it or the node needs it. Raises `ApiError`.

        It has the default settings, and a topic that the node needs may have others.
        """
        if self._metadata.is_controller:
            needed = on_topic(Operation.CREATE, name)
            if not caller.is_node and not self._gate().allows(caller, _API, needed):
                raise refusal(caller, needed)
            await self._create(name, configs or {})
            return
        # No name has a zero byte, and a node of an older release sends no settings.
        request = name.encode() + (b"\0" + json.dumps(dict(configs)).encode() if configs else b"")
        answer = await self._router.ask_controller(Request.AUTO_CREATE, caller, request)
        await self._router.caught_up(Offset(int.from_bytes(answer, "big")))

    async def create_internal(self, name: str) -> None:
        """Create an internal topic. The node does so for itself, not for a client. Raises `ApiError`."""
        await self.auto_create(node_caller(self._node_id), name)

    async def serve(self, caller: Caller | None, payload: memoryview) -> Sequence[Buffer]:
        """Create a topic for a client of another node."""
        self._metadata.check_controller()
        name, _, configs = bytes(payload).decode().partition("\0")
        self._admit(caller or unknown_caller(), name)
        await self._create(name, json.loads(configs) if configs else {})
        return (self._metadata.next_offset.to_bytes(8, "big"),)

    def _admit(self, caller: Caller, name: str) -> None:
        if caller.is_node or is_internal(name):
            # Clients cannot create internal topics, so this is a node's own request, even if the caller is a client:
            # a node of the first version sends no caller.
            return
        needed = on_topic(Operation.CREATE, name)
        if needed in self._gate().admit(caller, _API, 0, single, needed).refused:
            raise refusal(caller, needed)

    async def _create(self, name: str, configs: Mapping[str, str]) -> None:
        internal = self._internal_topics.get(name)
        try:
            if internal is None:
                await self._topics.create(name, self._new_topic_id(), self._options.num_partitions, configs)
            else:
                await self._topics.create(
                    name,
                    self._new_topic_id(),
                    internal.partition_count(),
                    internal.configs,
                    replication_factor=internal.replication_factor,
                    internal=True,
                )
        except ApiError as error:
            # Another request may have created the topic in the meantime, which is just as good.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
