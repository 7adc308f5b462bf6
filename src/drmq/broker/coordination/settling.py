"""Several requests to settle that are decided as one.

A client that settles each record with a request of its own sends many of them at a time. Each would be a record in the
log of the shard. Those of one member in one queue, in the order of their offsets, become one request instead, and runs
of offsets that are accepted one after the other become one run.
"""

from __future__ import annotations

from drmq.broker.coordination.coordinator import Respond
from drmq.leases import LeaseShard, Outcome, Settle, Settlement, SettleResult
from drmq.leases.messages import LeaseResponse
from drmq.leases.outcomes import is_ascending
from drmq.leases.shard import LeaseStep
from drmq.model import ApiError

_RUNS_MAX = 10_000


class Settling:
    """Requests of one member to settle offsets of one queue."""

    __slots__ = ("_may_grow", "_request", "_requests", "_settlements", "ticket")

    def __init__(self, request: Settle, respond: Respond) -> None:
        self._request = request
        self._settlements = list(request.settlements)
        self._requests = [(request.settlements, respond)]
        self._may_grow = is_ascending(request.settlements)
        self.ticket = 0

    def add(self, request: Settle, respond: Respond) -> bool:
        """Join a request, if all of its offsets are behind those that are here."""
        added, all_ = request.settlements, self._settlements
        if not self._may_grow or not added or not all_ or len(all_) >= _RUNS_MAX:
            return False
        last = all_[-1]
        first = added[0]
        if first.first <= last.last or not is_ascending(added):
            return False
        if (
            first.first == last.last + 1
            and first.outcome is Outcome.ACCEPT
            and last.outcome is Outcome.ACCEPT
            and first.token == last.token
        ):
            all_[-1] = Settlement(last.first, first.last, Outcome.ACCEPT, None, last.token)
            all_ += added[1:]
        else:
            all_ += added
        self._requests.append((added, respond))
        return True

    def decide(self, shard: LeaseShard, now_ms: int, wall_ms: int) -> LeaseStep:
        request = self._request._replace(settlements=tuple(self._settlements))
        return shard.handle(self.ticket, request, now_ms, wall_ms)

    def respond(self, answer: LeaseResponse | ApiError) -> None:
        """Give each request its part of the answer."""
        if not isinstance(answer, SettleResult) or not answer.refused:
            for _, respond in self._requests:
                respond(answer)
            return
        for settlements, respond in self._requests:
            begin, end = settlements[0].first, settlements[-1].last
            mine = [
                each._replace(first=max(each.first, begin), last=min(each.last, end))
                for each in answer.refused
                if each.last >= begin and each.first <= end
            ]
            respond(SettleResult(tuple(mine)))
