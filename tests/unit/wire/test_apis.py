"""The table of APIs agrees with the messages, and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drmq.wire import APIS, KNOWN_APIS, Api, ApiKey
from drmq.wire.apis import NEVER
from drmq.wire.fields import spec_of
from support.kafka_apis import KAFKA_APIS, KAFKA_NEWEST

each_api = pytest.mark.parametrize("api", KNOWN_APIS.values(), ids=lambda api: api.key.name)


@each_api
def test_table_and_messages_agree(api: Api) -> None:
    """Both messages of an API carry its key, its versions and its first flexible version."""
    for message in (api.request, api.response):
        spec = spec_of(message)
        assert spec == (api.key, api.version_min, api.version_max, api.flexible_from)


@each_api
def test_api_is_found_by_plain_number(api: Api) -> None:
    assert KNOWN_APIS[int(api.key)] is api


@each_api
def test_served_versions_are_the_range(api: Api) -> None:
    assert [v for v in range(-1, 40) if api.serves(v)] == list(range(api.version_min, api.version_max + 1))


def test_what_is_served_is_known() -> None:
    """Frames of every API that a broker advertises can be read, and the rows are the same."""
    assert all(KNOWN_APIS[key] is api for key, api in APIS.items())


def test_produce_is_advertised_from_zero() -> None:
    """librdkafka up to 2.11 needs to see Produce 0 to compress; it is advertised and not served."""
    api = APIS[ApiKey.PRODUCE]
    assert (api.advertised_min, api.version_min) == (0, 3)
    assert not api.serves(0)
    assert all(other.advertised_min == other.version_min for other in APIS.values() if other is not api)


def test_the_newest_versions_are_kafkas() -> None:
    """A new client finds what it has. Where DRMQ differs, this says why."""
    differs = {
        ApiKey.API_VERSIONS: 5,  # The version of KIP-1242, which Kafka 4.3 does not have yet.
        ApiKey.LIST_OFFSETS: 10,  # 11 adds a special timestamp of tiered storage, which DRMQ does not have.
        ApiKey.DESCRIBE_LOG_DIRS: 4,  # kafka-python takes a broker with 5 for Kafka 4.3, and expects all that it has.
    }
    served = {api.key: api.version_max for api in APIS.values() if not api.key.is_own}
    assert served == {key: KAFKA_NEWEST[key] for key in served} | differs


def test_names_are_kafkas() -> None:
    for api in APIS.values():
        if not api.key.is_own:
            assert KAFKA_APIS[api.key].upper() == api.key.name.replace("_", "")


def test_offset_delete_never_became_flexible() -> None:
    assert APIS[ApiKey.OFFSET_DELETE].flexible_from == NEVER
    assert not APIS[ApiKey.OFFSET_DELETE].is_flexible(0)


def test_repr_names_the_api() -> None:
    assert repr(APIS[ApiKey.FETCH]) == "<Api FETCH 4-18>"


def test_importing_the_package_imports_no_message() -> None:
    """Start-up pays neither for the messages nor for what compiles them."""
    code = (
        "import sys, drmq.wire\n"
        "loaded = [name for name in sys.modules if name.startswith(('drmq.wire.messages', 'drmq.wire.compiler'))]\n"
        "assert not loaded, loaded\n"
        "assert 'dataclasses' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
