"""One list of jobs on a real Slurm whose clock runs fast, and in the simulator's scheduler.

Eight nodes of eight GPUs on one machine; jobs of 1 to 32 GPUs in three qualities of service of
which the higher preempts the lower after two minutes, some of which fail, run into their time
limit or are cancelled while they wait; three nodes lose their power and come back. in-order:
Slurm's sched/builtin. slurm-backfill: its sched/backfill, which reserves nodes for each job that
waits. slurm-easy: the same, set to reserve them for the first alone (bf_job_part_count_reserve=1),
as EASY does. Slurm preempts for any job of its queue, the youngest first, and so do these policies.
easy-backfill is the textbook's EASY on the record of slurm-easy: it preempts for the first job
alone, newest-first, and keeps the nodes that are ready last, where Slurm looks for neighbours.

`starts`: attempts that Slurm started. `in time`: share of those that the policies start at most 40
s of the fast clock before Slurm does, which is 2 s of the machine's own and more than an interval
of Slurm's passes; predicted from the real starts and ends before each, in the moments at which
Slurm really looked at its queue. `at once`: the same where the policies decide as soon as
something changes, as in the simulator. `by itself`: share started within 40 s, before or after,
where the simulator goes on from its own starts, as a what-if does: the first difference moves what
follows. `plans`: with backfill, jobs for which Slurm's log of a pass has the start that the policy
plans then, within 2 s, of all that Slurm lets wait; the same nodes in brackets. `order`: pairs of
attempts whose predicted starts are more than 40 s apart and that Slurm started in that order. `end
states`: jobs that end in the same state, predicted as the starts are: whose owner cancels it after
ten minutes in the queue ends by when it starts. `ends by itself`: likewise by its own starts; where
one differs, the page says why.

A job for which Slurm preempts others starts in a later pass, once they have left, if nobody has
taken what they held; so does it here. Until then, for KillWait and MessageTimeout, it preempts
nobody else; in the pass it keeps the nodes that it would get if all left that it might preempt,
where nodes are kept for it at all; and nobody starts on a node that others are leaving. The
simulator by itself starts it at once.

Slurm gives jobs to a dead node until it notices, up to 100 s later, or until a job ends there: it
waits for the node to be done with it. A job that was put there is requeued, but starts again only
when Slurm gives the node up, after 300 s; one that was preempted there keeps its place in the
queue; and Slurm 22.05 may lose count of as many GPUs as such a job had. The judge reads all this
from slurmctld's log; the simulator by itself does none of it. What came in the second of a pass,
but behind it in the log, was not seen by it.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns import Table
from campaigns.start_times import NEVER, Passes, RecordedAttempt, predicted_starts, seen_at
from ettr.sim.cluster.log import Hours
from ettr.sim.cluster.policies import slurm_plans
from ettr.sim.cluster.room import Calendar, EventKind
from ettr.sim.cluster.scenario import owners_of, scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import JobClass, Machines, Priority, Scheduling
from ettr.sim.cluster.scheduler import NODE_FAIL, Scheduler
from ettr.sim.cluster.workload import COMPLETED, FAILED, Job

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))  # the harness of the real Slurm

if TYPE_CHECKING:
    from slurm.referee import Recorded

TITLE = "A real Slurm and the simulated scheduler"
SIZE = 200
SEED = 2
ASKED_IN_TIME = 0.95
POLICIES = ("in-order", "slurm-easy", "slurm-backfill")
MOST_KEPT = {"slurm-easy": 1, "slurm-backfill": None}
"""Jobs for which each policy keeps nodes."""
TEXTBOOK = {"slurm-easy": ("easy-backfill", "newest-first")}
"""What is held against the same record, besides what it was set to."""
RATE = 20
BASE_PORT = 19500
PREEMPT_AGAIN_S = 102
"""Slurm's KillWait and MessageTimeout: a job that has preempted others preempts no more in them."""
MACHINES = Machines(nodes=8, gpus_per_node=8, nodes_per_rack=8, racks_per_pod=1, gpu_type="h100")
# part of the plan's time at which a node dies, its name, and for how many seconds
DEATHS = ((0.2, "node3", 900.0), (0.45, "node6", 1200.0), (0.7, "node1", 900.0))


def recorded(n: int, seed: int, policy: str) -> Recorded:
    """What the real Slurm does with so many jobs; some minutes."""
    from slurm.cluster import slurm_cluster
    from slurm.referee import RESERVATIONS, SCHEDULER, SETTINGS, Player, fast_clock
    from slurm.referee_jobs import NODES, planned

    settings = SETTINGS.format(
        scheduler=SCHEDULER[policy], reservations=RESERVATIONS.get(policy, "")
    )
    jobs = planned(n, seed)
    deaths = tuple((share * jobs[-1].at_s, node, away_s) for share, node, away_s in DEATHS)
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        # a folder that MariaDB's own user may enter
        Path(folder).chmod(0o755)
        with (
            fast_clock(RATE) as variables,
            slurm_cluster(Path(folder), NODES, BASE_PORT, settings, variables) as cluster,
        ):
            cluster.command("sacctmgr", "-i", text="modify qos normal set Preempt=scavenger\n")
            return Player(cluster, RATE).play(jobs, deaths)


@dataclass(slots=True)
class _Attempts:
    """Takes what the scheduler logs of attempts, in place of the tables."""

    starts: dict[tuple[int, int], int] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: [f"node{i}" for i in range(1, 9)])

    def attempt(self, job: Job, state: str, end_s: int | None, **_: object) -> None:
        del end_s
        if job.start_s >= 0:
            self.starts[job.number, job.restarts] = job.start_s
        self.states[job.number] = state

    def preempted(self, *_: object) -> None:
        """Lines of the controller are of no use here."""

    def next_line(self) -> int:
        return 0


def simulated(real: Recorded, rules: Scheduling) -> _Attempts:
    """The same jobs and node deaths in the simulator, which runs on from its own starts."""
    from slurm.referee_jobs import LEVELS

    made = _Attempts()
    scenario = replace(
        scenario_of(scenario_text("small")[0]),
        machines=MACHINES,
        scheduling=rules,
        jobs=(JobClass(8, 1.0, 60.0, 1.0),),  # shares of a generator that is not asked
        priorities=tuple(
            Priority(name, level, float(level == 0), float(level == 0))
            for name, level in LEVELS.items()
        ),
    )
    no_saves = replace(scenario.checkpoints, interval_s=10**9, restart_s=0)
    scenario = replace(scenario, checkpoints=no_saves)
    calendar = Calendar()
    log: Any = made
    scheduler = Scheduler(scenario, owners_of(scenario), calendar, Hours(8, 8), log)
    submitted = {one.number: one.eligible_s for one in reversed(real.attempts)}
    for number, one in enumerate(real.jobs):
        calendar.put(submitted[number], EventKind.ARRIVAL, 0, Job(
            0, number, one.gpus, one.length_s, one.limit_s, FAILED if one.exit_code else COMPLETED,
            0, LEVELS[one.qos], one.patience_s or NEVER, 0, 0,
        ))  # fmt: skip
    for node, at_s in real.deaths:
        calendar.put(at_s, EventKind.FAULT, node)
    for out in real.outages:
        calendar.put(out.end_s, EventKind.RETURN, out.node)
    while event := calendar.next_before(NEVER, EventKind.PASS):
        _happen(scheduler, event)
    return made


def _happen(scheduler: Scheduler, event: tuple[int, int, int, int, Any]) -> None:
    now_s, kind, number, _, about = event
    match kind:
        case EventKind.END:
            scheduler.end(number, about, now_s)
        case EventKind.ARRIVAL if about.number:
            scheduler.enqueue(about, now_s)
        case EventKind.ARRIVAL:
            scheduler.submit(about, now_s)
        case EventKind.IMPATIENT:
            scheduler.give_up(about, now_s)
        case EventKind.FAULT:
            for job in [one for one in scheduler.running.values() if number in one.nodes]:
                scheduler.interrupt(job, NODE_FAIL, now_s, node=number)
            scheduler.room.close(number)
        case EventKind.RETURN:
            scheduler.room.reopen(number)
            scheduler.request_pass(now_s)
        case EventKind.PASS:
            scheduler.do_pass(now_s)
        case _:
            scheduler.request_pass(now_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the simulator agrees with what a real Slurm recorded.

    Attributes:
        starts: Attempts that it started.
        in_time: Of them: predicted in time from what was real before, when Slurm looked.
        in_time_at_once: Of them: likewise where the policies decide whenever something changes.
        in_time_alone: Of them: started in time by the simulator by itself.
        planned: Plans of Slurm's for jobs that wait, one a job and pass.
        same_start: Of them: those that the policy has, too, within 2 s.
        same_plan: Of them: on the same nodes.
        in_order: Pairs of predicted starts that came in their order.
        pairs: Of attempts whose predictions lie further apart than is allowed.
        same_end: Jobs that ended in the same state, predicted from what was real before.
        same_end_alone: Likewise by the simulator by itself.
        other_ends: Sentences on those that ended otherwise there.
        jobs: All of them.
    """

    starts: int
    in_time: int
    in_time_at_once: int
    in_time_alone: int
    planned: int
    same_start: int
    same_plan: int
    in_order: int
    pairs: int
    same_end: int
    same_end_alone: int
    other_ends: tuple[str, ...]
    jobs: int


def compared(real: Recorded, policy: str, preemption: str = "slurm-youngest-first") -> Verdict:
    """Hold the record against the policies and against the simulator by itself."""
    from slurm.referee_jobs import PASS_INTERVAL_S, RULES

    allowed_s = max(PASS_INTERVAL_S, 2 * RATE)
    attempts, rules = real.attempts, replace(RULES, waiting=policy, preemption=preemption)
    predicted = _predicted(real, rules, allowed_s, real.passes)
    started = _really_started(predicted)
    # with backfill jobs overtake in its passes alone, which come at an interval
    at_once = _really_started(
        _predicted(real, rules, allowed_s, replace(real.passes, in_order_s=None))
    )
    alone = simulated(real, rules)
    planned, same_start, same_plan = _plans(real, rules)
    tries = _numbered(attempts)
    pairs = in_order = 0
    known = [(one.start_s, at_s) for one, at_s in started if at_s < NEVER]
    for i, (real_s, said_s) in enumerate(known):
        for other_s, other_said_s in known[:i]:
            if abs(said_s - other_said_s) > allowed_s:
                pairs += 1
                in_order += (real_s >= other_s) == (said_s >= other_said_s)
    last = {one.number: one for one in sorted(attempts, key=lambda one: one.eligible_s)}
    predicted_s = dict(predicted)
    other_ends = tuple(_other_end(real, one, alone) for one in last.values())
    return Verdict(
        starts=len(started),
        in_time=sum(0 <= one.start_s - at_s <= allowed_s for one, at_s in started),
        in_time_at_once=sum(0 <= one.start_s - at_s <= allowed_s for one, at_s in at_once),
        in_time_alone=sum(
            abs(one.start_s - alone.starts.get((one.number + 1, tries[one]), NEVER)) <= allowed_s
            for one, _ in started
        ),
        planned=planned,
        same_start=same_start,
        same_plan=same_plan,
        in_order=in_order,
        pairs=pairs,
        same_end=sum(_ends_so(real, one, predicted_s) for one in last.values()),
        same_end_alone=sum(not words for words in other_ends),
        other_ends=tuple(filter(None, other_ends)),
        jobs=len(last),
    )


def _ends_so(real: Recorded, one: RecordedAttempt, predicted_s: dict[RecordedAttempt, int]) -> bool:
    """Whether the last attempt of a job ends as it did if it starts when the policies say.

    What it does once it runs is its own; only the owner's patience depends on when it starts.
    """
    starts = predicted_s.get(one, NEVER) < NEVER
    if one.start_s < NEVER:
        return starts or real.jobs[one.number].patience_s is None
    return not starts


def _other_end(real: Recorded, one: RecordedAttempt, alone: _Attempts) -> str:
    """What became of a job that the simulator by itself ends otherwise; empty: the same."""
    state = alone.states.get(one.number + 1, "nothing")
    if state == one.state:
        return ""
    starts = [at_s for (number, _), at_s in alone.starts.items() if number == one.number + 1]
    return (
        f"job {one.number}, {one.gpus} GPUs, patience {real.jobs[one.number].patience_s} s: "
        f"{one.state} in Slurm, which {_waits(one.start_s, one.eligible_s)}; {state} by itself, "
        f"which {_waits(max(starts, default=NEVER), one.eligible_s)}"
    )


def _waits(start_s: int, eligible_s: int) -> str:
    return "never starts it" if start_s >= NEVER else f"starts it after {start_s - eligible_s} s"


def _plans(real: Recorded, rules: Scheduling) -> tuple[int, int, int]:
    """Slurm's plans for jobs that wait; those with the policy's start; and with its nodes, too."""
    planned = same_start = same_plan = 0
    if rules.waiting not in MOST_KEPT:
        return planned, same_start, same_plan
    closed = (*real.outages, *real.lost_gpus)
    for plan in real.plans:
        at = (real.attempts, closed, MACHINES, rules, plan.at_s)
        queue, waiting, room = seen_at(*at)
        found = slurm_plans(waiting, room, plan.at_s, MOST_KEPT[rules.waiting])
        # those behind the first few of the queue are not looked at
        for i, one in zip(queue, found, strict=False):
            start = plan.starts.get(real.attempts[i].number)
            if start is not None:
                planned += 1
                is_same = abs(start[0] - one.start_s) <= 2
                same_start += is_same
                same_plan += is_same and start[1] == tuple(one.nodes)
    return planned, same_start, same_plan


def _predicted(
    real: Recorded, rules: Scheduling, allowed_s: int, passes: Passes
) -> list[tuple[RecordedAttempt, int]]:
    """All attempts, each with when the policies would have started it."""
    closed = (*real.outages, *real.lost_gpus)
    starts = predicted_starts(
        real.attempts, closed, MACHINES, rules, allowed_s, passes, PREEMPT_AGAIN_S
    )
    return list(zip(real.attempts, starts, strict=True))


def _really_started(
    predicted: list[tuple[RecordedAttempt, int]],
) -> list[tuple[RecordedAttempt, int]]:
    return [(one, at_s) for one, at_s in predicted if one.start_s < NEVER]


def _numbered(attempts: tuple[RecordedAttempt, ...]) -> dict[RecordedAttempt, int]:
    """How often the job of each attempt had been requeued before it."""
    ordered = sorted(attempts, key=lambda one: (one.number, one.eligible_s))
    found = dict.fromkeys(ordered, 0)
    for before, one in pairwise(ordered):
        if one.number == before.number:
            found[one] = found[before] + 1
    return found


def run(size: int) -> Table:
    """The same jobs with each policy."""
    rows: list[tuple[str, ...]] = []
    short: list[str] = []
    others: list[str] = []
    for policy in POLICIES:
        real = recorded(size, SEED, policy)
        found = compared(real, policy)
        rows.append(_row(policy, real, found))
        if found.in_time < ASKED_IN_TIME * found.starts:
            short.append(f"- {policy}: {found.in_time / found.starts:.2f} in time")
        others += (f"- {policy}: {words}" for words in found.other_ends)
        if policy in TEXTBOOK:
            rows.append(_row(TEXTBOOK[policy][0], real, compared(real, *TEXTBOOK[policy])))
    return Table(
        (
            "policy",
            "jobs",
            "starts",
            "in time",
            "at once",
            "by itself",
            "plans",
            "order",
            "end states",
            "ends by itself",
            "ends in Slurm",
        ),
        tuple(rows),
        f"{SEED}; the clock {RATE} times as fast",
        f"at least {ASKED_IN_TIME} of the starts in time; end states equal; the same order",
        "\n\n".join(
            "\n".join([head, "", *lines])
            for head, lines in (
                ("Where less is in time than was asked:", short),
                ("Jobs that the simulator by itself ends otherwise:", others),
            )
            if lines
        ),
    )


def _row(policy: str, real: Recorded, found: Verdict) -> tuple[str, ...]:
    ends = Counter(one.state for one in real.attempts)
    return (
        policy,
        str(found.jobs),
        str(found.starts),
        f"{found.in_time / found.starts:.2f}",
        f"{found.in_time_at_once / found.starts:.2f}",
        f"{found.in_time_alone / found.starts:.2f}",
        f"{found.same_start} ({found.same_plan}) of {found.planned}" if found.planned else "",
        f"{found.in_order} of {found.pairs}",
        f"{found.same_end} of {found.jobs}",
        f"{found.same_end_alone} of {found.jobs}",
        ", ".join(f"{count} {state}" for state, count in sorted(ends.items())),
    )
