"""The errors of this package.

DrmqError
├── drmq.wire.ProtocolError      bytes are not valid: that connection is closed
└── PeerError
    ├── PeerUnavailable          there was no answer; `is_outcome_open`: the request may have been carried out
    └── PeerRefused              the peer answered with a refusal: its code and its text
"""

from __future__ import annotations

from drmq.model import DrmqError, ErrorCode, NodeId


class PeerError(DrmqError):
    """The base class of the errors of a request to a peer."""


class PeerUnavailable(PeerError):
    """There was no answer. If the request was sent (`is_outcome_open`), it may have been carried out."""

    def __init__(self, node_id: NodeId, reason: str, *, is_outcome_open: bool = False) -> None:
        super().__init__(f"node {node_id} is not available: {reason}")
        self.node_id = node_id
        self.reason = reason
        self.is_outcome_open = is_outcome_open


class PeerRefused(PeerError):
    """The peer refused the request, for the reason in the text."""

    def __init__(self, node_id: NodeId, code: ErrorCode, text: str) -> None:
        super().__init__(f"node {node_id} refused: {text}")
        self.node_id = node_id
        self.code = code
        self.text = text
