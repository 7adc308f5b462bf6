"""FaultLab (12010): cuts the node that is asked from its peers, for experiments. An API of DRMQ alone."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import boolean, int8, int16, int32, message, string


@message(ApiKey.FAULT_LAB, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class FaultLabRequest:
    cut: int = int8(default=-1)
    """1 cuts the node from its peers, 0 ends the cut, -1 changes nothing."""
    note: str | None = string(nullable="0+", default=None)
    """A text for the events of the node: what is about to be done to the cluster."""


@message(ApiKey.FAULT_LAB, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class FaultLabResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    node_id: int = int32(default=-1)
    is_cut: bool = boolean()
    """Whether the node is cut from its peers now."""
