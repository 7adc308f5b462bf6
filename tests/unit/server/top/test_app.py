"""The screen of `drmq top`, with snapshots of the test. What it shows of a real broker is tested in `e2e`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from drmq.server.top.app import Observed, Top

from .test_text import snapshot


class NoNodes:
    """An observer that has nothing to say."""

    def look(self) -> Any:
        return snapshot()

    def close(self) -> None:
        return


def test_a_snapshot_that_comes_at_the_end_is_ignored() -> None:
    """On a busy machine the thread that asks the nodes may be late: the screen is gone, but the program still runs."""

    async def run() -> None:
        app = Top(cast(Any, NoNodes()), 60.0)
        async with app.run_test() as pilot:
            await pilot.pause()
            await app.screen.remove_children()
            app.on_observed(Observed(snapshot()))
            app.on_resize()

    asyncio.run(run())
