"""The runtime of replicated state machines: requests in, records to the log, answers out when they are committed.

A machine is pure (`StateMachine`). A `Coordinator` drives one instance of it on one partition of an internal topic. It
is the same for all machines; what differs is the machine, the codec of its records, and a line in the registry
(`internal_topics`).

- **Requests** wait until the end of the current turn of the event loop. Then all of them are handled in order, and
  the records of all go to the log as one batch.
- **Answers** are sent when the log is committed up to the end of that batch, also if a request wrote nothing: its
  answer may depend on what an earlier one wrote.
- **Reads** first confirm with a majority that this node still leads: another node may lead by now, and may have
  answered requests that are not in this log (the read barrier).
- **Refused records** (leadership is being transferred, the disk is full, too much is uncommitted): nothing was
  appended, so nothing was decided. Soft state that already reflects the decision is dropped and rebuilt from the
  replicated state, and the requests that are waiting get an error.
- **Timers**: one per coordinator, set to the machine's next deadline after every step.
- **Leadership**: soft state exists only while this node leads. `on_lead` builds it, `on_follow` drops it and refuses
  every waiting request. `partitions.derived_state.MachineState` calls both, and replays committed records elsewhere.
- **Snapshots** are encoded off the event loop (`maintenance.housekeeping`) and decoded off it (`draft`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from drmq.broker.clock import Clock
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.partitions.derived_state import Draft, KeyValue
from drmq.broker.partitions.partition import Partition
from drmq.model import Answer, ApiError, ErrorCode, Step

log = logging.getLogger("drmq.broker")

M = TypeVar("M", bound="StateMachine[Any, Any, Any]")
Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R")
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class StateMachine(Protocol[Q_contra, A, R]):
    """A replicated state machine. Pure: no clock, no randomness, no I/O.

    `replay` is the only method that changes replicated state. Everything else decides, and keeps soft state.
    """

    def replay(self, record: R) -> None:
        """Apply the next record of the log, on every replica."""

    def snapshot(self) -> Iterable[R]:
        """Records that rebuild the replicated state as it is now, whenever they are iterated over."""

    def become_leader(self, now_ms: int) -> None:
        """Build the soft state. The whole log has been replayed."""

    def resign(self) -> Step[R, A]:
        """Drop the soft state. The step answers parked requests, if the protocol has a better answer than an error."""

    def handle(self, ticket: int, request: Q_contra, now_ms: int, wall_ms: int) -> Step[R, A]:
        """Decide about a request. Its answer is in this step or in a later one."""

    def on_disconnect(self, tickets: Iterable[int], now_ms: int, wall_ms: int) -> Step[R, A]:
        """The connections behind these parked requests are closed."""

    def next_deadline(self) -> int | None:
        """When, on the monotonic clock, `on_deadline` has something to do."""

    def on_deadline(self, now_ms: int, wall_ms: int) -> Step[R, A]:
        """Do all that is due. Afterwards nothing is due."""


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[R]):
    """How the records of a machine are stored: text or binary, as the machine needs it."""

    encode: Callable[[R], KeyValue]
    decode: Callable[[bytes, bytes | None], R]


class OutcomeUnknown(ApiError):
    """The records were appended, and this node cannot know whether they will be committed."""


Respond = Callable[[Any], None]
"""Takes the answer, an `ApiError` if there is none, or any other exception if the machine failed on a bug."""

Work = Callable[[M, int, int], Step[R, A]]
"""A machine, the monotonic and the wall time in; a step out."""


_Queued = tuple[int | None, Work[M, R, A], Callable[[ApiError | None], None] | None]


class MachineDraft(Generic[R]):
    """A machine that is being built from a snapshot, beside the one in use. Implements `derived_state.Draft`."""

    def __init__(self, machine: StateMachine[Any, Any, R], codec: RecordCodec[R]) -> None:
        self.machine = machine
        self._codec = codec

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.machine.replay(self._codec.decode(key, value))


class Coordinator(Generic[M, Q, A, R]):
    """Drives one state machine on one partition. Implements `derived_state.Machine`. Lives on the event loop."""

    log: MachineLog
    """Set by `attach`, once the partition exists on which this machine lives."""

    def __init__(self, new_machine: Callable[[], M], codec: RecordCodec[R], clock: Clock) -> None:
        self._new_machine = new_machine
        self._codec = codec
        self._clock = clock
        self.machine = new_machine()
        self._queue: list[_Queued[M, R, A]] = []
        """Work of this turn of the event loop: the ticket of a request or None, what to do, and a callback for when
        its records are committed."""
        self._is_scheduled = False
        self._waiting: dict[int, Respond] = {}
        self._last_ticket = 0
        self._is_leader = False
        """From `on_lead` to `on_follow` or `stop`: the machine has its soft state."""
        self._token: object = None
        """What `on_appending` returned in this turn."""
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, partition: Partition) -> None:
        self.log = MachineLog(partition)

    @property
    def leads(self) -> bool:
        """Whether this node decides."""
        return self._is_leader and self.log.leads

    # ---- what a subclass may change -------------------------------------------------------------

    has_soft_state = True
    """Whether `handle` changes anything but by its records. If not, a refused step leaves nothing to undo."""

    rounds_max = 0
    """How often what is due is done at the end of a turn, in the same batch. What is left is done in the next turn."""
    replays_objects = False
    """Whether the leader replays the records that it has decided, without a detour by their bytes. Records must be the
    same after it."""

    def is_read(self, request: Q) -> bool:
        """Whether a request changes nothing, and must see everything that was answered before it."""
        return False

    def answer_too_large(self, step: Step[R, A]) -> ErrorCode | None:
        """The error for a step whose records are more than one batch may hold, if it left no trace in soft state."""
        return None

    def on_led(self) -> None:
        """This node leads now, and the machine has its soft state."""

    def on_appending(self) -> object:
        """Records are about to be replayed that are not committed. What is returned goes to `on_records_committed`."""
        return None

    def on_records_committed(self, records: Sequence[R], token: object) -> None:
        """Records of this leader are committed. Called before the answers that depend on them are sent."""

    # ---- the replicated machine: implements `derived_state.Machine` ------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.machine.replay(self._codec.decode(key, value))

    def draft(self) -> Draft:
        return MachineDraft(self._new_machine(), self._codec)

    def become(self, draft: Draft) -> None:
        assert isinstance(draft, MachineDraft), draft
        self.machine = cast(M, draft.machine)  # as `draft` made it

    def snapshot(self) -> Iterable[KeyValue]:
        return map(self._codec.encode, self.machine.snapshot())

    def on_lead(self) -> None:
        self._is_leader = True
        self.machine.become_leader(self._clock.monotonic_ms())
        self._set_timer()
        self.on_led()

    def on_follow(self) -> None:
        """Another node decides from now on, or will soon. Every waiting request must be sent there."""
        self._is_leader = False
        self._stop_timer()
        self.machine.resign()
        self._refuse_all(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads, or will soon"))

    def on_applied(self) -> None:
        return

    # ---- requests -------------------------------------------------------------------------------

    def submit(self, request: Q, respond: Respond) -> int:
        """Queue a request; returns the ticket under which it waits."""
        self._last_ticket += 1
        ticket = self._last_ticket
        if not self.leads:
            respond(self._not_leading())
            return ticket
        self._waiting[ticket] = respond
        if self.is_read(request) and not self.log.partition.replica.is_alone:
            self.log.partition.confirm_leadership(lambda error: self._on_confirmed(ticket, request, error))
        else:
            self._enqueue_request(ticket, request)
        return ticket

    def _on_confirmed(self, ticket: int, request: Q, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._enqueue_request(ticket, request)
        else:
            self._respond(ticket, ApiError(error, "this node does not know whether it still leads"))

    def _enqueue_request(self, ticket: int, request: Q) -> None:
        self._enqueue(ticket, lambda machine, now_ms, wall_ms: machine.handle(ticket, request, now_ms, wall_ms), None)

    def run(self, work: Work[M, R, A], done: Callable[[ApiError | None], None] | None = None) -> None:
        """Queue work that no client asked for. `done` gets None when its records are committed, else the reason."""
        if self.leads:
            self._enqueue(None, work, done)
        elif done is not None:
            done(self._not_leading())

    def append(self, records: Sequence[R]) -> None:
        """Append records that the caller has just decided from the machine's present state, as a batch of their own.

        Requests that are queued are handled after them. Raises `ApiError` with nothing changed.
        """
        if not self.leads:
            raise self._not_leading()
        token = self.on_appending()
        self.log.append(map(self._codec.encode, records), self._clock.wall_ms())
        self.log.when_durable(lambda error: None if error else self.on_records_committed(records, token))

    def on_disconnect(self, tickets: Iterable[int]) -> None:
        """The connections behind these requests are closed, so their answers are not needed."""
        gone = [ticket for ticket in tickets if self._waiting.pop(ticket, None) is not None]
        if gone:
            self.run(lambda machine, now_ms, wall_ms: machine.on_disconnect(gone, now_ms, wall_ms))

    def withdraw(self, ticket: int) -> None:
        """A request need not wait any more. If its answer is on the way to the log already, it still arrives."""
        if ticket in self._waiting:
            self.run(lambda machine, now_ms, wall_ms: machine.on_disconnect([ticket], now_ms, wall_ms))

    def stop(self) -> None:
        """The node stops: answer what is queued, and send parked requests away."""
        self._stop_timer()
        if self.leads:
            self._drain()
            self._stop_timer()
            self._finish([self.machine.resign()], [])
            self._is_leader = False

    def _not_leading(self) -> ApiError:
        if not hasattr(self, "log"):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node has no replica of it yet")
        failure = self.log.partition.failure
        if failure is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, failure)
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.log.partition!r} is led by another node")

    # ---- one turn of the event loop -------------------------------------------------------------

    def _enqueue(self, ticket: int | None, work: Work[M, R, A], done: Callable[[ApiError | None], None] | None) -> None:
        self._queue.append((ticket, work, done))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        """Do all queued work, and append its records as one batch."""
        self._is_scheduled = False
        if not self._queue:
            return
        if not self.leads:
            self._refuse_all(self._not_leading())
            return
        queue, self._queue = self._queue, []
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        steps: list[Step[R, A]] = []
        callbacks: list[Callable[[ApiError | None], None]] = []
        for ticket, work, done in self._with_due(queue, now_ms):
            if ticket is not None and ticket not in self._waiting:
                continue  # its connection is closed, or an earlier step of this turn refused all that waited
            try:
                step = work(self.machine, now_ms, wall_ms)
            except Exception as error:  # noqa: BLE001 - a bug costs its own request, and no other
                self._on_bug(ticket, error)
                continue
            try:
                refusal = self._add(step, wall_ms)
            except Exception as error:  # noqa: BLE001 - the machine is loaded again from its log
                self._on_bug(ticket, error)
                break
            if refusal is None:
                steps.append(step)
                callbacks += [done] if done is not None else []
            elif done is not None:
                done(refusal)
        self.log.flush(wall_ms)
        self._finish(steps, callbacks)
        self._set_timer()

    def _with_due(self, queue: Sequence[_Queued[M, R, A]], now_ms: int) -> Iterator[_Queued[M, R, A]]:
        """What is queued, and then what is due after all that."""
        yield from queue
        for _ in range(self.rounds_max):
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > now_ms:
                return
            yield None, _on_deadline, None

    def _add(self, step: Step[R, A], wall_ms: int) -> ApiError | None:
        """Put the records of a step into the batch of this turn; why not, if the log would refuse them."""
        if not step.records:
            return None
        self._token = self.on_appending()
        try:
            replay = partial(self._replay_all, step.records) if self.replays_objects else None
            self.log.add(map(self._codec.encode, step.records), wall_ms, replay)
        except ApiError as refusal:
            self._on_refused(step, refusal)
            return refusal
        except Exception as error:
            # A record that cannot be replayed: a bug, and the machine has taken a part of the step.
            self.log.state.discard(self.log.partition, OSError(errno.EAGAIN, f"a record cannot be replayed: {error}"))
            raise
        return None

    def _replay_all(self, records: Sequence[R]) -> None:
        for record in records:
            self.machine.replay(record)

    def _finish(self, steps: Sequence[Step[R, A]], callbacks: Sequence[Callable[[ApiError | None], None]]) -> None:
        """Send the answers of these steps once the log is committed up to here."""
        records = [record for step in steps for record in step.records]
        answers = [answer for step in steps for answer in step.answers]
        token, self._token = self._token, None
        if records or answers or callbacks:
            self.log.when_durable(partial(self._on_durable, records, answers, callbacks, token))

    def _on_durable(
        self,
        records: Sequence[R],
        answers: Sequence[Answer[A]],
        callbacks: Sequence[Callable[[ApiError | None], None]],
        token: object,
        error: ErrorCode,
    ) -> None:
        if error is ErrorCode.NONE:
            if records:
                self.on_records_committed(records, token)
            for ticket, response in answers:
                self._respond(ticket, response)
            for callback in callbacks:
                callback(None)
            return
        # The log below these answers was not committed, so they must not be sent.
        unknown = OutcomeUnknown(error, "whether it is stored is not known: this node stopped leading")
        for ticket, _ in answers:
            self._respond(ticket, unknown)
        for callback in callbacks:
            callback(unknown)

    def _respond(self, ticket: int, response: object) -> None:
        respond = self._waiting.pop(ticket, None)
        if respond is not None:
            self._call(respond, response)

    def _refuse_all(self, error: ApiError) -> None:
        """Refuse what is queued and what waits for an answer."""
        queue, self._queue = self._queue, []
        for _, _, done in queue:
            if done is not None:
                done(error)
        self._refuse_waiting(error)

    def _refuse_waiting(self, error: ApiError) -> None:
        waiting, self._waiting = self._waiting, {}
        for respond in waiting.values():
            self._call(respond, error)

    def _call(self, respond: Respond, response: object) -> None:
        """Answers of many requests leave together: a bug in one callback must not cost the others theirs."""
        try:
            respond(response)
        except Exception:
            log.exception("an answer of the coordinator of %r was not taken", self.log.partition)

    def _on_bug(self, ticket: int | None, error: Exception) -> None:
        log.error("a request to the coordinator of %r failed on a bug", self.log.partition, exc_info=error)
        if ticket is not None:
            self._respond(ticket, error)

    # ---- refused by the log ---------------------------------------------------------------------

    def _on_refused(self, step: Step[R, A], refusal: ApiError) -> None:
        if refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
            code = self.answer_too_large(step)
            if code is not None:
                refusal = ApiError(code, refusal.message)
                for ticket, _ in step.answers:
                    self._respond(ticket, refusal)
                return
            log.error("%s; the request is refused", refusal, extra={"repeat_key": f"too large: {self.log.partition}"})
        if not self.has_soft_state:
            for ticket, _ in step.answers:
                self._respond(ticket, refusal)
            return
        self._start_over(refusal)

    def _start_over(self, refusal: ApiError) -> None:
        """Forget what was decided and is in no log: drop the soft state, and build it from the replicated state.

        The soft state already reflects the refused records, and would answer the next request with them. A group
        generation that no log holds, once sent to a client, would be used a second time by the next coordinator.
        """
        self.machine.resign()
        self.machine.become_leader(self._clock.monotonic_ms())
        self._refuse_waiting(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal.message))
        self._set_timer()

    # ---- the timer ------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._stop_timer()
        deadline = self.machine.next_deadline()
        if deadline is not None:
            delay_s = max(0, deadline - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.run(_on_deadline)


def _on_deadline(machine: StateMachine[Any, Any, Any], now_ms: int, wall_ms: int) -> Step[Any, Any]:
    return machine.on_deadline(now_ms, wall_ms)
