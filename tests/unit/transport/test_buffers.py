"""A buffer is handed out again once nobody looks at it any more, and not before."""

from __future__ import annotations

from drmq.transport.buffers import BUFFER_SIZE, BufferPool


def test_a_viewed_buffer_is_not_handed_out() -> None:
    pool = BufferPool(count_max=2)
    first = pool.take()
    assert first is not None
    view = memoryview(first)[10:20]
    second = pool.take()
    assert second is not None
    assert second is not first
    other = memoryview(second)
    assert pool.take() is None
    del other
    assert pool.take() is second
    assert len(view) == 10


def test_buffers_keep_their_size() -> None:
    pool = BufferPool(count_max=1)
    for _ in range(5):
        buffer = pool.take()
        assert buffer is not None
        assert len(buffer) == BUFFER_SIZE
