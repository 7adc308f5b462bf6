"""The comparison of replicas: what differs is found, and what may differ is not reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.replicas import differences
from support.wire import batch

LOG = "topics/orders.0123456789abcdef0123456789abcdef/0"


def at_offset(offset: int, *values: bytes) -> bytes:
    """A batch as it is stored: with the offset that it got."""
    return offset.to_bytes(8, "big") + batch(list(values))[8:]


def write(directory: Path, segments: dict[int, list[bytes]]) -> Path:
    log = directory / LOG
    log.mkdir(parents=True)
    for base, batches in segments.items():
        (log / f"{base:020}.log").write_bytes(b"".join(batches))
    return directory


FIRST, SECOND, THIRD = at_offset(0, b"a", b"b"), at_offset(2, b"c"), at_offset(3, b"d")


def test_equal_replicas_pass(tmp_path: Path) -> None:
    """Where segments begin is each replica's own affair, and so is where its log starts and ends."""
    nodes = {
        1: write(tmp_path / "1", {0: [FIRST, SECOND, THIRD]}),
        2: write(tmp_path / "2", {0: [FIRST], 2: [SECOND, THIRD]}),
        3: write(tmp_path / "3", {2: [SECOND]}),
    }
    assert differences(nodes) == []


@pytest.mark.parametrize(
    "other",
    [
        [FIRST, at_offset(2, b"C"), THIRD],
        [at_offset(0, b"a"), at_offset(1, b"b"), SECOND, THIRD],
        [FIRST, at_offset(2, b"c", b"d")],
    ],
)
def test_other_bytes_are_found(tmp_path: Path, other: list[bytes]) -> None:
    """Also where the same records are cut into batches in another way."""
    nodes = {1: write(tmp_path / "1", {0: [FIRST, SECOND, THIRD]}), 2: write(tmp_path / "2", {0: other})}
    assert len(differences(nodes)) == 1


def test_a_replica_that_ends_too_early_is_found(tmp_path: Path) -> None:
    """What was acknowledged has to be on all of them."""
    nodes = {1: write(tmp_path / "1", {0: [FIRST, SECOND]}), 2: write(tmp_path / "2", {0: [FIRST]})}
    assert differences(nodes, {("orders", 0): 2}) == []
    assert len(differences(nodes, {("orders", 0): 3})) == 1
    assert len(differences(nodes, {("missing", 0): 1})) == 1


def test_damage_is_found_and_a_torn_tail_is_not(tmp_path: Path) -> None:
    """A killed node may have written half a batch."""
    flipped = bytearray(FIRST)
    flipped[-1] ^= 1
    assert differences({1: write(tmp_path / "1", {0: [bytes(flipped), SECOND]})})
    assert not differences({2: write(tmp_path / "2", {0: [FIRST, SECOND[:20]]})})
    assert differences({3: write(tmp_path / "3", {0: [FIRST[:20]], 2: [SECOND]})})
