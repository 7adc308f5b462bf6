"""`drmq log`: prints and checks segment files. Needs no broker."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import output_option
from drmq.server.cli.output import Column, Output, plural, size_text
from drmq.server.cli.positions import time_text

if TYPE_CHECKING:
    from drmq.server.segments import Damage, FoundBatch

DECOMPRESSED_BYTES_MAX = 1 << 30

_path_argument = click.argument("path", type=click.Path(path_type=Path))


@click.group(cls=Noun)
def log() -> None:
    """Read and check segment files, without a broker."""


@log.command()
@_path_argument
@click.option(
    "--records", "with_records", is_flag=True, help="Also print the records of each batch, one JSON object per line."
)
@click.option("--from", "start", type=click.IntRange(min=0), default=0, metavar="OFFSET", help="Start at this offset.")
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N batches.")
@output_option
def dump(path: Path, with_records: bool, start: int, count: int | None, output: Output) -> None:
    """Print the batches of a segment file, or of all segment files below a directory.

    Exit code 1 if something cannot be read.
    """
    from drmq.server.segments import Damage, find_segments, read_batches

    shown = 0
    damaged = False
    for segment in find_segments(path):
        if output.is_human:
            print(f"{segment} ({size_text(segment.stat().st_size)})")
        for found in read_batches(segment):
            if isinstance(found, Damage):
                damaged = True
                _print_damage(found, output)
                continue
            if found.header.next_offset <= start:
                continue
            damaged |= not found.crc_ok
            _print_batch(segment, found, with_records, output)
            shown += 1
            if shown == count:
                raise click.exceptions.Exit(int(damaged))
    raise click.exceptions.Exit(int(damaged))


def _print_batch(segment: Path, found: FoundBatch, with_records: bool, output: Output) -> None:
    from drmq.records import Codec

    header = found.header
    facts: dict[str, Any] = {
        "segment": str(segment),
        "position": found.position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.next_offset - 1,
        "records": header.record_count,
        "codec": Codec(header.codec).name.lower() if header.codec <= Codec.ZSTD else str(header.codec),
        "timestamp_type": "log_append" if header.is_log_append_time else "create",
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": f"{header.crc:08x}",
        "crc_ok": found.crc_ok,
    }
    if not output.is_human:
        if with_records:
            facts["content"] = list(_records(found))
        # The batches may not fit into memory, so each one is printed by itself, as one line.
        Output("jsonl" if output.form == "json" else output.form).data([facts])
        return
    producer = ""
    if header.producer_id >= 0:
        producer = f"  producer {header.producer_id}/{header.producer_epoch} seq {header.base_sequence}"
    marks = "".join([" transactional" if header.is_transactional else "", " control" if header.is_control else ""])
    print(
        f"  {header.base_offset}..{header.next_offset - 1}  at {found.position}  {header.size} B"
        f"  {plural(header.record_count, 'record')}  {facts['codec']}  {time_text(header.max_timestamp) or '-'}"
        f"  epoch {header.leader_epoch}{producer}{marks}  crc {'ok' if found.crc_ok else 'WRONG'}"
    )
    if with_records:
        for record in _records(found):
            print(f"      {json.dumps(record, ensure_ascii=False)}")


def _records(found: FoundBatch) -> Iterator[Any]:
    """The records of a batch as objects. If they cannot be read, ends with an object that has the reason."""
    from drmq.records import InvalidBatch, iter_records
    from drmq.server.cli.record_text import ReadRecord, to_json

    try:
        for record in iter_records(found.data, decompressed_size_max=DECOMPRESSED_BYTES_MAX):
            text = to_json(
                ReadRecord("", 0, record.offset, record.timestamp, record.key, record.value, list(record.headers))
            )
            content = json.loads(text)
            del content["topic"], content["partition"]
            yield content
    except InvalidBatch as error:
        yield {"error": str(error)}


def _print_damage(found: Damage, output: Output) -> None:
    facts = {"segment": str(found.path), "position": found.position, "error": found.problem}
    if output.is_human:
        print(f"  at {found.position}: {found.problem}")
    else:
        Output("jsonl" if output.form == "json" else output.form).data([facts])


@log.command()
@_path_argument
@output_option
def verify(path: Path, output: Output) -> None:
    """Check every batch of a segment file, or of all segment files below a directory.

    Exit code 1 if anything is damaged. A torn tail is not damage: it is data at the very end of a log that was never
    acknowledged, with no intact batch after it. A crash leaves it, and it is truncated when the log is opened. Damaged
    batches and torn tails are not included in the counts.

    A damaged copy that was replaced and set aside (PARTITION.lost) is not checked either. It is listed with the command
    that removes it, and is checked only if PATH is the copy itself.
    """
    from drmq.server.cli.progress import Progress
    from drmq.server.segments import LogChecker, find_segments, find_set_aside

    set_aside = find_set_aside(path)
    kept = {copy.path for copy in set_aside}
    segments = [segment for segment in find_segments(path) if kept.isdisjoint(segment.parents)]
    sizes = [segment.stat().st_size for segment in segments]
    checker = LogChecker()
    with Progress("Checking", sum(sizes), is_bytes=True) as progress:
        for number, segment in enumerate(segments):
            is_last = number + 1 == len(segments) or segments[number + 1].parent != segment.parent
            for done in checker.check(segment, is_last=is_last):
                progress.advance(done)
    rows = [
        {
            "segment": str(damage.path),
            "position": damage.position,
            "problem": damage.problem,
            "torn_tail": damage.is_torn_tail,
        }
        for damage in checker.damage
    ]
    facts = {
        "sound": checker.is_sound,
        "segments": checker.segments,
        "batches": checker.batches,
        "records": checker.records,
        "size_bytes": sum(sizes),
        "damage": rows,
        "set_aside": [{"path": str(copy.path), "size_bytes": copy.size_bytes} for copy in set_aside],
    }
    torn = [damage for damage in checker.damage if damage.is_torn_tail]
    if output.is_human and len(torn) < len(rows):
        columns = [
            Column("segment", "SEGMENT"),
            Column("position", "POSITION", right=True),
            Column("problem", "PROBLEM"),
        ]
        output.rows(columns, [row for row in rows if not row["torn_tail"]], "")
        print()
    if output.is_human:
        for damage in torn:
            size = damage.path.stat().st_size - damage.position
            print(
                f"Note: {damage.path} has a torn tail of {size_text(size)} at position {damage.position} "
                f"({damage.problem}). A crash leaves it; it is truncated when the log is opened."
            )
        for copy in set_aside:
            print(
                f"Note: {copy.path} is a damaged copy that was replaced and set aside ({size_text(copy.size_bytes)}). "
                f"It was not checked. To remove it: rm -r {shlex.quote(str(copy.path))}"
            )
    verdict = "Intact" if checker.is_sound else "Damaged"
    output.one(
        facts,
        f"{verdict}: {plural(checker.segments, 'segment')}, {plural(checker.batches, 'batch')}, "
        f"{plural(checker.records, 'record')}, {size_text(sum(sizes))}.".replace("batchs", "batches"),
    )
    raise click.exceptions.Exit(0 if checker.is_sound else 1)
