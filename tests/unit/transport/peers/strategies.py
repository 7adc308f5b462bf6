"""Any message that nodes exchange, for hypothesis."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import strategies as st

from drmq.model import GroupId, MemberId, NodeId, TopicId
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotId,
    SnapshotMeta,
    Term,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from drmq.transport.peers import ConnectionKind, FeatureRange, Hello, LeaderNotice, PeerMessage, Sleep, Wake

numbers = st.integers(0, 2**63 - 1)
members = numbers.map(lambda number: MemberId(NodeId(number)))
nodes = st.integers(0, 2**31 - 1).map(NodeId)
terms = numbers.map(Term)
indexes = numbers.map(LogIndex)
groups = st.builds(GroupId, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 2**31 - 1))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    payload = draw(st.binary(max_size=200))
    first, index = draw(indexes), draw(indexes)
    return Entry(first, index, draw(terms), draw(st.sampled_from(EntryKind)), payload, len(payload))


member_sets = st.frozensets(members, max_size=5)
metas = st.builds(
    SnapshotMeta,
    indexes,
    terms,
    st.builds(Configuration, member_sets, member_sets, member_sets),
    st.binary(max_size=50),
)

_BY_FIELD = {
    "sender": members,
    "target": members,
    "granted": st.booleans(),
    "transfer": st.booleans(),
    "done": st.booleans(),
    "entries": st.lists(entries(), max_size=5).map(tuple),
    "meta": metas,
    "data": st.binary(max_size=500),
    "snapshot_id": st.builds(SnapshotId, indexes, terms),
}
CLASSES: tuple[type[PeerMessage], ...] = (
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    AppendRequest,
    AppendAccepted,
    AppendRejected,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotAnswer,
    TimeoutNow,
    Sleep,
    Wake,
)


def of_class(cls: type[PeerMessage]) -> st.SearchStrategy[PeerMessage]:
    """Any message of one class; a field that is not named above is a number."""
    return st.builds(cls, **{field.name: _BY_FIELD.get(field.name, numbers) for field in fields(cls)})


messages = st.one_of(*map(of_class, CLASSES))
group_messages = st.lists(st.tuples(groups, messages), min_size=1, max_size=5)
notices = st.builds(
    LeaderNotice,
    groups,
    numbers,
    st.integers(-1, 2**31 - 1).map(NodeId),
    numbers,
    st.lists(nodes, max_size=20).map(tuple),
)
names = st.text(alphabet="abc.019-", max_size=20)
levels = st.integers(-(2**15), 2**15 - 1)

hellos = st.builds(
    Hello,
    protocol_version=st.just(2),
    cluster_id=st.none() | st.text(max_size=40),
    node_id=nodes,
    incarnation=st.integers(0, 2**31 - 1),
    starts=st.integers(0, 2**62),
    boot_id=st.binary(min_size=16, max_size=16),
    peer_host=st.text(max_size=40),
    peer_port=st.integers(0, 65_535),
    kind=st.sampled_from(ConnectionKind),
    target=nodes,
    release=names,
    features=st.lists(st.builds(FeatureRange, names, levels, levels), max_size=4).map(tuple),
)
