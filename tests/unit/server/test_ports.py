"""What is said when an address cannot be listened on."""

import socket

import pytest

from drmq.model.address import Address
from drmq.server.ports import PortTaken, check_port


def test_free_port_is_fine() -> None:
    """And is free again afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for _ in range(2):
        check_port(Address("127.0.0.1", port))


def test_taken_port_names_the_way_out() -> None:
    """The address once, the reason, and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            check_port(Address("127.0.0.1", port))
    assert str(caught.value) == (
        f"Cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Stop the process that uses the port, or choose another port with --port (0 picks a free one)."
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_foreign_address_asks_for_another_host(host: str) -> None:
    """A port would not help."""
    with pytest.raises(PortTaken, match="--host"):
        check_port(Address(host, 9092))
