"""Live streams when something is wrong: pages are told, and the stream goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.client import Admin
from drmq.gateway.live import _Page, origin_is_allowed
from drmq.gateway.tail import Tail
from drmq.model import TopicPartition
from support.batches import a_batch


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "null", "", "file:///x", "http://other", "http://here@x"]
)
def test_an_origin_that_is_no_address_or_another_one_is_refused(origin: str) -> None:
    assert not origin_is_allowed(origin, "here", ["near:8080"])


@pytest.mark.parametrize("origin", [None, "http://here", "https://near:8080"])
def test_pages_of_the_cluster_are_allowed(origin: str | None) -> None:
    assert origin_is_allowed(origin, "here", ["near:8080"])


def test_a_page_is_told_that_a_look_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def find() -> None:
        raise RuntimeError("dictionary changed size during iteration")

    async def main() -> None:
        page = _Page(cast("Any", None), cast("Any", None))
        with caplog.at_level(logging.ERROR, "drmq.gateway"):
            await page._find("groups", find)
        assert json.loads(page._next())["stream"] == "groups"
        assert "stream groups failed on a bug" in caplog.text

    asyncio.run(main())


class Watched:
    """A topic of one partition whose log is `data`. Stands for the client of an administrator."""

    def __init__(self, data: bytes, end: int) -> None:
        partition = SimpleNamespace(index=0, leader=1)
        self.end = end
        self.topics = SimpleNamespace(
            describe=lambda name: SimpleNamespace(name=name, partitions=[partition]),
            offsets=lambda places: dict.fromkeys(places, SimpleNamespace(offset=self.end)),
        )
        self.records = SimpleNamespace(batches=lambda place, start, size: data)


def test_records_before_bytes_that_are_no_batch_are_shown() -> None:
    """A log that is damaged must not end the stream of those who watch it."""
    watched = Watched(bytes(a_batch([b"a", b"b"])) + bytes(100), 0)
    tail = Tail(cast("Any", None), "orders")
    assert tail._look(cast("Admin", watched)) is None
    watched.end = 3
    found = tail._look(cast("Admin", watched))
    assert found is not None
    assert [(each.offset, each.value) for each in found.records] == [(0, "a"), (1, "b")]
    assert found.missed == 1


def test_people_who_watch_a_topic_are_told_of_a_bug() -> None:
    async def main() -> None:
        async def run(action: Any) -> None:
            raise KeyError(TopicPartition("orders", 0))

        tail = Tail(cast("Any", SimpleNamespace(run=run)), "orders")
        told = asyncio.get_running_loop().create_future()
        tail.listen(told.set_result)
        async with asyncio.timeout(5):
            assert (await told).problem.status == 500
        tail.leave(told.set_result)

    asyncio.run(main())
