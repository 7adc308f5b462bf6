"""Where a group begins in a partition that it has not worked on: a setting of the group, for all its consumers."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from drmq.client.errors import ClientError, DeadlineExceeded, refusal
from drmq.client.leases.brokers import Brokers, Purpose
from drmq.model import ErrorCode
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
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
_KNOWN_WITHIN_S = 2.0
_KNOWN_POLL_S = 0.01


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
                        await _wait_until_known(brokers, group, start)
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


async def _wait_until_known(brokers: Brokers, group: str, start: Start) -> None:
    """Wait until all brokers know where the group begins, or for a moment at most.

    The leader of a partition decides about it. Were it asked before it knows, the group would begin elsewhere there.
    """
    request = DescribeConfigsRequest([DescribeConfigsRequestResource(_GROUP_RESOURCE, group, [SETTING])])
    try:
        async with asyncio.timeout(_KNOWN_WITHIN_S):
            await brokers.metadata([])
            for node_id in brokers.node_ids:
                while True:
                    if await _knows(brokers, node_id, request, start):
                        break
                    await asyncio.sleep(_KNOWN_POLL_S)
    except (ClientError, TimeoutError):
        return


async def _knows(brokers: Brokers, node_id: int, request: DescribeConfigsRequest, start: Start) -> bool:
    try:
        link = await brokers.link_to(node_id, Purpose.QUESTIONS)
        answer = await link.call(request, DescribeConfigsResponse, _KNOWN_WITHIN_S)
    except ClientError:
        return True  # one that is down learns of it when it starts
    return any(config.value == start for result in answer.results for config in result.configs)
