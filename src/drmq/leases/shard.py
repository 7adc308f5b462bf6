"""One shard of lease groups: it decides which member holds which offsets, until when.

A request becomes one record per queue and an answer. Everything that must survive the leader of the shard is in the
records (`queue`). Soft state is: when each lease runs out, requests that wait for records, and when parked offsets are
due. It is built when leadership begins and dropped when it ends.

Time: leases run out by the monotonic clock of the leader. A new leader gives every lease its full duration again,
because it cannot know how much had passed: a record may be redelivered later than its lease says, never earlier. Parked
offsets are due by the time of the shard, because records hold the times. A leader reads its wall clock once, when it
begins to lead, and goes on by the monotonic clock: a clock that is set while it leads neither delays nor hastens a
retry. If its wall clock is behind what the records say, it goes on from there: else whatever an earlier leader parked,
whose clock was a month ahead, would wait for a month.

Decisions see only what is replayed, so a step leases from a queue at most once. What else waits there is served in the
next step, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum, auto
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from drmq.leases.counts import LeaseCounts
from drmq.leases.messages import (
    WHOLE_TOPIC,
    Acquire,
    Acquired,
    Advance,
    Bury,
    DeadRecord,
    Delivery,
    DescribeQueues,
    Done,
    ExpireMember,
    Failed,
    Failure,
    LeaseRequest,
    LeaseResponse,
    LeaseView,
    Outcome,
    QueueBegun,
    QueueList,
    QueueView,
    Refusal,
    Refused,
    ReleaseMember,
    RemoveQueues,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    Withdraw,
)
from drmq.leases.options import LeaseOptions, backoff_ms
from drmq.leases.outcomes import (
    add_refused,
    add_settled,
    expired,
    given_back,
    given_up,
    is_ascending,
    refuse_missing,
)
from drmq.leases.queue import QUEUE_BYTES, Hold, Queue
from drmq.leases.queue_key import QueueKey
from drmq.leases.records import (
    Buried,
    Fate,
    Leased,
    LeaseEnded,
    LeaseGranted,
    LeaseRecord,
    LeaseRenewed,
    LogTrimmed,
    QueueRemoved,
    QueueSnapshot,
    QueueStarted,
    Reason,
    Settled,
    Unparked,
)
from drmq.leases.redrive import Redrives
from drmq.model import Answer, Step, Timers, TopicId
from drmq.model.names import REDRIVE_GROUP

if TYPE_CHECKING:
    from random import Random

LeaseStep = Step[LeaseRecord, LeaseResponse]

_DUE_GRANULARITY_MS = 100
"""Parked offsets that are due within so long return together."""
_UNPARK_COUNT_MAX = 2_000
"""Parked offsets that return at a time. The others follow when these are leased."""
_EXPIRIES_PER_STEP_MAX = 500
"""Timers that are handled in one step, so that thousands at once do not hold up the event loop."""
_ATTEMPT_MAX = 65_535


class _Kind(IntEnum):
    """What a timer is for. Numbers, because they are hashed with every change of a queue."""

    EXPIRY = auto()
    """Leases of a queue run out."""
    RETURN = auto()
    """Parked offsets of a queue are due."""
    WAIT = auto()
    """A request has waited long enough."""


class _TimerKey(NamedTuple):
    kind: _Kind
    queue: QueueKey
    ticket: int = 0


class _SoftState:
    """What only the leader has, and only while it leads."""

    def __init__(self) -> None:
        self.timers: Timers[_TimerKey] = Timers()
        self.now_ms = 0
        """The time of the last input."""
        self.wall_offset_ms: int | None = None
        """The time of the shard minus the monotonic clock; None before the wall clock is read."""
        self.waiting: dict[QueueKey, dict[int, Acquire]] = {}
        """Requests that wait for records, by ticket, the oldest first."""
        self.ready: dict[QueueKey, None] = {}
        """Queues with waiting requests in which records may have become available."""
        self.paused: set[QueueKey] = set()
        """Queues in which nothing new is leased."""
        self.new_pauses: list[QueueKey] = []
        """Those that nobody was told of yet."""
        self.log_starts: dict[QueueKey, int] = {}
        """The start of the log that each queue was compared with last: to compare looks at all that is parked."""
        self.beginners: dict[QueueKey, str] = {}
        """The caller that each queue was admitted for."""

    def note_time(self, now_ms: int, wall_ms: int) -> None:
        self.now_ms = now_ms
        if self.wall_offset_ms is None:
            self.wall_offset_ms = wall_ms - now_ms

    @property
    def wall_ms(self) -> int:
        """The time of the shard: the wall clock, as if nothing had set it back or, since this node leads, forward."""
        assert self.wall_offset_ms is not None
        return self.now_ms + self.wall_offset_ms


class LeaseShard:
    """The lease state of many queues. Implements the broker's `StateMachine`.

    `options_of` returns the settings of a group. `random` spreads retries. `admits` says whether a caller may begin a
    queue: its arguments are the address, the memory of the queue, and the time. `on_freed` gets the address and the
    memory of a queue that was removed.
    """

    def __init__(
        self,
        options_of: Callable[[str], LeaseOptions],
        random: Random,
        admits: Callable[[str, int, int], bool] = lambda caller, size_bytes, now_ms: True,
        on_freed: Callable[[str, int], None] = lambda caller, size_bytes: None,
        *,
        queues_max: int = 100_000,
    ) -> None:
        self._options_of = options_of
        self._random = random
        self._admits = admits
        self._on_freed = on_freed
        self._queues_max = queues_max
        self.queues: dict[QueueKey, Queue] = {}
        self.size_bytes = 0
        """The memory of the queues without what is in them, which the options of their groups limit."""
        self._dying: dict[QueueKey, None] = {}
        """The queues that have offsets whose dead letters are to be written."""
        self.redrives = Redrives()
        """What is known about dead letters that were written, and what moves them back."""
        self._soft: _SoftState | None = None
        self.counts = LeaseCounts()

    # ---- replicated state -----------------------------------------------------------------------

    def replay(self, record: LeaseRecord) -> None:
        """Apply the next record of the log."""
        key = record.key
        if key.group == REDRIVE_GROUP:
            self.redrives.replay(record)
            return
        queue = self.queues.get(key)
        existed = queue is not None
        if isinstance(record, QueueSnapshot):
            queue = self.queues[key] = Queue.restore(record)
        elif isinstance(record, QueueStarted):
            last_token = 0 if queue is None else queue.last_token
            queue = self.queues[key] = Queue(key, record.start)
            queue.last_token = last_token
        elif isinstance(record, QueueRemoved):
            self.queues.pop(key, None)
            queue = None
        elif queue is not None:
            _replay_in(queue, record)
        self.size_bytes += ((queue is not None) - existed) * _size_of(key)
        if queue is not None and len(queue.dying):
            self._dying[key] = None
        else:
            self._dying.pop(key, None)
        if queue is not None and self._soft is not None:
            self._schedule(self._soft, queue)
            if queue.parked.count or queue.dying.count or key in self._soft.paused:
                self._note_pause(self._soft, queue)
        elif self._soft is not None:
            self._soft.paused.discard(key)
            caller = self._soft.beginners.pop(key, None)
            if caller is not None:
                self._on_freed(caller, _size_of(key))

    def snapshot(self) -> Iterable[LeaseRecord]:
        """One record for each queue, and for each topic of dead letters."""
        return [*(queue.snapshot() for queue in self.queues.values()), *self.redrives.snapshot()]

    def dying_queues(self) -> list[QueueKey]:
        """The queues that have offsets whose dead letters are to be written."""
        return list(self._dying)

    def dead_records(self, count_max: int, key: QueueKey | None = None) -> Iterator[DeadRecord]:
        """Offsets whose dead letters are to be written, so many runs of each queue at most, or of one queue."""
        for each in self.dying_queues() if key is None else [key]:
            queue = self.queues.get(each)
            for first, last, death in islice(queue.dying, count_max) if queue is not None else ():
                yield DeadRecord(each, first, last, death)

    # ---- leadership -----------------------------------------------------------------------------

    def become_leader(self, now_ms: int) -> None:
        """Every lease that is out lasts for its full duration from now on."""
        soft = self._soft = _SoftState()
        soft.now_ms = now_ms
        for queue in self.queues.values():
            for lease in queue.leases.values():
                lease.deadline_ms = None
            self._schedule(soft, queue)
            if queue.parked.count or queue.dying.count:
                self._note_pause(soft, queue)
        self.redrives.become_leader()

    def resign(self) -> LeaseStep:
        """Waiting requests are answered with nothing: their callers look for the new leader."""
        soft, self._soft = self._soft, None
        waiting = [] if soft is None else [ticket for requests in soft.waiting.values() for ticket in requests]
        return Step((), tuple(Answer(ticket, _NOTHING) for ticket in waiting))

    def _schedule(self, soft: _SoftState, queue: Queue) -> None:
        """Set the timers of a queue that has changed."""
        for lease in reversed(queue.leases.values()):
            if lease.deadline_ms is not None:
                break  # the older ones have theirs
            lease.deadline_ms = soft.now_ms + lease.duration_ms
        expiry = _TimerKey(_Kind.EXPIRY, queue.key)
        if queue.leases and soft.timers.get(expiry) is None:
            soft.timers.set(expiry, min(lease.deadline_ms or 0 for lease in queue.leases.values()))
        due_ms = queue.parked.next_due()
        if due_ms is not None and soft.wall_offset_ms is not None:
            back = _TimerKey(_Kind.RETURN, queue.key)
            known = soft.timers.get(back)
            if known is None or due_ms - soft.wall_offset_ms < known:
                soft.timers.set(back, due_ms - soft.wall_offset_ms)
        waiting = soft.waiting.get(queue.key)
        if waiting and _is_available(queue, next(iter(waiting.values()))):
            soft.ready[queue.key] = None

    def _note_pause(self, soft: _SoftState, queue: Queue) -> None:
        is_paused = _is_paused(queue, self._options_of(queue.key.group))
        if is_paused and queue.key not in soft.paused:
            soft.paused.add(queue.key)
            soft.new_pauses.append(queue.key)
        elif not is_paused:
            soft.paused.discard(queue.key)

    @property
    def paused(self) -> Collection[QueueKey]:
        """The queues in which nothing new is leased, as far as this node has noticed while it leads."""
        return () if self._soft is None else self._soft.paused

    def take_pauses(self) -> list[QueueKey]:
        """The queues in which nothing new is leased, because too much is parked or dying, since the last call."""
        if self._soft is None or not self._soft.new_pauses:
            return []
        found, self._soft.new_pauses = self._soft.new_pauses, []
        return found

    # ---- requests -------------------------------------------------------------------------------

    def handle(self, ticket: int, request: LeaseRequest, now_ms: int, wall_ms: int) -> LeaseStep:
        """Decide about a request."""
        soft = self._leading(now_ms, wall_ms)
        match request:
            case Settle():
                return self._on_settle(ticket, request, soft, wall_ms)
            case Acquire():
                return self._on_acquire(ticket, request, soft)
            case Advance():
                return self._on_advance(ticket, request, soft)
            case Withdraw():
                return self._on_withdraw(ticket, request, soft)
            case StartQueue():
                return self._on_start(ticket, request, soft)
            case ReleaseMember():
                return self._on_release_member(ticket, request, soft)
            case ExpireMember():
                return self._on_expire_member(ticket, request, soft, wall_ms)
            case Bury():
                queue = self.queues.get(request.key)
                known = queue is not None and any(queue.dying.find(first, last) for first, last in request.ranges)
                return Step((Buried(request.key, request.ranges),) if known else (), (Answer(ticket, Done()),))
            case RemoveQueues():
                keys = [key for key in self._keys_of(request.group) if request.topic_id in (None, key.topic_id)]
                return self._remove(soft, keys, (Answer(ticket, Done()),))
            case DescribeQueues():
                views: list[QueueView] = []
                left = request.leases_max
                for key in self._keys_of(request.group):
                    if key.partition == WHOLE_TOPIC:
                        continue
                    views.append(self._view(self.queues[key], soft, left))
                    left -= len(views[-1].leases)
                return Step((), (Answer(ticket, QueueList(tuple(views))),))
            case _:
                records, answer = self.redrives.handle(request, wall_ms)
                return Step(records, (Answer(ticket, answer),))

    def _leading(self, now_ms: int, wall_ms: int) -> _SoftState:
        soft = self._soft
        assert soft is not None, "a shard that does not lead decides nothing"
        if soft.wall_offset_ms is None:
            times_ms = (queue.time_ms for queue in self.queues.values())
            soft.note_time(now_ms, max(wall_ms, max(times_ms, default=0)))
            for queue in self.queues.values():
                self._schedule(soft, queue)
        soft.now_ms = now_ms
        return soft

    def forget_topics(self, topic_ids: Iterable[TopicId], now_ms: int, wall_ms: int) -> LeaseStep:
        """Topics were deleted."""
        gone = set(topic_ids)
        keys = [key for key in self.queues if key.topic_id in gone] + self.redrives.removals(gone)
        return self._remove(self._leading(now_ms, wall_ms), keys, ())

    def on_disconnect(self, tickets: Iterable[int], now_ms: int, wall_ms: int) -> LeaseStep:
        """These requests do not wait any more; those that still did are answered with nothing."""
        soft = self._leading(now_ms, wall_ms)
        gone = set(tickets)
        answers: list[Answer[LeaseResponse]] = []
        for key, requests in list(soft.waiting.items()):
            for ticket in gone & requests.keys():
                self._stop_waiting(soft, key, ticket)
                answers.append(Answer(ticket, _NOTHING))
        return Step((), tuple(answers))

    def _keys_of(self, group: str) -> list[QueueKey]:
        return [key for key in self.queues if key.group == group]

    def _on_start(self, ticket: int, request: StartQueue, soft: _SoftState) -> LeaseStep:
        queue = self.queues.get(request.key)
        if queue is not None and not request.restart:
            return Step((), (Answer(ticket, QueueBegun(queue.end)),))
        if queue is None:
            has_room = len(self.queues) < self._queues_max
            if not (has_room and self._admits(request.caller, _size_of(request.key), soft.now_ms)):
                return Step((), (Answer(ticket, Failed(Failure.TOO_MANY_QUEUES)),))
            soft.beginners[request.key] = request.caller
        answers = self._send_away(soft, request.key)
        record = QueueStarted(request.key, request.offset)
        return Step((record,), (*answers, Answer(ticket, QueueBegun(request.offset))))

    def _remove(self, soft: _SoftState, keys: list[QueueKey], answers: tuple[Answer[LeaseResponse], ...]) -> LeaseStep:
        sent_away = tuple(answer for key in keys for answer in self._send_away(soft, key))
        return Step(tuple(map(QueueRemoved, keys)), sent_away + answers)

    def _send_away(self, soft: _SoftState, key: QueueKey) -> list[Answer[LeaseResponse]]:
        """Answer the requests that wait for a queue that ends."""
        tickets = list(soft.waiting.get(key, ()))
        for ticket in tickets:
            self._stop_waiting(soft, key, ticket)
        return [Answer(ticket, Failed(Failure.NOT_STARTED)) for ticket in tickets]

    # ---- acquiring ------------------------------------------------------------------------------

    def _on_acquire(self, ticket: int, request: Acquire, soft: _SoftState) -> LeaseStep:
        queue = self.queues.get(request.key)
        if queue is None:
            return Step((), (Answer(ticket, Failed(Failure.NOT_STARTED)),))
        if _first_available(queue) < request.log_start:
            # Records that are gone must not be leased. They are forgotten first, then the request is served.
            self._wait(soft, ticket, request)
            soft.ready[request.key] = None
            return Step((LogTrimmed(request.key, request.log_start),))
        if request.key not in soft.waiting and (granted := self._grant(queue, request)) is not None:
            record, answer = granted
            return Step((record,), (Answer(ticket, answer),))
        self._advance(soft, request.key, request.high_watermark)
        if request.wait_ms <= 0:
            return Step((), (Answer(ticket, _NOTHING),))
        self._wait(soft, ticket, request)
        if _is_available(queue, request):
            soft.ready[request.key] = None
        return Step()

    def _wait(self, soft: _SoftState, ticket: int, request: Acquire) -> None:
        soft.waiting.setdefault(request.key, {})[ticket] = request
        soft.timers.set(_TimerKey(_Kind.WAIT, request.key, ticket), soft.now_ms + max(0, request.wait_ms))

    def _stop_waiting(self, soft: _SoftState, key: QueueKey, ticket: int) -> None:
        requests = soft.waiting[key]
        del requests[ticket]
        soft.timers.cancel(_TimerKey(_Kind.WAIT, key, ticket))
        if not requests:
            del soft.waiting[key]
            soft.ready.pop(key, None)

    def _on_advance(self, ticket: int, request: Advance, soft: _SoftState) -> LeaseStep:
        key, queue = request.key, self.queues.get(request.key)
        answer: tuple[Answer[LeaseResponse], ...] = (Answer(ticket, Done()),)
        if queue is None:
            return Step((), answer)
        self._advance(soft, key, request.high_watermark)
        gone = False
        if soft.log_starts.get(key) != request.log_start:
            soft.log_starts[key] = request.log_start
            gone = request.log_start > queue.start
        return Step((LogTrimmed(key, request.log_start),) if gone else (), answer)

    def _advance(self, soft: _SoftState, key: QueueKey, high_watermark: int) -> None:
        """Requests that wait learn how far the log goes: those of another leader of the data, or withdrawn ones, may
        not have heard of it, and stand before others."""
        requests = soft.waiting.get(key, {})
        for waiting, acquire in requests.items():
            if acquire.high_watermark < high_watermark:
                requests[waiting] = acquire._replace(high_watermark=high_watermark)
                soft.ready[key] = None

    def _on_withdraw(self, ticket: int, request: Withdraw, soft: _SoftState) -> LeaseStep:
        answers: list[Answer[LeaseResponse]] = [Answer(ticket, Done())]
        for waiting, acquire in soft.waiting.get(request.key, {}).items():
            if (acquire.member, acquire.number) == (request.member, request.number):
                self._stop_waiting(soft, request.key, waiting)
                answers.append(Answer(waiting, _NOTHING))
                break
        return Step((), tuple(answers))

    def _grant(self, queue: Queue, request: Acquire) -> tuple[LeaseGranted, Acquired] | None:
        """Lease what is available: first what returned, then what was never leased."""
        options = self._options_of(queue.key.group)
        left = min(request.count_max, options.leased_max - queue.held.count)
        offsets: list[Leased] = []
        for first, last, history in queue.returned:
            if left <= 0:
                break
            last = min(last, first + left - 1)
            offsets.append(Leased(first, last, min(history.attempt + 1, _ATTEMPT_MAX), history.failed_ms))
            left -= last - first + 1
        end = queue.end
        if left > 0 and end < request.high_watermark and not _is_paused(queue, options):
            first, end = end, min(end + left, request.high_watermark)
            offsets.append(Leased(first, end - 1, 1, 0))
        if not offsets:
            return None
        token = queue.last_token + 1
        self.counts.leased += sum([last - first + 1 for first, last, _, _ in offsets])
        record = LeaseGranted(queue.key, token, request.member, options.duration_ms, end, tuple(offsets))
        deliveries = tuple(Delivery(first, last, attempt) for first, last, attempt, _ in offsets)
        return record, Acquired(token, options.duration_ms, deliveries)

    # ---- settling -------------------------------------------------------------------------------

    def _on_settle(self, ticket: int, request: Settle, soft: _SoftState, wall_ms: int) -> LeaseStep:
        queue = self.queues.get(request.key)
        if queue is None:
            return Step((), (Answer(ticket, Failed(Failure.NOT_STARTED)),))
        if not is_ascending(request.settlements):
            return Step((), (Answer(ticket, Failed(Failure.INVALID)),))
        options = self._options_of(queue.key.group)
        ended: list[Settled] = []
        renewed: list[tuple[int, int]] = []
        refused: list[Refused] = []
        for settlement in request.settlements:
            at = settlement.first
            for first, last, hold in queue.held.find(settlement.first, settlement.last):
                refuse_missing(queue, request.member, at, first - 1, settlement.outcome, options, refused)
                at = last + 1
                if queue.leases[hold.lease].member != request.member:
                    add_refused(refused, first, last, Refusal.LEASED_TO_ANOTHER)
                elif settlement.token not in (0, hold.token):
                    add_refused(refused, first, last, Refusal.STALE_TOKEN)
                elif settlement.outcome is Outcome.RENEW and not options.renews:
                    add_refused(refused, first, last, Refusal.NO_RENEWAL)
                elif settlement.outcome is Outcome.RENEW:
                    renewed.append((first, last))
                    self.counts.settled[Outcome.RENEW] += last - first + 1
                else:
                    self.counts.settled[settlement.outcome] += last - first + 1
                    add_settled(ended, self._fate_of(first, last, hold, settlement, options, soft, wall_ms))
            refuse_missing(queue, request.member, at, settlement.last, settlement.outcome, options, refused)
        records: list[LeaseRecord] = []
        if ended:
            records.append(LeaseEnded(queue.key, request.member, tuple(ended), soft.wall_ms))
        if renewed:
            lease = queue.last_token + 1
            records.append(LeaseRenewed(queue.key, lease, request.member, options.duration_ms, tuple(renewed)))
        return Step(tuple(records), (Answer(ticket, SettleResult(tuple(refused))),))

    def _fate_of(
        self,
        first: int,
        last: int,
        hold: Hold,
        settlement: Settlement,
        options: LeaseOptions,
        soft: _SoftState,
        wall_ms: int,
    ) -> Settled:
        outcome = settlement.outcome
        if outcome is Outcome.ACCEPT:
            return Settled(first, last, Fate.DONE, 0, 0, 0, Reason.NONE)
        if outcome is Outcome.GIVE_BACK:
            return given_back(first, last, hold)
        if outcome is Outcome.REJECT or hold.attempt >= options.attempts_max:
            reason = Reason.REJECTED if outcome is Outcome.REJECT else Reason.ATTEMPTS
            return given_up(first, last, hold, reason, options, wall_ms)
        failed_ms = hold.failed_ms or wall_ms
        wait_ms = settlement.delay_ms
        if wait_ms is None and options.backoff_ms:
            wait_ms = backoff_ms(options, hold.attempt, self._random.random())
        if not wait_ms:
            return Settled(first, last, Fate.RETURNED, hold.attempt, failed_ms, 0, Reason.NONE)
        due_ms = -(-(soft.wall_ms + wait_ms) // _DUE_GRANULARITY_MS) * _DUE_GRANULARITY_MS
        return Settled(first, last, Fate.PARKED, hold.attempt, failed_ms, due_ms, Reason.NONE)

    def _on_release_member(self, ticket: int, request: ReleaseMember, soft: _SoftState) -> LeaseStep:
        queue = self.queues.get(request.key)
        ended: list[Settled] = []
        if queue is not None:
            leases = {number for number, lease in queue.leases.items() if lease.member == request.member}
            ended = [given_back(first, last, hold) for first, last, hold in queue.held if hold.lease in leases]
            self.counts.settled[Outcome.GIVE_BACK] += sum([each.last - each.first + 1 for each in ended])
        records = (LeaseEnded(request.key, request.member, tuple(ended), soft.wall_ms),) if ended else ()
        return Step(records, (Answer(ticket, Done()),))

    def _on_expire_member(self, ticket: int, request: ExpireMember, soft: _SoftState, wall_ms: int) -> LeaseStep:
        records: list[LeaseRecord] = []
        for key in self._keys_of(request.group):
            queue = self.queues[key]
            out = {number for number, lease in queue.leases.items() if lease.member == request.member}
            if out:
                records.append(self._end(queue, out, soft, wall_ms))
        return Step(tuple(records), (Answer(ticket, Done()),))

    # ---- time -----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` has something to do."""
        soft = self._soft
        if soft is None:
            return None
        if soft.ready or soft.wall_offset_ms is None:
            return soft.now_ms
        return soft.timers.next_ms()

    def on_deadline(self, now_ms: int, wall_ms: int) -> LeaseStep:
        """End the leases that ran out, return what is due, and serve or answer waiting requests."""
        soft = self._leading(now_ms, wall_ms)
        records: list[LeaseRecord] = []
        answers: list[Answer[LeaseResponse]] = []
        ready, soft.ready = soft.ready, {}
        for key in ready:
            self._serve(soft, key, records, answers)
        for _ in range(_EXPIRIES_PER_STEP_MAX):
            timer = soft.timers.take_due(now_ms)
            if timer is None:
                break
            queue = self.queues.get(timer.queue)
            if timer.kind is _Kind.WAIT:
                self._stop_waiting(soft, timer.queue, timer.ticket)
                answers.append(Answer(timer.ticket, _NOTHING))
            elif queue is None:
                continue  # it was removed
            elif timer.kind is _Kind.EXPIRY:
                self._expire(soft, queue, wall_ms, records)
            elif queue.returned.count < _UNPARK_COUNT_MAX:
                records.append(Unparked(queue.key, soft.wall_ms, _UNPARK_COUNT_MAX))
            else:
                soft.timers.set(timer, now_ms + _DUE_GRANULARITY_MS)
        return Step(tuple(records), tuple(answers))

    def _serve(
        self, soft: _SoftState, key: QueueKey, records: list[LeaseRecord], answers: list[Answer[LeaseResponse]]
    ) -> None:
        """Serve the request that has waited longest. If there are more, the next one is served in the next step."""
        queue, requests = self.queues.get(key), soft.waiting.get(key)
        if queue is None or not requests:
            return
        ticket, request = next(iter(requests.items()))
        granted = self._grant(queue, request)
        if granted is None:
            return
        record, answer = granted
        records.append(record)
        answers.append(Answer(ticket, answer))
        self._stop_waiting(soft, key, ticket)
        if key in soft.waiting:
            soft.ready[key] = None

    def _expire(self, soft: _SoftState, queue: Queue, wall_ms: int, records: list[LeaseRecord]) -> None:
        """End the leases of a queue that ran out, and set the timer for the next one."""
        out = {number for number, lease in queue.leases.items() if (lease.deadline_ms or 0) <= soft.now_ms}
        if out:
            records.append(self._end(queue, out, soft, wall_ms))
        left = [lease.deadline_ms or 0 for number, lease in queue.leases.items() if number not in out]
        if left:
            soft.timers.set(_TimerKey(_Kind.EXPIRY, queue.key), min(left))

    def _end(self, queue: Queue, leases: set[int], soft: _SoftState, wall_ms: int) -> LeaseEnded:
        """These leases have run out: the deliveries have failed."""
        options = self._options_of(queue.key.group)
        ended: list[Settled] = []
        for first, last, hold in queue.held:
            if hold.lease in leases:
                add_settled(ended, expired(first, last, hold, options, wall_ms))
        self.counts.expired += sum([each.last - each.first + 1 for each in ended])
        return LeaseEnded(queue.key, "", tuple(ended), soft.wall_ms)

    # ---- views ----------------------------------------------------------------------------------

    def _view(self, queue: Queue, soft: _SoftState, leases_max: int) -> QueueView:
        leases: list[LeaseView] = []
        for first, last, hold in islice(queue.held, leases_max):
            lease = queue.leases[hold.lease]
            left_ms = max(0, (lease.deadline_ms or 0) - soft.now_ms)
            leases.append(LeaseView(first, last, lease.member, hold.attempt, hold.token, left_ms))
        return QueueView(
            key=queue.key,
            start=queue.start,
            end=queue.end,
            held_count=queue.held.count,
            returned_count=queue.returned.count,
            parked_count=queue.parked.count,
            dying_count=queue.dying.count,
            next_due_ms=queue.parked.next_due(),
            is_paused=_is_paused(queue, self._options_of(queue.key.group)),
            leases=tuple(leases),
        )


_NOTHING = Acquired(0, 0, ())


def _size_of(key: QueueKey) -> int:
    return QUEUE_BYTES + len(key.group)


def _replay_in(queue: Queue, record: LeaseRecord) -> None:
    match record:
        case LeaseGranted():
            queue.grant(record)
        case LeaseEnded():
            queue.end_leases(record)
        case LeaseRenewed():
            queue.renew(record)
        case Unparked():
            queue.unpark(record.due_ms, record.count_max)
        case Buried():
            queue.bury(record.ranges)
        case LogTrimmed():
            queue.trim(record.start)


def _first_available(queue: Queue) -> int:
    returned = queue.returned.first
    return queue.end if returned is None else returned


def _is_available(queue: Queue, request: Acquire) -> bool:
    return queue.returned.count > 0 or queue.end < request.high_watermark


def _is_paused(queue: Queue, options: LeaseOptions) -> bool:
    """Whether nothing new is leased: what failed must be worked off first."""
    return queue.parked.count >= options.parked_max or queue.dying.count >= options.dying_max
