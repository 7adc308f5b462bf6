"""Rules for the names of topics and groups."""

from __future__ import annotations

import re

from drmq.model.errors import ApiError, ErrorCode
from drmq.model.ids import GroupId, TopicId

TOPIC_NAME_LENGTH_MAX = 249
GROUP_ID_BYTES_MAX = 1_024
"""In UTF-8. Every committed offset repeats the group id in its key, so a long id is stored many times."""
INTERNAL_PREFIX = "__"
"""Names that begin so are reserved for topics of the broker's own."""
CONSUMER_OFFSETS = "__consumer_offsets"
CLUSTER_METADATA = "__cluster_metadata"
SHARE_GROUP_STATE = "__share_group_state"
REDRIVE_GROUP = "__redrive"
"""Reserved: under this name, lease shards keep which dead letters of a topic are done. No group of a client has it."""
METADATA_GROUP = GroupId(TopicId(bytes(15) + b"\x01"), 0)
"""The replica group of the metadata log. It is not in the catalog, because the catalog is built from that log."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `ApiError` unless `name` is legal. A legal name is also safe as part of a path."""
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "it is a name of a directory"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"it has {len(name)} characters, {TOPIC_NAME_LENGTH_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:80]!r}: {problem}")


def is_topic_name(name: str) -> bool:
    """Whether `name` is legal as the name of a topic."""
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def is_group_id(name: str) -> bool:
    """Whether `name` is allowed as a group id."""
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= GROUP_ID_BYTES_MAX and name != REDRIVE_GROUP


def is_internal(name: str) -> bool:
    """Whether the name is reserved for internal topics: clients can neither create nor delete nor write to these."""
    return name.startswith(INTERNAL_PREFIX)


def check_not_internal(name: str) -> None:
    """Raise `ApiError` for a name that is reserved for internal topics."""
    if is_internal(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the name {name!r} is reserved: names that begin with {INTERNAL_PREFIX!r} are for internal topics; choose "
            "another name",
        )
