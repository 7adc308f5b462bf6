"""ApiVersions (18): what this broker speaks. The first thing that every client asks.

A version above ours gets a v0 body with UNSUPPORTED_VERSION and the one row that the client needs to
ask again (KIP-511). From v5 a client may say whom it believes to be talking to (KIP-1242); a wrong
belief is answered with REBOOTSTRAP_REQUIRED, so that it looks for its cluster anew. From v3 the answer also tells
which levels of features this node supports, and which the cluster has finalized (KIP-584).
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire import APIS, ApiKey
from drmq.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApi,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

FROM_THE_FUTURE = -1
"""The version under which the dispatcher passes a request that is newer than ours."""


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version == FROM_THE_FUTURE:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(ApiKey.API_VERSIONS)])
    if context.version >= 3:
        if not _is_printable(request.client_software_name) or not _is_printable(request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=_rows())
        assert context.connection is not None
        context.connection.software = f"{request.client_software_name} {request.client_software_version}"
    if _is_lost(context, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=_rows())
    features = context.broker.features
    return ApiVersionsResponse(
        api_keys=_rows(),
        supported_features=[
            ApiVersionsResponseSupportedFeature(name, *levels) for name, levels in features.supported.items()
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            ApiVersionsResponseFinalizedFeature(name, level, level) for name, level in features.finalized().items()
        ],
    )


def _rows() -> list[ApiVersionsResponseApi]:
    return [_row(key) for key in sorted(APIS)]


def _row(key: int) -> ApiVersionsResponseApi:
    api = APIS[key]
    return ApiVersionsResponseApi(api_key=key, min_version=api.advertised_min, max_version=api.version_max)


def _is_printable(name: str) -> bool:
    """The protocol's rule: letters, digits, dots and dashes, beginning and ending with a letter or digit."""
    plain = name.replace("-", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and name[0].isalnum() and name[-1].isalnum()


def _is_lost(context: Context, request: ApiVersionsRequest) -> bool:
    if context.version < 5:
        return False
    wrong_cluster = request.cluster_id is not None and request.cluster_id != context.broker.cluster_id
    wrong_node = request.node_id >= 0 and request.node_id != context.broker.node_id
    return wrong_cluster or wrong_node
