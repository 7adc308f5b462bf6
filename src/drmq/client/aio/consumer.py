"""`Consumer` for asyncio: one name for the two ways to consume, told apart by `mode`, as `drmq.Consumer` is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from drmq.client.blocking.consumer import GroupOptions, SingleOptions
from drmq.client.codecs import Decoding
from drmq.client.messages import Message

if TYPE_CHECKING:
    from drmq.client.aio.group_consumer import GroupConsumer
    from drmq.client.aio.single_consumer import SingleConsumer

T = TypeVar("T")


class Consumer(Generic[T]):
    """Consumes messages of topics. Use it with `async with`."""

    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str,
        *,
        mode: Literal["group"] = ...,
        codec: Literal["bytes"] = ...,
        **options: Unpack[GroupOptions],
    ) -> GroupConsumer[bytes]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str,
        *,
        mode: Literal["group"] = ...,
        codec: Literal["text"],
        **options: Unpack[GroupOptions],
    ) -> GroupConsumer[str]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str,
        *,
        mode: Literal["group"] = ...,
        codec: Literal["json"],
        **options: Unpack[GroupOptions],
    ) -> GroupConsumer[Any]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str,
        *,
        mode: Literal["group"] = ...,
        codec: Decoding[T],
        **options: Unpack[GroupOptions],
    ) -> GroupConsumer[T]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str | None = ...,
        *,
        mode: Literal["single"],
        codec: Literal["bytes"] = ...,
        **options: Unpack[SingleOptions],
    ) -> SingleConsumer[bytes]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str | None = ...,
        *,
        mode: Literal["single"],
        codec: Literal["text"],
        **options: Unpack[SingleOptions],
    ) -> SingleConsumer[str]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str | None = ...,
        *,
        mode: Literal["single"],
        codec: Literal["json"],
        **options: Unpack[SingleOptions],
    ) -> SingleConsumer[Any]: ...
    @overload
    def __new__(
        cls,
        bootstrap: str,
        group: str | None = ...,
        *,
        mode: Literal["single"],
        codec: Decoding[T],
        **options: Unpack[SingleOptions],
    ) -> SingleConsumer[T]: ...

    def __new__(cls, *arguments: Any, mode: str = "group", **options: Any) -> Any:
        from drmq.client.aio.group_consumer import GroupConsumer
        from drmq.client.aio.single_consumer import SingleConsumer

        if mode not in ("group", "single"):
            raise ValueError(f"mode is {mode!r}, and must be 'group' or 'single'")
        if cls is Consumer:
            return object.__new__(GroupConsumer if mode == "group" else SingleConsumer)
        return object.__new__(cls)

    async def poll(self, max: int = 500, timeout: float = 1.0) -> list[Any]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        raise NotImplementedError

    async def close(self, timeout: float | None = None) -> None:
        """End everything that this consumer has started."""
        raise NotImplementedError
