"""Codecs: what we pack others unpack and the reverse, and nothing unpacks to more than it may."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import ErrorCode
from drmq.records import Codec, InvalidBatch, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
TEXT = b"".join(b'{"user": %d, "city": "town-%d"}' % (number, number % 97) for number in range(10_000))

payloads = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=50), st.integers(0, 5000)),
)


def zstd_stream(data: bytes, level: int = 3) -> bytes:
    """A frame that does not contain its size, as a streaming producer such as Java's writes it."""
    packer = zstandard.ZstdCompressor(level=level).compressobj()
    return bytes(packer.compress(data) + packer.flush())


def naive_snappy(block: bytes) -> bytes:
    """Snappy by the letter of its format description: python-snappy shares its code with ours, this does not."""
    size = shift = position = 0
    while True:
        byte = block[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while position < len(block):
        tag = block[position]
        position += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                length = int.from_bytes(block[position : position + extra], "little") + 1
                position += extra
            out += block[position : position + length]
            position += length
            continue
        if tag & 3 == 1:
            length, distance = ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | block[position]
            position += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length, distance = (tag >> 2) + 1, int.from_bytes(block[position : position + width], "little")
            position += width
        for _ in range(length):
            out.append(out[-distance])
    assert len(out) == size
    return bytes(out)


def naive_xerial(data: bytes) -> bytes:
    assert data[:16] == XERIAL_HEADER
    position, out = 16, b""
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        out += naive_snappy(data[position + 4 : position + 4 + size])
        position += 4 + size
    return out


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


UNPACK: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: naive_xerial,
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}

FOREIGN: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy raw": (Codec.SNAPPY, snappy.compress),
    "snappy xerial": (Codec.SNAPPY, lambda data: xerial(snappy.compress(data[:100]), snappy.compress(data[100:]))),
    "lz4 as Java": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=False, store_size=False)),
    "lz4 with everything": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(data, block_linked=True, content_checksum=True, block_checksum=True),
    ),
    "zstd with size": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    "zstd stream": (Codec.ZSTD, zstd_stream),
}


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@given(data=payloads)
def test_round_trip(codec: Codec, data: bytes) -> None:
    """What was packed comes out again, even when the limit is met to the byte."""
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads)
def test_others_read_us(codec: Codec, data: bytes) -> None:
    assert UNPACK[codec](bytes(compress(codec, data))) == data


@pytest.mark.parametrize("name", FOREIGN)
@given(data=payloads)
def test_we_read_others(name: str, data: bytes) -> None:
    codec, pack = FOREIGN[name]
    assert bytes(decompress(codec, pack(data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_will_do(codec: Codec) -> None:
    """Data arrives as a slice of a network buffer as often as it comes as `bytes`."""
    for buffer in (TEXT, bytearray(TEXT), memoryview(bytearray(b"head" + TEXT))[4:]):
        packed = compress(codec, buffer)
        assert len(packed) < len(TEXT)
        sliced = memoryview(b"head" + bytes(packed))[4:]
        assert bytes(decompress(codec, sliced, len(TEXT))) == TEXT


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses a frame whose blocks refer to each other."""
    packed = bytes(compress(Codec.LZ4, TEXT))
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False


def test_zstd_with_the_largest_window() -> None:
    """A streaming producer at level 22 asks for a window of 128 MiB, however little it sends."""
    assert bytes(decompress(Codec.ZSTD, zstd_stream(TEXT, level=22), len(TEXT))) == TEXT


def test_xerial_versions_are_ignored() -> None:
    """Some writers put the two version numbers down in little endian."""
    packed = b"\x82SNAPPY\x00\x01\x00\x00\x00\x01\x00\x00\x00" + xerial(snappy.compress(TEXT))[16:]
    assert bytes(decompress(Codec.SNAPPY, packed, len(TEXT))) == TEXT


def test_xerial_without_chunks_is_empty() -> None:
    assert bytes(decompress(Codec.SNAPPY, XERIAL_HEADER, 0)) == b""


@pytest.mark.parametrize("name", FOREIGN)
def test_one_byte_too_many(name: str) -> None:
    codec, pack = FOREIGN[name]
    with pytest.raises(InvalidBatch) as caught:
        decompress(codec, pack(TEXT), len(TEXT) - 1)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("data", [b"", b"a", b"hello, hello, hello, hello", TEXT[:500]], ids=len)
def test_truncated_anywhere(name: str, data: bytes) -> None:
    """A cut stream is never taken for a whole one. (A xerial stream may end between two chunks.)"""
    codec, pack = FOREIGN[name]
    packed = pack(data)
    for end in range(len(packed)):
        if codec is Codec.SNAPPY and packed.startswith(XERIAL_HEADER) and end >= 16:
            try:
                assert data.startswith(bytes(decompress(codec, packed[:end], 10_000)))
            except InvalidBatch:
                continue
        else:
            with pytest.raises(InvalidBatch):
                decompress(codec, packed[:end], 10_000)


@pytest.mark.parametrize("name", FOREIGN)
def test_with_a_tail(name: str) -> None:
    codec, pack = FOREIGN[name]
    for tail in (b"\x00", b"tail", b"\xff" * 100):
        with pytest.raises(InvalidBatch):
            decompress(codec, pack(TEXT) + tail, 10 * len(TEXT))


def test_gzip_is_one_member() -> None:
    with pytest.raises(InvalidBatch, match="bytes follow"):
        decompress(Codec.GZIP, gzip.compress(b"a") * 2, 100)


def test_gzip_checksum_is_checked() -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-5] ^= 1
    with pytest.raises(InvalidBatch, match="bad gzip"):
        decompress(Codec.GZIP, packed, len(TEXT))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "bad snappy"),
        (XERIAL_HEADER[:15], "cut off"),
        (XERIAL_HEADER + b"\x00\x00\x00", "cut off"),
        (XERIAL_HEADER + b"\x00\x00\x00\x00", "chunk of 0"),
        (XERIAL_HEADER + b"\xff\xff\xff\xff\x00", "chunk of -1"),
        (XERIAL_HEADER + b"\x00\x00\x00\x02\x00", "chunk of 2"),
        (b"\xff\xff\x7f\x00", "says it holds"),
        (b"\xff\xff\xff\xff\x0f\x00", "more than"),
        (b"\x05\x00a", "bad snappy"),
    ],
)
def test_bad_snappy(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        decompress(Codec.SNAPPY, data, 10_000_000)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(InvalidBatch) as caught:
        decompress(codec, b"", 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(InvalidBatch, match="unknown codec"):
        compress(codec, b"")


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=300), size_max=st.integers(0, 1000))
def test_garbage(codec: Codec, data: bytes, size_max: int) -> None:
    """A value within the limit, or `InvalidBatch`."""
    try:
        out = decompress(codec, data, size_max)
    except InvalidBatch:
        return
    assert len(out) <= size_max


@pytest.mark.parametrize("name", FOREIGN)
def test_mutations(name: str) -> None:
    codec, pack = FOREIGN[name]
    packed = pack(TEXT[:5000])
    rng = random.Random(name)
    for _ in range(1000):
        mutated = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        with contextlib.suppress(InvalidBatch):
            assert len(decompress(codec, mutated, 20_000)) <= 20_000


# What a bomb may cost: the limit, at zstd's extreme levels a window as large, and a codec's own buffers
# (4 MiB for a block of lz4).
SIZE_MAX = 8_000_000
SLACK = 6_000_000
ZEROS = bytes(100_000_000)
BOMBS: dict[str, tuple[Codec, Callable[[bytes], bytes], int]] = {
    "gzip": (Codec.GZIP, lambda data: gzip.compress(data, 9), SIZE_MAX),
    "snappy raw": (Codec.SNAPPY, snappy.compress, SIZE_MAX),
    "snappy xerial": (Codec.SNAPPY, lambda data: xerial(*[snappy.compress(data[: 2**20])] * 1000), SIZE_MAX),
    "lz4": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_size=7), SIZE_MAX),
    "zstd": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data), SIZE_MAX),
    "zstd stream 22": (Codec.ZSTD, lambda data: zstd_stream(data[: 2 * SIZE_MAX], 22), 2 * SIZE_MAX),
    "zstd of 1000 frames": (Codec.ZSTD, lambda data: zstd_stream(data[: 2**20]) * 1000, SIZE_MAX),
}

MEASURE = """
import json, sys
import cramjam
from drmq.records import InvalidBatch, decompress

def peak():  # ru_maxrss would still show the parent's memory from before exec
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

packed = sys.stdin.buffer.read()
codec, size_max = json.loads(sys.argv[1])
decompress(codec, bytes.fromhex(sys.argv[2]), size_max)  # warm up: libraries, arenas
before = peak()
try:
    decompress(codec, packed, size_max)
except InvalidBatch:
    print(json.dumps(peak() - before))
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_bounded(name: str) -> None:
    """A bomb raises, and neither Python nor the C libraries ever hold more than the limit allows."""
    codec, pack, allowed = BOMBS[name]
    packed = pack(ZEROS)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            decompress(codec, packed, SIZE_MAX)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert python_peak < SIZE_MAX * 1.2 + 1_000_000

    small = bytes(compress(codec, b"warm")).hex()
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), json.dumps([codec, SIZE_MAX]), small],
        input=packed,
        capture_output=True,
        check=True,
    )
    assert json.loads(result.stdout) < allowed + SLACK


def test_importing_is_cheap() -> None:
    """A broker that never opens a batch never loads the codecs."""
    code = "import sys, drmq.records; print('cramjam' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
