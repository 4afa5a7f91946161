"""Jobs of many sizes on a real Slurm whose clock runs fast, as it recorded them.

The clock is libfaketime's, shared by every daemon and job; a second of it lasts 1/RATE s.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ettr.sim.cluster.scenario_parts import Scheduling
from ettr.sim.cluster.start_times import NEVER, RecordedAttempt, RecordedOutage
from ettr.sources.node_lists import expand_nodes
from slurm.cluster import SlurmCluster, wait_until

NODES = tuple(f"node{i}" for i in range(1, 9))
GPUS_PER_NODE = 8
LEVELS = {"scavenger": 0, "normal": 1, "high": 2}
PASS_INTERVAL_S = 30
GRACE_S = 120
REQUEUE_DELAY_S = 10
SETTINGS = """
SchedulerType={scheduler}
SelectTypeParameters=CR_Core
SlurmdTimeout=300
SlurmctldTimeout=600
MessageTimeout=100
BatchStartTimeout=900
KillWait=2
PreemptExemptTime=00:02:00
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,\
bf_interval=30,bf_resolution=1,bf_window=1440,bf_window_linear=1{reservations},\
bf_max_job_test=1000,preempt_youngest_first
DebugFlags=Backfill
"""
SCHEDULER = {
    "in-order": "sched/builtin",
    "easy-backfill": "sched/backfill",
    "slurm-backfill": "sched/backfill",
}
"""Slurm's plugin for each policy."""
# one reservation, that of the first job, is what EASY promises; Slurm's default is one for each
RESERVATIONS = {"easy-backfill": ",bf_job_part_count_reserve=1"}
RULES = Scheduling(
    waiting="easy-backfill",
    preemption="newest-first",
    pass_interval_s=PASS_INTERVAL_S,
    backfill_depth=1000,
    preempt_after_s=GRACE_S,
    longest_job_s=86400,
    requeue_delay_s=REQUEUE_DELAY_S,
    most_requeues=50,
)


@dataclass(frozen=True)
class PlannedJob:
    """A job to submit; it would run for `length_s` and end with `exit_code`."""

    at_s: float
    gpus: int
    length_s: int
    limit_s: int
    qos: str
    exit_code: int
    patience_s: int | None


@dataclass(frozen=True)
class Recorded:
    """What the real scheduler did; times in seconds of its clock from the origin.

    `passes_s` is when it looked for jobs that may overtake; None where it never does.
    """

    jobs: tuple[PlannedJob, ...]
    attempts: tuple[RecordedAttempt, ...]
    outages: tuple[RecordedOutage, ...]
    passes_s: tuple[int, ...] | None


def planned(n: int, seed: int) -> tuple[PlannedJob, ...]:
    """Jobs of one GPU to half the cluster, somewhat more than it can run at once."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(32.0, n))
    jobs = []
    for i in range(n):
        gpus = int(rng.choice([1, 2, 4, 8, 16, 32], p=[0.2, 0.15, 0.15, 0.25, 0.15, 0.1]))
        length_s = max(20, int(rng.lognormal(5.3, 0.8)))
        is_late = rng.random() < 0.05
        limit_s = 60 * int(np.ceil((0.6 if is_late else rng.uniform(1.1, 3.0)) * length_s / 60))
        # a start takes the batch script some seconds of the fast clock
        limit_s = limit_s if is_late else limit_s + 120
        qos = str(rng.choice(["scavenger", "normal", "high"], p=[0.25, 0.6, 0.15]))
        jobs.append(
            PlannedJob(
                float(at_s[i]), gpus, length_s, limit_s, qos if gpus <= 16 else "normal",
                int(rng.random() < 0.08), 600 if rng.random() < 0.05 else None,
            )
        )  # fmt: skip
    return tuple(jobs)


@contextmanager
def fast_clock(rate: int) -> Iterator[dict[str, str]]:
    """Variables that put a process on one clock that runs so many times as fast."""
    words = ("faketime", "-f", f"+0 x{rate}", "sleep", "1000000000")
    holder = subprocess.Popen(
        words, env={**os.environ, "NO_FAKE_STAT": "1"}, start_new_session=True
    )
    try:
        time.sleep(1)
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        entries = Path(f"/proc/{children[0]}/environ").read_text().split("\0")
        pairs = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        yield {n: pairs[n] for n in ("LD_PRELOAD", "FAKETIME", "FAKETIME_SHARED", "NO_FAKE_STAT")}
    finally:
        os.killpg(holder.pid, signal.SIGTERM)
        holder.wait(timeout=60)


class Player:
    """Submits the jobs at their times, and kills nodes in between."""

    def __init__(self, cluster: SlurmCluster, rate: int) -> None:
        self._cluster, self._rate = cluster, rate
        before = time.time()
        shown = float(cluster.command("date", "+%s.%N"))
        self._real, self._fast = (before + time.time()) / 2, shown
        self._jobs: tuple[PlannedJob, ...] = ()
        self._killed_s: list[tuple[int, int]] = []
        self.ids: list[str] = []

    def now_s(self) -> float:
        """Time of the fast clock."""
        return self._fast + (time.time() - self._real) * self._rate

    def play(
        self, jobs: tuple[PlannedJob, ...], deaths: tuple[tuple[float, str, float], ...]
    ) -> Recorded:
        """Run the jobs; `deaths` are time, node and how long it is away, in seconds."""
        self._jobs, origin_s = jobs, self.now_s() + 60
        todo = [(one.at_s, i, self._submit, (one,)) for i, one in enumerate(jobs)]
        for i, one in enumerate(jobs):
            if one.patience_s is not None:
                todo.append((one.at_s + one.patience_s, i, self._cancel, (i,)))
        for i, (at_s, node, away_s) in enumerate(deaths):
            todo.append((at_s, i, self._kill, (node,)))
            todo.append((at_s + away_s, i, self._cluster.start_node, (node,)))
        for at_s, _, do, words in sorted(todo, key=lambda one: one[:2]):
            time.sleep(max(0.0, (origin_s + at_s - self.now_s()) / self._rate))
            do(*words)
        wait_until(self._is_over, 900, "the end of all jobs")
        wait_until(self._is_accounted, 240, "the end of all jobs in the accounting")
        log = (self._cluster.run / "log" / "slurmctld.log").read_text()
        attempts, outages = self._attempts(log, int(origin_s)), self._outages(int(origin_s))
        return Recorded(jobs, attempts, outages, backfill_passes_s(log, int(origin_s)))

    def _submit(self, one: PlannedJob) -> None:
        nodes = max(1, one.gpus // GPUS_PER_NODE)
        on_each = min(one.gpus, GPUS_PER_NODE)
        self.ids.append(
            self._cluster.submit(
                f"job{len(self.ids)}",
                f"-N{nodes}",
                f"--ntasks={nodes}",
                f"--cpus-per-task={2 * on_each}",
                f"--gres=gpu:{on_each}",
                f"--time={one.limit_s // 60}",
                f"--qos={one.qos}",
                "--requeue",
                wrap=f"sleep {one.length_s}; exit {one.exit_code}",
            )
        )

    def _kill(self, node: str) -> None:
        self._killed_s.append((NODES.index(node), int(self.now_s())))
        self._cluster.kill_node(node)

    def _cancel(self, i: int) -> None:
        # exit 1 where it waits no more, which is none of its owner's business
        words = ("scancel", "-Q", "--state=PENDING", self.ids[i])
        subprocess.run(words, env=self._cluster.environment, check=False)

    def _is_over(self) -> bool:
        return not self._cluster.command("squeue", "-h", "-o", "%i").split()

    def _rows(self) -> list[dict[str, str]]:
        fields = "JobIDRaw,State,Submit,Eligible,Start,End,NodeList,QOS"
        # from midnight if no time is given, which the fast clock may pass
        since = "--starttime=now-2days"
        text = self._cluster.command("sacct", "-aXDP", since, f"--format={fields}")
        head, *lines = text.strip().splitlines()
        return [dict(zip(head.split("|"), row.split("|"), strict=True)) for row in lines]

    def _is_accounted(self) -> bool:
        return all(row["State"] not in ("PENDING", "RUNNING") for row in self._rows())

    def _attempts(self, log: str, origin_s: int) -> tuple[RecordedAttempt, ...]:
        made = []
        for row in self._rows():
            number = self.ids.index(row["JobIDRaw"])
            one = self._jobs[number]
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
            made += _with_lost(attempt, _controller_lines(log, row["JobIDRaw"], origin_s))
        return tuple(made)

    def _outages(self, origin_s: int) -> tuple[RecordedOutage, ...]:
        """When nodes took no jobs: from their deaths, of which the controller learns later."""
        fields = "NodeName,TimeStart,TimeEnd,State"
        text = self._cluster.command(
            "sacctmgr", "-n", "-P", "show", "event", f"format={fields}", "start=now-1day"
        )
        made = []
        for node, start_s, end_s in self._events(text, origin_s):
            deaths = [at_s for one, at_s in self._killed_s if one == node]
            earlier = [at_s - origin_s for at_s in deaths if at_s - origin_s <= start_s]
            if start_s >= 0:
                made.append(RecordedOutage(node, max(earlier, default=start_s), end_s))
        return tuple(made)

    def _events(self, text: str, origin_s: int) -> Iterator[tuple[int, int, int]]:
        rows = [line.split("|") for line in text.splitlines() if line.startswith("node")]
        for name, start, end, _ in rows:
            yield NODES.index(name), _seconds(start, origin_s), _seconds(end, origin_s)


def _seconds(text: str, origin_s: int) -> int:
    if text in ("Unknown", "None", ""):
        return NEVER
    return int(np.datetime64(text, "s").astype(int)) - origin_s


def backfill_passes_s(log: str, origin_s: int) -> tuple[int, ...] | None:
    """When sched/backfill looked at the queue; None if it never did."""
    found = re.findall(r"^\[(\S+?)\.\d+\] \S+ _attempt_backfill: beginning", log, re.MULTILINE)
    return tuple(_seconds(one, origin_s) for one in found) or None


def _places(node_list: str) -> tuple[int, ...]:
    return tuple(NODES.index(name) for name in expand_nodes(node_list))


def _controller_lines(log: str, job_id: str, origin_s: int) -> list[tuple[int, str, str]]:
    """Time, what happened and the nodes, of each line about allocations of a job and their ends."""
    pattern = re.compile(
        rf"^\[(\S+?)\.\d+\] .*?(Allocate|Started|preempted|requeue job) JobId={job_id}\b"
        r"(?:.* (?:NodeList=|on )(node\S+))?",
        re.MULTILINE,
    )
    return [(_seconds(one[1], origin_s), one[2], one[3] or "") for one in pattern.finditer(log)]


def _with_lost(
    attempt: RecordedAttempt, lines: list[tuple[int, str, str]]
) -> Iterator[RecordedAttempt]:
    """The attempt, and before it those that the accounting has lost.

    Where a job is preempted as one of its nodes dies, its completion takes minutes, and slurmdbd
    keeps the attempt after it in the place of the one before.
    """
    rest = attempt
    starts = [line for line in lines if line[1] in ("Allocate", "Started")]
    for start_s, _, node_list in starts:
        if not rest.eligible_s - 2 <= start_s < min(rest.start_s, rest.end_s) - 5:
            continue
        ends = [
            line for line in lines if line[0] >= start_s and line[1] not in ("Allocate", "Started")
        ]
        if not ends:
            continue
        end_s, what, _ = ends[0]
        state = "PREEMPTED" if what == "preempted" else "NODE_FAIL"
        yield replace(rest, start_s=start_s, end_s=end_s, nodes=_places(node_list), state=state)
        rest = replace(rest, submit_s=end_s, eligible_s=end_s + REQUEUE_DELAY_S)
    yield rest
