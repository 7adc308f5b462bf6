"""Load on a cluster, recorded and checked: what every test of failures runs beside its failures.

`Load` keeps producers, readers and a consumer group busy on two topics, records everything in a `History`, and knows
when acknowledgements came, so that a gap can be measured. `judge` ends it: every client must work again, everything is
read once more, the nodes are stopped, and their files are compared. Problems are returned as texts.

A run proves nothing if there was no load before the failure: `wait_loaded` requires that every producer got something
acknowledged, and the report counts.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import KafkaException

from drmq.client import ClientError
from drmq.model import TopicPartition
from support.answers import AnswerChecker
from support.checked import NOTHING_KNOWN, History, Look, Outcome, Place, Send, violations
from support.checked_clients import (
    CheckedClient,
    GroupMember,
    IdempotentProducer,
    RetryingProducer,
    TailReader,
    read_everything,
)
from support.cluster import HEALTHY_WITHIN_S, ClusterProcesses
from support.polling import eventually
from support.raw_client import RawClient, RequestFailed
from support.replicas import differences

GROUP = "checked-group"
SMALL, LARGE = "small-segments", "one-partition"
ACKS_EACH_MIN = 30
"""Fewer acknowledgements of a producer between two failures would show nothing."""
RAW_TIMEOUT_S = 3.0
TROUBLE = (AssertionError, RuntimeError, OSError, ClientError, KafkaException, RequestFailed)
"""What may be raised when a cluster is not as it should be: part of a verdict, and no reason to go without one."""
IMPATIENT = {"socket.timeout.ms": 4_000, "request.timeout.ms": 3_000}
"""librdkafka waits a minute for the answer of a node that stands still; no test has that long."""
ENVIRONMENT = {"DRMQ_RETENTION_CHECK_INTERVAL_MS": "300"}
"""Maintenance runs all the time, so that it meets every failure."""

# What a client may be told while leadership moves; anything else on a Produce is a mistake.
_TRY_AGAIN = {3: "unknown topic", 5: "no leader", 6: "not leader", 7: "timed out", 19: "few replicas", 20: "few after"}
_OUTCOME_OPEN = {56: "storage error"}
ALLOWED_CODES = _TRY_AGAIN | _OUTCOME_OPEN
_NO_COORDINATOR = 15
"""The error of a client that asks for a producer id while there is no controller, which assigns them.

Real clients do not show it: COORDINATOR_NOT_AVAILABLE is retriable, Java and librdkafka ask again until their time is
up, and an id that was never delivered is simply not used. The client made by hand does the same.
"""


class TimedHistory(History):
    """A history that knows when each acknowledgement came."""

    def __init__(self) -> None:
        super().__init__()
        self.ack_times: list[tuple[float, Place]] = []

    def on_acked(self, send: Send, offset: int | None) -> None:
        super().on_acked(send, offset)
        self.ack_times.append((time.monotonic(), send.stamp.place))

    def first_ack_after(self, moment: float, place: Place | None = None) -> float | None:
        """When the first acknowledgement after `moment` came, for one partition or any."""
        first = None
        for at, where in reversed(self.ack_times):
            if at <= moment:
                break
            if place in (None, where):
                first = at
        return first

    def longest_gap(self, start: float, end: float, place: Place | None = None) -> float:
        """The longest time without an acknowledgement between two moments."""
        times = [at for at, where in self.ack_times if start <= at <= end and place in (None, where)]
        points = [start, *times, end]
        return max(later - earlier for earlier, later in pairwise(points))


class FollowingProducer(RetryingProducer):
    """The idempotent producer made by hand, which finds the leader by asking one node after the other.

    After every lost connection and every refusal the last answered batch is sent again and must get its old offset,
    whichever node leads now: the table of producers has to follow the log.
    """

    def __init__(
        self, name: str, addresses: Callable[[], Sequence[str]], history: History, place: Place, seed: int = 0
    ) -> None:
        """`addresses` returns the present addresses of the nodes, because nodes may join and leave."""
        super().__init__(name, addresses()[0], history, place, seed)
        self._addresses = addresses
        self._next = 0
        self.refusals: Counter[int] = Counter()

    def connect(self) -> RawClient | None:
        while not self.is_stopping:
            addresses = self._addresses()
            address = addresses[self._next % len(addresses)]
            self._next += 1
            try:
                return RawClient(address, RAW_TIMEOUT_S)
            except OSError:
                self._stopping.wait(0.05)
        return None

    def _new_producer(self, client: RawClient) -> tuple[int, int]:
        try:
            return super()._new_producer(client)
        except RequestFailed as refused:
            self.refusals[refused.code] += 1
            if refused.code != _NO_COORDINATOR:
                raise
            self._stopping.wait(0.1)
            raise ConnectionError(str(refused)) from refused

    def _produce(self, client: RawClient, values: list[bytes], producer_id: int, epoch: int, sequence: int) -> int:
        try:
            return super()._produce(client, values, producer_id, epoch, sequence)
        except RequestFailed as refused:
            self.refusals[refused.code] += 1
            if refused.code not in ALLOWED_CODES:
                raise
            self._stopping.wait(0.02)
            raise ConnectionError(str(refused)) from refused


@dataclass
class Verdict:
    """What a run has shown."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        shown = [f"  {text}" for text in self.problems[:12]]
        more = [f"  ... and {len(self.problems) - 12} more"] if len(self.problems) > 12 else []
        numbers = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return "\n".join([numbers, *shown, *more])


class Load:
    """Clients at work on a cluster. Made once the cluster is healthy."""

    def __init__(
        self,
        cluster: ClusterProcesses,
        seed: int = 1,
        partitions: int = 2,
        topic_configs: Mapping[str, str] | None = None,
        pause_s: float = 0.002,
    ) -> None:
        self.cluster = cluster
        self.history = TimedHistory()
        self.started = time.monotonic()
        # On all nodes, so that any majority of nodes is one of every partition's replicas.
        replicas = len(cluster.nodes)
        # The time in the records of `FollowingProducer` is years ago: nothing may expire.
        configs = {"retention.ms": "-1", **(topic_configs or {})}
        cluster.create_topic(SMALL, partitions, {"segment.bytes": "500000", **configs}, replicas)
        cluster.create_topic(LARGE, 1, configs, replicas)
        cluster.wait_healthy()
        self.places = [*(Place(SMALL, index) for index in range(partitions)), Place(LARGE, 0)]
        history, bootstrap = self.history, cluster.bootstrap

        def addresses() -> list[str]:
            return [node.bootstrap for node in list(cluster.nodes.values())]

        self.producers: list[CheckedClient] = [
            PacedProducer("idempotent-1", bootstrap, history, self.places, seed, pause_s=pause_s),
            PacedProducer(
                "idempotent-2",
                bootstrap,
                history,
                self.places,
                seed,
                pause_s=pause_s,
                compression="lz4",
                size_max=3_000,
            ),
            FollowingProducer("following-1", addresses, history, Place(SMALL, 0), seed),
            FollowingProducer("following-2", lambda: addresses()[::-1], history, Place(LARGE, 0), seed),
        ]
        self._begin_group()
        self.members = [GroupMember(f"member-{n}", bootstrap, history, [SMALL, LARGE], GROUP, "error") for n in (1, 2)]
        self.reader = TailReader("tail", bootstrap, history, self.places)
        self.checker = AnswerChecker("answers", addresses, history, self.places, GROUP, seed)
        self.clients: list[CheckedClient] = [*self.producers, *self.members, self.reader, self.checker]
        for client in self.clients:
            client.start()

    def _begin_group(self) -> None:
        """Commit the beginning of every partition, so that no member has to ask for it: see `GroupMember`."""
        commits = [self.history.on_commit(GROUP, place, 0) for place in self.places]
        with self.cluster.admin() as admin:
            admin.groups.commit(GROUP, {TopicPartition(place.topic, place.partition): 0 for place in self.places})
        for commit in commits:
            self.history.on_confirmed(commit)

    # ---- watching -------------------------------------------------------------------------------

    def wait_loaded(self, count: int = ACKS_EACH_MIN, timeout_s: float = HEALTHY_WITHIN_S) -> int:
        """Until every producer has had `count` more acknowledgements; how many there were in all."""
        before = Counter(self.history.acked_by)
        names = [producer.name for producer in self.producers]
        try:
            eventually(
                lambda: {name: self.history.acked_by[name] - before[name] for name in names},
                lambda got: min(got.values()) >= count,
                timeout_s=timeout_s,
                interval_s=0.01,
                what=f"{count} more acknowledgements each",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; problems: {self.client_problems()}") from error
        return self.history.acked_by.total() - before.total()

    def wait_all_served(self, timeout_s: float = HEALTHY_WITHIN_S) -> None:
        """Until every client, also readers and the group, has got something done once more."""
        self.wait_loaded(timeout_s=timeout_s)
        reads = len(self.history.reads)
        commits = sum(member.commit_count for member in self.members)
        eventually(lambda: len(self.history.reads) - reads, lambda more: more > 50, timeout_s=timeout_s, what="reads")
        eventually(
            lambda: sum(member.commit_count for member in self.members) - commits,
            lambda more: more > 0,
            timeout_s=timeout_s,
            what="a commit of the group",
        )

    def wait_ack_after(self, moment: float, place: Place | None = None, timeout_s: float = HEALTHY_WITHIN_S) -> float:
        """Seconds from `moment` to the next acknowledgement of one partition, or of any."""
        found = eventually(
            lambda: self.history.first_ack_after(moment, place),
            lambda at: at is not None,
            timeout_s=timeout_s,
            interval_s=0.005,
            what="an acknowledgement",
        )
        assert found is not None
        return found - moment

    def client_problems(self) -> list[str]:
        return [f"{client.name}: {problem}" for client in self.clients for problem in client.problems]

    def look_at_commits(self) -> None:
        """Note what the cluster says that the group has committed."""
        floors = {place: self.history.committed_floor(GROUP, place) for place in self.places}
        try:
            with self.cluster.admin() as admin:
                found = admin.groups.offsets(GROUP)
        except ClientError:
            return
        for place, floor in floors.items():
            committed = found.get(TopicPartition(place.topic, place.partition))
            self.history.on_look(Look(GROUP, place, NOTHING_KNOWN if committed is None else committed.offset, floor))

    def client_logs(self) -> str:
        """What the clients' library said last, by client."""
        parts = [[f"---- {client.name}", *lines] for client in self.clients if (lines := client.log.lines())]
        return "\n".join(line for part in parts for line in part) + "\n"

    def abandon(self) -> None:
        """End all clients of a run that is given up."""
        for client in self.clients:
            client.ask_to_stop()
        for client in self.clients:
            client.abandon()

    # ---- ending ---------------------------------------------------------------------------------

    def judge(self, *, acks_min: int = 0) -> Verdict:
        """Everything that must hold at the end. The cluster is whole again, and stopped when this returns."""
        verdict = Verdict()
        problems = verdict.problems

        def step(what: str, act: Callable[[], object]) -> bool:
            try:
                act()
            except TROUBLE as error:
                problems.append(f"{what}: {str(error)[:2_000]}")
                return False
            return True

        if step("not healthy after the heal", self.cluster.wait_healthy):
            step("a client is not served after the heal", self.wait_all_served)
        for client in self.clients:
            client.ask_to_stop()
        for client in self.clients:
            step("client", client.stop)
        self.look_at_commits()
        step("the last reading", lambda: read_everything(self.cluster.bootstrap, self.history, self.places))
        step("not in sync at the end", self.cluster.wait_healthy)
        step("a replica does not catch up", self.cluster.wait_caught_up)
        step("stopping", self.cluster.stop)
        problems += violations(self.history)
        problems += differences({node_id: node.data_dir for node_id, node in self.cluster.nodes.items()}, self.needed())
        problems += self.cluster.alarms()
        history = self.history
        if history.acked_count < acks_min:
            problems.append(f"invalid run: only {history.acked_count} acknowledgements, wanted {acks_min}")
        verdict.figures |= {
            "sends": len(history.sends),
            "acked": history.acked_count,
            "reads": len(history.reads),
            "commits": sum(commit.confirmed for commit in history.commits),
            "looks": len(history.looks),
            "answers": self.checker.answer_count,
            "seconds": round(time.monotonic() - self.started, 1),
        }
        return verdict

    def needed(self) -> dict[tuple[str, int], int]:
        """Where each partition ends at least, by what was acknowledged."""
        ends: dict[tuple[str, int], int] = {}
        for send in self._acked():
            at = (send.stamp.place.topic, send.stamp.place.partition)
            ends[at] = max(ends.get(at, 0), send.offset + 1)
        return ends

    def _acked(self) -> Iterator[Send]:
        return (send for send in self.history.sends if send.outcome is Outcome.ACKED)


class PacedProducer(IdempotentProducer):
    """An idempotent producer that leaves some of the machine to others, and does not wait long for a silent node."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        places: Sequence[Place],
        seed: int,
        *,
        pause_s: float,
        compression: str = "none",
        size_max: int = 600,
    ) -> None:
        super().__init__(name, bootstrap, history, places, seed, compression, size_max, IMPATIENT)
        self._pause_s = pause_s
        self._pace = random.Random(self.name)

    def _send(self, place: Place, sequence: int) -> None:
        super()._send(place, sequence)
        if self._pause_s:
            time.sleep(self._pace.uniform(0, 2 * self._pause_s))
