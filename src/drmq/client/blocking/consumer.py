"""`Consumer`: one name for the two ways to consume, told apart by `mode`.

In group mode (the default) the consumers of a group share the messages, each of which is leased to one at a time: a
`GroupConsumer`, whose messages are settled one by one. In single mode a program reads at its own position: a
`SingleConsumer`, whose messages cannot be settled. Calling `Consumer` makes one or the other, and a type checker knows
which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from drmq.client.codecs import Decoding
from drmq.client.messages import Message

if TYPE_CHECKING:
    from drmq.client.blocking.group_consumer import GroupConsumer
    from drmq.client.blocking.single_consumer import SingleConsumer

T = TypeVar("T")


class GroupOptions(TypedDict, total=False):
    """The options of group mode that do not change the type."""

    start: Literal["earliest", "latest"]
    prefetch: int
    renew_for: float
    timeout: float
    client_id: str


class SingleOptions(TypedDict, total=False):
    """The options of single mode that do not change the type."""

    timeout: float
    client_id: str
    properties: Mapping[str, Any]


class Consumer(Generic[T]):
    """Consumes messages of topics. Use it as a context manager."""

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
        from drmq.client.blocking.group_consumer import GroupConsumer
        from drmq.client.blocking.single_consumer import SingleConsumer

        if mode not in ("group", "single"):
            raise ValueError(f"mode is {mode!r}, and must be 'group' or 'single'")
        if cls is Consumer:
            return object.__new__(GroupConsumer if mode == "group" else SingleConsumer)
        return object.__new__(cls)

    def poll(self, max: int = 500, timeout: float = 1.0) -> list[Any]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Message[T]]:
        raise NotImplementedError

    def close(self, timeout: float | None = None) -> None:
        """End everything that this consumer has started."""
        raise NotImplementedError
