"""Topics for tests: created with one call, with a name of their own if none is given."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from drmq.testing.arguments import check_number, check_topic

_TIMEOUT_S = 30.0


def create_topic(
    bootstrap_servers: str,
    name: str | None,
    *,
    partitions: int,
    replicas: int | None = None,
    configs: Mapping[str, str | int] | None = None,
    prefix: str = "topic",
) -> str:
    """Create a topic and return its name. Raises `ClientError` if the broker refuses it."""
    from drmq.client import Admin, NewTopic

    check_topic(name, configs)
    check_number("partitions", partitions, 1)
    if replicas is not None:
        check_number("replicas", replicas, 1)
    chosen = f"{prefix}-{secrets.token_hex(4)}" if name is None else name
    texts = {key: str(value) for key, value in (configs or {}).items()}
    with Admin(bootstrap_servers, client_id="drmq-test", timeout_s=_TIMEOUT_S) as admin:
        admin.topics.create(NewTopic(chosen, partitions, -1 if replicas is None else replicas, texts))
    return chosen
