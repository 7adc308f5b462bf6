"""Bytes in, a value or `ProtocolError` out: the one property of every reader in `drmq.wire`.

    python fuzz/fuzz_wire.py [--count FRAMES] [--seed SEED]

Frames start as valid messages of every API and version and are then damaged: bytes changed, cut
out, repeated, and integers replaced by the values that break parsers. Anything but a value or a
`ProtocolError` stops the run and prints the frame, which belongs into a test then. What is read
must also be written and read again as the same value.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

# The builder of messages belongs to the tests, which are not installed.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from drmq.wire import (
    KNOWN_APIS,
    Api,
    ApiKey,
    ProtocolError,
    read_fetch,
    read_produce,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from unit.wire.samples import filled

_NASTY = [
    b"",
    b"\xff" * 2,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x80" * 5,
    b"\xff\xff\xff\xff\x0f",
    bytes(8),
]


def damaged(frame: bytes, chance: random.Random) -> bytes:
    out = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        where = chance.randrange(len(out) + 1)
        stop = where + chance.randint(0, 8)
        out[where:stop] = chance.choice([*_NASTY, chance.randbytes(chance.randint(1, 4)), out[where:stop] * 2])
    return bytes(out)


def feed_request(frame: bytes) -> bool:
    """Read a request as a broker does, and say whether it was one."""
    try:
        header = read_request_header(frame)
        api = KNOWN_APIS.get(header.api_key)
        if api is None or not api.serves(header.api_version):
            return False
        if api.key == ApiKey.PRODUCE:
            read_produce(frame, header.body_position, header.api_version)
        if api.key == ApiKey.FETCH:
            read_fetch(frame, header.body_position, header.api_version)
        message = read_request(frame, header)
    except ProtocolError:
        return False
    again = bytes(write_request(api.key, header.api_version, 1, "c", message))[4:]
    assert read_request(again, read_request_header(again)) == message
    return True


def feed_response(api: Api, version: int, frame: bytes) -> bool:
    """Read a response as a client does, and say whether it was one."""
    try:
        _, message = read_response(api.key, version, frame)
    except ProtocolError:
        return False
    again = bytes(write_response(api.key, version, 1, message))[4:]
    assert read_response(api.key, version, again)[1] == message
    return True


def main(count: int, seed: int | None) -> None:
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    print(f"seed {seed}")
    cases = [(api, version) for api in KNOWN_APIS.values() for version in range(api.version_min, api.version_max + 1)]
    frames = accepted = 0
    while frames < count:
        api, version = chance.choice(cases)
        shape = (chance.randint(0, 3), chance.choice(["", "a", "topic"]), chance.random() < 0.3)
        request = bytes(write_request(api.key, version, 1, "c", filled(api.request, version, *shape)))[4:]
        response = bytes(write_response(api.key, version, 1, filled(api.response, version, *shape)))[4:]
        for _ in range(20):
            frame = damaged(request, chance)
            try:
                accepted += feed_request(frame)
                frame = damaged(response, chance)
                accepted += feed_response(api, version, frame)
            except BaseException:
                print(f"{api} v{version}, seed {seed}, frame {frame.hex()}")
                raise
            frames += 2
    print(f"{frames} frames, {accepted} of them still messages")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Feed damaged frames to every reader of the wire package.")
    parser.add_argument("--count", type=int, default=200_000, help="damaged frames to try")
    parser.add_argument("--seed", type=int, help="repeat a run")
    arguments = parser.parse_args()
    main(arguments.count, arguments.seed)
