"""How long the codec takes, beside kio. Not a test.

python tests/unit/wire/measure.py
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from drmq.wire import (
    APIS,
    ApiKey,
    FetchResult,
    ProduceResult,
    decode,
    encode,
    read_fetch,
    read_produce,
    read_request_header,
    write_fetch_response,
    write_produce_response,
    write_request,
)
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from drmq.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)


def microseconds(function: Callable[[], object]) -> float:
    """The best of many short runs: on a busy machine the others measure its other guests."""
    timer = timeit.Timer(function)
    loops = max(1, timer.autorange()[0] // 10)
    return min(timer.repeat(25, loops)) / loops * 1e6


def encoded(value: object, version: int) -> bytes:
    out = bytearray()
    encode(value, version, out)
    return bytes(out)


def row(
    what: str, ours: Callable[[], object], compiled: Callable[[], object] | None, kio: Callable[[], object]
) -> None:
    by_hand = f"{microseconds(ours):9.2f}" if compiled is not None else " " * 9
    generic = microseconds(ours if compiled is None else compiled)
    print(f"{what:48} {by_hand} {generic:9.2f} {microseconds(kio):9.2f}")


def kio_read(schema: Any, data: bytes) -> Callable[[], object]:
    reader, view = entity_reader(schema), memoryview(data)
    return lambda: reader(view, 0)


def kio_write(schema: Any, data: bytes) -> Callable[[], object]:
    writer = entity_writer(schema)
    entity, _ = entity_reader(schema)(memoryview(data), 0)

    def write() -> bytes:
        out = io.BytesIO()
        writer(out, entity)
        return out.getvalue()

    return write


def metadata() -> None:
    partitions = [MetadataResponsePartition(0, i, i % 3, 5, [0, 1, 2], [0, 1, 2]) for i in range(100)]
    brokers = [MetadataResponseBroker(i, f"broker-{i}.example.com", 9092) for i in range(3)]
    value = MetadataResponse(
        0, brokers, "cluster", 1, [MetadataResponseTopic(0, "orders", bytes(16), False, partitions)]
    )
    data, schema = encoded(value, 12), load_response_schema(ApiKey.METADATA, 12)
    row(
        "Metadata v12 response, 100 partitions, decode",
        lambda: decode(MetadataResponse, 12, data),
        None,
        kio_read(schema, data),
    )
    row("Metadata v12 response, 100 partitions, encode", lambda: encoded(value, 12), None, kio_write(schema, data))


def offset_commit() -> None:
    parts = [OffsetCommitRequestPartition(i, 1000 + i, 5, "") for i in range(10)]
    value = OffsetCommitRequest("group", 3, "member", None, -1, [OffsetCommitRequestTopic("orders", bytes(16), parts)])
    data, schema = encoded(value, 9), load_request_schema(ApiKey.OFFSET_COMMIT, 9)
    row(
        "OffsetCommit v9 request, 10 partitions, decode",
        lambda: decode(OffsetCommitRequest, 9, data),
        None,
        kio_read(schema, data),
    )
    row("OffsetCommit v9 request, 10 partitions, encode", lambda: encoded(value, 9), None, kio_write(schema, data))


def produce(version: int, size: int) -> None:
    topic = ProduceRequestTopic("orders", b"i" * 16, [ProduceRequestPartition(3, bytes(size))])
    data = encoded(ProduceRequest(None, -1, 30000, [topic]), version)
    schema: Any = load_request_schema(ApiKey.PRODUCE, version)
    row(
        f"Produce v{version} request, {size} B of records, decode",
        lambda: read_produce(data, 0, version),
        lambda: decode(ProduceRequest, version, data),
        kio_read(schema, data),
    )
    name = b"i" * 16 if version >= 13 else "orders"
    results = [ProduceResult(name, 3, 0, 12345)]
    data = bytes(write_produce_response(version, 1, results))[9 if version >= 9 else 8 :]
    value = decode(ProduceResponse, version, data)
    schema = load_response_schema(ApiKey.PRODUCE, version)
    row(
        f"Produce v{version} response, 1 partition, encode",
        lambda: write_produce_response(version, 1, results),
        lambda: encoded(value, version),
        kio_write(schema, data),
    )


def fetch(version: int, size: int) -> None:
    topic = FetchRequestTopic("orders", b"i" * 16, [FetchRequestPartition(3, 5, 12345, -1, -1, 1048576)])
    data = encoded(FetchRequest(topics=[topic], max_wait_ms=500), version)
    schema: Any = load_request_schema(ApiKey.FETCH, version)
    row(
        f"Fetch v{version} request, 1 partition, decode",
        lambda: read_fetch(data, 0, version),
        lambda: decode(FetchRequest, version, data),
        kio_read(schema, data),
    )
    name = b"i" * 16 if version >= 13 else "orders"
    results = [FetchResult(name, 3, 0, 12345, 12345, 0, [bytes(size)])]
    data = b"".join(write_fetch_response(version, 1, results))[9 if version >= 12 else 8 :]
    value = decode(FetchResponse, version, data)
    schema = load_response_schema(ApiKey.FETCH, version)
    row(
        f"Fetch v{version} response, {size} B of records, encode",
        lambda: write_fetch_response(version, 1, results),
        lambda: encoded(value, version),
        kio_write(schema, data),
    )


def startup() -> None:
    code = "import time; t = time.process_time(); import {0}; print((time.process_time() - t) * 1000)"
    # With bytecode, as an installed package has it; some machines are told not to write any.
    with tempfile.TemporaryDirectory() as cache:
        _startup(code, cache)


def _startup(code: str, cache: str) -> None:
    environment = {"PYTHONPYCACHEPREFIX": cache, "PATH": os.environ["PATH"]}
    options: dict[str, Any] = {"capture_output": True, "check": True, "text": True, "env": environment}
    for module in ("typing, enum, struct, functools, base64", "drmq.model", "drmq.wire", "kio.index, kio.serial"):
        times = []
        for _ in range(9):
            run = subprocess.run([sys.executable, "-c", code.format(module)], **options)
            times.append(float(run.stdout))
        print(f"{'import ' + module:60} {min(times):6.1f} ms")


def main() -> None:
    print(f"{'microseconds':48} {'by hand':>9} {'compiled':>9} {'kio':>9}")
    metadata()
    offset_commit()
    for size in (1000, 100_000):
        produce(9, size)
        produce(13, size)
        fetch(11, size)
        fetch(17, size)
    frame = write_request(ApiKey.PRODUCE, 9, 1, "client", ProduceRequest())[4:]
    print(f"{'request header v2':48} {microseconds(lambda: read_request_header(frame)):9.2f}")
    startup()
    print(f"{len(APIS)} APIs, {sum(api.version_max - api.version_min + 1 for api in APIS.values())} versions")


if __name__ == "__main__":
    main()
