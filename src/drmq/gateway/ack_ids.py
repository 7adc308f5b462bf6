"""Ack ids: all that is needed to settle a leased message, as one opaque text.

Any gateway of the cluster can settle a message that any other has leased, also after a restart, because nothing is
remembered: the text has the member that holds the lease, the place of the record, and the token of the delivery. A
checksum over these and the name of the group tells a text that was cut, or that belongs to another group.
"""

from __future__ import annotations

import base64
import binascii
import uuid
import zlib
from struct import Struct
from typing import Final, NamedTuple

_VERSION: Final = 1
_FORM: Final = Struct(">B16s16sIQQ")
_CHECK: Final = Struct(">I")


class BadAckId(ValueError):
    """The text is not an ack id of this group."""


class AckId(NamedTuple):
    """A delivery of one record."""

    member_id: str
    topic_id: bytes
    partition: int
    offset: int
    token: int


def encode(group: str, ack: AckId) -> str:
    """The text for a delivery to a member of a group: 76 characters that need no escape in a URL."""
    member = uuid.UUID(ack.member_id).bytes
    data = _FORM.pack(_VERSION, member, ack.topic_id, ack.partition, ack.offset, ack.token)
    return base64.urlsafe_b64encode(data + _CHECK.pack(_sum(group, data))).decode()


def decode(group: str, text: str) -> AckId:
    """The delivery. Raises `BadAckId`."""
    try:
        data = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
    except (UnicodeError, binascii.Error, ValueError):
        raise BadAckId("it is not an ack id") from None
    if len(data) != _FORM.size + _CHECK.size or data[0] != _VERSION:
        raise BadAckId("it is not an ack id of this version")
    body, check = data[: _FORM.size], data[_FORM.size :]
    if _CHECK.unpack(check) != (_sum(group, body),):
        raise BadAckId(f"it is damaged, or not of group {group}")
    _, member, topic_id, partition, offset, token = _FORM.unpack(body)
    if partition >= 2**31 or offset >= 2**63 or token >= 2**63:
        raise BadAckId("it is not an ack id")
    return AckId(str(uuid.UUID(bytes=member)), topic_id, partition, offset, token)


def _sum(group: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(group.encode(errors="surrogatepass")))
