"""What this package raises.

DrmqError
├── drmq.wire.ProtocolError      the bytes are not what they claim to be: that connection is closed
└── PeerError
    ├── PeerUnavailable          nobody answered; `is_outcome_open` says whether the request may have been carried out
    └── PeerRefused              the peer answered, and the answer is no: its code and its sentence
"""

from __future__ import annotations

from drmq.model import DrmqError, ErrorCode, NodeId


class PeerError(DrmqError):
    """The root of what a request to a peer can fail with."""


class PeerUnavailable(PeerError):
    """No answer came. What was never sent was not done; what was sent may have been."""

    def __init__(self, node_id: NodeId, reason: str, *, is_outcome_open: bool = False) -> None:
        super().__init__(f"node {node_id} is not available: {reason}")
        self.node_id = node_id
        self.reason = reason
        self.is_outcome_open = is_outcome_open


class PeerRefused(PeerError):
    """The request was not served, for the reason that the text gives."""

    def __init__(self, node_id: NodeId, code: ErrorCode, text: str) -> None:
        super().__init__(f"node {node_id} refused: {text}")
        self.node_id = node_id
        self.code = code
        self.text = text
