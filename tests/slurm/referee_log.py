"""What the accounting and slurmctld's log of a real Slurm say of attempts and of nodes.

Times are seconds from an origin; `NEVER` where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from campaigns.start_times import NEVER, Passes, RecordedAttempt, RecordedOutage
from ettr.sources.node_lists import expand_nodes
from slurm.referee_jobs import GPUS_PER_NODE, LEVELS, NODES, REQUEUE_DELAY_S, PlannedJob

COMPLETING_S = 3
"""How long, on the fast clock, a node takes to be done with a job that has ended."""
_STARTS = ("Allocate", "Started")
_PUT_BACK = "Requeuing"
_HAPPENINGS = (*_STARTS, "preempted", "requeue job", "requeue", _PUT_BACK)
_IN_ORDER = r"debug:  sched: Running job scheduler for"
_OVERTAKING = r"\S+ _attempt_backfill: beginning"
_PLAN = re.compile(r"_dump_job_sched: JobId=(\d+) to start at (\S+), end at \S+ on nodes (\S+) in ")


@dataclass(frozen=True)
class RecordedPlan:
    """What Slurm planned in one pass: by number of the job its start and its nodes."""

    at_s: int
    starts: dict[int, tuple[int, tuple[int, ...]]]


def read_attempts(
    rows: Iterable[Mapping[str, str]],
    log: str,
    ids: Sequence[str],
    jobs: Sequence[PlannedJob],
    origin_s: int,
) -> tuple[RecordedAttempt, ...]:
    """The attempts that sacct shows, and those that only the controller's log knows."""
    made: list[RecordedAttempt] = []
    for row in rows:
        number = ids.index(row["JobIDRaw"])
        one = jobs[number]
        has_run = row["NodeList"].startswith("node")
        attempt = RecordedAttempt(
            number=number,
            gpus=one.gpus,
            limit_s=one.limit_s,
            level=LEVELS[one.qos],
            submit_s=_seconds(row["Submit"], origin_s),
            eligible_s=_seconds(row["Eligible"], origin_s),
            start_s=_seconds(row["Start"], origin_s) if has_run else NEVER,
            end_s=_seconds(row["End"], origin_s),
            nodes=_places(row["NodeList"]) if has_run else (),
            state=row["State"].split()[0],
        )
        found = _with_lost(attempt, _controller_lines(log, row["JobIDRaw"], origin_s))
        made += _once_complete(found, _completed_s(log, row["JobIDRaw"], origin_s))
    late = _behind_a_pass(log, origin_s)
    return tuple(_as_passes_saw(one, ids[one.number], late) for one in made)


def _as_passes_saw(
    one: RecordedAttempt, job_id: str, late: set[tuple[str, int]]
) -> RecordedAttempt:
    """The attempt with its times as a pass of the same second saw them, which came before."""
    if one.eligible_s < one.start_s and (job_id, one.eligible_s) in late:
        one = replace(one, eligible_s=one.eligible_s + 1)
    if (job_id, one.end_s) in late:
        one = replace(one, end_s=one.end_s + 1)
    return one


def _behind_a_pass(log: str, origin_s: int) -> set[tuple[str, int]]:
    """Jobs and seconds in which they came or were done, but no pass of that second saw it."""
    change = r"_slurm_rpc_submit_batch_job: JobId=(\d+) |_job_complete: JobId=(\d+) done"
    pattern = re.compile(rf"\[(\S+?)\.\d+\] (?:{_IN_ORDER}|{_OVERTAKING}|{change})")
    passed_s = -1
    unseen: set[tuple[str, int]] = set()
    for line in log.splitlines():
        if one := pattern.match(line):
            at_s, job_id = _seconds(one[1], origin_s), one[2] or one[3]
            if job_id is None:
                passed_s = at_s
                unseen = {(other, then_s) for other, then_s in unseen if then_s < at_s}
            elif at_s == passed_s:
                unseen.add((job_id, at_s))
    return unseen


def _controller_lines(log: str, job_id: str, origin_s: int) -> list[tuple[int, str, str]]:
    """Time, what happened and the nodes, of each line about allocations of a job and their ends."""
    pattern = re.compile(
        rf"^\[(\S+?)\.\d+\] .*?({'|'.join(_HAPPENINGS)}) JobId={job_id}\b"
        r"(?:.* (?:NodeList=|on )(node\S+))?",
        re.MULTILINE,
    )
    return [(_seconds(one[1], origin_s), one[2], one[3] or "") for one in pattern.finditer(log)]


def _with_lost(
    attempt: RecordedAttempt, lines: list[tuple[int, str, str]]
) -> Iterator[RecordedAttempt]:
    """The attempt, and before it those that the accounting has lost.

    Where the end of an attempt takes minutes, as on a node that died, slurmdbd keeps the attempt
    after it in its place.
    """
    rest = attempt
    starts = [line for line in lines if line[1] in _STARTS]
    for start_s, _, node_list in starts:
        if not rest.eligible_s - 2 <= start_s < min(rest.start_s, rest.end_s) - 5:
            continue
        after = [line for line in lines if line[0] >= start_s and line[1] not in _STARTS]
        ends = [line for line in after if line[1] != _PUT_BACK]
        if not ends:
            continue
        end_s, what, _ = ends[0]
        state = "PREEMPTED" if what == "preempted" else "NODE_FAIL"
        yield replace(rest, start_s=start_s, end_s=end_s, nodes=_places(node_list), state=state)
        # one that could not be launched, or that a dead node never lets go, keeps its place in the
        # queue
        next_s = min((at_s for at_s, *_ in starts if at_s > start_s), default=NEVER)
        is_put_back = any(one == _PUT_BACK and at_s < next_s for at_s, one, _ in after)
        submit_s = end_s if is_put_back else rest.submit_s
        rest = replace(rest, submit_s=submit_s, eligible_s=end_s + REQUEUE_DELAY_S)
    yield rest


def _completed_s(log: str, job_id: str, origin_s: int) -> list[int]:
    """When Slurm was done with attempts of a job whose end took it more than a minute."""
    pattern = rf"^\[(\S+?)\.\d+\] cleanup_completing: JobId={job_id} "
    return [_seconds(one, origin_s) for one in re.findall(pattern, log, re.MULTILINE)]


def _once_complete(
    attempts: Iterable[RecordedAttempt], completed_s: Sequence[int]
) -> Iterator[RecordedAttempt]:
    """A requeued job does not start before all nodes of its last attempt have answered."""
    for one in attempts:
        ready_s = [at_s for at_s in completed_s if one.eligible_s < at_s <= one.start_s]
        yield replace(one, eligible_s=max([one.eligible_s, *ready_s]))


def read_outages(
    events: str,
    log: str,
    deaths: Iterable[tuple[int, int]],
    attempts: Iterable[RecordedAttempt],
    origin_s: int,
) -> tuple[RecordedOutage, ...]:
    """When Slurm gave no jobs to a node: from when it saw that it no longer answers.

    Or from when a job has ended there: it takes no other until the node says that it is done.

    Args:
        events: node, start, end and state from sacctmgr, one a line, divided by |.
        log: slurmctld's.
        deaths: node and time of each.
        attempts: all, with their nodes and ends.
        origin_s: in seconds since 1970.
    """
    ends = [(node, one.end_s + 1) for one in attempts for node in one.nodes]
    silent, died = _silent(log, origin_s), list(deaths)
    rows = [line.split("|") for line in events.splitlines() if line.startswith("node")]
    spans = [
        (NODES.index(name), _seconds(start, origin_s), _seconds(end, origin_s))
        for name, start, end, _ in rows
    ]
    made = []
    for node, start_s, end_s in spans:
        if start_s < 0:
            continue
        # silence before the last death, or of an earlier outage, is not of this one
        died_s = [at_s for one, at_s in died if one == node and at_s <= start_s]
        back_s = [until_s for one, _, until_s in spans if one == node and until_s <= start_s]
        since_s = max([*died_s, *back_s], default=start_s)
        noticed = [at_s for one, at_s in silent if one == node and since_s <= at_s <= start_s]
        if since_s in died_s:
            undone_s = since_s - COMPLETING_S
            noticed += [at_s for one, at_s in ends if one == node and undone_s < at_s <= start_s]
        made.append(RecordedOutage(node, min(noticed, default=start_s), end_s))
    return tuple(made)


def read_lost_gpus(
    log: str, ids: Sequence[str], jobs: Sequence[PlannedJob], origin_s: int
) -> tuple[RecordedOutage, ...]:
    """GPUs of which Slurm lost count: it gives them to no job until it is started again.

    Slurm 22.05 does that, with an error, as a job ends that it had put on a node that was dead.
    """
    pattern = r"^\[(\S+?)\.\d+\] error: gres/gpu: job (\d+) dealloc of node (\w+) bad node_offset"
    return tuple(
        RecordedOutage(
            NODES.index(name),
            _seconds(at, origin_s),
            NEVER,
            min(jobs[ids.index(job_id)].gpus, GPUS_PER_NODE),
        )
        for at, job_id, name in re.findall(pattern, log, re.MULTILINE)
    )


def _silent(log: str, origin_s: int) -> list[tuple[int, int]]:
    """Node and time of each line that says that it does not answer."""
    pattern = r"^\[(\S+?)\.\d+\] error: Nodes (\S+) not responding"
    lines = re.findall(pattern, log, re.MULTILINE)
    return [(node, _seconds(at, origin_s)) for at, names in lines for node in _places(names)]


def read_passes(log: str, origin_s: int) -> Passes:
    """When Slurm looked at its queue: in its order, and, with sched/backfill, to let overtake."""
    in_order, overtaking = (
        tuple(_seconds(at, origin_s) for at in re.findall(pattern, log, re.MULTILINE))
        for pattern in (
            rf"^\[(\S+?)\.\d+\] {_IN_ORDER}",
            rf"^\[(\S+?)\.\d+\] {_OVERTAKING}",
        )
    )
    return Passes(in_order or None, frozenset(overtaking) or None)


def read_plans(log: str, ids: Sequence[str], origin_s: int) -> tuple[RecordedPlan, ...]:
    """What each pass of sched/backfill planned for the jobs that it did not start."""
    numbers = {job_id: number for number, job_id in enumerate(ids)}
    found: list[RecordedPlan] = []
    for line in log.splitlines():
        if begun := re.match(rf"\[(\S+?)\.\d+\] {_OVERTAKING}", line):
            found.append(RecordedPlan(_seconds(begun[1], origin_s), {}))
        elif found and (job := _PLAN.search(line)) and job[1] in numbers:
            start = _seconds(job[2], origin_s), _places(job[3])
            found[-1].starts[numbers[job[1]]] = start
    return tuple(found)


def _seconds(text: str, origin_s: int) -> int:
    if text in ("Unknown", "None", ""):
        return NEVER
    return int(np.datetime64(text, "s").astype(int)) - origin_s


def _places(node_list: str) -> tuple[int, ...]:
    return tuple(NODES.index(name) for name in expand_nodes(node_list))
