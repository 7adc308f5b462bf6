"""The fault lab: kill, pause, cut and start nodes of a local cluster. Only with `--lab`, and only on this machine."""

from __future__ import annotations

from msgspec import Struct

from drmq.client import split_address
from drmq.gateway.caller import Caller
from drmq.gateway.endpoint import endpoint
from drmq.gateway.fault_lab import Action
from drmq.gateway.gateway import Gateway
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import Index, LabView
from drmq.model.address import is_loopback


class LabParams(Struct, forbid_unknown_fields=True):
    node_id: Index
    action: Action


@endpoint("GET", "/lab", "Whether the fault lab is on, and the state of each node.")
async def lab(gateway: Gateway, caller: Caller) -> LabView:
    return await gateway.lab.view() if is_local(caller) else LabView(False, [])


@endpoint("POST", "/lab/{node_id}/{action}", "Do something to a node; answers with the states after it.")
async def act(gateway: Gateway, caller: Caller, params: LabParams) -> LabView:
    if not is_local(caller):
        raise ProblemError(
            403,
            "the fault lab answers programs of its own machine only, at a loopback address",
            advice="Use it at http://127.0.0.1 or http://localhost, with the port of the dashboard.",
        )
    return await gateway.lab.act(params.node_id, params.action)


def is_local(caller: Caller) -> bool:
    """Whether a request comes from this machine, and was meant for it.

    The second is told by the name that the client used: a web site can make a browser of this machine send requests to
    a name of its own that leads to 127.0.0.1, but not with another name.
    """
    try:
        named, _ = split_address(caller.header("host") or "")
    except ValueError:
        return False
    return caller.host is not None and is_loopback(caller.host) and is_loopback(named)
