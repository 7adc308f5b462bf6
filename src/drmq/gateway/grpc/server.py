"""The gRPC server of a gateway: its limits, its services, reflection, and its health."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from drmq.gateway.gateway import Gateway
from drmq.gateway.grpc.methods import Stopping, handlers
from drmq.gateway.grpc.services import ClusterMethods, GroupMethods, LeaseMethods, LogMethods, TopicMethods
from drmq.model.address import Address
from drmq.v1 import cluster_pb2, groups_pb2, leases_pb2, log_pb2, topics_pb2

log = logging.getLogger("drmq.gateway")

REQUEST_BYTES_MAX: Final = 8 * 1_048_576
CALLS_MAX: Final = 2_000
"""Calls and streams at a time. Further ones are refused with RESOURCE_EXHAUSTED."""
STREAMS_PER_CONNECTION_MAX: Final = 500
STOP_S_MAX: Final = 2.0
REFLECTION: Final = "grpc.reflection.v1.ServerReflection"
_HEALTH_S: Final = 1.0

OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    # Records are limited by the broker and by how much a response takes; a limit here would only hide the largest.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    # A client whose machine is gone sends no last word: without an answer to a ping its streams end.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 1),
]

SERVICES: Final = {
    module.DESCRIPTOR.services_by_name[name].full_name: (module.DESCRIPTOR.services_by_name[name], implementation)
    for module, name, implementation in (
        (topics_pb2, "TopicService", TopicMethods),
        (log_pb2, "LogService", LogMethods),
        (leases_pb2, "LeaseService", LeaseMethods),
        (groups_pb2, "GroupService", GroupMethods),
        (cluster_pb2, "ClusterService", ClusterMethods),
    )
}


class GrpcServer:
    """Serves gRPC until it is stopped. Lives on the event loop of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stopping = Stopping()
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        self._leases: LeaseMethods | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises `OSError` if that is not possible."""
        for descriptor, make in SERVICES.values():
            service = make(self._gateway)
            if isinstance(service, LeaseMethods):
                self._leases = service
            found = handlers(descriptor, service, self._stopping, self._gateway.call_counters)
            self._server.add_generic_rpc_handlers((found,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._mirror()
        try:
            bound: int = self._server.add_insecure_port(str(Address(host, port)))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {Address(host, port)}: {error}") from None
        await self._server.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_health())
        return bound

    def _mirror(self) -> None:
        """Let tools ask which services there are. The package has the name of an older version; the messages are the
        same in the present one.
        """
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME, REFLECTION)
        mirror = reflection.aio.ReflectionServicer(names)
        handler = grpc.stream_stream_rpc_method_handler(
            mirror.ServerReflectionInfo,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        for name in (reflection.SERVICE_NAME, REFLECTION):
            found = grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})
            self._server.add_generic_rpc_handlers((found,))

    async def stop(self) -> None:
        """End all streams with a status that sends clients elsewhere, and wait for running calls, but not for long."""
        if self._watch is None:
            return
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch
        await self._health.enter_graceful_shutdown()
        self._stopping.set()
        await self._server.stop(STOP_S_MAX)
        if self._leases is not None:
            await self._leases.close()

    async def _watch_health(self) -> None:
        """Report whether a node answers this gateway, for balancers that ask."""
        serving = health_pb2.HealthCheckResponse.SERVING
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        told = None
        while True:
            state = serving if self._gateway.sampler.last else not_serving
            if state != told:
                for name in ("", *SERVICES):
                    await self._health.set(name, state)
                told = state
            await asyncio.sleep(_HEALTH_S)
