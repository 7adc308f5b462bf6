"""A page of records over HTTP: a client that goes away ends the work for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from drmq.client import Bounds
from drmq.gateway.caller import Caller, CallerGone
from drmq.gateway.routes import records as route
from drmq.gateway.turns import Turns
from drmq.model import Offset, TopicPartition
from drmq.records import Buffer, Record, encode_batch

_PATIENCE_S = 60.0


class Admin:
    """An administrator of a topic that never ends, each batch with one record."""

    def __init__(self) -> None:
        self.topics = SimpleNamespace(describe=self._describe, bounds=self._bounds)
        self.records = SimpleNamespace(batches=self._batches)
        self.began, self.is_empty = threading.Event(), threading.Event()

    def _describe(self, name: str) -> Any:
        return SimpleNamespace(partitions=[SimpleNamespace(index=0)])

    def _bounds(self, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return dict.fromkeys(places, Bounds(0, 2**60))

    def _batches(self, place: TopicPartition, offset: int, bytes_max: int) -> Buffer:
        self.began.set()
        return (
            b""
            if self.is_empty.is_set()
            else encode_batch([Record(Offset(offset), 0, None, b"x")], base_offset=Offset(offset))
        )


def test_a_client_that_goes_away_ends_its_work_and_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise clients that begin calls and go away would keep all threads busy for nobody."""
    monkeypatch.setattr("drmq.gateway.browse.SCAN_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr("drmq.gateway.browse.SCANNED_MAX", 10**12)
    admin = Admin()
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def main() -> None:
        threads = ThreadPoolExecutor(1)

        async def run(action: Callable[[Any], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(threads, action, admin)

        gateway = cast("Any", SimpleNamespace(admins=SimpleNamespace(run=run), browsing=Turns(1, 1, 10)))
        request = Request({"type": "http", "headers": [], "client": ("127.0.0.1", 1)}, receive)
        params = route.RecordsParams("jobs", order="oldest", text="nothing has this")
        async with asyncio.timeout(_PATIENCE_S):
            asking = asyncio.ensure_future(route.records(gateway, params, Caller(request)))
            await asyncio.to_thread(admin.began.wait, _PATIENCE_S)
            gone.set()
            with pytest.raises(CallerGone):
                await asking
            async with gateway.browsing.place("another"):
                assert await asyncio.get_running_loop().run_in_executor(threads, lambda: "free") == "free"

    try:
        asyncio.run(main())
    finally:
        admin.is_empty.set()  # so that the thread ends also if the test fails
