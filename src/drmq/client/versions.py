"""Which version of a request to send: the newest one that both sides know."""

from __future__ import annotations

from collections.abc import Mapping

from drmq.client.errors import Refused
from drmq.model import ErrorCode
from drmq.model.address import Address
from drmq.wire import ApiKey
from drmq.wire.fields import spec_of

VERSION_MAX = 32767


def newest_version(
    request_class: type, theirs: Mapping[int, tuple[int, int]], address: Address, version_max: int = VERSION_MAX
) -> int:
    """The newest version of a request up to `version_max` that the broker knows too. Raises `Refused`."""
    spec = spec_of(request_class)
    key = ApiKey(spec.api_key)
    known = theirs.get(spec.api_key)
    if known is None:
        advice = "Leases need a DRMQ broker of this release or a later one." if key is ApiKey.LEASE_FETCH else ""
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, f"The broker at {address} does not support {key.name}", advice=advice
        )
    version = min(spec.last_version, known[1], version_max)
    if version < max(spec.first_version, known[0]):
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The broker at {address} supports {key.name} in versions {known[0]} to {known[1]}, "
            f"this client in versions {spec.first_version} to {min(spec.last_version, version_max)}",
        )
    return version
