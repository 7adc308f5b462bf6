"""`python -m chaos`: see the package's docstring."""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import chaos  # noqa: F401  (puts the tests' support on the path)
from chaos.failover import measure_failover
from chaos.scenarios import SCENARIOS, Run, Scenario, mixture
from support.cluster import ClusterProcesses
from support.cluster_load import ENVIRONMENT, TROUBLE, Load, Verdict
from support.fault_tools import probe, strace_works
from support.networks import ProxyNetwork, SwitchNetwork, Unavailable
from support.power import PowerDisk, try_power

ACKS_MIN = 1_000
MIXTURE_S = 120.0


class Result(NamedTuple):
    """What became of a scenario."""

    name: str
    verdict: Verdict | None
    """None: it was not run."""
    note: str


def make_network(nodes: int, seed: int, kind: str) -> SwitchNetwork | ProxyNetwork:
    if kind != "proxy":
        try:
            return SwitchNetwork(nodes, seed)
        except Unavailable:
            if kind == "switch":
                raise
    return ProxyNetwork(nodes, seed)


class Chaos:
    """Runs scenarios one after the other, and remembers."""

    def __init__(self, seed: int, network_kind: str, keep: Path | None) -> None:
        self.seed = seed
        self.results: list[Result] = []
        self._network_kind = network_kind
        self._keep = keep
        self._tools = {name for name, tool in (("strace", strace_works()), ("power", try_power())) if tool.works}
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:7.1f} s  {text}", flush=True)

    def run(self, scenario: Scenario, number: int) -> None:
        """One scenario on a cluster of its own."""
        network = make_network(scenario.nodes, self.seed, self._network_kind)
        if scenario.needs and scenario.needs not in network.features | self._tools:
            network.close()
            self.say(f"{scenario.name}: NOT RUN, this machine has no tool for it ({scenario.needs})")
            self.results.append(Result(scenario.name, None, f"no tool for `{scenario.needs}`"))
            return
        self.say(f"{scenario.name}: {scenario.text}")
        directory = Path(tempfile.mkdtemp(prefix="drmq-chaos-"))
        cluster = ClusterProcesses(directory, scenario.nodes, network, ENVIRONMENT)
        disks: dict[int, PowerDisk] = {}
        if scenario.needs == "power":
            for node_id, node in cluster.nodes.items():
                disks[node_id] = PowerDisk(directory, f"disk-{node_id}")
                node.data_dir = disks[node_id].path
        verdict, note = self._judged(cluster, network, scenario, random.Random(f"{self.seed}/{number}"), disks)
        for node_id, disk in disks.items():
            if not verdict.passed:
                shutil.copytree(disk.path, directory / f"node-{node_id}")
            disk.close()
        self.say(f"{scenario.name}: {'passed' if verdict.passed else 'FAILED'}: {verdict}{note}")
        if verdict.passed:
            shutil.rmtree(directory)
        else:
            kept = self._keep_evidence(directory, scenario, cluster)
            self.say(f"data and logs are in {kept}; again: python -m chaos --seed {self.seed} {scenario.name}")
        self.results.append(Result(scenario.name, verdict, note))

    def _judged(
        self,
        cluster: ClusterProcesses,
        network: SwitchNetwork | ProxyNetwork,
        scenario: Scenario,
        chance: random.Random,
        disks: dict[int, PowerDisk],
    ) -> tuple[Verdict, str]:
        try:
            cluster.start()
            load = Load(cluster, self.seed)
            run = Run(cluster, network, load, chance, self.say, disks)
            load.wait_loaded()
            trouble: list[str] = []
            try:
                scenario.act(run)
            except TROUBLE as error:
                # What has happened so far is judged all the same: it says more than that something took too long.
                trouble.append(f"the scenario itself: {str(error)[:2_000]}")
                self._put_right(cluster, network)
            verdict = load.judge(acks_min=ACKS_MIN)
            verdict.problems[:0] = trouble
            verdict.problems[:] = [
                text for text in verdict.problems if not (run.expected and any(word in text for word in run.expected))
            ]
            gaps = "" if not run.gaps else f"; longest gaps {', '.join(f'{gap:.2f}' for gap in run.gaps)} s"
            return verdict, gaps
        except TROUBLE as error:
            return Verdict([f"the cluster did not come up: {str(error)[:2_000]}"]), ""
        finally:
            cluster.close()

    def _put_right(self, cluster: ClusterProcesses, network: SwitchNetwork | ProxyNetwork) -> None:
        network.heal()
        for node in cluster.nodes.values():
            node.resume()
            node.wrapper = []
            if not node.running:
                node.start()

    def _keep_evidence(self, directory: Path, scenario: Scenario, cluster: ClusterProcesses) -> Path:
        if self._keep is None:
            return directory
        target = self._keep / f"{scenario.name}-{self.seed}-{len(self.results)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(directory, target)
        return target

    def summary(self) -> int:
        """Print what was run; the exit code."""
        ran = [result for result in self.results if result.verdict is not None]
        failed = [result for result in ran if result.verdict is not None and not result.verdict.passed]
        skipped = [result for result in self.results if result.verdict is None]
        print(f"\nseed {self.seed}")
        for result in self.results:
            state = "not run" if result.verdict is None else "passed" if result.verdict.passed else "FAILED"
            figures = (
                result.note
                if result.verdict is None
                else ", ".join(f"{name} {value}" for name, value in result.verdict.figures.items())
            )
            print(f"  {state:8} {result.name:28} {figures}{'' if result.verdict is None else result.note}")
        acked = sum(int(str(result.verdict.figures.get("acked", 0))) for result in ran if result.verdict is not None)
        print(f"{len(ran)} runs, {acked} acknowledged records: {len(failed)} failed, {len(skipped)} not run")
        return int(bool(failed))


def run_chaos(options: argparse.Namespace) -> int:
    chosen = [
        scenario
        for scenario in SCENARIOS
        if not options.names or any(name.lower() in scenario.name.lower() for name in options.names)
    ]
    if not chosen:
        print(f"no scenario is called like {' or '.join(options.names)}; `--list` shows them")
        return 2
    seed = options.seed or secrets.randbelow(10**9) + 1
    print(f"seed {seed}; to repeat: python -m chaos --seed {seed} {' '.join(options.names)}".rstrip(), flush=True)
    chaos_run = Chaos(seed, options.network, options.keep)
    end = time.monotonic() + options.minutes * 60
    number = 0
    for _ in range(options.times):
        for scenario in chosen:
            number += 1
            chaos_run.run(scenario, number)
    while not options.names and time.monotonic() < end:
        number += 1
        until = min(end, time.monotonic() + MIXTURE_S)
        chaos_run.run(Scenario("mixture", partial(mixture, until=until)), number)
    return chaos_run.summary()


def main(words: list[str]) -> int:
    if words[:1] == ["failover"]:
        parser = argparse.ArgumentParser(prog="python -m chaos failover")
        parser.add_argument("--times", type=int, default=30)
        parser.add_argument("--seed", type=int, default=1)
        options = parser.parse_args(words[1:])
        return measure_failover(options.times, options.seed)
    if words[:1] == ["tools"]:
        tools = [*probe(), try_power()]
        for tool in tools:
            print(f"{'works  ' if tool.works else 'missing'}  {tool.name}: {tool.seen}")
        return 0
    if words[:1] == ["mutants"]:
        from chaos.mutants import try_mutants

        return try_mutants(words[1:])
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Failures on a cluster of real processes.")
    parser.add_argument("names", nargs="*", help="scenarios, by name or part of a name; all without")
    parser.add_argument("--minutes", type=float, default=10, help="after all scenarios: mixtures until then")
    parser.add_argument("--seed", type=int, default=0, help="repeat the choices of a run")
    parser.add_argument("--times", type=int, default=1, help="run each scenario so often")
    parser.add_argument("--network", choices=("best", "switch", "proxy"), default="best")
    parser.add_argument("--keep", type=Path, help="where to put data and logs of failed runs")
    parser.add_argument("--list", action="store_true", help="show the scenarios")
    options = parser.parse_args(words)
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:28} {scenario.text}")
        return 0
    return run_chaos(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
