"""Every conformance case that is skipped, with its reason: the one place to look, and a list to make shorter.

`CLIENT_CANNOT` lists what a client library cannot do, by test and client, whatever broker it talks to. `DRMQ_DIFFERS`
lists the tests of what DRMQ does differently from Apache Kafka on purpose; they run on DRMQ only. `DRMQ_LACKS` lists
what Apache Kafka does and DRMQ refuses with a clear error, because it is not offered yet.
"""

import pytest

CLIENT_CANNOT: dict[tuple[str, str], str] = {
    ("test_both_null", "kafka-python"): "its producer refuses a record with neither key nor value",
    ("test_both_null", "aiokafka"): "its producer refuses a record with neither key nor value",
    ("test_null_headers", "kafka-python"): "its producer refuses a header without a value",
    ("test_second_instance_fences_the_first", "aiokafka"): "it does not know FENCED_INSTANCE_ID and joins for ever",
    ("test_timestamps_of_the_producer_are_kept", "kcat"): "it cannot set the time of a record",
}

DRMQ_DIFFERS: dict[str, str] = {
    "test_api_versions_5": "ApiVersions 5 is new in Kafka 4.4, and the reference may be older",
    "test_base_offset_of_the_producer_is_ignored": "Kafka refuses a base offset other than 0; clients differ there",
    "test_a_setting_of_a_group_that_is_not_allowed_is_refused": "the texts are ours, and dead letters are new in 4.4",
    "test_settings_of_a_share_group_take_effect_on_its_members": "Kafka writes no dead letters by default",
    "test_table_of_drmq": "we advertise what we have, which is not what Kafka has",
}

DRMQ_LACKS: dict[str, str] = {
    "test_append_and_subtract_a_policy": "compaction by key is not offered yet, and the setting says so",
}


def reason_to_skip(item: pytest.Item, *, foreign_broker: bool) -> str | None:
    """Why this test does not run, or None."""
    function = item.name.partition("[")[0]
    if foreign_broker and function in DRMQ_DIFFERS:
        return f"DRMQ differs on purpose: {DRMQ_DIFFERS[function]}"
    if not foreign_broker and function in DRMQ_LACKS:
        return f"DRMQ lacks: {DRMQ_LACKS[function]}"
    parameters = getattr(item, "callspec", None)
    client = parameters.params.get("client") if parameters is not None else None
    return CLIENT_CANNOT.get((function, client)) if client is not None else None
