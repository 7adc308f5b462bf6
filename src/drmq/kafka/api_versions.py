"""ApiVersions (18): the APIs and versions that this broker supports. It is every client's first request.

A request in a version newer than ours gets a v0 body with UNSUPPORTED_VERSION and the row of ApiVersions itself, which
the client needs to send the request again (KIP-511). From v5 a client may state the cluster and node that it expects to
be connected to (KIP-1242). If they are wrong, it gets REBOOTSTRAP_REQUIRED and starts again from its bootstrap servers.
From v3 the answer also has the feature levels that this node supports, and those that the cluster has finalized
(KIP-584).

The APIs that are DRMQ's own are listed to its own clients only. Others have no use for them, and some take only numbers
that Kafka has.
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

NEWER_VERSION = -1
"""The version that the pipeline passes for a request whose version is newer than ours."""


OWN_SOFTWARE = "drmq"
"""The name by which DRMQ's own clients call themselves."""
_KEPT_MAX = 255
"""Characters that are kept of a name, as long as the connection."""


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version == NEWER_VERSION:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(ApiKey.API_VERSIONS)])
    if context.version >= 3:
        if not _is_printable(request.client_software_name) or not _is_printable(request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=_rows(request))
        assert context.connection is not None
        software = f"{request.client_software_name[:_KEPT_MAX]} {request.client_software_version[:_KEPT_MAX]}"
        context.connection.software = software
    if _expects_another_broker(context, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=_rows(request))
    features = context.broker.features
    return ApiVersionsResponse(
        api_keys=_rows(request),
        supported_features=[
            ApiVersionsResponseSupportedFeature(name, *levels) for name, levels in features.supported.items()
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            ApiVersionsResponseFinalizedFeature(name, level, level) for name, level in features.finalized().items()
        ],
    )


def _rows(request: ApiVersionsRequest) -> list[ApiVersionsResponseApi]:
    is_own = request.client_software_name == OWN_SOFTWARE
    return [_row(key) for key in sorted(APIS) if is_own or not APIS[key].key.is_own]


def _row(key: int) -> ApiVersionsResponseApi:
    api = APIS[key]
    return ApiVersionsResponseApi(api_key=key, min_version=api.advertised_min, max_version=api.version_max)


def _is_printable(name: str) -> bool:
    """Check the protocol's rule: letters, digits, dots and dashes, with a letter or digit at both ends."""
    plain = name.replace("-", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and name[0].isalnum() and name[-1].isalnum()


def _expects_another_broker(context: Context, request: ApiVersionsRequest) -> bool:
    if context.version < 5:
        return False
    wrong_cluster = request.cluster_id is not None and request.cluster_id != context.broker.cluster_id
    wrong_node = request.node_id >= 0 and request.node_id != context.broker.node_id
    return wrong_cluster or wrong_node
