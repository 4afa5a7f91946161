"""A made-up Slurm site with known truth, as the raw texts that its commands and files would hold.

Two partitions of whole-node jobs: `train` (H100, 7 nodes in 10) and `research` (A100). Nodes fail
while they run a job, lemons more often than the others; a job of QOS `high` is requeued and, where
no node is free, preempts jobs of QOS `low`. One rack has a maintenance window, one user a program
that always fails and always runs on the same node. What a report should find is counted as it
happens, never derived from the texts. Times are seconds since the start, in UTC.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from ClusterShell.NodeSet import NodeSet

ORIGIN = datetime(2026, 7, 1, tzinfo=UTC)
GPUS_PER_NODE = 8
NODES_PER_RACK = 16
RACKS_PER_SPINE = 8
DAY_S = 86400
GPU = {"train": "h100", "research": "a100"}
SACCT = (
    "JobID|JobIDRaw|Cluster|User|UID|Account|QOS|Partition|State|ExitCode|Submit|Eligible|Start|End"
    "|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|ReqTRES|NodeList|Priority|JobName"
)


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a kind of node failure leaves in the logs."""

    share: float
    repair_mean_h: float
    kernel: str | None
    drain_reason: str | None  # None: the node goes down with the job, which ends as NODE_FAIL


SYMPTOMS = {
    "gpu-unavailable": Symptom(
        0.30, 30.0, "NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, GPU has fallen off the bus.", None
    ),
    "gpu-memory": Symptom(
        0.25,
        12.0,
        "NVRM: Xid (PCI:0000:9d:00): 48, pid=4242, name=python, Double Bit ECC Error",
        "NHC: GPU 3 has uncorrectable ECC errors",
    ),
    "infiniband": Symptom(0.20, 6.0, None, "NHC: check_hw_ib: no active port"),
    "filesystem": Symptom(0.10, 2.0, None, "NHC: check_fs_mount: /data not mounted"),
    "unattributed": Symptom(0.15, 1.0, None, None),
}


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What is planted."""

    nodes: int = 2000
    days: int = 60
    failures_per_1000_node_days: float = 6.5
    lemons: int = 12
    lemon_factor: float = 40.0
    bug_jobs_per_day: float = 6.0
    maintenance_day: int = 40
    maintenance_h: float = 8.0


@dataclass(frozen=True, slots=True)
class PlantedFailure:
    """A node failure that ended an attempt."""

    job: str
    user: str
    partition: str
    node: str
    time_s: int
    symptom: str
    gpus: int


@dataclass(slots=True)
class SiteTruth:
    """The answers."""

    failures: list[PlantedFailure] = field(default_factory=list)
    node_s: Counter[str] = field(default_factory=Counter)  # of attempts, by partition
    user_failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # user, state
    preempted: list[tuple[str, str]] = field(default_factory=list)  # job, the job it made room for
    lemons: frozenset[str] = frozenset()
    bug_node: str = ""
    maintenance_nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Job:
    number: int
    user: str
    account: str
    partition: str
    qos: str
    size: int
    work_s: int
    submit_s: int
    outcome: str  # the state in which the attempt that does all the work ends
    nodes: tuple[str, ...] = ()
    start_s: int = -1
    turn: int = 0  # events of an earlier attempt are void


class _Site:
    def __init__(self, plan: SitePlan, seed: int) -> None:
        self.plan, self.rng = plan, np.random.default_rng(seed)
        self.end_s = plan.days * DAY_S
        self.truth = SiteTruth()
        self.texts: dict[str, list[tuple[int, str]]] = {
            name: [] for name in ("sacct", "events", "kernel", "slurmctld")
        }
        names = [f"gpu{number:04d}" for number in range(1, plan.nodes + 1)]
        train = round(plan.nodes * 0.7)
        self.partition_of = {
            name: "train" if place < train else "research" for place, name in enumerate(names)
        }
        self.rack_of = {name: place // NODES_PER_RACK for place, name in enumerate(names)}
        lemons = self.rng.choice(names[1:], plan.lemons, replace=False).tolist()
        self.truth.lemons = frozenset(lemons)
        usual = plan.failures_per_1000_node_days / 1000 / DAY_S
        usual *= plan.nodes / (plan.nodes + plan.lemons * (plan.lemon_factor - 1))
        self.rate_per_s = {
            name: usual * (plan.lemon_factor if name in self.truth.lemons else 1.0)
            for name in names
        }
        self.truth.bug_node = names[-1]
        in_window = [name for name in names if self.rack_of[name] == 1]
        self.truth.maintenance_nodes = frozenset(in_window)
        self.free = {part: set[str]() for part in GPU}
        for name, part in self.partition_of.items():
            if name != self.truth.bug_node:
                self.free[part].add(name)
        self.waiting: list[_Job] = []
        self.running: dict[int, _Job] = {}
        self.window_s = (0, 0)
        self.number = 0
        self.head = {part: self.new_job(part, 0) for part in GPU}  # the first of each queue
        self.calendar: list[tuple[int, int, str, tuple[object, ...]]] = []

    def at(self, time_s: float, what: str, *about: object) -> None:
        heapq.heappush(self.calendar, (int(time_s), len(self.calendar) + self.number, what, about))

    def log(self, name: str, time_s: int, text: str) -> None:
        self.texts[name].append((time_s, text))

    def run(self) -> None:
        self.at(self.plan.maintenance_day * DAY_S, "maintenance")
        for day in range(self.plan.days):
            for _ in range(self.rng.poisson(self.plan.bug_jobs_per_day)):
                self.bug_job(int(day * DAY_S + self.rng.integers(1000, DAY_S - 1000)))
        self.fill(0)
        while self.calendar:
            time_s, _, what, about = heapq.heappop(self.calendar)
            if time_s >= self.end_s:
                break
            getattr(self, f"on_{what}")(time_s, *about)
            self.fill(time_s)
        for job in self.running.values():
            self.record(job, self.end_s, "RUNNING")

    def fill(self, now_s: int) -> None:
        """Start what was requeued, then new jobs in the order of their coming."""
        for job in list(self.waiting):
            if job.size <= len(self.free[job.partition]) or self.make_room(job, now_s):
                self.waiting.remove(job)
                self.start(job, now_s)
        for part, free in self.free.items():
            while self.head[part].size <= len(free):
                self.start(self.head[part], now_s)
                self.head[part] = self.new_job(part, now_s)

    def make_room(self, job: _Job, now_s: int) -> bool:
        """Preempt jobs of QOS low for one of QOS high, the latest started first."""
        free = len(self.free[job.partition])
        low = [
            other
            for other in self.running.values()
            if other.qos == "low"
            and other.partition == job.partition
            and other.start_s < now_s - 60
        ]
        if job.qos != "high" or free + sum(other.size for other in low) < job.size:
            return False
        for other in sorted(low, key=lambda one: (-one.start_s, one.number)):
            if free >= job.size:
                break
            free += other.size
            self.log(
                "slurmctld",
                now_s,
                f"preempted JobId={other.number} has been requeued to reclaim resources for "
                f"JobId={job.number}",
            )
            self.truth.preempted.append((str(other.number), str(job.number)))
            self.stop(other, now_s, "PREEMPTED")
            self.requeue(other, now_s)
        return True

    def new_job(self, part: str, now_s: int) -> _Job:
        largest = max(1, int(sum(one == part for one in self.partition_of.values()) * 0.18))
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size <= largest]
        weights = np.array([1 / size**0.8 for size in sizes])
        size = int(self.rng.choice(sizes, p=weights / weights.sum()))
        user = int(self.rng.integers(1, 40))
        self.number += 1
        return _Job(
            number=self.number,
            user=f"user{user:02d}",
            account=f"team-{'abcd'[user % 4]}",
            partition=part,
            qos="high"
            if size >= max(sizes) // 4
            else "normal"
            if self.rng.random() < 0.5
            else "low",
            size=size,
            work_s=int(3600 + self.rng.exponential((20 + 8 * np.log2(size)) * 3600)),
            submit_s=now_s,
            outcome=str(
                self.rng.choice(
                    ["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 1000"],
                    p=[0.72, 0.15, 0.03, 0.04, 0.06],
                )
            ),
        )

    def start(self, job: _Job, now_s: int) -> None:
        nodes = sorted(self.free[job.partition])
        chosen = self.rng.choice(nodes, job.size, replace=False).tolist()
        self.free[job.partition] -= set(chosen)
        job.nodes, job.start_s = tuple(sorted(chosen)), now_s
        self.running[job.number] = job
        rates = np.array([self.rate_per_s[name] for name in job.nodes])
        fails_s = int(self.rng.exponential(1 / rates.sum()))
        if fails_s < job.work_s:
            node = str(self.rng.choice(job.nodes, p=rates / rates.sum()))
            self.at(now_s + max(fails_s, 60), "failure", job, job.turn, node)
        else:
            share = self.rng.uniform(0.05, 1) if job.outcome not in {"COMPLETED", "TIMEOUT"} else 1
            self.at(now_s + max(60, int(job.work_s * share)), "end", job, job.turn)

    def on_end(self, now_s: int, job: _Job, turn: int) -> None:
        if job.turn != turn:
            return
        if job.outcome in {"FAILED", "OUT_OF_MEMORY", "TIMEOUT"}:
            self.truth.user_failures[job.user, job.outcome] += 1
        self.stop(job, now_s, job.outcome)

    def on_failure(self, now_s: int, job: _Job, turn: int, node: str) -> None:
        if job.turn != turn:
            return
        shares = [symptom.share for symptom in SYMPTOMS.values()]
        name = str(self.rng.choice(list(SYMPTOMS), p=shares))
        symptom = SYMPTOMS[name]
        self.truth.failures.append(
            PlantedFailure(
                str(job.number),
                job.user,
                job.partition,
                node,
                now_s,
                name,
                job.size * GPUS_PER_NODE,
            )
        )
        if symptom.kernel:
            self.log("kernel", now_s - 5, f"{node} kernel: {symptom.kernel}")
        back_s = now_s + 600 + int(self.rng.exponential(symptom.repair_mean_h * 3600))
        self.stop(job, now_s, "FAILED" if symptom.drain_reason else "NODE_FAIL", out=node)
        if symptom.drain_reason:
            self.node_event(node, now_s + 90, back_s, "DRAIN", symptom.drain_reason)
        else:
            number = job.number
            self.log(
                "slurmctld", now_s, f"requeue job JobId={number} due to failure of node {node}"
            )
            self.log("slurmctld", now_s, f"error: Nodes {node} not responding, setting DOWN")
            self.node_event(node, now_s, back_s, "DOWN*", "Not responding")
        self.at(back_s, "repair", node)
        self.requeue(job, now_s)

    def on_repair(self, now_s: int, node: str) -> None:
        self.free[self.partition_of[node]].add(node)

    def on_maintenance(self, now_s: int) -> None:
        """Idle nodes of the rack go out at once; a busy one as soon as its job ends."""
        self.window_s = (now_s, now_s + int(self.plan.maintenance_h * 3600))
        self.take_out(self.truth.maintenance_nodes, now_s)

    def take_out(self, nodes: Iterable[str], now_s: int) -> None:
        """Keep those of the free nodes that are in the maintenance window out of service."""
        start_s, end_s = self.window_s
        if not start_s <= now_s < end_s:
            return
        for node in sorted(self.truth.maintenance_nodes.intersection(nodes)):
            free = self.free[self.partition_of[node]]
            if node in free:
                free.remove(node)
                self.node_event(node, now_s, end_s, "DRAIN", "planned maintenance: firmware")
                self.at(end_s, "repair", node)

    def bug_job(self, start_s: int) -> None:
        """One run of the program that always fails, on the one node where its user is at home."""
        self.number += 1
        node = self.truth.bug_node
        job = _Job(
            self.number,
            "user99",
            "team-z",
            self.partition_of[node],
            "normal",
            1,
            40,
            start_s - 5,
            "",
        )
        job.nodes, job.start_s = (node,), start_s
        self.record(job, start_s + 40, "FAILED")
        self.truth.user_failures["user99", "FAILED"] += 1

    def stop(self, job: _Job, now_s: int, state: str, out: str | None = None) -> None:
        """End an attempt; its nodes are free again but for the one that is `out`."""
        del self.running[job.number]
        self.record(job, now_s, state)
        job.work_s = max(600, job.work_s - (now_s - job.start_s))
        job.turn += 1
        free = set(job.nodes) - {out}
        self.free[job.partition] |= free
        self.take_out(free, now_s)

    def requeue(self, job: _Job, now_s: int) -> None:
        job.submit_s = now_s
        self.waiting.append(job)

    def record(self, job: _Job, end_s: int, state: str) -> None:
        """The attempt's row of sacct."""
        tres = (
            f"billing={job.size},cpu={96 * job.size},gres/gpu:{GPU[job.partition]}="
            f"{job.size * GPUS_PER_NODE},gres/gpu={job.size * GPUS_PER_NODE},node={job.size}"
        )
        code = {"FAILED": "1:0", "OUT_OF_MEMORY": "0:125", "NODE_FAIL": "1:0"}.get(state, "0:0")
        end = "Unknown" if state == "RUNNING" else _stamp(end_s)
        cells = (
            *(job.number, job.number, "helios", job.user, 1000, job.account, job.qos),
            *(job.partition, state, code, _stamp(job.submit_s), _stamp(job.submit_s)),
            *(_stamp(job.start_s), end, end_s - job.start_s, 14400, job.size, tres, tres),
            *(NodeSet.fromlist(job.nodes), 100, f"train-{job.user}"),
        )
        self.log("sacct", end_s, "|".join(str(cell) for cell in cells))
        self.truth.node_s[job.partition] += (end_s - job.start_s) * job.size

    def node_event(self, node: str, start_s: int, end_s: int, state: str, reason: str) -> None:
        end = _stamp(end_s) if end_s < self.end_s else "Unknown"
        cells = ("helios", node, _stamp(start_s), end, state, reason, "root(0)", "Node")
        self.log("events", start_s, "|".join(cells))


def write_site(folder: Path, plan: SitePlan | None = None, seed: int = 0) -> SiteTruth:
    """Write the texts (sacct, events, kernel, slurmctld, nodes, topology) and return the truth."""
    site = _Site(plan or SitePlan(), seed)
    site.run()
    lines = {name: [text for _, text in sorted(rows)] for name, rows in site.texts.items()}
    timed = {name: sorted(rows) for name, rows in site.texts.items()}
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|Event"
    contents = {
        "sacct.psv": [SACCT, *lines["sacct"]],
        "events.psv": [header, *lines["events"]],
        "kernel.log": [f"{_stamp(time)}.000000+00:00 {text}" for time, text in timed["kernel"]],
        "slurmctld.log": [f"[{_stamp(time)}.000] {text}" for time, text in timed["slurmctld"]],
        "nodes.txt": list(_inventory(site)),
        "topology.conf": list(_topology(site)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in contents.items():
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return site.truth


def _inventory(site: _Site) -> Iterator[str]:
    """What `scontrol show node` prints."""
    for name, part in site.partition_of.items():
        yield f"NodeName={name} Arch=x86_64 CPUTot=96"
        yield f"   Gres=gpu:{GPU[part]}:{GPUS_PER_NODE}"
        yield f"   State=IDLE Partitions={part}"
        yield ""


def _topology(site: _Site) -> Iterator[str]:
    racks = sorted(set(site.rack_of.values()))
    for rack in racks:
        nodes = NodeSet.fromlist([name for name, one in site.rack_of.items() if one == rack])
        yield f"SwitchName=leaf{rack:03d} Nodes={nodes}"
    for spine in range(racks[-1] // RACKS_PER_SPINE + 1):
        leaves = [rack for rack in racks if rack // RACKS_PER_SPINE == spine]
        below = NodeSet.fromlist([f"leaf{rack:03d}" for rack in leaves])
        yield f"SwitchName=spine{spine} Switches={below}"


def _stamp(seconds: int) -> str:
    return (ORIGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
