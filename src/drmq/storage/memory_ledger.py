"""A ledger in memory, for logs in memory, and the interface that both ledgers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drmq.storage.ledger_format import NO_VOTE, Ballot, LedgerBase, OwnEntry


class LedgerLike(Protocol):
    """The state that a replica must not lose; `Ledger` keeps it on disk. Only the writer thread changes it."""

    @property
    def base(self) -> LedgerBase: ...

    @property
    def ballot(self) -> Ballot: ...

    @property
    def entries(self) -> Sequence[OwnEntry]: ...

    @property
    def is_fenced(self) -> bool: ...

    def save_ballot(self, ballot: Ballot) -> None: ...

    def append(self, entries: Sequence[OwnEntry]) -> None: ...

    def truncate(self, from_index: int) -> None: ...

    def rebase(self, base: LedgerBase) -> None: ...

    def reset(self, base: LedgerBase, ballot: Ballot | None = None) -> None: ...

    def close(self) -> None: ...


class MemoryLedger:
    """Loses everything with the process, like the log that it belongs to."""

    def __init__(self, base: LedgerBase) -> None:
        self.base = base
        self.ballot = Ballot(0, NO_VOTE)
        self.entries: Sequence[OwnEntry] = ()
        self.is_fenced = False

    def save_ballot(self, ballot: Ballot) -> None:
        self.ballot = ballot

    def append(self, entries: Sequence[OwnEntry]) -> None:
        self.entries = (*self.entries, *entries)

    def truncate(self, from_index: int) -> None:
        self.entries = tuple(entry for entry in self.entries if entry.index < from_index)

    def rebase(self, base: LedgerBase) -> None:
        self.base = base
        self.entries = tuple(entry for entry in self.entries if entry.index > base.index)

    def reset(self, base: LedgerBase, ballot: Ballot | None = None) -> None:
        self.base = base
        self.entries = ()
        self.ballot = ballot or self.ballot

    def close(self) -> None:
        return
