"""Records survive being written, can be read by a human, and fail in a known way when they are not ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.groups import (
    GroupDeleted,
    GroupMetadata,
    GroupRecord,
    GroupState,
    MemberMetadata,
    OffsetCommitted,
    OffsetDeleted,
    Protocol,
    RecordMalformed,
    RecordUnreadable,
    UnknownRecordKind,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.state import STORED_STATES
from drmq.model import LeaderEpoch, Offset, TopicId

texts = st.text(max_size=12)
int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)
members = st.builds(
    MemberMetadata,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    session_timeout_ms=int32s,
    rebalance_timeout_ms=int32s,
    protocols=st.lists(st.builds(Protocol, texts, st.binary(max_size=20)), max_size=3).map(tuple),
    assignment=st.binary(max_size=20),
)
groups = st.builds(
    GroupMetadata,
    group_id=texts,
    state=st.sampled_from(sorted(STORED_STATES, key=lambda state: state.value)),
    protocol_type=texts,
    generation=int32s,
    protocol_name=st.none() | texts,
    leader=st.none() | texts,
    state_since_ms=int64s,
    members=st.lists(members, max_size=3).map(tuple),
)
offsets = st.builds(
    OffsetCommitted,
    texts,
    texts,
    int32s,
    int64s.map(Offset),
    st.integers(-1, 2**31 - 1).map(LeaderEpoch),
    st.text(),
    commit_ms=int64s,
    expire_ms=st.none() | int64s,
    topic_id=st.none() | st.binary(min_size=16, max_size=16).map(TopicId),
)
records: st.SearchStrategy[GroupRecord] = st.one_of(
    groups, offsets, st.builds(GroupDeleted, texts), st.builds(OffsetDeleted, texts, texts, int32s)
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: GroupRecord) -> None:
    """Nothing is lost or changed, whatever the texts and bytes are."""
    assert record_from_bytes(*record_to_bytes(record)) == record


def test_a_deletion_has_the_key_of_what_it_deletes() -> None:
    """Otherwise compaction would keep both."""
    committed = OffsetCommitted("g", "t", 1, Offset(5))
    assert OffsetDeleted("g", "t", 1).key() == committed.key()
    group = GroupMetadata("g", GroupState.EMPTY, "consumer", 3, None, None, 0, ())
    assert GroupDeleted("g").key() == group.key()


def test_a_record_is_readable_in_a_dump() -> None:
    """The stored form is part of the format: changing it needs a new version."""
    committed = OffsetCommitted("g", "t", 1, Offset(5), LeaderEpoch(2), "note", commit_ms=9)
    assert record_to_bytes(committed) == (
        b'{"kind":"offset","group":"g","topic":"t","partition":1}',
        b'{"v":1,"offset":5,"epoch":2,"metadata":"note","commit_ms":9,"expire_ms":null}',
    )
    _, value = record_to_bytes(replace(committed, topic_id=TopicId(bytes(range(16)))))
    assert value == (
        b'{"v":1,"offset":5,"epoch":2,"metadata":"note","commit_ms":9,"expire_ms":null,'
        b'"topic_id":"000102030405060708090a0b0c0d0e0f"}'
    )
    member = MemberMetadata("m", "i", "c", "h", 1, 2, (Protocol("range", b"\x00"),), b"\x01")
    group = GroupMetadata("g", GroupState.STABLE, "consumer", 3, "range", "m", 7, (member,))
    assert record_to_bytes(group) == (
        b'{"kind":"group","group":"g"}',
        b'{"v":1,"state":"Stable","type":"consumer","generation":3,"protocol":"range","leader":"m","since_ms":7,'
        b'"members":[{"id":"m","instance":"i","client":"c","host":"h","session_ms":1,"rebalance_ms":2,'
        b'"protocols":[["range","AA=="]],"assignment":"AQ=="}]}',
    )


def test_a_newer_kind_or_version_is_named() -> None:
    """A replica that skipped such a record would differ from those that understand it."""
    with pytest.raises(UnknownRecordKind, match="share"):
        record_from_bytes(b'{"kind":"share","group":"g"}', None)
    with pytest.raises(UnknownRecordKind, match="version 2"):
        record_from_bytes(b'{"kind":"group","group":"g"}', b'{"v":2}')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\xff", None),
        (b"[]", None),
        (b'{"kind":"group"}', None),
        (b'{"kind":"group","group":1}', None),
        (b'{"kind":"group","group":"g"}', b'{"v":1}'),
        (b'{"kind":"offset","group":"g","topic":"t","partition":"x"}', None),
        (b'{"kind":"offset","group":"g","topic":"t","partition":0}', b'{"v":1,"offset":null}'),
        (
            b'{"kind":"offset","group":"g","topic":"t","partition":0}',
            b'{"v":1,"offset":5,"epoch":2,"metadata":"","commit_ms":9,"expire_ms":null,"topic_id":"orders"}',
        ),
    ],
)
def test_bytes_that_are_no_record_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(RecordMalformed):
        record_from_bytes(key, value)


def test_a_state_that_is_never_stored_is_malformed() -> None:
    group = GroupMetadata("g", GroupState.STABLE, "consumer", 3, None, None, 7, ())
    value = json.dumps({**json.loads(group.to_bytes()), "state": "PreparingRebalance"}).encode()
    with pytest.raises(RecordMalformed, match="never stored"):
        record_from_bytes(group.key(), value)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_a_record_or_unreadable(key: bytes, value: bytes | None) -> None:
    with pytest.raises(RecordUnreadable):
        record_from_bytes(key, value)
