"""The runtime of replicated state machines, shown on the smallest machine that has everything: named counters.

It is registered as any machine would be, on an internal topic of its own, with binary records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from drmq.broker import Partition
from drmq.broker.clock import Clock
from drmq.broker.coordination import machine_log
from drmq.broker.coordination.coordinator import Coordinator, OutcomeUnknown, RecordCodec
from drmq.broker.coordination.internal_topics import InternalTopic
from drmq.broker.partitions.partition import OWN_BATCH_BYTES_MAX
from drmq.model import Answer, ApiError, ErrorCode, Offset, Step
from drmq.testing.files import FakeFiles
from support.broker_harness import Harness

TOPIC = "__counters"
LEASE_MS = 1_000


@dataclass(frozen=True)
class Counted:
    """One record: a counter has a new value."""

    name: str
    value: int


@dataclass(frozen=True)
class Add:
    name: str
    amount: int = 1


@dataclass(frozen=True)
class Read:
    name: str


@dataclass(frozen=True)
class Wait:
    """Parked until its time is up."""


class CounterMachine:
    """Counters that only grow. Soft state: how often each was asked for since this node leads, and parked requests."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.asked: dict[str, int] | None = None
        self.parked: dict[int, int] = {}

    def replay(self, record: Counted) -> None:
        if record.value < 0:
            raise ValueError("a record that cannot be replayed")
        self.counters[record.name] = record.value

    def snapshot(self) -> Iterable[Counted]:
        return [Counted(name, value) for name, value in sorted(self.counters.items())]

    def become_leader(self, now_ms: int) -> None:
        self.asked, self.parked = {}, {}

    def resign(self) -> Step[Counted, object]:
        step: Step[Counted, object] = Step((), tuple(Answer(ticket, "resigned") for ticket in self.parked))
        self.asked, self.parked = None, {}
        return step

    def handle(self, ticket: int, request: object, now_ms: int, wall_ms: int) -> Step[Counted, object]:
        assert self.asked is not None, "a request reached a machine that does not lead"
        match request:
            case Add(name, amount):
                if amount == 13:
                    raise RuntimeError("a bug")
                self.asked[name] = self.asked.get(name, 0) + 1
                value = self.counters.get(name, 0) + amount
                return Step((Counted(name, value),), (Answer(ticket, value),))
            case Read(name):
                return Step((), (Answer(ticket, self.counters.get(name, 0)),))
            case Wait():
                self.parked[ticket] = now_ms + LEASE_MS
        return Step()

    def on_disconnect(self, tickets: Iterable[int], now_ms: int, wall_ms: int) -> Step[Counted, object]:
        for ticket in tickets:
            self.parked.pop(ticket, None)
        return Step()

    def next_deadline(self) -> int | None:
        return min(self.parked.values(), default=None)

    def on_deadline(self, now_ms: int, wall_ms: int) -> Step[Counted, object]:
        due = [ticket for ticket, deadline in self.parked.items() if deadline <= now_ms]
        for ticket in due:
            del self.parked[ticket]
        return Step((), tuple(Answer(ticket, "due") for ticket in due))


CODEC: RecordCodec[Counted] = RecordCodec(
    lambda record: (record.name.encode(), record.value.to_bytes(8, "big", signed=True)),
    lambda key, value: Counted(key.decode(), int.from_bytes(value or b"", "big", signed=True)),
)


class CounterCoordinator(Coordinator[CounterMachine, object, object, Counted]):
    def is_read(self, request: object) -> bool:
        return isinstance(request, Read)


class Counters:
    """All coordinators of the topic on this node: `CoordinatorSet`."""

    def __init__(self, clock: Clock) -> None:
        self.partition_count = 0
        self.by_partition: dict[int, CounterCoordinator] = {}
        self._clock = clock

    def new_coordinator(self) -> CounterCoordinator:
        return CounterCoordinator(CounterMachine, CODEC, self._clock)

    def add(self, partition: Partition, coordinator: object) -> None:
        assert isinstance(coordinator, CounterCoordinator)
        self.by_partition[partition.index] = coordinator

    def remove(self, partition: Partition) -> None:
        self.by_partition.pop(partition.index, None)


class Scene:
    """A broker with counters, on one partition."""

    def __init__(self, files: FakeFiles) -> None:
        self.files = files

        def topics(clock: Clock) -> list[InternalTopic]:
            self.counters = Counters(clock)
            return [InternalTopic(TOPIC, self.counters, lambda: 1, is_readable=False)]

        self.harness = Harness(files, internal_topics=topics)
        self.harness.run(self.harness.broker.services.topic_creation.create_internal(TOPIC))
        self.harness.settle()

    @property
    def coordinator(self) -> CounterCoordinator:
        return self.counters.by_partition[0]

    @property
    def partition(self) -> Partition:
        return self.coordinator.log.partition

    def submit(self, *requests: object) -> list[object]:
        """Submit requests in one turn of the loop; the list that their answers will be in, in the order they come."""
        answers: list[object] = []

        async def submit() -> None:
            for request in requests:
                self.coordinator.submit(request, answers.append)

        self.harness.run(submit())
        return answers

    def ask(self, *requests: object) -> list[object]:
        answers = self.submit(*requests)
        self.harness.settle()
        return answers

    def batches(self) -> list[int]:
        """How many records each batch of the log has."""
        log = self.partition.log
        return [header.next_offset - header.base_offset for header, _ in log.headers(Offset(0), log.end_offset)]


@pytest.fixture
def scene() -> Scene:
    return Scene(FakeFiles())


def refuse(partition: Partition, size_bytes: int) -> None:
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the lead of {partition!r} is being handed over")


def test_a_registered_machine_is_created_served_and_counted(scene: Scene) -> None:
    """One line in the registry is all that a new machine needs."""
    with scene.harness:
        assert scene.counters.partition_count == 1
        assert scene.ask(Add("a")) == [1]
        assert scene.coordinator in scene.harness.broker.internal_topics.running()
        with pytest.raises(ApiError, match="cannot read"):
            scene.harness.broker.partitions.by_name(TOPIC, 0)


def test_the_records_of_one_turn_are_one_batch_and_each_request_sees_those_before_it(scene: Scene) -> None:
    with scene.harness:
        assert scene.ask(Add("a"), Add("b"), Add("a"), Read("a"), Add("a")) == [1, 1, 2, 2, 3]
        assert scene.batches() == [4]
        scene.ask(Add("a"))
        assert scene.batches() == [4, 1]


def test_no_answer_comes_before_the_batch_is_committed_not_even_to_a_read(scene: Scene) -> None:
    with scene.harness:
        answers: list[object] = []

        async def turn() -> None:
            scene.coordinator.submit(Add("a"), answers.append)
            scene.coordinator.submit(Read("a"), answers.append)

        scene.files.fail("write", 28, path_part=TOPIC)
        scene.harness.run(turn())
        scene.harness.settle()
        assert [type(answer) for answer in answers] == [OutcomeUnknown, OutcomeUnknown]
        scene.harness.settle()
        assert scene.ask(Read("a")) == [0]


def test_binary_records_survive_the_loss_of_power(scene: Scene) -> None:
    scene.ask(Add("a", 300), Add("b", 1 << 40))
    scene.harness.crash()
    again = Scene(scene.files.after_power_cut(1))
    with again.harness:
        assert again.ask(Read("a"), Read("b")) == [300, 1 << 40]


def test_a_refused_step_changes_nothing_and_soft_state_starts_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.harness:
        scene.ask(Add("a"))
        assert scene.coordinator.machine.asked == {"a": 1}
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "check_may_append", refuse)
            first, second = scene.ask(Add("a"), Wait())
        assert isinstance(first, ApiError)
        assert isinstance(second, ApiError)
        assert first.code is second.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.coordinator.machine.counters == {"a": 1}
        assert scene.coordinator.machine.asked == {}
        assert scene.coordinator.machine.parked == {}
        assert scene.ask(Add("a")) == [2]


def test_a_batch_that_the_log_refuses_after_all_makes_the_machine_load_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`add` asks the log beforehand, so this cannot happen. Should it, the machine must not keep what no log has."""
    with scene.harness:
        scene.ask(Add("a"))
        scene.harness._be_silent()
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_own", refuse)
            answers = scene.ask(Add("a", 5))
        for _ in range(20):
            scene.harness.advance(100)
        assert scene.ask(Read("a")) == [1]
        assert isinstance(answers[0], ApiError)


def test_a_bug_costs_its_own_request_and_no_other(scene: Scene) -> None:
    with scene.harness:
        one, bug, two = scene.ask(Add("a"), Add("b", 13), Add("c"))
        answers = sorted((str(one), str(bug), str(two)))
        assert answers == ["1", "1", "a bug"]
        assert scene.coordinator.machine.counters == {"a": 1, "c": 1}


def test_after_a_record_that_cannot_be_replayed_the_machine_is_what_its_log_says(scene: Scene) -> None:
    """Its replica fails, so no request of the turn succeeds, and nothing of the turn is left for a later batch."""
    with scene.harness:
        answers = scene.ask(Add("a"), Add("b", -5), Add("c"))
        for _ in range(20):
            scene.harness.advance(100)
        assert len(answers) == 3
        assert all(isinstance(answer, Exception) for answer in answers)
        assert (scene.batches(), scene.coordinator.machine.counters) == ([], {})
        assert scene.ask(Add("a")) == [1]
        assert (scene.batches(), scene.coordinator.machine.counters) == ([1], {"a": 1})


def test_a_step_that_no_batch_can_hold_is_refused(scene: Scene) -> None:
    with scene.harness:
        [answer] = scene.ask(Add("x" * OWN_BATCH_BYTES_MAX))
        assert isinstance(answer, ApiError)
        assert scene.ask(Add("a")) == [1]


def test_more_than_a_batch_can_hold_in_one_turn_are_several_batches(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_log, "OWN_BATCH_BYTES_MAX", 1_000)
    with scene.harness:
        names = [str(number) * 400 for number in range(4)]
        assert scene.ask(*map(Add, names)) == [1, 1, 1, 1]
        assert scene.batches() == [1, 1, 1, 1]


def test_a_request_whose_connection_closes_in_the_same_turn_is_not_handled(scene: Scene) -> None:
    with scene.harness:
        answers: list[object] = []

        async def turn() -> None:
            ticket = scene.coordinator.submit(Add("a"), answers.append)
            scene.coordinator.on_disconnect([ticket])

        scene.harness.run(turn())
        scene.harness.settle()
        assert answers == []
        assert scene.ask(Read("a")) == [0]


def test_parked_requests_are_answered_by_the_timer(scene: Scene) -> None:
    with scene.harness:
        answers = scene.ask(Wait())
        assert answers == []
        scene.harness.advance(LEASE_MS + 1)
        scene.harness.settle()
        assert answers == ["due"]


def test_a_stopping_node_sends_parked_requests_away_and_takes_no_more(scene: Scene) -> None:
    with scene.harness:
        parked = scene.ask(Wait())
        scene.harness.call(scene.coordinator.stop)
        assert parked == ["resigned"]
        [late] = scene.ask(Add("a"))
        assert isinstance(late, ApiError)


def test_a_read_is_answered_only_after_a_majority_has_confirmed_the_leader(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.harness:
        scene.ask(Add("a"))
        asked: list[object] = []
        monkeypatch.setattr(type(scene.partition.replica), "is_alone", property(lambda replica: False))
        monkeypatch.setattr(Partition, "confirm_leadership", lambda partition, done: asked.append(done))
        answers = scene.ask(Read("a"))
        assert answers == []
        [confirm] = asked
        scene.harness.call(lambda: confirm(ErrorCode.NONE))  # type: ignore[operator]
        assert answers == [1]
        refused = scene.ask(Read("a"))
        scene.harness.call(lambda: asked[1](ErrorCode.NOT_LEADER_OR_FOLLOWER))  # type: ignore[operator]
        assert [getattr(answer, "code", None) for answer in refused] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_partition_that_leaves_the_node_sends_parked_requests_away(scene: Scene) -> None:
    with scene.harness:
        parked, coordinator = scene.ask(Wait()), scene.coordinator
        scene.harness.call(lambda: scene.harness.broker.partitions.withdraw(scene.partition.group))
        assert [getattr(answer, "code", None) for answer in parked] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert coordinator._timer is None
        assert coordinator not in scene.harness.broker.internal_topics.running()


def test_losing_the_lead_drops_soft_state_and_refuses_everything_that_waits(scene: Scene) -> None:
    with scene.harness:
        parked = scene.ask(Wait())

        async def lose() -> list[object]:
            queued: list[object] = []
            scene.coordinator.submit(Add("a"), queued.append)
            scene.coordinator.on_follow()
            return queued

        queued = scene.harness.run(lose())
        scene.harness.settle()
        codes = [getattr(answer, "code", None) for answer in (*parked, *queued)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert scene.coordinator.machine.asked is None
        assert scene.coordinator.machine.counters == {}
