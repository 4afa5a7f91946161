"""A small cluster whose truth is known: it writes the tables of a real one, and the answers.

Two groups of nodes. Training slots hold long jobs of many nodes, one after another; filler nodes
hold short jobs of low priority. A node of a training job fails; the job is requeued and takes a
filler node in place of the broken one, whose job is preempted for it. The broken node is repaired
and comes back as a filler. Times are whole seconds. Everything is drawn from one seeded generator,
and what the metrics should find is counted here as it happens, never derived from the tables. The
module is long because one event loop holds it all: the truth must be counted where it comes about.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ettr.tables import (
    ALLOCATIONS,
    ATTEMPTS,
    EVENTS,
    FAILURES,
    INTERRUPTIONS,
    NODE_STATES,
    NODES,
    PROGRESS,
    Table,
)

ORIGIN = datetime(2025, 3, 1, tzinfo=UTC)
CLUSTER = "synth"
GPUS_PER_NODE = 8
LOST_CAP_S = 1800
OF_AN_ATTEMPT = tuple(name for name in INTERRUPTIONS.names if name != "kind")

# symptom slug, domain, what the log shows: (check, code, severity), end state of the job
PLANTED: dict[str, tuple[str, tuple[str, str | None, str] | None, str]] = {
    "gpu-unavailable": ("hardware", ("xid", "79", "critical"), "NODE_FAIL"),
    "gpu-memory": ("hardware", ("xid", "48", "critical"), "FAILED"),
    "infiniband": ("hardware", ("check ibstat", None, "critical"), "FAILED"),
    "filesystem": ("system", ("check mountpoint", None, "critical"), "FAILED"),
    "unattributed": ("unknown", None, "NODE_FAIL"),
}

FILLER_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
FILLER_ENDS_UPTO = (0.6, 0.9, 0.95)

# what the node's drain says, in the words of NHC and of the controller
REASONS = {
    "gpu-unavailable": "NHC: check_nv_healthmon: GPU lost",
    "gpu-memory": "NHC: GPU 3 has uncorrectable ECC errors",
    "infiniband": "NHC: check_hw_ib: no active port",
    "filesystem": "NHC: check_fs_mount: /data not mounted",
    "unattributed": "Not responding",
}


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What is planted. Rates are per node-day of runtime, times in seconds."""

    days: float = 60.0
    slot_nodes: tuple[int, ...] = (32, 20)
    filler_nodes: int = 24
    rate_per_node_day: dict[str, float] = field(
        default_factory=lambda: {
            "gpu-unavailable": 6e-3,
            "gpu-memory": 5e-3,
            "infiniband": 4e-3,
            "filesystem": 3e-3,
            "unattributed": 2e-3,
        }
    )
    in_job_restarts_per_node_day: float = 4e-3
    work_s: int = 12 * 86400
    step_s: int = 240
    steps_per_save: int = 15
    save_s: int = 30
    restore_s: int = 60
    restart_s: int = 300
    queue_s: int = 180
    repair_mean_s: float = 6 * 3600.0
    filler_mean_s: float = 5400.0
    urgent_per_day: float = 3.0
    crash_loop: int = 0
    red_herrings: int = 200
    noise_events: int = 300


@dataclass(slots=True)
class RunTruth:
    """One training run, in seconds: scheduled time splits into the parts below it."""

    name: str
    jobs: set[str] = field(default_factory=set)
    attempts: int = 0
    queue_s: int = 0
    scheduled_s: int = 0
    productive_s: int = 0
    redone_s: int = 0
    cut_step_s: int = 0
    save_s: int = 0
    restore_s: int = 0
    restart_s: int = 0
    in_job_restarts: int = 0

    @property
    def ettr(self) -> float:
        """Productive share of queue and scheduled time."""
        return self.productive_s / (self.queue_s + self.scheduled_s)


@dataclass(slots=True)
class Truth:
    """The answers."""

    failures_all: dict[str, int] = field(default_factory=dict)
    failures_large: dict[str, int] = field(default_factory=dict)
    node_s_all: int = 0
    node_s_large: int = 0
    gpu_s: int = 0
    runs: list[RunTruth] = field(default_factory=list)
    first_order_gpu_s: dict[str, int] = field(default_factory=dict)
    second_order_gpu_s: dict[str, int] = field(default_factory=dict)
    second_order_pairs: set[tuple[str, str]] = field(default_factory=set)
    preemptions: int = 0
    repairs_s: list[int] = field(default_factory=list)
    open_repairs_s: list[int] = field(default_factory=list)
    failed_attempts: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyntheticCluster:
    """Tables by name, and the truth about them."""

    tables: dict[str, pa.Table]
    truth: Truth
    end: datetime


@dataclass(slots=True)
class _Job:
    job_id: str
    name: str
    user: str
    partition: str
    run: RunTruth | None = None
    done_steps: int = 0
    saved_steps: int = 0
    submit_s: int = 0
    cause: str | None = None
    loops_left: int = 0


@dataclass(slots=True)
class _Attempt:
    job: _Job
    nodes: list[str]
    n_gpus: int
    submit_s: int
    start_s: int
    attempt_id: str
    outcome: str = "COMPLETED"
    symptom: str | None = None
    broken: str | None = None
    exit_code: int = 0


class _Builder:
    """The event loop. Order: time, then the order in which things were planned."""

    def __init__(self, plan: ClusterPlan, seed: int) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(seed)
        self.end_s = int(plan.days * 86400)
        self.rows: dict[str, list[dict[str, Any]]] = {
            t.name: []
            for t in (
                NODES,
                ATTEMPTS,
                ALLOCATIONS,
                NODE_STATES,
                EVENTS,
                PROGRESS,
                INTERRUPTIONS,
                FAILURES,
            )
        }
        self.truth = Truth()
        self.heap: list[tuple[int, int, str, Any]] = []
        self.turn = 0
        self.next_job = 100
        self.slots: list[list[str]] = []
        self.fillers: dict[str, _Attempt | None] = {}
        self.names = [f"n{i:03d}" for i in range(sum(plan.slot_nodes) + plan.filler_nodes)]
        self.open: set[int] = set()
        self.live: dict[str, _Attempt] = {}

    # -- the loop ------------------------------------------------------------------------------

    def at(self, time_s: float, what: str, payload: Any) -> None:
        self.turn += 1
        heapq.heappush(self.heap, (int(time_s), self.turn, what, payload))

    def run(self) -> SyntheticCluster:
        left = list(self.names)
        for slot, size in enumerate(self.plan.slot_nodes):
            self.slots.append([left.pop(0) for _ in range(size)])
            self.at(60 + slot, "slot_job", slot)
        for node in left:
            self.fillers[node] = None
            self.at(30, "filler", node)
        for _ in range(self.rng.poisson(self.plan.urgent_per_day * self.plan.days)):
            self.at(self.rng.uniform(86400, self.end_s), "urgent", None)
        while self.heap:
            time_s, _, what, payload = heapq.heappop(self.heap)
            if time_s >= self.end_s:
                break
            getattr(self, f"on_{what}")(time_s, payload)
        for attempt in list(self.live.values()):
            self.close(attempt, None)
        self.noise()
        self.inventory()
        tables = {name: _table(name, rows) for name, rows in self.rows.items()}
        return SyntheticCluster(tables, self.truth, ORIGIN + timedelta(seconds=self.end_s))

    # -- training slots ------------------------------------------------------------------------

    def on_slot_job(self, time_s: int, slot: int) -> None:
        job = self.new_job(f"train-{slot}-{self.next_job}", f"user{slot}", "train")
        job.run = RunTruth(job.name)
        job.run.jobs.add(job.job_id)
        job.submit_s = time_s
        job.loops_left = self.plan.crash_loop if slot == 0 else 0
        self.truth.runs.append(job.run)
        self.at(time_s + self.plan.queue_s, "slot_start", (slot, job))

    def on_slot_start(self, time_s: int, what: tuple[int, _Job]) -> None:
        slot, job = what
        nodes, short = self.slots[slot], self.plan.slot_nodes[slot] - len(self.slots[slot])
        if short > len(self.fillers):
            self.at(time_s + 600, "slot_start", what)
            return
        self.restart_with(time_s, job, nodes, short)
        attempt = self.start(job, list(nodes), len(nodes) * GPUS_PER_NODE, time_s)
        assert job.run is not None
        job.run.queue_s += time_s - job.submit_s
        job.run.attempts += 1
        rate = sum(self.plan.rate_per_node_day.values()) * len(nodes) / 86400
        fails_s = time_s + int(self.rng.exponential(1 / rate)) if rate else self.end_s
        if job.loops_left:
            job.loops_left -= 1
            fails_s = time_s + 900
        over_s = self.train(attempt, min(fails_s, self.end_s))
        self.at(over_s, "slot_end", (slot, attempt, over_s == fails_s))

    def restart_with(self, time_s: int, job: _Job, nodes: list[str], short: int) -> None:
        """Take filler nodes; the jobs on them are preempted for this one."""
        for _ in range(short):
            busy = [node for node, attempt in self.fillers.items() if attempt is not None]
            node = str(self.rng.choice(sorted(busy or self.fillers)))
            victim = self.fillers.pop(node)
            if victim is not None:
                self.preempt(time_s, victim, job)
                if job.cause is not None:
                    lost_s = min(time_s - victim.start_s, LOST_CAP_S) * victim.n_gpus
                    _add(self.truth.second_order_gpu_s, job.cause, lost_s)
                    self.truth.second_order_pairs.add((victim.attempt_id, job.job_id))
            nodes.append(node)

    def on_slot_end(self, time_s: int, what: tuple[int, _Attempt, bool]) -> None:
        slot, attempt, failed = what
        job = attempt.job
        if not failed:
            self.close(attempt, time_s)
            self.at(time_s + 600, "slot_job", slot)
            return
        self.fail(time_s, attempt)
        self.slots[slot].remove(attempt.broken)
        job.submit_s, job.cause = time_s, attempt.symptom
        delay_s = self.plan.queue_s + int(self.rng.integers(0, 300))
        self.at(time_s + delay_s, "slot_start", (slot, job))

    def train(self, attempt: _Attempt, limit_s: int) -> int:
        """Write the progress of one attempt up to `limit_s`; return when it is over."""
        plan, job, now_s = self.plan, attempt.job, attempt.start_s
        run = job.run
        assert run is not None
        rate = plan.in_job_restarts_per_node_day * len(attempt.nodes) / 86400
        self.tell(job, now_s, "start", job.saved_steps, None)
        if run.attempts > 1:
            run.redone_s += (job.done_steps - job.saved_steps) * plan.step_s
        wanted = plan.work_s // plan.step_s
        job.done_steps, first = job.saved_steps, True
        restart_s = now_s + self.rng.exponential(1 / rate) if rate else np.inf
        while True:
            if first:
                now_s = self.hold(run, job, "restart_s", now_s, plan.restart_s, limit_s, None)
                if job.saved_steps:
                    now_s = self.hold(
                        run, job, "restore_s", now_s, plan.restore_s, limit_s, "restore"
                    )
                first = False
            if now_s >= limit_s or job.done_steps >= wanted:
                break
            if now_s + plan.step_s > limit_s:
                run.cut_step_s += limit_s - now_s
                now_s = limit_s
                break
            if now_s + plan.step_s > restart_s and now_s + plan.step_s + plan.restart_s < limit_s:
                run.redone_s += (job.done_steps - job.saved_steps) * plan.step_s
                run.in_job_restarts += 1
                job.done_steps = job.saved_steps
                now_s += plan.restart_s
                run.restart_s += plan.restart_s
                self.tell(job, now_s, "restart", job.saved_steps, plan.restart_s)
                restart_s = now_s + self.rng.exponential(1 / rate)
                if job.saved_steps:
                    now_s = self.hold(
                        run, job, "restore_s", now_s, plan.restore_s, limit_s, "restore"
                    )
                continue
            now_s += plan.step_s
            job.done_steps += 1
            self.tell(job, now_s, "step", job.done_steps, plan.step_s)
            if job.done_steps % plan.steps_per_save == 0 and now_s < limit_s:
                after_s = self.hold(run, job, "save_s", now_s, plan.save_s, limit_s, "save")
                if after_s - now_s == plan.save_s:
                    job.saved_steps = job.done_steps
                now_s = after_s
        run.productive_s = job.done_steps * plan.step_s
        if job.done_steps >= wanted:
            self.tell(job, now_s, "end", job.done_steps, None)
        return now_s

    def hold(
        self,
        run: RunTruth,
        job: _Job,
        part: str,
        now_s: int,
        wanted_s: int,
        limit_s: int,
        event: str | None,
    ) -> int:
        """Spend time on something that is no step; cut at the limit, and told only if finished."""
        spent_s = min(wanted_s, limit_s - now_s)
        setattr(run, part, getattr(run, part) + spent_s)
        if event and spent_s == wanted_s:
            self.tell(
                job,
                now_s + spent_s,
                event,
                job.done_steps if event == "save" else job.saved_steps,
                spent_s,
            )
        return now_s + spent_s

    # -- filler nodes --------------------------------------------------------------------------

    def on_filler(self, time_s: int, node: str) -> None:
        if node not in self.fillers or self.fillers[node] is not None:
            return
        user = "careless" if self.rng.random() < 0.2 else f"u{self.rng.integers(20)}"
        job = self.new_job(f"small-{self.rng.integers(500)}", user, "low")
        job.submit_s = time_s - int(self.rng.integers(1, 30))
        run_s = max(1, int(self.rng.exponential(self.plan.filler_mean_s)))
        n_gpus = (1, 2, 4, 8)[self.rng.integers(4)]
        attempt = self.start(job, [node], n_gpus, time_s)
        self.fillers[node] = attempt
        rate = sum(self.plan.rate_per_node_day.values()) / 86400
        fails_s = self.rng.exponential(1 / rate) if rate else np.inf
        if fails_s < run_s:
            self.at(time_s + max(1, int(fails_s)), "filler_fail", (node, attempt))
            return
        attempt.outcome = FILLER_ENDS[bisect(FILLER_ENDS_UPTO, self.rng.random())]
        attempt.exit_code = int(attempt.outcome == "FAILED")
        self.at(time_s + run_s, "filler_end", (node, attempt))

    def on_filler_end(self, time_s: int, what: tuple[str, _Attempt]) -> None:
        node, attempt = what
        if self.fillers.get(node) is attempt:
            self.close(attempt, time_s)
            self.fillers[node] = None
            self.at(time_s + int(self.rng.integers(5, 120)), "filler", node)

    def on_filler_fail(self, time_s: int, what: tuple[str, _Attempt]) -> None:
        node, attempt = what
        if self.fillers.get(node) is attempt:
            del self.fillers[node]
            self.fail(time_s, attempt)

    def on_urgent(self, time_s: int, _: None) -> None:
        """Somebody's urgent job preempts a filler for no failure's sake."""
        busy = sorted(node for node, attempt in self.fillers.items() if attempt is not None)
        if not busy:
            return
        node = str(self.rng.choice(busy))
        job = self.new_job("urgent", "boss", "high")
        job.submit_s = time_s - 2
        victim = self.fillers[node]
        assert victim is not None
        self.preempt(time_s, victim, job)
        attempt = self.start(job, [node], GPUS_PER_NODE, time_s)
        self.fillers[node] = attempt
        self.at(time_s + 1800, "filler_end", (node, attempt))

    # -- what both share -----------------------------------------------------------------------

    def new_job(self, name: str, user: str, partition: str) -> _Job:
        self.next_job += 1
        return _Job(str(self.next_job), name, user, partition)

    def start(self, job: _Job, nodes: list[str], n_gpus: int, time_s: int) -> _Attempt:
        attempt_id = f"{CLUSTER}/{job.job_id}@{int(ORIGIN.timestamp()) + job.submit_s}"
        attempt = _Attempt(job, nodes, n_gpus, job.submit_s, time_s, attempt_id)
        self.live[attempt_id] = attempt
        return attempt

    def preempt(self, time_s: int, victim: _Attempt, instigator: _Job) -> None:
        victim.outcome = "PREEMPTED"
        self.close(victim, time_s)
        self.truth.preemptions += 1
        self.event(
            time_s,
            None,
            "slurmctld",
            "PREEMPTED",
            "warning",
            job_id=victim.job.job_id,
            related_job_id=instigator.job_id,
        )

    def fail(self, time_s: int, attempt: _Attempt) -> None:
        rates = self.plan.rate_per_node_day
        weights = np.array(list(rates.values()))
        symptom = str(self.rng.choice(list(rates), p=weights / weights.sum()))
        domain, shown, state = PLANTED[symptom]
        node = str(self.rng.choice(attempt.nodes))
        attempt.symptom, attempt.broken, attempt.outcome = symptom, node, state
        attempt.exit_code = int(state == "FAILED")
        evidence = None
        if shown is not None:
            check, code, severity = shown
            seen_s = max(time_s - int(self.rng.integers(5, 200)), attempt.start_s)
            evidence = self.event(seen_s, node, check, code, severity)
        self.close(attempt, time_s)
        row = self.rows["attempts"][-1]
        taken = {
            k: row[k]
            for k in (
                "cluster",
                "attempt_id",
                "job_id",
                "state",
                "start",
                "end",
                "elapsed_s",
                "n_nodes",
                "n_gpus",
            )
        }
        self.rows["failures"].append(
            {
                **taken,
                "node": node if shown else None,
                "symptom": symptom,
                "domain": domain,
                "confidence": "high" if shown else "none",
                "causes": symptom if shown else None,
                "evidence": evidence,
            }
        )
        lost_s = min(time_s - attempt.start_s, LOST_CAP_S) * attempt.n_gpus
        _add(self.truth.failures_all, symptom, 1)
        _add(self.truth.first_order_gpu_s, symptom, lost_s)
        if attempt.n_gpus > 128:
            _add(self.truth.failures_large, symptom, 1)
        self.truth.failed_attempts[attempt.attempt_id] = (symptom, node)
        self.repair(time_s, node, symptom)

    def repair(self, time_s: int, node: str, symptom: str) -> None:
        repair_s = 600 + int(self.rng.exponential(self.plan.repair_mean_s))
        over = time_s + repair_s < self.end_s
        reason = REASONS[symptom]
        down_s = repair_s // 3
        self.state(node, "DOWN", reason, time_s, time_s + down_s)
        self.state(node, "DRAIN", reason, time_s + down_s // 2, time_s + repair_s)
        if over:
            self.truth.repairs_s.append(repair_s)
            self.at(time_s + repair_s, "repaired", node)
        else:
            self.truth.open_repairs_s.append(self.end_s - time_s)

    def on_repaired(self, time_s: int, node: str) -> None:
        self.fillers[node] = None
        self.at(time_s + 10, "filler", node)

    def close(self, attempt: _Attempt, time_s: int | None) -> None:
        """Write the attempt; None for the end: still running when the log was taken."""
        del self.live[attempt.attempt_id]
        job, over_s = attempt.job, self.end_s if time_s is None else time_s
        elapsed_s = over_s - attempt.start_s
        end = None if time_s is None else _moment(over_s)
        start, submit = _moment(attempt.start_s), _moment(attempt.submit_s)
        state = "RUNNING" if time_s is None else attempt.outcome
        self.rows["attempts"].append(
            {
                "cluster": CLUSTER,
                "attempt_id": attempt.attempt_id,
                "job_id": job.job_id,
                "job_id_raw": job.job_id,
                "name": job.name,
                "user": job.user,
                "account": "lab",
                "partition": job.partition,
                "qos": "normal",
                "state": state,
                "exit_code": attempt.exit_code,
                "exit_signal": 0,
                "submit": submit,
                "eligible": submit,
                "start": start,
                "end": end,
                "elapsed_s": float(elapsed_s),
                "n_nodes": len(attempt.nodes),
                "n_cpus": attempt.n_gpus * 12,
                "n_gpus": attempt.n_gpus,
                "node_list": ",".join(attempt.nodes),
                "work_dir": f"/home/{job.user}",
            }
        )
        for node in attempt.nodes:
            self.rows["allocations"].append(
                {
                    "cluster": CLUSTER,
                    "attempt_id": attempt.attempt_id,
                    "node": node,
                    "start": start,
                    "end": end,
                    "elapsed_s": float(elapsed_s),
                    "n_gpus": attempt.n_gpus / len(attempt.nodes),
                }
            )
        self.truth.node_s_all += elapsed_s * len(attempt.nodes)
        self.truth.gpu_s += elapsed_s * attempt.n_gpus
        if attempt.n_gpus > 128:
            self.truth.node_s_large += elapsed_s * len(attempt.nodes)
        if job.run is not None:
            job.run.scheduled_s += elapsed_s
        if state not in ("COMPLETED", "RUNNING"):
            kind = {
                "NODE_FAIL": "hardware-candidate",
                "PREEMPTED": "preemption",
                "CANCELLED": "operator",
            }.get(state, "user-failure")
            row = self.rows["attempts"][-1]
            self.rows["interruptions"].append(
                {
                    "kind": "hardware-candidate" if attempt.symptom else kind,
                    **{name: row[name] for name in OF_AN_ATTEMPT},
                }
            )

    def event(
        self,
        time_s: int,
        node: str | None,
        check: str,
        code: str | None,
        severity: str,
        **more: Any,
    ) -> str:
        event_id = f"e{len(self.rows['events'])}"
        self.rows["events"].append(
            {
                "event_id": event_id,
                "cluster": CLUSTER,
                "node": node,
                "time": _moment(time_s),
                "check": check,
                "code": code,
                "severity": severity,
                **more,
            }
        )
        return event_id

    def state(self, node: str, state: str, reason: str, start_s: int, end_s: int) -> None:
        if start_s >= self.end_s:
            return
        end = _moment(end_s) if end_s < self.end_s else None
        self.rows["node_states"].append(
            {
                "cluster": CLUSTER,
                "node": node,
                "state": state,
                "reason": reason,
                "user": "root",
                "start": _moment(start_s),
                "end": end,
            }
        )

    def tell(self, job: _Job, time_s: int, event: str, step: int, duration_s: float | None) -> None:
        self.rows["progress"].append(
            {
                "run_id": job.name,
                "cluster": CLUSTER,
                "job_id": job.job_id,
                "rank": 0,
                "time": _moment(time_s),
                "event": event,
                "step": step,
                "duration_s": None if duration_s is None else float(duration_s),
            }
        )

    def noise(self) -> None:
        """XIDs that mean nothing, and a user whose script fails again and again on one node."""
        for _ in range(self.plan.noise_events):
            code = str(self.rng.choice(["45", "13", "31", "43"]))
            node = str(self.rng.choice(self.names))
            self.event(int(self.rng.uniform(0, self.end_s)), node, "xid", code, "unknown")
        for place in range(self.plan.red_herrings):
            job = self.new_job("array-of-errors", "careless", "low")
            job.submit_s = 86400 + 4 * place
            attempt = self.start(job, [self.names[-1]], 0, job.submit_s + 1)
            attempt.outcome, attempt.exit_code = "FAILED", 2
            self.close(attempt, job.submit_s + 3)

    def inventory(self) -> None:
        for node in self.names:
            self.rows["nodes"].append(
                {
                    "cluster": CLUSTER,
                    "node": node,
                    "n_gpus": GPUS_PER_NODE,
                    "n_cpus": 96,
                    "partitions": "train",
                }
            )


def build_cluster(plan: ClusterPlan | None = None, seed: int = 0) -> SyntheticCluster:
    """Tables of a synthetic cluster (with the derived ones as attribution should make them)."""
    return _Builder(plan or ClusterPlan(), seed).run()


def _add(counts: dict[str, int], key: str, value: int) -> None:
    counts[key] = counts.get(key, 0) + value


def _moment(seconds: int) -> datetime:
    return ORIGIN + timedelta(seconds=int(seconds))


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schemas: dict[str, Table] = {
        t.name: t
        for t in (
            NODES,
            ATTEMPTS,
            ALLOCATIONS,
            NODE_STATES,
            EVENTS,
            PROGRESS,
            INTERRUPTIONS,
            FAILURES,
        )
    }
    schema = schemas[name]
    alike = ["synthetic"] * len(rows)
    given: dict[str, list[Any]] = {"source": alike, "file_id": alike}
    given["line"] = list(range(1, len(rows) + 1))
    columns = {one: given.get(one) or [row.get(one) for row in rows] for one in schema.names}
    return schema.check(pa.table(columns, schema=schema.arrow_schema))
