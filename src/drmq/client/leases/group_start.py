"""Where a group begins in a partition that it has not worked on: a setting of the group, for all its consumers."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from drmq.client.errors import ClientError, DeadlineExceeded, refusal
from drmq.client.leases.brokers import Brokers
from drmq.model import ErrorCode
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

Start: TypeAlias = Literal["earliest", "latest"]

SETTING = "share.auto.offset.reset"
_GROUP_RESOURCE = 32
_SET = 0
_RETRY_S = 0.2


async def set_group_start(brokers: Brokers, group: str, start: Start, timeout_s: float) -> None:
    """Set it for the group. Raises `ClientError`."""
    config = IncrementalAlterConfigsRequestConfig(SETTING, _SET, start)
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsRequestResource(_GROUP_RESOURCE, group, [config])]
    )
    failure: ClientError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    answer = await brokers.ask_any(request, IncrementalAlterConfigsResponse)
                    [result] = answer.responses
                    if not result.error_code:
                        return
                    failure = refusal(
                        result.error_code, f"Group `{group}` cannot start at {start}", result.error_message
                    )
                except ClientError as error:
                    failure = error
                if not failure.retriable:
                    raise failure
                await asyncio.sleep(_RETRY_S)
    except TimeoutError:
        raise failure or DeadlineExceeded(
            f"No response within {timeout_s:g} s while setting the start of group `{group}`",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        ) from None
