"""The fault lab of a node: cuts it from its peers. For nodes that were started with it only."""

from __future__ import annotations

from drmq.client.connection import Connection, Deadline
from drmq.client.errors import refusal
from drmq.model.address import Address
from drmq.wire.messages.fault_lab import FaultLabRequest, FaultLabResponse


def ask_lab(address: Address, *, cut: bool | None = None, note: str | None = None, timeout_s: float = 10.0) -> bool:
    """Cut the node at an address from its peers, or end its cut, or only ask. Returns whether it is cut.

    The node is addressed directly: a node that is cut has an old view of its cluster, and the cluster none of it.
    `note` becomes one of its events. Raises `ClientError`.
    """
    deadline = Deadline(timeout_s)
    connection = Connection(address, "drmq-lab", deadline)
    try:
        request = FaultLabRequest(-1 if cut is None else int(cut), note)
        answer = connection.call(request, FaultLabResponse, deadline)
    finally:
        connection.close()
    if answer.error_code:
        raise refusal(answer.error_code, f"The node at {address} refused", answer.error_message)
    return answer.is_cut
