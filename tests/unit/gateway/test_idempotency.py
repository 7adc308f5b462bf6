"""Work with the same key is done once, as long as the key is remembered, and a failure is not remembered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drmq.gateway.idempotency import Idempotency
from drmq.gateway.problems import ProblemError


class Work:
    """Counts how often it is done, and waits for leave to end."""

    def __init__(self) -> None:
        self.count = 0
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, done: dict[int, Any]) -> bytes:
        self.count += 1
        self.has_begun.set()
        await self.may_end.wait()
        return b"answer %d" % self.count


def test_a_repeat_gets_the_same_answer_also_while_the_first_runs() -> None:
    async def main() -> None:
        keys, work = Idempotency(), Work()
        calls = [asyncio.ensure_future(keys.once("t", "k", b"body", work)) for _ in range(3)]
        await work.has_begun.wait()
        assert work.count == 1
        work.may_end.set()
        assert await asyncio.gather(*calls) == [b"answer 1"] * 3
        assert await keys.once("t", "k", b"body", work) == b"answer 1"
        assert await keys.once("t", "other", b"body", work) == b"answer 2"
        assert await keys.once("u", "k", b"body", work) == b"answer 3", "another topic"

    asyncio.run(main())


def test_the_same_key_for_another_request_is_refused() -> None:
    async def main() -> None:
        keys, work = Idempotency(), Work()
        work.may_end.set()
        await keys.once("t", "k", b"body", work)
        with pytest.raises(ProblemError) as caught:
            await keys.once("t", "k", b"another", work)
        assert caught.value.problem.status == 422
        for bad in ("", "a b", "x" * 256, "ä", "a\n"):
            with pytest.raises(ProblemError):
                await keys.once("t", bad, b"body", work)
        assert work.count == 1

    asyncio.run(main())


def test_a_failure_is_not_remembered() -> None:
    async def main() -> None:
        keys, work = Idempotency(), Work()
        work.may_end.set()

        async def fail(done: dict[int, Any]) -> bytes:
            raise ValueError("no leader")

        with pytest.raises(ValueError, match="no leader"):
            await keys.once("t", "k", b"body", fail)
        assert await keys.once("t", "k", b"body", work) == b"answer 1"

    asyncio.run(main())


def test_what_was_done_before_a_failure_is_not_done_again() -> None:
    async def main() -> None:
        keys, sent, has_leader = Idempotency(), list[int](), False

        async def send(done: dict[int, Any]) -> bytes:
            for part in {0, 1, 2} - done.keys():
                if part == 1 and not has_leader:
                    continue
                sent.append(part)
                done[part] = part
            if len(done) < 3:
                raise ValueError("no leader")
            return bytes(sorted(done))

        for _ in range(3):
            with pytest.raises(ValueError, match="no leader"):
                await keys.once("t", "k", b"body", send)
        with pytest.raises(ProblemError):
            await keys.once("t", "k", b"another", send)
        has_leader = True
        assert await keys.once("t", "k", b"body", send) == b"\0\1\2"
        assert await keys.once("t", "k", b"body", send) == b"\0\1\2"
        assert sent == [0, 2, 1]

    asyncio.run(main())


def test_work_goes_on_when_its_caller_is_gone() -> None:
    async def main() -> None:
        keys, work = Idempotency(), Work()
        caller = asyncio.ensure_future(keys.once("t", "k", b"body", work))
        await work.has_begun.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        work.may_end.set()
        assert await keys.once("t", "k", b"body", work) == b"answer 1"

    asyncio.run(main())


def test_the_memory_is_bounded_and_keeps_what_runs() -> None:
    async def main() -> None:
        keys, running, work = Idempotency(keys_max=10), Work(), Work()
        work.may_end.set()
        for number in range(50):
            await keys.once("t", str(number), b"body", work)
        assert len(keys) <= 11
        first = asyncio.ensure_future(keys.once("t", "running", b"body", running))
        await asyncio.sleep(0)
        for number in range(50):
            await keys.once("t", f"later-{number}", b"body", work)
        assert len(keys) <= 12, "also while an old one runs"
        running.may_end.set()
        assert await keys.once("t", "running", b"body", running) == b"answer 1"
        assert await first == b"answer 1"
        small = Idempotency(answers_bytes_max=100)
        for number in range(50):
            await small.once("t", str(number), b"body", work)
        assert len(small) <= 13

    asyncio.run(main())
