"""Every conformance case that is skipped, with its reason: the one place to look, and a list to make shorter.

A case is (part of the test's name, client or None for all). Reasons name what the *client* cannot do; a case that
DRMQ cannot do does not belong here, it belongs into the broker.
"""

import pytest

CLIENT_CANNOT: dict[tuple[str, str], str] = {
    ("test_both_null", "kafka-python"): "its producer refuses a record with neither key nor value",
    ("test_both_null", "aiokafka"): "its producer refuses a record with neither key nor value",
    ("test_null_headers", "kafka-python"): "its producer refuses a header without a value",
    ("test_timestamps_of_the_producer_are_kept", "kcat"): "it cannot set the time of a record",
}

DRMQ_DIFFERS: dict[str, str] = {
}


def reason_to_skip(item: pytest.Item, *, foreign_broker: bool) -> str | None:
    """Why this test does not run, or None."""
    function = item.name.partition("[")[0]
    if foreign_broker and function in DRMQ_DIFFERS:
        return f"DRMQ differs on purpose: {DRMQ_DIFFERS[function]}"
    parameters = getattr(item, "callspec", None)
    client = parameters.params.get("client") if parameters is not None else None
    return CLIENT_CANNOT.get((function, client)) if client is not None else None
