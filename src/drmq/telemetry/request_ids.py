"""The id of the HTTP request on whose behalf something is done.

A gateway gives each request an id, or takes the one that the client sent. The id is in every log line about the
request, in the answer, and at the end of the client id of every call that the gateway makes to a node for it. So the
lines of the node about such a call have it, too.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from typing import Final

HEADER: Final = "X-Request-Id"
_SANE = re.compile(r"[A-Za-z0-9._:@=+-]{1,64}")

current: ContextVar[str] = ContextVar("drmq_request_id", default="")
"""Empty outside of requests."""


def new_id() -> str:
    return secrets.token_hex(8)


def accepted(text: str | None) -> str:
    """The id that a client sent, if it can be in a log line and a header as it is; otherwise a new one."""
    return text if text is not None and _SANE.fullmatch(text) else new_id()


def with_id(client_id: str) -> str:
    """A client id that names the request, if there is one."""
    found = current.get()
    return f"{client_id}/{found}" if found else client_id
