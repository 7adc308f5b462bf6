from __future__ import annotations
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.peers import Switchboard
from drmq.testing.simulation.world import World
class Invariants:
    def __init__(self, world: World, board: Switchboard, nodes: list[SimulatedNode]) -> None:
        self._world, self._nodes = world, nodes
    def describe(self) -> str:
        parts = []
        for node in self._nodes:
            if not node.is_running: parts.append(f"{node.name}: down"); continue
            if not hasattr(node, "broker"): parts.append(f"{node.name}: begins"); continue
            for p in node.broker.partitions:
                n = p.replica.node
                parts.append(f"{node.name} {p!r} "+("none" if n is None else f"{n.role.value} t{n.term} l{n.leader_id} last={n.last_index} dur={n.durable_index} c={n.commit_index} a={n.applied_index} hw={p.high_watermark} {'zz' if p.replica.asleep else ''} {sorted(n.configuration.voters)} {sorted(n.configuration.learners)}")+f" fail={p.failure}")
        return "\n".join(parts)
    def is_settled(self) -> bool: return True
    def check_end(self) -> None: pass
