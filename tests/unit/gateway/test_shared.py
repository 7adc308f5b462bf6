"""One look serves all callers; a failed one is not kept; a caller that goes away does not end it for the others."""

from __future__ import annotations

import asyncio

import pytest

from drmq.gateway.shared import Shared


class Look:
    """Counts looks."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        count = self.count
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return count


def test_callers_share_one_look() -> None:
    async def main() -> None:
        look = Look()
        shared = Shared(look, 60.0)
        callers = [asyncio.ensure_future(shared.get()) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        await asyncio.sleep(0)
        look.may_end.set()
        assert await asyncio.gather(*callers[1:]) == [1, 1]
        assert await shared.get() == 1
        shared.forget()
        assert await shared.get() == 2
        await shared.close()

    asyncio.run(main())


def test_what_is_too_old_or_failed_is_looked_for_again() -> None:
    async def main() -> None:
        look = Look()
        look.may_end.set()
        shared = Shared(look, 0.0)
        look.error = ValueError("gone")
        with pytest.raises(ValueError, match="gone"):
            await shared.get()
        look.error = None
        assert await shared.get() == 2
        await asyncio.sleep(0.05)
        assert await shared.get() == 3

    asyncio.run(main())


def test_a_look_waits_for_the_end_of_one_that_is_forgotten() -> None:
    """What looks keeps something from one time to the next: two at a time would change it under each other's hands."""

    async def main() -> None:
        look = Look()
        shared = Shared(look, 60.0)
        callers = []
        for _ in range(3):
            callers.append(asyncio.ensure_future(shared.get()))
            shared.forget()
            await asyncio.sleep(0.01)
            shared.forget()
        assert look.count == 1
        look.may_end.set()
        assert await asyncio.gather(*callers) == [1, 2, 3]
        await shared.close()

    asyncio.run(main())
