"""OffsetFetch (9): the committed offsets of groups.

Up to v7 a request is for one group. From v8 it is for several, which may be in different shards. A null list of topics
asks for everything that a group has committed (from v2). A partition without a committed offset, or of a topic that
does not exist, gets offset -1 and no error. Only an unknown topic *id* (v10) is an error, because there is no name to
look up.

The error of a group is in its error code; v1 has no such field, so each partition carries the error there. Member ids
and epochs (v9) belong to the protocol of KIP-848 and are ignored. `require_stable` has no effect, because there are no
transactions whose offsets could be pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from drmq import groups
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import NO_LEADER_EPOCH, NO_TOPIC_ID, ErrorCode, TopicId, TopicPartition
from drmq.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_ERROR_FIELD_FROM = 2
_GROUP_LIST_FROM = 8
_TOPIC_ID_FROM = 10
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

Answer = groups.OffsetFetchResponse | ErrorCode


def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]:
    if context.version < _GROUP_LIST_FROM:
        return _handle_one(context, request)
    wanted: dict[str, list[OffsetFetchRequestGroupTopic] | None] = {}
    """The requested topics of each group, merged from all its entries; None for all topics."""
    for group in request.groups:
        topics = wanted.setdefault(group.group_id, [])
        if group.topics is None:
            wanted[group.group_id] = None
        elif topics is not None:
            topics += group.topics
    fetches = [_GroupFetch(context, group_id, topics) for group_id, topics in wanted.items()]

    def merge(answers: list[Answer]) -> OffsetFetchResponse:
        merged = [fetch.response(answer) for fetch, answer in zip(fetches, answers, strict=True)]
        return OffsetFetchResponse(groups=merged)

    questions = [(fetch.group_id, fetch.question) for fetch in fetches]
    return context.services.groups.ask_each(questions, groups.OffsetFetchResponse, merge)


def group_ids(version: int, request: OffsetFetchRequest) -> list[str]:
    """The groups of a request, each once."""
    if version < _GROUP_LIST_FROM:
        return [request.group_id]
    return list(dict.fromkeys(group.group_id for group in request.groups))


def is_elsewhere(response: OffsetFetchResponse) -> bool:
    """Whether an answer says that this node cannot answer: another node coordinates the group, or none does now."""
    codes = [group.error_code for group in response.groups] or [response.error_code]
    codes += [partition.error_code for topic in response.topics for partition in topic.partitions]
    return any(code in _ELSEWHERE for code in codes)


# ---- one group, up to v7 ----------------------------------------------------------------------------


def _handle_one(
    context: Context, request: OffsetFetchRequest
) -> OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]:
    has_error_field = context.version >= _ERROR_FIELD_FROM
    asked = None
    if request.topics is not None:
        asked = each_once(((topic.name, topic.partition_indexes) for topic in request.topics), int)

    def translate(answer: Answer) -> OffsetFetchResponse:
        error = answer if isinstance(answer, ErrorCode) else answer.error
        if not isinstance(answer, ErrorCode) and error is ErrorCode.NONE:
            found = _by_topic(answer.offsets)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name, each) for name, each in found.items()])
        if has_error_field:
            return OffsetFetchResponse(error_code=error)
        return OffsetFetchResponse(topics=[_failed_topic(*each, error) for each in (asked or {}).items()])

    partitions = None
    if asked is not None:
        partitions = tuple(TopicPartition(name, index) for name, indexes in asked.items() for index in indexes)
    question = groups.OffsetFetchRequest(request.group_id, partitions)
    return context.services.groups.ask(request.group_id, question, groups.OffsetFetchResponse, translate)


def _failed_topic(name: str, indexes: list[int], error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name, [_nothing(index, error) for index in indexes])


# ---- several groups, from v8 ------------------------------------------------------------------------


class _GroupFetch:
    """One group of a request: the request to its shard, and the translation of the shard's answer."""

    def __init__(self, context: Context, group_id: str, topics: Iterable[OffsetFetchRequestGroupTopic] | None) -> None:
        self.group_id = group_id
        self._catalog = context.services.cluster.catalog
        self._by_id = context.version >= _TOPIC_ID_FROM
        self._unknown: list[OffsetFetchResponseGroupTopic] = []
        partitions: list[TopicPartition] = []
        places = (((topic.name, TopicId(topic.topic_id)), topic.partition_indexes) for topic in topics or ())
        for (given_name, topic_id), indexes in each_once(places, int).items():
            name = self._name_of(topic_id) if self._by_id else given_name
            if name is None:
                missing = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]
                self._unknown.append(OffsetFetchResponseGroupTopic("", topic_id, missing))
            else:
                partitions += [TopicPartition(name, index) for index in indexes]
        self.question = groups.OffsetFetchRequest(self.group_id, None if topics is None else tuple(partitions))

    def response(self, answer: Answer) -> OffsetFetchResponseGroup:
        if isinstance(answer, ErrorCode):
            return OffsetFetchResponseGroup(self.group_id, error_code=answer)
        if answer.error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(self.group_id, error_code=answer.error)
        topics = self._unknown
        for name, partitions in _by_topic(answer.offsets).items():
            topic_id = self._id_of(name)
            # A deleted topic has no id by which the answer could name it, and cannot be read any more.
            if not self._by_id or topic_id != NO_TOPIC_ID:
                topics.append(OffsetFetchResponseGroupTopic(name, topic_id, partitions))
        return OffsetFetchResponseGroup(self.group_id, topics)

    def _name_of(self, topic_id: TopicId) -> str | None:
        topic = self._catalog.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def _id_of(self, name: str) -> TopicId:
        topic = self._catalog.topics.get(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id


def _by_topic(offsets: Iterable[groups.FetchedOffset]) -> dict[str, list[OffsetFetchResponsePartition]]:
    found: dict[str, list[OffsetFetchResponsePartition]] = {}
    for offset in offsets:
        found.setdefault(offset.topic, []).append(
            OffsetFetchResponsePartition(
                offset.partition, offset.offset, offset.leader_epoch, offset.metadata, offset.error
            )
        )
    return found


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(index, groups.NO_OFFSET, NO_LEADER_EPOCH, "", error)
