"""Which leader wrote which part of a log: leader epochs and their first offsets.

Replicas and consumers that were cut off ask "where did epoch 5 end?" to find out whether what
they hold was overwritten (KIP-101, KIP-320). The answer needs only the offset at which each
epoch began. The table follows from the batches; it is stored beside the index of each sealed
segment as a hint, and counted out of the log again when that is lost.

A table never changes: a writer replaces it, so that readers on other threads see one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drmq.model import NO_LEADER_EPOCH, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """A leader epoch and an offset that goes with it: where it starts, or where it ends."""

    epoch: LeaderEpoch
    offset: Offset


class EpochTable(tuple[EpochStart, ...]):
    """Leader epochs with their first offsets, both strictly increasing."""

    __slots__ = ()

    @property
    def latest(self) -> LeaderEpoch:
        """The epoch of the last batch, -1 if there is none."""
        return self[-1].epoch if self else NO_LEADER_EPOCH

    def with_batches(self, batches: Iterable[tuple[LeaderEpoch, Offset]]) -> EpochTable:
        """The table after batches of these epochs were appended at these offsets."""
        latest, added = self.latest, []
        for epoch, offset in batches:
            if epoch > latest:
                added.append(EpochStart(epoch, offset))
                latest = epoch
        return EpochTable((*self, *added)) if added else self

    def without_suffix(self, offset: Offset) -> EpochTable:
        """The table after everything from `offset` on was removed."""
        return EpochTable(entry for entry in self if entry.offset < offset)

    def without_prefix(self, offset: Offset) -> EpochTable:
        """The table after everything below `offset` was removed; the epoch at `offset` begins there now."""
        later = [entry for entry in self if entry.offset > offset]
        earlier = self[: len(self) - len(later)]
        if earlier:
            later.insert(0, EpochStart(earlier[-1].epoch, offset))
        return EpochTable(later)

    def at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the batch that holds `offset`, or of the last one before it; -1 if there is none."""
        found = NO_LEADER_EPOCH
        for entry in self:
            if entry.offset > offset:
                break
            found = entry.epoch
        return found

    def end_of(self, epoch: LeaderEpoch, end_offset: Offset) -> EpochStart:
        """The largest known epoch <= `epoch` and where it ends; see `Log.end_of_epoch`."""
        found = NO_LEADER_EPOCH
        for entry in self:
            if entry.epoch > epoch:
                return EpochStart(epoch if found == NO_LEADER_EPOCH else found, entry.offset)
            found = entry.epoch
        return EpochStart(found, end_offset if found != NO_LEADER_EPOCH else Offset(-1))
