"""The checks of a batch that a producer sends, before it gets its place in the log, and its recompression.

The header is checked (`records.header`), and the records of an uncompressed batch are walked in compiled code
(`columnar.framing`), because bytes that are no records would be acknowledged, and stop every consumer that reads them.
Compressed records are not decompressed: that would cost more than all else. A node without the compiled code checks
headers only.

A topic that requires a codec (`compression.type`) is the exception: a batch with another codec is decompressed, its
records are walked, and they are compressed again. The header stays as it is, but for the codec, the length and the
checksum.
"""

from __future__ import annotations

from drmq.catalog import Compression
from drmq.columnar.framing import COMPILED, framing_fault
from drmq.model import ApiError, ErrorCode
from drmq.records import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    Codec,
    InvalidBatch,
    check_batch,
    compress,
    decompress,
    with_records,
)


def check_produced(batch: Buffer) -> BatchHeader:
    """The header of a producer's batch. Raises `ApiError`."""
    try:
        header = check_batch(batch)
    except InvalidBatch as error:
        raise ApiError(error.code, str(error)) from error
    if COMPILED is not None and not header.attributes & CODEC_MASK:
        fault = framing_fault(batch, COMPILED)
        if fault is not None:
            raise ApiError(ErrorCode.INVALID_RECORD, f"the batch holds bytes that are no records: {fault}")
    return header


def recompress(batch: bytearray, compression: Compression, decompressed_size_max: int) -> bytearray:
    """The batch as its topic requires it, which is `batch` itself if it has that codec. Raises `ApiError`.

    Takes up to twice `decompressed_size_max` of memory. For a thread: may take seconds.
    """
    header = check_produced(batch)
    codec = compression.codec
    if header.codec == codec:
        return batch
    plain: Buffer = batch
    if header.codec != Codec.NONE:
        try:
            body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], decompressed_size_max)
        except InvalidBatch as error:
            # The checksum matches, so the batch came as it was sent, and the next attempt would fail in the same way.
            # Clients do not repeat a batch with this code, as they would with that of a damaged batch.
            raise ApiError(ErrorCode.INVALID_RECORD, f"the batch cannot be decompressed: {error}") from error
        plain = with_records(batch, Codec.NONE, body)
        del body
        check_produced(plain)
    if codec == Codec.NONE:
        assert isinstance(plain, bytearray)
        return plain
    return with_records(plain, codec, compress(codec, memoryview(plain)[HEADER_SIZE:], compression.level))
