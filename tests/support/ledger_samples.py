"""Ledgers for tests: where they are, what is put into them, and what they show."""

from __future__ import annotations

from collections.abc import Callable

from drmq.storage.ledger import Ballot, Ledger, LedgerBase, OwnEntry

DIRECTORY = "/data/topics/orders-0"
PATH = f"{DIRECTORY}/ledger"
BASE = LedgerBase(0, 0, 0, b"voters 1 2 3")
SEEDS = range(8)

Shown = tuple[LedgerBase, Ballot, tuple[OwnEntry, ...]]


def entry(index: int, term: int, payload: bytes = b"", kind: int = 1, offset: int | None = None) -> OwnEntry:
    return OwnEntry(index, term, kind, index - 1 if offset is None else offset, payload)


def shown(ledger: Ledger) -> Shown:
    return ledger.base, ledger.ballot, tuple(ledger.entries)


def changes() -> list[Callable[[Ledger], None]]:
    """One valid call of each kind, for a ledger with an entry at index 1."""
    return [
        lambda ledger: ledger.save_ballot(Ballot(9, 2)),
        lambda ledger: ledger.append([entry(30, 9, b"x" * 1200), entry(31, 9)]),
        lambda ledger: ledger.truncate(1),
        lambda ledger: ledger.rebase(LedgerBase(20, 8, 19, b"")),
        lambda ledger: ledger.reset(LedgerBase(20, 8, 19, b""), Ballot(9, 2)),
        lambda ledger: ledger.note_commit(15),
    ]


def go_on(ledger: Ledger) -> Shown:
    """Use a ledger that was found, and say what it promises now."""
    ledger.save_ballot(Ballot(50, 1))
    ledger.append([entry(100, 50)])
    return shown(ledger)
