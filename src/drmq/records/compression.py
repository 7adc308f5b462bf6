"""The four codecs of Kafka, with a hard limit on what comes out.

A few kilobytes can decompress to gigabytes, and a broker opens batches that strangers packed.
So every decompression writes into a buffer whose size is decided here, never by the data: what
the data claims about its own size is at most a reason to give up early. Whatever does not fit
into `size_max`, or is not what the codec expects, raises `InvalidBatch` and nothing else.

The formats are those that Java clients read and write, which for two codecs is less than the
codec's name allows:

- snappy: the block framing of the library `xerial`, and raw snappy, which librdkafka sends;
- lz4: the frame format with *independent* blocks. Java refuses linked blocks (KIP-57), and
  linked is what `cramjam.lz4.compress` makes.

Memory: about `size_max`, and a few megabytes for the codec. Only zstd may take twice the limit,
for it keeps a window of what it wrote last: as large as the producer asked for, which is a few
megabytes up to level 19 and up to 128 MiB beyond.

`cramjam` is imported on first use: a broker starts faster without it, and most never need it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct

from drmq.model import ErrorCode
from drmq.records.header import Buffer, Codec, InvalidBatch

_GZIP_WBITS = 31
"""zlib's way to say: a gzip header and trailer around the deflate stream."""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3
_STEP_SIZE = 64 * 1024
"""How much gzip reads and writes at a time, and so how far it can overshoot the limit."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
_SNAPPY_RATIO_MAX = 22
"""Snappy's densest element makes 64 bytes out of 3. A block that promises more is lying."""

_GUESS_SIZE_MIN = 64 * 1024
_GUESS_RATIO = 4
_GUESS_GROWTH = 8


def compress(codec: int, data: Buffer) -> Buffer:
    """`data` as a batch carries it under `codec`."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        deflater = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
        return deflater.compress(data) + deflater.flush()
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        import cramjam

        packer = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
        packer.compress(bytes(data))  # takes nothing else, unlike the rest of cramjam
        return bytes(packer.finish())
    if codec == Codec.ZSTD:
        import cramjam

        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    raise _unknown_codec(codec)


def decompress(codec: int, data: Buffer, size_max: int) -> Buffer:
    """What `data` holds under `codec`, if that is at most `size_max` bytes; else `InvalidBatch`.

    Data without a codec comes back as it is, whatever its size: it already is in memory.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return _decompress_gzip(data, size_max)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, size_max)
    if codec == Codec.LZ4:
        import cramjam

        return _decompress_guessing(cramjam.lz4.decompress_into, data, size_max)
    if codec == Codec.ZSTD:
        import cramjam

        return _decompress_guessing(cramjam.zstd.decompress_into, data, size_max)
    raise _unknown_codec(codec)


def _unknown_codec(codec: int) -> InvalidBatch:
    return InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}")


def _corrupt(reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, reason)


def _too_large(size_max: int) -> InvalidBatch:
    return _corrupt(f"the records decompress to more than {size_max} bytes")


def _decompress_gzip(data: Buffer, size_max: int) -> bytearray:
    inflater = zlib.decompressobj(_GZIP_WBITS)
    out = bytearray()
    view = memoryview(data)
    try:
        # The input goes in by the piece, because zlib copies the rest of it on every call that
        # stops at its output limit: given everything at once, the time would be quadratic.
        for start in range(0, len(view), _STEP_SIZE):
            piece: Buffer = view[start : start + _STEP_SIZE]
            while len(piece) > 0:
                out += inflater.decompress(piece, _STEP_SIZE)
                if len(out) > size_max:
                    raise _too_large(size_max)
                if inflater.unused_data:
                    raise _corrupt("bytes follow the end of the gzip data")
                piece = inflater.unconsumed_tail
        # zlib may have taken all input and still hold output. `flush` would return it without a limit.
        while not inflater.eof:
            rest = inflater.decompress(b"", _STEP_SIZE)
            if not rest:
                raise _corrupt("the gzip data ends too early")
            out += rest
            if len(out) > size_max:
                raise _too_large(size_max)
    except zlib.error as error:
        raise _corrupt(f"bad gzip data: {error}") from None
    return out


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, size_max: int) -> bytearray:
    import cramjam

    try:
        # Sizes first: they stand at the head of each block, so the output is allocated once and
        # nothing is decompressed that will not fit.
        blocks: list[tuple[memoryview, int]] = []
        total = 0
        for block in _snappy_blocks(memoryview(data)):
            size = cramjam.snappy.decompress_raw_len(block)
            total += size
            if total > size_max:
                raise _too_large(size_max)
            if size > len(block) * _SNAPPY_RATIO_MAX:
                raise _corrupt(f"a snappy block of {len(block)} bytes says it holds {size}")
            blocks.append((block, size))
        out = bytearray(total)
        position = 0
        room = memoryview(out)
        for block, size in blocks:
            # Fails unless it writes exactly what the block promised.
            cramjam.snappy.decompress_raw_into(block, room[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise _corrupt(f"bad snappy data: {error}") from None
    return out


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """The raw snappy blocks in `data`: the chunks of a xerial stream, or `data` itself."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [data]
    # The two version numbers after the magic are not looked at. There is one version of the
    # format, and some writers have put the numbers down in the wrong byte order.
    blocks = []
    position, end = len(_XERIAL_HEADER), len(data)
    if position > end:
        raise _corrupt("the snappy stream header is cut off")
    while position < end:
        if end - position < _XERIAL_LENGTH.size:
            raise _corrupt("a snappy chunk length is cut off")
        (size,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += _XERIAL_LENGTH.size
        if not 0 < size <= end - position:
            raise _corrupt(f"a snappy chunk of {size} bytes where {end - position} are left")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _decompress_guessing(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int
) -> memoryview:
    """Decompress into a buffer of guessed size, and into larger ones until `size_max` if it fails.

    A frame need not tell its size, and one that does may lie. Nor do we tell "no room" from "bad
    data" by the words of an error message: bad data just fails again, at most a few times.
    """
    import cramjam

    size = min(size_max, max(_GUESS_SIZE_MIN, len(data) * _GUESS_RATIO))
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if size >= size_max:
                raise _corrupt(f"the records do not decompress into {size_max} bytes: {error}") from None
        else:
            return memoryview(out)[:written]
        del out  # before the next one is made, or both would count against the limit
        size = min(size_max, size * _GUESS_GROWTH)
