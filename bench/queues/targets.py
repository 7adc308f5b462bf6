"""What DRMQ is meant to reach as a queue, and whether this run shows it."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.queues.latency import LatencyCell
from bench.queues.memory import Memory
from bench.queues.throughput import Cell, Shape
from bench.targets import Verdict

OF_KAFKA_MIN = {1: 1.0, 3: 0.5}
"""By number of nodes."""
OF_PEERS_MIN = 5.0
PER_CORE_MIN = {"raw-many": 300_000, "raw-one": 40_000}
"""By contender: a hundred acknowledgements in a request, or one."""
DONE_GROWTH_MAX = 50e6
PARKED_GROWTH_MAX = 10e6


@dataclass(frozen=True)
class Ratio:
    """DRMQ's rate divided by another system's, with the same work."""

    value: float
    shape: Shape
    client: str
    """Of DRMQ."""
    other: str

    @property
    def words(self) -> str:
        """For the report."""
        return f"{self.value:.2f} ({self.shape.words}, {self.client}, {self.other})"


def judge(cells: list[Cell], timed: list[LatencyCell], memory: Memory | None) -> list[Verdict]:
    """A verdict for each target this run has numbers for."""
    out: list[Verdict] = []
    node_counts = sorted({cell.node_count for cell in cells})
    for nodes in node_counts:
        row = [cell for cell in cells if cell.node_count == nodes]
        minimum = OF_KAFKA_MIN.get(nodes)
        if minimum is not None and (found := of_kafka(row)):
            out.append(_least(f"ShareConsumer, {_nodes(nodes)}: at least {minimum} of Kafka's rate", found, minimum))
        if found := of_peers(row):
            out.append(_least(f"own client, {_nodes(nodes)}: at least 5 times the best peer", found, OF_PEERS_MIN))
    for key, minimum in PER_CORE_MIN.items():
        out += _per_core(cells, key, minimum)
    for nodes in sorted({cell.node_count for cell in timed}):
        out += _latency([cell for cell in timed if cell.node_count == nodes], nodes)
    if memory is not None:
        out += _memory(memory)
    return out


def of_kafka(row: list[Cell]) -> list[Ratio]:
    """DRMQ and Kafka with the same client and the same work."""
    return _ratios(row, lambda ours, theirs: theirs.program == "kafka" and theirs.contender.key == ours.contender.key)


def of_peers(row: list[Cell]) -> list[Ratio]:
    """DRMQ with its own client, and the best of the peers with the same work."""
    found = _ratios(row, lambda ours, theirs: ours.contender.key == "own" and theirs.contender.key == "peer")
    best: dict[Shape, Ratio] = {}
    for ratio in found:
        if ratio.shape not in best or ratio.value < best[ratio.shape].value:
            best[ratio.shape] = ratio
    return list(best.values())


def _ratios(row: list[Cell], compares: Callable[[Cell, Cell], bool]) -> list[Ratio]:
    out = []
    for ours in row:
        for theirs in row:
            if ours.program == "drmq" and ours.shape == theirs.shape and compares(ours, theirs):
                first, second = ours.phase, theirs.phase
                if first and second:
                    value = first.records_per_second / second.records_per_second
                    out.append(Ratio(value, ours.shape, ours.contender.name, theirs.label))
    return out


def _least(name: str, found: list[Ratio], minimum: float) -> Verdict:
    """The worst ratio decides."""
    ordered = sorted(found, key=lambda ratio: ratio.value)
    met = sum(ratio.value >= minimum for ratio in found)
    text = f"{met} of {len(found)} met; worst {ordered[0].words}, best {ordered[-1].words}"
    return Verdict(name, text, met == len(found))


def _per_core(cells: list[Cell], key: str, minimum: int) -> list[Verdict]:
    out = []
    for cell in cells:
        phase = cell.phase
        if cell.contender.key == key and phase and cell.node_count == 1:
            per_core = phase.records / max(phase.server_cpu_seconds, 1e-9)
            text = f"{per_core:,.0f} ({phase.records_per_second:,.0f} a second on {phase.server_cores:.2f} cores)"
            name = f"{cell.contender.name}, {cell.shape.words}: at least {minimum:,} a second and core"
            out.append(Verdict(name, text, per_core >= minimum))
    return out


def _latency(row: list[LatencyCell], nodes: int) -> list[Verdict]:
    ours = next((cell.timed for cell in row if cell.program == "drmq" and cell.contender.key == "own"), None)
    peers = [(cell.label, cell.timed) for cell in row if cell.contender.key == "peer" and cell.fsyncs_before_ack]
    known = [(label, timed) for label, timed in peers if timed]
    if ours is None or not known:
        return []
    out = []
    for share in ("p50", "p99"):
        label, best = min(known, key=lambda peer: peer[1].latency_seconds[share])
        mine, other = ours.latency_seconds[share] * 1000, best.latency_seconds[share] * 1000
        name = f"delivery at 1,000 a second, {_nodes(nodes)}: {share} at most that of the best peer"
        text = f"{mine:.1f} ms, {label} {other:.1f} ms: {mine / other:.2f} times"
        out.append(Verdict(name, text, mine <= other))
    return out


def _memory(memory: Memory) -> list[Verdict]:
    out = []
    if memory.done_count:
        growth = memory.done_after_bytes - memory.done_before_bytes
        name = f"{memory.done_count:,} leased and acknowledged messages: growth of at most 50 MB"
        out.append(Verdict(name, f"{growth / 1e6:+.1f} MB", growth <= DONE_GROWTH_MAX))
    if memory.parked_count:
        growth = memory.parked_after_bytes - memory.parked_before_bytes
        name = f"{memory.parked_count:,} parked messages: growth of at most 10 MB"
        out.append(Verdict(name, f"{growth / 1e6:+.1f} MB", growth <= PARKED_GROWTH_MAX))
    return out


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"
