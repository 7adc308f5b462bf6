"""Every stored format has a version: what the release before wrote is read, and what a later one wrote is refused.

`WRITTEN_BEFORE` was recorded with the code of the release before feature levels.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c

from drmq.broker.partitions.derived_state import encode_state, pack_snapshot, replay_batches, unpack_snapshot
from drmq.broker.partitions.producer_table import ProducerTable, WrittenBatch
from drmq.broker.replication.entry_log import EntryLog, OwnType, UnknownEntry, decode_trim, encode_offset, encode_trim
from drmq.catalog import (
    BrokerRegistered,
    ClusterCreated,
    Fact,
    ProducerIdsReserved,
    TopicCreated,
    decode_fact,
    encode_fact,
)
from drmq.groups.records import GroupMetadata, OffsetCommitted, record_from_bytes, record_to_bytes
from drmq.groups.state import GroupState
from drmq.model import LeaderEpoch, NodeId, Offset, TopicId, UnknownFormat
from drmq.raft import (
    Configuration,
    EntryKind,
    LogIndex,
    SnapshotMeta,
    Term,
    configuration_from_bytes,
    configuration_to_bytes,
)
from drmq.server.local import LocalCluster
from drmq.server.local_nodes import LocalError
from drmq.storage import (
    Ballot,
    DataDirectory,
    IncomingFile,
    Ledger,
    LedgerBase,
    LogOptions,
    MemoryLog,
    OwnEntry,
    SnapshotStore,
)
from drmq.storage.checkpoint import Flushed, FlushedFile, read_start, write_start
from drmq.storage.epochs import EpochTable
from drmq.storage.index import SparseIndex, Summary, decode_header, encode
from drmq.storage.journal import Journal
from drmq.testing.files import FakeFiles

WRITTEN_BEFORE = {
    "ledger": (
        "eNpz8Q30YWRgYJCb67SAAQlsYILQxpaM+gyjYNgCFyAOW5O6jBEm8B8KcGkQB2JGBiYkEZhWJkEg4Vwhk8PEjCbjDMRHArOv"
        "MMME0BVA9KNJwgEHgskOAHz6Eo8="
    ),
    "flushed": "eNpz8Q10Y2RgYABhTgYIYIHSvlD64VH/MAA4mgPQ",
    "start": "eNpz8Q0MZmRgYGBlgABxJ56TABifAmo=",
    "producers": "eNpjYAADdgYmCIP5BSOEwcACpbmgND8AGhIBEw==",
    "state": (
        "eNqFUr1OwzAQdtMKFmZgvhGlVcKPkDJ3YEECMZaqOI5prSZ25LgVqOrKczAisfEMCPEIPAMvUc6JidqA4DLc73d33zn988uL"
        "FiFkm1Ty6VX66nF334V2nG47bUv3WsQVltJyei3mPa9QvLODm48NdC2rDcFA58m26bF0Vhiuu0xzangSOV8uYCpkAhE0CsCH"
        "OdeFUBKiQ/87OxJlKSzJK072glirKWI0Hwubxr5SJbwbPrTrvj9KGp0toGwb+iAko1pSU+YCHxKhOTNK31dzaYzYiSoM2hM0"
        "c6VNics5rraesH6VxQmasilEcpamaKuUFxAN3Fow9KEwVBuMHfkQK2UcxQQ5viDHzrVRuWD13U6P//7evZr5BrDBusxVo/7r"
        "iEhJM24boql5ngpGLYdBOMT1mZK3Yoz+AnOGS3u8XoY+nMDSnlQYQdNRxrMY51d3WJI3/Cm2+rlWyYzh64ikwBcquJ4jxfXo"
        "vGbza23zLflddb8wCIIl+QKCpuNW"
    ),
    "offset key": "eNqrVsrOzEtRslLKT0srTi1R0lFKL8ovLQAKpAPZJfkFmclANki8ILGoJLMkMz9PycqgFgDtZhGf",
    "offset value": (
        "eNqrVipTsjLUUcpPSytOLVGyMtFRSi3IT84AC+amliSmJJYkKlkp5SrpKCXn5+ZmlsTnFitZWQKVVRRkFqWCeXmlOTm1AFHqF+U="
    ),
    "group key": "eNqrVsrOzEtRslJKL8ovLVDSgdJAvlItAIZrCRA=",
    "group value": (
        "eNotirEKwzAMBf/lzVqaKWjvV4QQHFeUgCUZWymE0n+vC93ujnvjBb4ReqQQMO5a4wIhrvrT7NZPlTbKU0xaisMNPBFq8/Ds"
        "BWxnKYQi6TG+v/XDsmzawTNBRXdpg5f18wUeAiWJ"
    ),
}

MEMBERS = Configuration.of([NodeId(1), NodeId(2)])
BASE = LedgerBase(0, 0, 0, configuration_to_bytes(MEMBERS))
META = SnapshotMeta(LogIndex(12), Term(3), MEMBERS, encode_offset(Offset(7)))
OWN = (OwnEntry(1, 3, EntryKind.NOTHING, 0, b""), OwnEntry(2, 3, EntryKind.PAYLOAD, 0, encode_trim(Offset(7))))
FACTS: list[Fact] = [
    ClusterCreated("c"),
    BrokerRegistered(NodeId(1), 0, "ab", "h", 1, "h", 2, None, ["broker"], 3, "cd"),
    TopicCreated(TopicId(b"t" * 16), "t", [[NodeId(1)]], {"retention.ms": "5"}),
    ProducerIdsReserved(1000),
]
STATE_FILE = "/s/state-00000000000000000007.snapshot"


def before(name: str) -> bytes:
    return zlib.decompress(b64decode(WRITTEN_BEFORE[name]))


def on_disk(path: str, content: bytes) -> FakeFiles:
    files = FakeFiles()
    files.make_directory(path.rpartition("/")[0] or "/")
    files.open(path, create=True)
    files.replace_content(path, content)
    return files


# ---- the release before -------------------------------------------------------------------------


def test_files_of_the_release_before_are_read_and_written_the_same() -> None:
    """Byte for byte, while no feature level is finalized: so a node can go back."""
    ledger = Ledger.open("/d", on_disk("/d/ledger", before("ledger").ljust(8192, b"\0")))
    assert (ledger.base, ledger.ballot, tuple(ledger.entries)) == (BASE, Ballot(3, 1), OWN)
    EntryLog(MemoryLog("t-0", LogOptions()), ledger.base, ledger.entries)
    assert decode_trim(ledger.entries[-1].payload) == 7

    flushed = Flushed(True, Offset(9), Offset(4), 77)
    assert FlushedFile(on_disk("/flushed", before("flushed")), "/flushed").read() == flushed
    files = FakeFiles()
    FlushedFile(files, "/flushed").write(flushed)
    assert files.content("/flushed") == before("flushed")

    assert read_start(on_disk("/start", before("start")), "/start") == 5
    write_start(files, "/start", Offset(5))
    assert files.content("/start") == before("start")

    table = ProducerTable.from_bytes(before("producers"))
    assert table._producers[7].batches == [WrittenBatch(0, 4, Offset(10), Offset(15))]
    assert table.to_bytes() == before("producers")


def test_snapshots_of_the_release_before_are_read_and_written_the_same() -> None:
    found = SnapshotStore("/s", on_disk(STATE_FILE, before("state"))).load_latest("state")
    assert found is not None
    meta, body = unpack_snapshot(found.payload)
    assert (found.offset, meta) == (7, META)
    facts: list[Fact] = []
    replay_batches(body, lambda key, value: facts.append(decode_fact(value or b"")), Offset(0))
    assert facts == FACTS
    files = FakeFiles()
    SnapshotStore("/s", files).save("state", Offset(7), pack_snapshot(META, encode_state(map(encode_fact, FACTS))))
    assert files.content(STATE_FILE) == before("state")


def test_group_records_of_the_release_before_are_read_and_written_the_same() -> None:
    offset = OffsetCommitted(
        "g",
        "t",
        0,
        offset=Offset(4),
        leader_epoch=LeaderEpoch(1),
        metadata="m",
        commit_ms=9,
        expire_ms=None,
        topic_id=None,
    )
    group = GroupMetadata(
        group_id="g",
        state=GroupState.EMPTY,
        protocol_type="consumer",
        generation=2,
        protocol_name=None,
        leader=None,
        state_since_ms=8,
        members=(),
    )
    for name, record in (("offset", offset), ("group", group)):
        stored = before(f"{name} key"), before(f"{name} value")
        assert record_from_bytes(*stored) == record
        assert record_to_bytes(record) == stored


# ---- a later release ----------------------------------------------------------------------------


def later(content: bytes, checksum_at: int, covered: int | None = None, version_at: int = 4, size: int = 4) -> bytes:
    """The same with the next version, and a checksum that is right."""
    changed = bytearray(content)
    version = int.from_bytes(changed[version_at : version_at + size], "little") + 1
    changed[version_at : version_at + size] = version.to_bytes(size, "little")
    checksum = crc32c(bytes(changed[: checksum_at if covered is None else covered]))
    changed[checksum_at : checksum_at + 4] = checksum.to_bytes(4, "little")
    return bytes(changed)


def a_directory() -> None:
    files = FakeFiles()
    DataDirectory("/d", NodeId(1), files=files).close()
    content = json.loads(files.content("/d/drmq.json")) | {"format_version": 5}
    files.replace_content("/d/drmq.json", json.dumps(content).encode())
    DataDirectory("/d", NodeId(1), files=files)


def a_journal() -> None:
    head, body = Struct("<4sII"), Struct("<IQQI")
    files = FakeFiles()
    Journal(files, "/", "secret", 65_536).close()
    content = body.pack(head.size + body.size, 1, 1, 0)
    record = head.pack(b"DMQJ", 2, crc32c(content, crc32c(b"secret"))) + content
    files.open("/journal-0", create=True)
    files.replace_content("/journal-0", record.ljust(4096, b"\0"))
    Journal(files, "/", "secret", 65_536)


def a_ledger() -> None:
    Ledger.open("/d", on_disk("/d/ledger", later(before("ledger").ljust(8192, b"\0"), 8)))


def a_flushed_file() -> None:
    FlushedFile(on_disk("/flushed", later(before("flushed"), 36)), "/flushed").read()


def a_start_file() -> None:
    read_start(on_disk("/start", later(before("start"), 16)), "/start")


def a_snapshot() -> None:
    content = bytearray(before("state"))
    content[4] = 2
    checksum = crc32c(bytes(content[28:]), crc32c(bytes(content[:24])))
    content[24:28] = checksum.to_bytes(4, "little")
    SnapshotStore("/s", on_disk(STATE_FILE, bytes(content))).load_latest("state")


def a_table_of_producers() -> None:
    ProducerTable.from_bytes((-2).to_bytes(8, "big", signed=True) + b"whatever")


def a_configuration() -> None:
    content = bytearray(configuration_to_bytes(MEMBERS))
    content[0] += 1
    configuration_from_bytes(bytes(content))


def own_entry_of_type(kind: int, payload: bytes) -> Callable[[], None]:
    def read() -> None:
        EntryLog(MemoryLog("t-0", LogOptions()), BASE, [OwnEntry(1, 1, kind, 0, payload)])

    return read


def fact(text: str) -> Callable[[], object]:
    return lambda: decode_fact(text.encode())


def group_record(key: bytes, value: bytes) -> Callable[[], object]:
    return lambda: record_from_bytes(key, value)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(a_directory, id="drmq.json"),
        pytest.param(a_journal, id="journal"),
        pytest.param(a_ledger, id="ledger"),
        pytest.param(a_flushed_file, id="flushed"),
        pytest.param(a_start_file, id="start"),
        pytest.param(a_snapshot, id="snapshot"),
        pytest.param(a_table_of_producers, id="table of producers"),
        pytest.param(a_configuration, id="configuration"),
        pytest.param(own_entry_of_type(EntryKind.PAYLOAD, b"\2" + bytes(8)), id="type of own entry"),
        pytest.param(own_entry_of_type(EntryKind.PAYLOAD, b"\2" + bytes(300)), id="type of long own entry"),
        pytest.param(own_entry_of_type(max(EntryKind) + 1, b""), id="kind of entry"),
        pytest.param(fact('{"kind":"broker-painted","version":2}'), id="kind of fact"),
        pytest.param(fact('{"kind":"topic-deleted","version":3}'), id="version of fact"),
        pytest.param(
            fact('{"kind":"feature-level-set","version":2,"feature":"metadata.version","level":9}'), id="feature level"
        ),
        pytest.param(group_record(b'{"kind":"lease"}', b"{}"), id="kind of group record"),
        pytest.param(
            group_record(b'{"kind":"offset","group":"g","topic":"t","partition":0}', b'{"v":2}'),
            id="version of group record",
        ),
    ],
)
def test_a_later_version_is_refused_and_not_taken_for_damage(read: Callable[[], object]) -> None:
    """The refusal says what it is and what to do."""
    with pytest.raises(UnknownFormat) as refused:
        read()
    text = str(refused.value)
    assert any(word in text for word in ("version", "release"))
    assert any(advice in text for advice in ("start the version", "start the release", "use the version"))


def test_a_later_file_of_local_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 3, "nodes": []}')
    with pytest.raises(LocalError, match="has version 3, and this DRMQ knows version 2"):
        LocalCluster(tmp_path).read()
    (tmp_path / "cluster.json").write_text('{"nodes": []}')
    assert LocalCluster(tmp_path).read() == []


def test_hints_of_a_later_version_are_made_again() -> None:
    """They are only ever a saving of time."""
    summary = Summary(Offset(0), Offset(1), 100, 0, 0, Offset(0))
    index = encode(SparseIndex(Offset(0), 4096), summary, EpochTable())
    assert decode_header(index) is not None
    assert decode_header(later(index, 72, size=2)) is None
    files = FakeFiles()
    files.make_directory("/d")
    IncomingFile("/d", files).keep(b"what", 0, b"part")
    assert IncomingFile("/d", files).load() is not None
    content = bytearray(files.content("/d/incoming"))
    content[4] = 2
    files.replace_content("/d/incoming", bytes(content))
    assert IncomingFile("/d", files).load() is None


# ---- own entries --------------------------------------------------------------------------------


def test_a_trim_is_read_with_and_without_its_type() -> None:
    for offset in (0, 7, 2**55):
        for typed in (False, True):
            payload = encode_trim(Offset(offset), typed=typed)
            assert payload[0] == (OwnType.TRIM if typed else 0)
            own_entry_of_type(EntryKind.PAYLOAD, payload)()
            assert decode_trim(payload) == offset


def test_an_unknown_entry_is_no_damage() -> None:
    with pytest.raises(UnknownEntry, match="entry 1 of its replica group has type 2, which this release does not know"):
        own_entry_of_type(EntryKind.PAYLOAD, b"\2")()
