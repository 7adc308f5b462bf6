"""A producer for code that blocks."""

from __future__ import annotations

from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from drmq.client.codecs import CodecName, Encoding
from drmq.client.errors import ClientError
from drmq.client.messages import SendResult
from drmq.client.sender import HeadersToSend, ProducerOptions, Sender, repeatable

T = TypeVar("T")


class Producer(Generic[T]):
    """Sends messages. A message counts as sent when it is on the disks of a majority of its replicas.

    A message that is sent again by the client, because an answer was lost, is stored once (idempotence). Messages with
    the same key are in the same partition. Use it as a context manager; its methods may be called from any thread.
    """

    @overload
    def __init__(
        self: Producer[bytes], bootstrap: str, *, codec: Literal["bytes"] = ..., **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[str], bootstrap: str, *, codec: Literal["text"], **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[Any], bootstrap: str, *, codec: Literal["json"], **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(self, bootstrap: str, *, codec: Encoding[T], **options: Unpack[ProducerOptions]) -> None: ...

    def __init__(
        self,
        bootstrap: str,
        *,
        codec: CodecName | Encoding[Any] = "bytes",
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`timeout`: after so many seconds a message that could not be stored fails. `linger`: how long a message waits
        for others to be sent with. `properties`: further settings, as librdkafka names them.
        """
        self._sender = Sender(bootstrap, codec, options)

    def send(
        self,
        topic: str,
        value: T | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersToSend | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until it is stored. Raises `drmq.Error`.

        After `DeadlineExceeded` it is not known whether it was stored.
        """
        sending = self._sender.submit(topic, value, key, repeatable(headers), partition, timestamp)
        try:
            # The producer gives up by itself after its own timeout, and knows more about the reason.
            return sending.result(self._sender.timeout_s + 5.0 if timeout is None else timeout)
        except TimeoutError:
            raise self._sender.too_late(f"sending to topic `{topic}`", timeout or self._sender.timeout_s) from None

    def submit(
        self,
        topic: str,
        value: T | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersToSend | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[SendResult]:
        """Send a message without waiting: its future has the result. Waits only while the producer has no room."""
        return self._sender.submit(topic, value, key, repeatable(headers), partition, timestamp)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message so far is stored or has failed; the futures say which. Raises `DeadlineExceeded`."""
        self._sender.flush(self._sender.timeout_s if timeout is None else timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, and end everything that this producer has started. Raises `DeadlineExceeded`."""
        self._sender.close(self._sender.timeout_s if timeout is None else timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:
                raise
