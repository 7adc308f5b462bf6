"""Taking work by single calls: the leasing that the HTTP door uses, behind messages of gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from drmq.client.messages import DELAY_S_MAX
from drmq.gateway.grpc.checks import check_group, check_topics, in_range
from drmq.gateway.grpc.messages import fill
from drmq.gateway.grpc.status import bad_request
from drmq.gateway.leasing import Leasing, Outcome, Settle, Settled
from drmq.model import ErrorCode
from drmq.v1 import leases_pb2 as pb
from drmq.v1.records_pb2 import Error

MESSAGES_MAX: Final = 1_000
RESPONSE_BYTES_MAX: Final = 3 * 1_048_576
"""Of a response, about. Clients accept 4 MiB by default, and would lose a larger one with all its leases."""
WAIT_MS_MAX: Final = 30_000
ACK_IDS_MAX: Final = 10_000


class SettleRequest(Protocol):
    """What the requests that settle have in common."""

    @property
    def group(self) -> str: ...
    @property
    def ack_ids(self) -> Sequence[str]: ...


async def poll(leasing: Leasing, request: pb.PollRequest) -> pb.PollResponse:
    """Lease some messages. If the call is cancelled, what was leased for it is given back."""
    check_group(request.group)
    check_topics(request.topics)
    count_max = in_range(request.max_messages, 0, MESSAGES_MAX, "max_messages") or 1
    wait_ms = in_range(request.wait_ms, 0, WAIT_MS_MAX, "wait_ms")
    found = await leasing.poll(
        request.group, list(request.topics), count_max=count_max, wait_ms=wait_ms, bytes_max=RESPONSE_BYTES_MAX
    )
    response = pb.PollResponse()
    for each in found:
        message = response.messages.add(
            ack_id=each.ack_id,
            topic=each.topic,
            attempt=each.attempt,
            lease_token=each.lease_token,
            lease_until_ms=each.lease_until_ms,
        )
        record = message.record
        record.partition, record.offset, record.timestamp_ms = each.partition, each.offset, each.timestamp_ms
        fill(record, each.key, each.value, each.headers)
    return response


async def settle(
    leasing: Leasing, outcome: Outcome, request: SettleRequest, delay_ms: int | None
) -> list[pb.SettleResult]:
    """Settle messages, and answer for each."""
    check_group(request.group)
    if not 0 < len(request.ack_ids) <= ACK_IDS_MAX:
        raise bad_request(f"a call has from 1 to {ACK_IDS_MAX} ack ids, and this one {len(request.ack_ids)}")
    if delay_ms is not None:
        in_range(delay_ms, 0, DELAY_S_MAX * 1000, "delay_ms")
    wanted = [Settle(ack_id, outcome, delay_ms) for ack_id in request.ack_ids]
    return [_result(each) for each in await leasing.settle(request.group, wanted)]


def _result(settled: Settled) -> pb.SettleResult:
    result = pb.SettleResult(ack_id=settled.ack_id, lease_until_ms=settled.lease_until_ms)
    if not settled.ok:
        is_unknown = settled.code == "unavailable"
        code = ErrorCode.REQUEST_TIMED_OUT if is_unknown else ErrorCode.INVALID_RECORD_STATE
        if settled.code == "bad_ack_id":
            code = ErrorCode.INVALID_REQUEST
        result.error.CopyFrom(Error(code=code.name, message=settled.reason or settled.code, retriable=is_unknown))
    return result
