"""When the policies would have started each job of a recorded schedule, given what came before.

A simulation that runs by itself leaves a real schedule at the first difference and never finds
back. Here each start is predicted from the real starts and ends before it, so that one difference
is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ettr.sim.cluster.policies import PLACING, PREEMPT_FOR_ANY, PREEMPTION, WAITING
from ettr.sim.cluster.room import FAR_S, NodeRoom, Room, Running, Waiting
from ettr.sim.cluster.scenario_parts import Machines, Scheduling
from ettr.sim.cluster.scheduler import PREEMPTED

NEVER = FAR_S


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt of a job as the scheduler recorded it.

    Attributes:
        gpus: That it needs; whole nodes where they are more than those of one.
        start_s: When it started; `NEVER` where it did not.
    """

    number: int
    gpus: int
    limit_s: int
    level: int
    submit_s: int
    eligible_s: int
    start_s: int
    end_s: int
    nodes: tuple[int, ...]
    state: str


@dataclass(frozen=True, slots=True)
class RecordedOutage:
    """A time in which a node, or so many of its GPUs, took no jobs; all of them where None."""

    node: int
    start_s: int
    end_s: int
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Passes:
    """When the real scheduler looked at its queue, besides when a job became eligible."""

    in_order_s: Sequence[int] | None = None
    overtaking_s: Collection[int] | None = None

    def overtake_at(self, now_s: int) -> bool:
        """Whether it looked for jobs that may overtake."""
        return self.overtaking_s is None or now_s in self.overtaking_s


@dataclass(slots=True)
class _Ahead:
    """An attempt that the policies have started and the real scheduler has not yet."""

    start_s: int
    nodes: tuple[int, ...]
    victims: frozenset[int]


def predicted_starts(
    attempts: Sequence[RecordedAttempt],
    outages: Sequence[RecordedOutage],
    machines: Machines,
    rules: Scheduling,
    allowed_s: int,
    passes: Passes | None = None,
    preempt_again_s: int = 0,
) -> list[int]:
    """The time at which the policies would have started each attempt.

    At each moment at which something was submitted, ended, was preempted or came back, the room is
    what really ran then; the policies say who of the real queue would start. An attempt that they
    start before the real scheduler does keeps its place until then, for `allowed_s` at most: then
    the prediction was wrong, and the room is again what is real. Where the policies preempt
    attempts that the real scheduler preempts, too, within `allowed_s`, the start comes once these
    have left, as with a real scheduler: whoever is first when it then looks gets what they held.

    Args:
        allowed_s: By how much a real start may come later: the interval of the real scheduler's
            passes, and its delays.
        preempt_again_s: For so long after it has preempted others an attempt preempts no more.
    """
    passes = passes or Passes()
    ahead: dict[int, _Ahead] = {}
    preempted_s: dict[int, int] = {}
    found = [NEVER] * len(attempts)
    for now_s in _moments(attempts, outages, rules.preempt_after_s, passes):
        for i, early in list(ahead.items()):
            if min(attempts[i].start_s, attempts[i].end_s, early.start_s + allowed_s) < now_s:
                del ahead[i]
        moment = _Moment(attempts, outages, machines, rules, now_s, ahead, allowed_s)
        moment.idle = {i for i, at_s in preempted_s.items() if 0 < now_s - at_s < preempt_again_s}
        for i, early in moment.starts(may_overtake=passes.overtake_at(now_s)):
            found[i] = min(found[i], now_s)
            ahead[i] = early
        preempted_s |= moment.waits
    return found


def seen_at(
    attempts: Sequence[RecordedAttempt],
    outages: Sequence[RecordedOutage],
    machines: Machines,
    rules: Scheduling,
    now_s: int,
) -> tuple[list[int], list[Waiting], Room]:
    """What the policies see at one moment of what was real.

    Returns:
        The places in `attempts` of those that wait, in the order of the queue; how a policy sees
        them; and the room, with who may be preempted.
    """
    moment = _Moment(attempts, outages, machines, rules, now_s, {}, 0)
    return moment.queue, moment.waiting(), moment.room()


def _moments(
    attempts: Sequence[RecordedAttempt],
    outages: Sequence[RecordedOutage],
    grace_s: int,
    passes: Passes,
) -> list[int]:
    """The moments at which a decision may change."""
    times = {one.eligible_s for one in attempts} | set(passes.overtaking_s or ())
    if passes.in_order_s is not None:
        times |= set(passes.in_order_s)
    else:
        times |= {one.end_s + (one.state == PREEMPTED) for one in attempts}
        times |= {one.start_s + grace_s for one in attempts if one.start_s < NEVER}
        times |= {time_s for one in outages for time_s in (one.start_s, one.end_s)}
    return sorted(time_s for time_s in times if time_s < NEVER)


class _Moment:
    """Room, queue and running attempts at one moment.

    Attributes:
        idle: Those of them that preempt nobody just now.
        waits: Those for which the real scheduler preempts others now, and when these leave.
    """

    def __init__(
        self,
        attempts: Sequence[RecordedAttempt],
        outages: Iterable[RecordedOutage],
        machines: Machines,
        rules: Scheduling,
        now_s: int,
        ahead: dict[int, _Ahead],
        allowed_s: int,
    ) -> None:
        self._attempts, self._rules, self._now_s = attempts, rules, now_s
        self._allowed_s = allowed_s
        self.idle: Collection[int] = ()
        self.waits: dict[int, int] = {}
        self._per_node = machines.gpus_per_node
        self._room = NodeRoom(machines.nodes, machines.gpus_per_node)
        gone = frozenset(i for one in ahead.values() for i in one.victims)
        self._running: dict[int, tuple[int, ...]] = {}
        self._began_s: dict[int, int] = {}
        for i, one in enumerate(attempts):
            # one that is preempted is there until the decision has been made
            until_s = one.end_s + (one.state == PREEMPTED)
            if one.start_s < now_s < until_s and i not in gone:
                self._take(i, one.nodes, one.start_s)
        # after what runs there: jobs of a dead node go on until the scheduler notices
        for place_of_outage, out in enumerate(outages):
            if not out.start_s <= now_s < out.end_s:
                continue
            if out.gpus is None:
                self._room.close(out.node)
            elif on_each := min(out.gpus, self._room.free[out.node]):
                # held by a number that no attempt has
                self._room.take(-1 - place_of_outage, [out.node], on_each, out.end_s)
        for i, early in sorted(ahead.items(), key=lambda item: item[1].start_s):
            nodes = self._where(i, early)
            if nodes is not None:
                self._take(i, tuple(nodes), early.start_s)
        queue = [
            i
            for i, one in enumerate(attempts)
            if one.eligible_s <= now_s <= min(one.start_s, one.end_s - 1) and i not in ahead
        ]
        self.queue = sorted(queue, key=self._place)

    def _where(self, i: int, early: _Ahead) -> list[int] | None:
        """The nodes of an attempt that was started early, or others if those are taken."""
        if self._has_room(i, early.nodes):
            return list(early.nodes)
        return PLACING[self._rules.waiting](self._room.by_free, self._attempts[i].gpus)

    def _place(self, i: int) -> tuple[int, int, int]:
        one = self._attempts[i]
        return -one.level, one.submit_s, one.number

    def _take(self, i: int, nodes: tuple[int, ...], start_s: int) -> None:
        one = self._attempts[i]
        on_each = min(one.gpus, self._per_node)
        self._running[i] = nodes
        self._began_s[i] = start_s
        self._room.take(i, list(nodes), on_each, start_s + one.limit_s)

    def starts(self, *, may_overtake: bool) -> list[tuple[int, _Ahead]]:
        """Who starts now, as the scheduler of the simulation decides it, and for whom."""
        made: list[tuple[int, _Ahead]] = []
        victims: frozenset[int] = frozenset()
        while self.queue:
            head = self.queue[0]
            nodes = PLACING[self._rules.waiting](self._room.by_free, self._attempts[head].gpus)
            if nodes is not None:
                self._start(head, nodes, made, victims)
                victims = frozenset()
                continue
            victims = self._victims(head)
            if not victims or self._waits_for(head, victims):
                break
            self._give_up(victims)
        while may_overtake and self._overtake(made):
            pass
        return made

    def _start(
        self, i: int, nodes: list[int], made: list[tuple[int, _Ahead]], victims: frozenset[int]
    ) -> None:
        self._take(i, tuple(nodes), self._now_s)
        self.queue.remove(i)
        made.append((i, _Ahead(self._now_s, tuple(nodes), victims)))

    def _victims(self, head: int) -> frozenset[int]:
        """Attempts that are preempted for the first of the queue."""
        ready = [] if head in self.idle else self._ready_to_go(self._attempts[head].level)
        policy = PREEMPTION[self._rules.preemption]
        return frozenset(policy(self._waiting(0), ready, self._room.view()) if ready else [])

    def _ready_to_go(self, level: int) -> list[Running]:
        """Running attempts of lower levels that have run for long enough to be preempted."""
        if self._rules.preemption == "none":
            return []
        return [
            Running(
                i,
                one.level,
                self._began_s[i],
                nodes,
                min(one.gpus, self._per_node),
                self._began_s[i] + one.limit_s,
            )
            for i, nodes in self._running.items()
            if (one := self._attempts[i]).level < level
            and self._began_s[i] + self._rules.preempt_after_s <= self._now_s
        ]

    def _overtake(self, made: list[tuple[int, _Ahead]]) -> bool:
        if not self.queue:
            return False
        policy = WAITING[self._rules.waiting]
        found = policy(self.waiting(), self.room(), self._now_s)
        n_before = len(made)
        for i, one in [(self.queue[one.place], one) for one in found]:
            if self._waits_for(i, one.victims):
                continue
            # what it gets may be of those who have still to leave for another
            if self._has_room(i, one.nodes, one.victims):
                self._give_up(one.victims)
                self._start(i, one.nodes, made, frozenset(one.victims))
        return len(made) > n_before

    def waiting(self) -> list[Waiting]:
        """The first jobs of the queue, as a policy sees them."""
        depth = range(min(len(self.queue), self._rules.backfill_depth))
        return [self._waiting(at) for at in depth]

    def room(self) -> Room:
        """What a policy sees of the nodes."""
        lower: Sequence[Running] = ()
        if self._rules.waiting in PREEMPT_FOR_ANY and self.queue:
            lower = self._ready_to_go(max(self._attempts[i].level for i in self.queue))
        return self._room.view(lower, PREEMPTION[self._rules.preemption])

    def _has_room(self, i: int, nodes: Sequence[int], without: Collection[int] = ()) -> bool:
        """Whether these nodes have room for an attempt once others have left."""
        on_each = min(self._attempts[i].gpus, self._per_node)
        freed = Counter[int]()
        for j in without:
            freed.update(
                dict.fromkeys(self._running[j], min(self._attempts[j].gpus, self._per_node))
            )
        return all(self._room.free[node] + freed[node] >= on_each for node in nodes)

    def _waits_for(self, i: int, victims: Collection[int]) -> bool:
        """Whether the real scheduler preempts these just now: a later moment says who gets what."""
        if victims and i in self.waits:
            return True
        ends = [self._attempts[j] for j in victims]
        leave_now = all(
            one.state == PREEMPTED and one.end_s - self._now_s <= self._allowed_s for one in ends
        )
        waits = bool(ends) and leave_now and self._attempts[i].start_s > self._now_s
        if waits:
            self.waits[i] = max(one.end_s for one in ends)
        return waits

    def _give_up(self, victims: Iterable[int]) -> None:
        for i in victims:
            self._room.give_back(i, list(self._running.pop(i)))

    def _waiting(self, at: int) -> Waiting:
        i = self.queue[at]
        one = self._attempts[i]
        return Waiting(at, one.gpus, one.limit_s, one.level, i not in self.idle)
