"""Play the planned day on a real cluster whose clock runs fast, and note what was done to it."""

from __future__ import annotations

import heapq
import itertools
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from day.plan import (
    ACCOUNTS,
    FAULTS,
    HOUR_S,
    LEMON,
    MAINTENANCE_ANNOUNCED_H,
    MAINTENANCE_DRAIN_H,
    MAINTENANCE_END_H,
    MAINTENANCE_H,
    MAINTENANCE_REASON,
    NODES,
    OPERATOR_REQUEUE_H,
    PlannedFault,
    PlannedJob,
    planned_jobs,
)

from slurm.cluster import SlurmCluster

EAT = "python3 -c 'b = [bytearray(1 << 20) for _ in range(2000)]'"
RETRY_S = 300.0
MAX_RETRIES = 12


@dataclass(frozen=True)
class FastClock:
    """The cluster's clock: `rate` times as fast as this process's."""

    rate: float
    real_s: float
    cluster_s: float

    def now_s(self) -> float:
        """Unix seconds on the cluster's clock."""
        return self.cluster_s + (time.time() - self.real_s) * self.rate

    def sleep_until(self, moment_s: float) -> None:
        """Sleep until the cluster's clock shows `moment_s`."""
        time.sleep(max(0.0, (moment_s - self.now_s()) / self.rate))


@dataclass
class Truth:
    """What was submitted and injected, as it happened."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    kernel: list[tuple[float, str, str]] = field(default_factory=list)


class Day:
    """Plays the day; every action is a short call on the cluster at its time."""

    def __init__(
        self, cluster: SlurmCluster, clock: FastClock, midnight_s: float, say: Callable[[str], None]
    ) -> None:
        self.cluster, self.clock, self.midnight_s, self.say = cluster, clock, midnight_s, say
        self.truth = Truth()
        self.training = ""
        self.maintained: list[str] = []
        self._dead: set[str] = set()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, hour: float, action: Callable[[], None]) -> None:
        """Plan an action for an hour after midnight."""
        self._later(self.midnight_s + hour * HOUR_S, action)

    def _later(self, moment_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment_s, next(self._order), action))

    def play(self, until_h: float, last_h: float, snapshot: Callable[[Truth], None]) -> Truth:
        """Play everything planned before `until_h`, and wait for the jobs to end until `last_h`.

        `snapshot` is called every four hours with what has happened so far.
        """
        for job in planned_jobs():
            self.at(job.at_h, lambda job=job: self._submit(job))
        self.at(0.6, self._submit_training)
        for fault in FAULTS:
            self.at(fault.at_h, lambda fault=fault: self._inject(fault, MAX_RETRIES))
        self.at(OPERATOR_REQUEUE_H, self._operator_requeue)
        self.at(MAINTENANCE_ANNOUNCED_H, self._announce_maintenance)
        self.at(MAINTENANCE_DRAIN_H, self._drain_for_maintenance)
        self.at(MAINTENANCE_H + 0.3, self._maintain)
        self.at(MAINTENANCE_END_H, self._end_maintenance)
        for hour in range(4, int(last_h), 4):
            self.at(hour, lambda: snapshot(self.truth))
        end_s = self.midnight_s + until_h * HOUR_S
        while self._queue and self._queue[0][0] < end_s:
            moment_s, _, action = heapq.heappop(self._queue)
            self.clock.sleep_until(moment_s)
            self._attempt(action)
        last_s = self.midnight_s + last_h * HOUR_S
        while self.clock.now_s() < last_s and patiently(self._jobs_left):
            self.clock.sleep_until(self.clock.now_s() + 300)
        self.clock.sleep_until(self.clock.now_s() + 600)
        return self.truth

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do one thing; a command that the busy machine made fail is noted, and the day goes on."""
        try:
            action()
        except RuntimeError as error:
            self._note("failed", error=str(error)[:300])

    def _jobs_left(self) -> str:
        return self.cluster.command("squeue", "-h", "-o", "%i").strip()

    def _submit(self, job: PlannedJob) -> None:
        options = [
            f"-N{job.n_nodes}",
            f"--gres=gpu:{job.gpus_per_node}",
            f"--qos={job.qos}",
            f"--account={ACCOUNTS[job.user]}",
            f"--partition={job.partition}",
            f"--time={job.limit_min}",
        ]
        options += [f"--array={job.array}"] if job.array else []
        wrap = f"bash work.sh {job.work_s:.0f} {job.exit_code}"
        if job.ending == "OUT_OF_MEMORY":
            options.append("--mem=200M")
            wrap = f"sleep {job.work_s / 2:.0f}; {EAT}"
        if job.array:
            # three tasks in four fail, each at its own time
            wrap = "n=$SLURM_ARRAY_TASK_ID; bash work.sh $((200 + 90 * n)) $((n % 4 != 0))"
        job_id = patiently(
            lambda: self.cluster.submit(job.name, *options, wrap=wrap, user=job.user)
        )
        moment = self._moment()
        self.truth.jobs.append({"id": job_id, "submitted": moment, **asdict(job)})
        if job.ending == "CANCELLED":
            self._later(self.clock.now_s() + job.work_s / 2, lambda: self._cancel(job, job_id))

    def _submit_training(self) -> None:
        options = ("-N8", "--gres=gpu:8", "--qos=high", "--account=pretrain", "--partition=train")
        more = ("--time=36:00:00", "--requeue", '--comment={"run": "pretrain-8b"}')
        self.training = patiently(
            lambda: self.cluster.submit(
                "pretrain-8b", *options, *more, wrap="$PRETRAIN .", user="mira"
            )
        )
        self.truth.operations.append(
            {"what": "training submitted", "id": self.training, "time": self._moment()}
        )

    def _cancel(self, job: PlannedJob, job_id: str) -> None:
        state = self._state(job_id)
        if state == "PENDING":
            again = lambda: self._cancel(job, job_id)  # noqa: E731
            self._later(self.clock.now_s() + job.work_s / 2, again)
        elif state == "RUNNING":
            patiently(lambda: self.cluster.command("scancel", job_id, user=job.user))
            self._note("cancelled by its user", id=job_id)

    def _state(self, job_id: str) -> str:
        """State of a job; empty where the controller has forgotten it."""
        try:
            return self.cluster.job_state(job_id)
        except RuntimeError:
            return ""

    def _jobs_on(self, node: str) -> list[str]:
        shown = patiently(
            lambda: self.cluster.command("squeue", "-h", "-t", "R", "-w", node, "-o", "%A %i")
        )
        return [line.split()[0] for line in shown.splitlines()]

    def _training_nodes(self) -> list[str]:
        if self._state(self.training) != "RUNNING":
            return []
        shown = self.cluster.command("squeue", "-h", "-j", self.training, "-o", "%N").strip()
        return self.cluster.command("scontrol", "show", "hostnames", shown).split()

    def _choose(self, target: str) -> str | None:
        """The node that a fault hits now; None where there is none of the kind."""
        in_training = self._training_nodes()
        if target == "training":
            return in_training[len(self.truth.faults) % len(in_training)] if in_training else None
        if target != "other":
            return target if target not in self._dead else None
        spared = {*in_training, *self.maintained, *self._dead, LEMON}
        sizes = {}
        for line in self.cluster.command("squeue", "-h", "-t", "R", "-o", "%D|%N").splitlines():
            n_nodes, _, names = line.partition("|")
            for node in self.cluster.command("scontrol", "show", "hostnames", names).split():
                sizes[node] = max(sizes.get(node, 0), int(n_nodes))
        busy = sorted((node for node in sizes if node not in spared), key=lambda n: (-sizes[n], n))
        return busy[0] if busy else None

    def _inject(self, fault: PlannedFault, retries: int) -> None:
        node = self._choose(fault.target)
        hit = self._jobs_on(node) if node else []
        if node is None or (fault.effect != "none" and not hit):
            if retries:
                self._later(self.clock.now_s() + RETRY_S, lambda: self._inject(fault, retries - 1))
            else:
                self._note("fault left out, nothing to hit", fault=fault.cause)
            return
        moment = self._moment()
        for text in fault.kernel:
            self.truth.kernel.append((self.clock.now_s(), node, text))
        if fault.effect != "none":
            effect = "hang" if fault.effect == "dead" else str(fault.exit_code)
            for job_id in hit:
                (self.cluster.run / "jobs" / "faults" / job_id).write_text(effect)
        self.truth.faults.append({"time": moment, "node": node, "jobs": hit, **asdict(fault)})
        self.say(f"{moment} {fault.cause} {node} {hit}")
        if fault.effect == "dead":
            self._dead.add(node)
            self.cluster.kill_node(node)
            self._later(self.clock.now_s() + fault.repair_h * HOUR_S, lambda: self._revive(node))
        elif fault.reason:
            now_s = self.clock.now_s()
            self._later(now_s + 100, lambda: self._set_node(node, "DRAIN", fault.reason))
            self._later(now_s + fault.repair_h * HOUR_S, lambda: self._resume(node))

    def _revive(self, node: str) -> None:
        self._dead.discard(node)
        self.cluster.start_node(node)
        self._note("node started after repair", node=node)

    def _resume(self, node: str) -> None:
        self._set_node(node, "RESUME")
        self._note("node resumed after repair", node=node)

    def _set_node(self, node: str, state: str, reason: str = "") -> None:
        words = ["scontrol", "update", f"NodeName={node}", f"State={state}"]
        words += [f"Reason={reason}"] if reason else []
        patiently(lambda: self.cluster.command(*words))

    def _operator_requeue(self) -> None:
        shown = self.cluster.command("squeue", "-h", "-t", "R", "-q", "normal", "-o", "%A %K")
        plain = [line.split()[0] for line in shown.splitlines() if line.endswith("N/A")]
        if plain:
            self.cluster.command("scontrol", "requeue", plain[0])
            self._note("requeued by the operator", id=plain[0])

    def _announce_maintenance(self) -> None:
        free = [node for node in NODES if node not in {*self._training_nodes(), LEMON}]
        self.maintained = sorted(free[-4:])
        begin = datetime.fromtimestamp(self.midnight_s + MAINTENANCE_H * HOUR_S, UTC)
        words = (
            *("scontrol", "create", "reservation", "reservationname=firmware"),
            f"starttime={begin:%Y-%m-%dT%H:%M:%S}",
            f"duration={(MAINTENANCE_END_H - MAINTENANCE_H) * 60:.0f}",
            *(f"nodes={','.join(self.maintained)}", "flags=maint,ignore_jobs", "users=root"),
        )
        patiently(lambda: self.cluster.command(*words))
        self._note("maintenance announced", nodes=self.maintained)

    def _drain_for_maintenance(self) -> None:
        for node in self.maintained:
            self._set_node(node, "DRAIN", MAINTENANCE_REASON)
        self._note("drained for maintenance", nodes=self.maintained)

    def _maintain(self) -> None:
        left = sorted({job_id for node in self.maintained for job_id in self._jobs_on(node)})
        for job_id in left:
            self.cluster.command("scontrol", "requeue", job_id)
        self._note("maintenance begins; jobs still there are requeued", jobs=left)

    def _end_maintenance(self) -> None:
        for node in self.maintained:
            self._set_node(node, "RESUME")
        self._note("maintenance ends", nodes=self.maintained)
        self.maintained = []

    def _note(self, what: str, **facts: Any) -> None:
        moment = self._moment()
        self.truth.operations.append({"what": what, "time": moment, **facts})
        self.say(f"{moment} {what} {facts}")

    def _moment(self) -> str:
        return f"{datetime.fromtimestamp(self.clock.now_s(), UTC):%Y-%m-%dT%H:%M:%SZ}"


def patiently(command: Callable[[], str]) -> str:
    """What a command prints, if need be the second or third time.

    On a clock that fast a client of the daemons now and then loses its connection.
    """
    for _ in range(2):
        try:
            return command()
        except RuntimeError:
            time.sleep(0.2)
    return command()


def read_clock(variables: dict[str, str], rate: float) -> FastClock:
    """The clock of the processes that run with `variables`."""
    before = time.time()
    shown = subprocess.run(
        ("date", "+%s.%N"), env=variables, capture_output=True, text=True, check=True
    )
    return FastClock(rate, (before + time.time()) / 2, float(shown.stdout))
