"""Reads the topics from a consumer's subscription.

The bytes that a member sends as protocol metadata are meant for the group's leader, and the coordinator passes them on
unread. It looks inside for two questions only, both for the protocol type `consumer`, whose layout is fixed (version
int16, topics as an array of strings, then fields that are not needed here): does this group read topic T
(OffsetDelete), and has a static member that returned kept its subscription?

The bytes come from a client, so the parser never raises: bytes that cannot be read give None, "unknown".
"""

from __future__ import annotations

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, or None if the bytes are not a subscription."""
    version = int.from_bytes(metadata[0:2], "big", signed=True)
    topic_count = int.from_bytes(metadata[2:6], "big", signed=True)
    if len(metadata) < 6 or version < 0 or topic_count < 0:
        return None
    # Each name takes at least its two length bytes: a larger count is invalid, and must not cause a long loop.
    if topic_count * 2 > len(metadata) - 6:
        return None
    topics: set[str] = set()
    position = 6
    for _ in range(topic_count):
        size = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        name = metadata[position + 2 : position + 2 + size]
        if size < 0 or len(name) != size or position + 2 > len(metadata):
            return None
        try:
            topics.add(name.decode("utf-8"))
        except UnicodeDecodeError:
            return None
        position += 2 + size
    return frozenset(topics)


def same_interest(protocol_type: str, before: bytes, after: bytes) -> bool:
    """Whether two metadata of one member ask for the same topics.

    A restarted consumer sends the same topics, but has lost the list of partitions that it owned, which the cooperative
    assignors also put into the metadata. If all bytes were compared, every restart of a static member would rebalance
    its group, which static members are meant to avoid.
    """
    if before == after:
        return True
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(before)
    return topics is not None and topics == subscribed_topics(after)
