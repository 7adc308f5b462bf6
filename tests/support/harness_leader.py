"""A leader for a replica on a desk: the entries and messages of one term, and what became of them on the disk."""

from __future__ import annotations

from collections.abc import Sequence

from drmq.broker.replication.entry_log import Batch, encode_trim
from drmq.model import LeaderEpoch, NodeId, Offset
from drmq.raft import AppendRequest, Entry, EntryKind, Heartbeat, LogIndex, Message, Term
from drmq.records import stamp
from support.batches import a_batch
from support.replica_harness import SELF, ReplicaHarness

Plain = tuple[int, int, int, bytes]
"""An entry, to compare: its indexes, its term and its bytes."""


class Leader:
    """Writes entries as a leader of one term would, and the messages that carry them."""

    def __init__(self, node_id: int, term: int, log: Sequence[Entry] = ()) -> None:
        self.node_id = NodeId(node_id)
        self.term = Term(term)
        self.log = list(log)
        self.own(EntryKind.NOTHING, b"")

    @property
    def last_index(self) -> LogIndex:
        return self.log[-1].index if self.log else LogIndex(0)

    def own(self, kind: EntryKind, payload: bytes) -> Leader:
        index = LogIndex(self.last_index + 1)
        self.log.append(Entry(index, index, self.term, kind, payload, len(payload)))
        return self

    def batch(self, *values: bytes) -> Leader:
        offset = sum(entry.index - entry.first + 1 for entry in self.log if len(entry.payload) > 60)
        data = a_batch(values)
        stamp(data, Offset(offset), LeaderEpoch(self.term))
        first = LogIndex(self.last_index + 1)
        last = LogIndex(self.last_index + len(values))
        self.log.append(Entry(first, last, self.term, EntryKind.PAYLOAD, bytes(data), len(data)))
        return self

    def trim(self, offset: int) -> Leader:
        return self.own(EntryKind.PAYLOAD, encode_trim(Offset(offset)))

    def appends(self, start: int, commit: int = 0) -> AppendRequest:
        """Everything from the entry at `start` on."""
        before = [entry for entry in self.log if entry.index < start]
        return AppendRequest(
            self.node_id,
            SELF,
            self.term,
            before[-1].index if before else LogIndex(0),
            before[-1].term if before else Term(0),
            tuple(self.log[len(before) :]),
            LogIndex(commit),
        )

    def heartbeat(self, commit: int) -> Heartbeat:
        return Heartbeat(self.node_id, SELF, self.term, LogIndex(commit), 0)


def plain(entries: Sequence[Entry]) -> list[Plain]:
    found = []
    for entry in entries:
        payload = entry.payload
        data = payload.data if isinstance(payload, Batch) else payload
        found.append((int(entry.first), int(entry.index), int(entry.term), bytes(data)))  # type: ignore[call-overload]
    return found


def on_disk(desk: ReplicaHarness) -> list[Plain]:
    entries = desk.replica.entries
    assert entries.end_offset == desk.log.flushed_offset == desk.log.end_offset
    start, end = entries.first_index, LogIndex(entries.last_index + 1)
    return plain(entries.entries(start, end, 1 << 30, 1 << 30)) if start < end else []


def receive(desk: ReplicaHarness, *messages: Message) -> None:
    for message in messages:
        desk.replica.receive(message)
        desk.turn()


def answers(desk: ReplicaHarness, kind: type) -> list[object]:
    return [message for message in desk.sent if isinstance(message, kind)]
