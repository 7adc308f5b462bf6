"""The fault lab: lets people cut this node from its peers and watch what happens. Off unless the node was told.

A cut node loses everything that it sends to its peers and everything that they send to it, as if its network cable were
pulled. Clients still reach it. The other faults of the lab (a killed or paused process) come from outside; what is
about to be done is noted here, so that it is among the events.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from drmq.model import ApiError, ErrorCode
from drmq.transport.peers import PeerNetwork

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.lab")

NOTE_CHARACTERS_MAX: Final = 200


class FaultLab:
    """The lab of one node. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.is_enabled = False
        """Set by the process of the node, before the first door opens."""

    def act(self, cut: bool | None, note: str | None) -> bool:
        """Note what is about to be done, and cut this node or end its cut. Returns whether it is cut.

        Raises `ApiError` if the lab is not enabled, or this node has no peers.
        """
        if not self.is_enabled:
            raise ApiError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the fault lab is off; `drmq up --lab` starts nodes with it"
            )
        if note is not None:
            log.warning("fault lab: %s", note[:NOTE_CHARACTERS_MAX])
        network = self._broker.network
        if not isinstance(network, PeerNetwork):
            if cut is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, "this node runs alone, so there is nothing to cut it from")
            return False
        if cut is not None and cut != network.is_cut:
            network.set_cut(cut)
            log.warning("fault lab: this node %s", "is cut from its peers" if cut else "can reach its peers again")
        return network.is_cut
