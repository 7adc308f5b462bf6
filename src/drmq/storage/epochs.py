"""Which leader epoch wrote which part of a log: epochs and their first offsets.

Replicas and consumers that were disconnected ask where an epoch ended, to find out whether the records that they hold
were overwritten (KIP-101, KIP-320). The answer needs only the offset at which each epoch began. The table can be
computed from the batches. It is stored beside the index of each sealed segment as a hint, and computed again from the
log if that is lost.

A table never changes: a writer replaces it, so that readers on other threads see either the old or the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drmq.model import NO_LEADER_EPOCH, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """A leader epoch with an offset: where it starts or, as the result of `end_of`, where it ends."""

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
