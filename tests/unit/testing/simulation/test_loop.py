"""The event loop of a simulated process: what the process leaves behind when it ends."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Awaitable

from drmq.testing.simulation.loop import SimulatedLoop
from drmq.testing.simulation.world import World


def test_tasks_that_never_ran_are_no_warnings() -> None:
    """Also if what they would await is referred to by others, as the response to a request is by its task's callback.

    Python would warn when it collects the garbage, and so in whatever test runs then.
    """

    async def respond() -> None: ...

    async def carry_out(response: Awaitable[None]) -> None:
        await response

    def begin(loop: SimulatedLoop) -> None:
        response = respond()
        loop.create_task(carry_out(response)).add_done_callback(lambda _: response.close())
        loop.create_task(respond())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop = SimulatedLoop(World(0), "n1", lambda: None)  # type: ignore[abstract]
        begin(loop)
        loop.die()
        loop.bury()
        del loop
        gc.collect()
    assert not caught
