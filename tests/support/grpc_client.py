"""Clients of the gRPC door: stubs of all services over one channel, and a lease stream that a test drives by hand."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from drmq.v1 import cluster_pb2_grpc, groups_pb2_grpc, leases_pb2_grpc, log_pb2_grpc, topics_pb2_grpc
from drmq.v1 import leases_pb2 as leases
from drmq.v1 import log_pb2 as log
from drmq.v1.records_pb2 import NewRecord
from support.polling import PATIENCE_S
from support.processes import BrokerProcess

GATEWAY = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0", "DRMQ_GRPC_PORT": "0"}
"""The environment of a node with a gateway on free ports."""
_SERVES = re.compile(r"serves gRPC at (127\.0\.0\.1:\d+)")
_DETAILS_KEY = "grpc-status-details-bin"


def grpc_address(broker: BrokerProcess) -> str:
    """Where the gateway of a node answers, as its log says."""
    found: str = _SERVES.findall(broker.log_text())[-1]
    return found


class GrpcClient:
    """One channel. Calls wait until the server can be reached."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(
            address, [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 500)]
        )
        self.topics: Any = topics_pb2_grpc.TopicServiceStub(self.channel)
        self.log: Any = log_pb2_grpc.LogServiceStub(self.channel)
        self.leases: Any = leases_pb2_grpc.LeaseServiceStub(self.channel)
        self.groups: Any = groups_pb2_grpc.GroupServiceStub(self.channel)
        self.cluster: Any = cluster_pb2_grpc.ClusterServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def ask(self, method: Callable[..., Any], request: Any) -> Any:
        """The answer to one request."""
        return method(request, timeout=PATIENCE_S, wait_for_ready=True)

    def append(self, topic: str, values: Sequence[bytes], **more: Any) -> list[tuple[int, int]]:
        """Send records, and return their partitions and offsets."""
        records = [NewRecord(value=value, **more) for value in values]
        answer = self.ask(self.log.Append, log.AppendRequest(topic=topic, records=records))
        return [(each.partition, each.offset) for each in answer.results]

    def lease(self, group: str, topic: str, credits: int = 100, **more: Any) -> LeaseClient:
        """A stream that has subscribed, from the start of the topic."""
        client = LeaseClient(self)
        start = leases.GROUP_START_EARLIEST
        client.send(subscribe=leases.Subscribe(group=group, topics=[topic], credits=credits, start=start, **more))
        assert client.receive().subscribed.member_id
        return client


class LeaseClient:
    """A lease stream, driven step by step."""

    def __init__(self, client: GrpcClient) -> None:
        self._requests: queue.SimpleQueue[leases.LeaseRequest | None] = queue.SimpleQueue()
        self.call = client.leases.Lease(iter(self._requests.get, None), timeout=PATIENCE_S, wait_for_ready=True)
        self._responses: Iterator[Any] = iter(self.call)
        self._settled: dict[int, str] = {}

    def send(self, **request: Any) -> None:
        self._requests.put(leases.LeaseRequest(**request))

    def receive(self) -> Any:
        return next(self._responses)

    def deliveries(self, count: int) -> list[Any]:
        """The next messages; answers to settlements are kept for `outcome`."""
        found: list[Any] = []
        while len(found) < count:
            self._take(found)
        assert len(found) == count, found
        return found

    def _take(self, found: list[Any]) -> None:
        response = self.receive()
        found += response.deliveries.deliveries
        self._settled |= dict.fromkeys(response.settled.delivery_ids, "")
        self._settled |= {each.delivery_id: each.error.code for each in response.settled.failures}

    def settle(self, outcome: leases.Outcome, *deliveries: Any, **more: Any) -> None:
        ids = [each.delivery_id for each in deliveries]
        self.send(settle=leases.Settle(outcome=outcome, delivery_ids=ids, **more))

    def outcomes(self, *deliveries: Any) -> list[str]:
        """For each settled message, the code of the error, or nothing; waits for the answers."""
        ids = [each.delivery_id for each in deliveries]
        extra: list[Any] = []
        while not self._settled.keys() >= set(ids):
            self._take(extra)
        assert not extra, extra
        return [self._settled.pop(each) for each in ids]

    def end(self) -> None:
        """End the client's side, and wait for the end of the server's."""
        self._requests.put(None)
        for _ in self._responses:
            pass


def failure(error: grpc.RpcError) -> tuple[str, str, bool]:
    """The status code, Kafka's name of the error, and whether there is a hint to repeat the call."""
    details = [value for key, value in error.trailing_metadata() if key == _DETAILS_KEY]
    reason, retries = "", False
    for packed in Status.FromString(details[0]).details if details else ():
        info, hint = ErrorInfo(), RetryInfo()
        if packed.Unpack(info):
            reason = info.reason
        retries |= packed.Unpack(hint) and hint.retry_delay.seconds > 0
    return error.code().name, reason, retries
