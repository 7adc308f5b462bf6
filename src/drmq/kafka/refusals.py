"""Answers to requests that the gate has refused, built from the request and the schema of the API's response.

In an API that answers by entry (topics, groups, resources), each refused entry gets an entry in the response, with the
fields that identify it in the request and the error. If the response's entry has no error field, its partitions carry
the error. An API with one error code for the whole response gets that. Produce and Fetch have no message classes here
and build their refusals themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from drmq.model import ErrorCode
from drmq.wire import APIS, ApiKey
from drmq.wire.fields import SPEC_KEY, FieldSpec

ERROR_CODE, ERROR_MESSAGE = "error_code", "error_message"

_LISTS: Final[dict[ApiKey, dict[str, str]]] = {
    ApiKey.LIST_OFFSETS: {"topics": "topics"},
    ApiKey.METADATA: {"topics": "topics"},
    ApiKey.OFFSET_COMMIT: {"topics": "topics"},
    ApiKey.OFFSET_FETCH: {"topics": "topics", "groups": "groups"},
    ApiKey.FIND_COORDINATOR: {"coordinator_keys": "coordinators"},
    ApiKey.DESCRIBE_GROUPS: {"groups": "groups"},
    ApiKey.CREATE_TOPICS: {"topics": "topics"},
    ApiKey.DELETE_TOPICS: {"topics": "responses", "topic_names": "responses"},
    ApiKey.DELETE_RECORDS: {"topics": "topics"},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": "topics"},
    ApiKey.DESCRIBE_CONFIGS: {"resources": "results"},
    ApiKey.ALTER_CONFIGS: {"resources": "responses"},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"topics": "results"},
    ApiKey.CREATE_PARTITIONS: {"topics": "results"},
    ApiKey.DELETE_GROUPS: {"groups_names": "results"},
    ApiKey.ELECT_LEADERS: {"topic_partitions": "replica_election_results"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": "responses"},
    ApiKey.OFFSET_DELETE: {"topics": "topics"},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": "topics"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": "topics"},
    ApiKey.SHARE_GROUP_DESCRIBE: {"group_ids": "groups"},
    ApiKey.SHARE_FETCH: {"topics": "responses"},
    ApiKey.SHARE_ACKNOWLEDGE: {"topics": "responses"},
    ApiKey.LEASE_FETCH: {"topics": "topics"},
    ApiKey.DESCRIBE_LEASES: {"topics": "queues"},
    ApiKey.DESCRIBE_BACKLOG: {"topics": "topics"},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": "groups"},
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {"topics": "responses"},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {"topics": "responses"},
}
"""For each API that answers by entry: its lists in the request, each with the list in the response that answers it."""
_PREFIXES: Final = ("", "acknowledge_", "settle_")
"""Of the errors of an entry: one that both takes and settles has two, and a refusal is both."""
_PARTITION_LISTS: Final = ("partitions", "partition_indexes")
_KEYS: Final = ("key", "group_id", "name", "topic", "partition_index", "partition_id")
"""Fields of the response that identify an entry, where the request's entry is a plain string or number."""


def refuse(
    api_key: int, version: int, request: Any, code_of: Callable[[Any], ErrorCode], message: str | None = None
) -> Any:
    """A response that refuses every entry of a request, each with its own code."""
    response = APIS[api_key].response()
    for asked, answered in _LISTS.get(ApiKey(api_key), {}).items():
        entry_class = _element_of(type(response), answered, version)
        if entry_class is None:
            continue
        refused = [
            _refuse_entry(entry, entry_class, code_of(entry), message) for entry in getattr(request, asked) or ()
        ]
        getattr(response, answered).extend(refused)
    return response


def refuse_whole(api_key: int, version: int, request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """A response that refuses a request as a whole, also in each of its entries."""
    response = refuse(api_key, version, request, lambda entry: code, message)
    if api_key == ApiKey.DESCRIBE_LOG_DIRS:
        # Before v3 the response has no error code of its own, only each directory has one.
        response.results = [_element_of(type(response), "results", version)(code)]  # type: ignore[misc]
    _put_error(response, code, message)
    return response


def merge(response: Any, refusal: Any) -> Any:
    """Add the refused entries to a response."""
    for field in dataclasses.fields(refusal):
        refused = getattr(refusal, field.name)
        if isinstance(refused, list) and refused:
            getattr(response, field.name).extend(refused)
    return response


def _refuse_entry(entry: Any, entry_class: type, code: ErrorCode, message: str | None) -> Any:
    made = entry_class()
    names = {field.name for field in dataclasses.fields(entry_class)}
    if not dataclasses.is_dataclass(entry):
        # The name of a group or topic, or the index of a partition.
        key = next(key for key in _KEYS if key in names)
        setattr(made, key, entry)
    else:
        for field in dataclasses.fields(entry):
            value = getattr(entry, field.name)
            if field.name in names and not isinstance(value, list) and value is not None:
                setattr(made, field.name, value)
        if "topic_name" in names and hasattr(entry, "name"):
            made.topic_name = entry.name
    if not _put_error(made, code, message):
        _refuse_partitions(entry, made, code, message)
    return made


def _refuse_partitions(entry: Any, made: Any, code: ErrorCode, message: str | None) -> None:
    for field in dataclasses.fields(made):
        spec = field.metadata[SPEC_KEY]
        if spec.kind == "array" and spec.element.struct is not None:
            asked = next(getattr(entry, name) for name in _PARTITION_LISTS if hasattr(entry, name))
            refused = [_refuse_entry(each, spec.element.struct, code, message) for each in asked]
            setattr(made, field.name, refused)


def _put_error(made: Any, code: ErrorCode, message: str | None) -> bool:
    if not hasattr(made, ERROR_CODE):
        return False
    for prefix in _PREFIXES:
        if hasattr(made, prefix + ERROR_CODE):
            setattr(made, prefix + ERROR_CODE, code)
        if hasattr(made, prefix + ERROR_MESSAGE):
            setattr(made, prefix + ERROR_MESSAGE, message)
    return True


def _element_of(cls: type, name: str, version: int) -> type | None:
    """The class of a list's entries; None if this version does not have the list."""
    for field in dataclasses.fields(cls):
        spec: FieldSpec = field.metadata[SPEC_KEY]
        if field.name == name and version in spec.versions:
            assert spec.element is not None
            return spec.element.struct
    return None
