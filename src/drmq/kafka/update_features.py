"""UpdateFeatures (57): finalize levels of features, if every broker supports them.

All updates of a request are carried out, or none, in every version. A level that is already final is a success. Every
kind of downgrade is rejected. With `validate_only` nothing is changed. The request's timeout is not used.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker.cluster.features import Update
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpdateFeaturesResponseResult,
)

_UPGRADE = 1
_UPGRADE_TYPES = (1, 2, 3)


async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    try:
        # A controller of an older release was asked, and does not know this API.
        context.broker.features.check_controller()
        updates = _updates(request)
        await context.broker.features.update(updates, dry_run=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    if context.version > 1:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(results=[UpdateFeaturesResponseResult(update.feature) for update in updates])


def _updates(request: UpdateFeaturesRequest) -> list[Update]:
    asked = request.feature_updates
    if not asked:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request names no feature; name at least one")
    named = Counter(update.feature for update in asked)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{twice[0]} is in the request {named[twice[0]]} times; name it once")
    unknown = [update.upgrade_type for update in asked if update.upgrade_type not in _UPGRADE_TYPES]
    if unknown:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"upgrade type {unknown[0]} is unknown; use 1, 2 or 3")
    return [
        Update(update.feature, update.max_version_level, update.allow_downgrade or update.upgrade_type != _UPGRADE)
        for update in asked
    ]
