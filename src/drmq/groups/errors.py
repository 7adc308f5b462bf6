"""The exceptions of this package. Failures of requests are not among them.

    GroupsError
    └── RecordUnreadable          a stored record that this version cannot read
        ├── UnknownRecordKind     written by a newer version
        └── RecordMalformed       damaged, or never one of ours

Requests never raise: their failures are error codes in the response.
"""

from __future__ import annotations

from drmq.model import DrmqError, UnknownFormat


class GroupsError(DrmqError):
    """The root of this package's exceptions."""


class RecordUnreadable(GroupsError):
    """A stored record that cannot be decoded. The replica must stop, not skip it."""


class UnknownRecordKind(RecordUnreadable, UnknownFormat):
    """A record of a kind or version that a newer DRMQ writes. Upgrade this node."""


class RecordMalformed(RecordUnreadable):
    """Bytes that are not a group record at all."""
