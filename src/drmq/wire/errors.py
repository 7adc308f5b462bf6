"""The exception for invalid bytes from a peer.

DrmqError
  ProtocolError        the bytes are not what they claim to be: close that connection, count it
"""

from __future__ import annotations

from drmq.model import DrmqError


class ProtocolError(DrmqError):
    """A peer sent bytes that do not follow the protocol. No answer is possible; the connection is closed."""
