"""The four codecs of Kafka, with a hard limit on what comes out.

A few kilobytes can decompress to gigabytes, and a broker opens batches that untrusted clients compressed. So every
decompression writes into a buffer whose size is decided here and never by the data. A size that the data claims is used
only to give up early. Data that does not fit into `size_max`, or that the codec cannot read, raises `InvalidBatch` and
no other exception.

The formats are those that Java clients read and write. For two codecs these are narrower than the codec's own format:

- snappy: the block framing of the library `xerial`, and raw snappy, which librdkafka sends;
- lz4: the frame format with *independent* blocks. Java refuses linked blocks (KIP-57), and
  linked is what `cramjam.lz4.compress` makes.

Memory: about `size_max`, and a few megabytes for the codec. Only zstd may take twice the limit, because it keeps a
window of its latest output. The producer chooses the size of that window: a few megabytes up to level 19, and up to 128
MiB above.

`cramjam` is imported on first use: commands start faster without it. Nodes and gateways import it before they serve.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct

from drmq.model import ErrorCode
from drmq.records.header import Buffer, Codec, InvalidBatch

_GZIP_WBITS = 31
"""zlib's code for a gzip header and trailer around the deflate stream."""

_LEVELS = {Codec.GZIP: 6, Codec.LZ4: 1, Codec.ZSTD: 3}
"""The levels for data of our own. snappy has none."""
_STEP_SIZE = 64 * 1024
"""How much gzip reads and writes at a time, which is also how far it can exceed the limit.

lz4 gets so much at a time as well: its compressor holds the interpreter lock, and other threads wait for each call."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
_SNAPPY_RATIO_MAX = 22
"""The densest element of snappy expands 3 bytes to 64. A block that claims a higher ratio is invalid."""

_GUESS_SIZE_MIN = 64 * 1024
_GUESS_RATIO = 4
_GUESS_GROWTH = 8


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` with `codec`. `level` has the meaning that the codec gives it."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec not in _LEVELS:
        raise _unknown_codec(codec)
    if level is None:
        level = _LEVELS[Codec(codec)]
    if codec == Codec.GZIP:
        deflater = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
        return deflater.compress(data) + deflater.flush()
    import cramjam

    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _STEP_SIZE):
        packer.compress(bytes(view[start : start + _STEP_SIZE]))  # takes nothing else, unlike the rest of cramjam
    return bytes(packer.finish())


def decompress(codec: int, data: Buffer, size_max: int) -> Buffer:
    """Decompress `data`. Raises `InvalidBatch` if it is not valid or yields more than `size_max` bytes.

    Data without a codec is returned unchanged, whatever its size: it is in memory already.
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
        # The input is passed in pieces. On every call that stops at its output limit zlib copies the rest of its input,
        # so passing everything at once would take quadratic time.
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
        # Read the sizes first. Each block starts with its size, so the output is allocated once and nothing is
        # decompressed that does not fit.
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
            # Fails unless it writes exactly the size that the block claims.
            cramjam.snappy.decompress_raw_into(block, room[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise _corrupt(f"bad snappy data: {error}") from None
    return out


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """The raw snappy blocks in `data`: the chunks of a xerial stream, or `data` itself."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [data]
    # The two version numbers after the magic are ignored. The format has only one version, and some writers store the
    # numbers in the wrong byte order.
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
    """Decompress into a buffer of a guessed size, and retry with larger buffers up to `size_max`.

    A frame need not state its size, and the size that it states may be wrong. A failure may mean a full buffer or bad
    data. Only the text of the error would tell these apart, and we do not depend on it: bad data simply fails a few
    more times.
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
        del out  # Before the next buffer is allocated, or both would count against the limit.
        size = min(size_max, size * _GUESS_GROWTH)
