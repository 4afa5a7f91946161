"""Jobs of many sizes on a real Slurm whose clock runs fast, as it recorded them.

The clock is libfaketime's, shared by every daemon and job; a second of it lasts 1/RATE s.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaigns.start_times import Passes, RecordedAttempt, RecordedOutage
from slurm.cluster import SlurmCluster, wait_until
from slurm.referee_jobs import GPUS_PER_NODE, NODES, PlannedJob
from slurm.referee_log import (
    RecordedPlan,
    read_attempts,
    read_lost_gpus,
    read_outages,
    read_passes,
    read_plans,
)

# ReturnToService: on the fast clock a machine that started minutes ago seems to have done so while
# a node was away, and with 1 a node that rebooted by itself stays down
SETTINGS = """
SchedulerType={scheduler}
ReturnToService=2
SelectTypeParameters=CR_Core
SlurmdTimeout=300
SlurmctldTimeout=600
MessageTimeout=100
BatchStartTimeout=900
KillWait=2
PreemptExemptTime=00:02:00
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,\
sched_interval=30,bf_interval=30,bf_resolution=1,bf_window=1440,bf_window_linear=1{reservations},\
bf_max_job_test=1000,preempt_youngest_first
SlurmctldDebug=debug
DebugFlags=Backfill
"""
SCHEDULER = {
    "in-order": "sched/builtin",
    "slurm-backfill": "sched/backfill",
    "slurm-easy": "sched/backfill",
}
"""Slurm's plugin for each policy."""
# one reservation, that of the first job, is what EASY promises; Slurm's default is one for each
RESERVATIONS = {"slurm-easy": ",bf_job_part_count_reserve=1"}
MOST_IDLE_S = 40
"""Of the machine's own clock: a cluster on which jobs wait and none runs starts them no more."""


@dataclass(frozen=True)
class Recorded:
    """What the real scheduler did; times in seconds of its clock from the origin.

    `deaths` are of nodes, each with its time; `lost_gpus` are those of which it lost count;
    `passes` are when it looked at its queue, `plans` what it then planned.
    """

    jobs: tuple[PlannedJob, ...]
    attempts: tuple[RecordedAttempt, ...]
    deaths: tuple[tuple[int, int], ...]
    outages: tuple[RecordedOutage, ...]
    lost_gpus: tuple[RecordedOutage, ...]
    passes: Passes
    plans: tuple[RecordedPlan, ...] = ()


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
        self._killed_s: list[tuple[int, int]] = []
        self._idle_since_s: float | None = None
        self.ids: list[str] = []

    def now_s(self) -> float:
        """Time of the fast clock."""
        return self._fast + (time.time() - self._real) * self._rate

    def play(
        self, jobs: tuple[PlannedJob, ...], deaths: tuple[tuple[float, str, float], ...]
    ) -> Recorded:
        """Run the jobs; `deaths` are time, node and how long it is away, in seconds."""
        origin_s = self.now_s() + 60
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
        self._refuse_lost_nodes()
        log = (self._cluster.run / "log" / "slurmctld.log").read_text()
        # Slurm counts its windows of half a minute from midnight
        start_s = int(origin_s) // 30 * 30
        attempts = read_attempts(self._rows(), log, self.ids, jobs, start_s)
        deaths = tuple((node, at_s - start_s) for node, at_s in self._killed_s)
        return Recorded(
            jobs,
            attempts,
            deaths,
            read_outages(self._events(), log, deaths, attempts, start_s),
            read_lost_gpus(log, self.ids, jobs, start_s),
            read_passes(log, start_s),
            read_plans(log, self.ids, start_s),
        )

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
        """Whether no job is left; those that Slurm starts no more, having lost GPUs, go."""
        states = set(self._cluster.command("squeue", "-h", "-o", "%T").split())
        if states != {"PENDING"}:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = time.monotonic()
        elif time.monotonic() - self._idle_since_s > MOST_IDLE_S:
            self._cluster.command("scancel", "--state=PENDING", "--user=root")
        return not states

    def _refuse_lost_nodes(self) -> None:
        """A record in which nodes never came back is of another cluster than the one planned.

        Raises:
            RuntimeError: a node takes no jobs.
        """
        rows = self._cluster.command("sinfo", "-hN", "-o", "%N %T").splitlines()
        lost = [row for row in rows if "down" in row or row.endswith("*")]
        if lost:
            raise RuntimeError(f"nodes that take no jobs at the end: {', '.join(lost)}")

    def _rows(self) -> list[dict[str, str]]:
        fields = "JobIDRaw,State,Submit,Eligible,Start,End,NodeList,QOS"
        # from midnight if no time is given, which the fast clock may pass
        since = "--starttime=now-2days"
        text = self._cluster.command("sacct", "-aXDP", since, f"--format={fields}")
        head, *lines = text.strip().splitlines()
        return [dict(zip(head.split("|"), row.split("|"), strict=True)) for row in lines]

    def _is_accounted(self) -> bool:
        return all(row["State"] not in ("PENDING", "RUNNING") for row in self._rows())

    def _events(self) -> str:
        fields = "NodeName,TimeStart,TimeEnd,State"
        return self._cluster.command(
            "sacctmgr", "-n", "-P", "show", "event", f"format={fields}", "start=now-1day"
        )
