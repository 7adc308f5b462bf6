"""HTTP requests as a script would send them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from support.polling import PATIENCE_S


def ask(
    base: str, path: str, body: Any = None, method: str | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """The status and the JSON of an answer. An error must be a problem."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json", **(headers or {})})
    request.method = method or ("GET" if body is None else "POST")
    try:
        with urllib.request.urlopen(request, timeout=2 * PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            status, kind, content = error.code, error.headers["Content-Type"], error.read()
    assert kind == "application/problem+json", content
    return status, json.loads(content)
