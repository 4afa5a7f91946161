"""A site of three classes of nodes whose truth is planted, as logs; for the campaign `borders`.

64 nodes of H100, 40 of A100, 26 without GPUs, 90 days. The code assumes no law of these: rates
of nodes are lognormal and rise and fall by the week, times to repair are a mixture of two
lognormal ones. Once each: a node that is a black hole for a day, a maintenance day, an outage of
the filesystem, a lemon, four nodes that get new names, two weeks without kernel logs of a fifth of
the nodes. Runs hang now and then, and some failures leave no line.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

FIRST = datetime(2026, 1, 5, tzinfo=UTC)
DAYS, HOUR_S, DAY_S = 90, 3600.0, 86400.0
END_S = DAYS * DAY_S
GPUS = 8
WEEK_S, SWING = 7 * DAY_S, 0.4
FRAILTY = 0.35
LEMON_TIMES = 12.0
REPAIRS = ((0.7, math.log(3 * HOUR_S), 0.8), (0.3, math.log(30 * HOUR_S), 0.6))
"""Share, mean and standard deviation of the logarithm of seconds."""
FS_HOURS = 2.5
USERS = 24
USER_FAILS = 0.12
OUTAGE_DAY, MAINTENANCE_DAY, HOLE_DAY, MISSING_DAYS, RENAMED_DAY = 20, 45, 60, (65, 79), 30
ALIVE = "audit: all is well"
NVRM = "NVRM: Xid (PCI:0000:1b:00): {}, pid='<unknown>', name=<unknown>, {}"
JOBS = (
    "JobID|JobName|User|Cluster|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw"
    "|TimelimitRaw|NNodes|NodeList|AllocTRES\n"
)
STATES = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
SLURM, ADMIN, NHC = "slurm(64030)", "alice(1000)", "root(0)"


@dataclass(frozen=True, slots=True)
class Class:
    """One class of nodes: its failures per node-day, and the large runs on its first nodes."""

    name: str
    nodes: tuple[str, ...]
    per_node_day: float
    gpus: int
    runs: int = 0
    run_nodes: int = 0


CLASSES = (
    Class("h100", tuple(f"h{n:03d}" for n in range(64)), 0.012, GPUS, 2, 20),
    Class("a100", tuple(f"a{n:03d}" for n in range(40)), 0.007, GPUS, 1, 8),
    Class("cpu", tuple(f"c{n:03d}" for n in range(26)), 0.045, 0),
)


@dataclass(frozen=True, slots=True)
class Sign:
    """How a failure shows: its share, what the kernel says, why the node is drained, and the end.

    `hangs`: the run is cancelled hours later; without a reason for a drain it leaves no sign.
    """

    share: float
    line: str | None
    reason: str | None
    state: str
    hangs: bool = False


GPU_SIGNS = (
    Sign(0.30, NVRM.format(79, "GPU has fallen off the bus."), "GPU lost", "NODE_FAIL"),
    Sign(0.22, NVRM.format(48, "DBE (double bit error)"), "NHC: GPU ECC errors", "FAILED"),
    Sign(0.10, NVRM.format(74, "NVLink: fatal error"), "NHC: nvlink error", "FAILED"),
    Sign(0.10, None, "NHC: check_hw_ib: no active port", "FAILED"),
    Sign(0.18, None, "Not responding", "NODE_FAIL"),
    Sign(
        0.08,
        NVRM.format(119, "Timeout after 6s of waiting for RPC response from GPU3 GSP!"),
        "GSP timeout",
        "CANCELLED by 1001",
        hangs=True,
    ),
    Sign(0.02, None, None, "FAILED"),
)
CPU_SIGNS = (
    Sign(0.5, None, "Not responding", "NODE_FAIL"),
    Sign(
        0.3,
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: b200000000070005",
        "NHC: check_hw_mcelog: MCE errors",
        "NODE_FAIL",
    ),
    Sign(
        0.2,
        "Kernel panic - not syncing: Fatal machine check",
        "Node unexpectedly rebooted",
        "NODE_FAIL",
    ),
)


@dataclass(slots=True)
class Truth:
    """What was planted.

    Attributes:
        expected: By class, the failures that its hazards had in store for what ran.
        node_days: By class, what ran.
        failures: By class, those that came.
        large: Of the nodes of H100 of the large runs, failures in store and node-days.
        kinds: Interruptions by cause: node_hardware, shared, operator, user_program.
        repairs: Nodes that were repaired.
        checked: Nodes that the outage of the filesystem took out.
        hangs: Runs that hung.
        hole: The black hole.
        hole_jobs: That it ended.
        lemon: The lemon.
        planned: Ends by planned work.
    """

    expected: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    node_days: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    failures: Counter[str] = field(default_factory=Counter)
    large: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: Counter[str] = field(default_factory=Counter)
    repairs: int = 0
    checked: int = 0
    hangs: int = 0
    hole: str = ""
    hole_jobs: int = 0
    lemon: str = ""
    planned: int = 0

    def per_1000_node_days(self, name: str) -> float:
        """The rate of a class."""
        return 1000.0 * self.expected[name] / self.node_days[name]


def repair_hours(truth: Truth, statistic: str) -> float:
    """Mean or median hours out of service: of the law, and of what the filesystem took out."""
    rng = np.random.default_rng(1)
    times = 400_000 // (truth.repairs + truth.checked)
    drawn = [
        rng.lognormal(mean, sigma, int(times * truth.repairs * share))
        for share, mean, sigma in REPAIRS
    ]
    drawn.append(np.full(times * truth.checked, FS_HOURS * HOUR_S))
    return float(getattr(np, statistic)(np.concatenate(drawn))) / HOUR_S


def at(second: float) -> str:
    """A time as Slurm writes it."""
    return f"{FIRST + timedelta(seconds=int(second)):%Y-%m-%dT%H:%M:%S}"


class Site:
    """The site as it runs: each group of nodes runs one job after another."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([38, seed])
        self.truth = Truth()
        self.jobs: list[tuple[float, str]] = []
        self.states: list[tuple[float, str]] = []
        self.kernel: list[tuple[float, str]] = []
        self.n_jobs = 0
        self.nodes = [(kind, node) for kind in CLASSES for node in kind.nodes]
        self.frailty = {
            node: float(self.rng.lognormal(-(FRAILTY**2) / 2, FRAILTY)) for _, node in self.nodes
        }
        h100 = CLASSES[0]
        self.truth.lemon = h100.nodes[int(self.rng.integers(44, 64))]
        self.truth.hole = CLASSES[1].nodes[int(self.rng.integers(14, 40))]
        self.renamed = {f"a{n:03d}": f"x{n:03d}" for n in range(10, 14)}
        everyone = [node for _, node in self.nodes]
        fifth = self.rng.choice(len(everyone), len(everyone) // 5, replace=False)
        self.silent = {everyone[n] for n in fifth}
        self.serviced = {*h100.nodes[40:], *CLASSES[1].nodes[24:]}
        self.broken_fs = {everyone[n] for n in self.rng.choice(len(everyone), 30, replace=False)}
        self.outage_s = (OUTAGE_DAY + float(self.rng.uniform(0.2, 0.8))) * DAY_S
        self.maintenance_s = (MAINTENANCE_DAY + 8 / 24) * DAY_S
        self.hole_s = (HOLE_DAY + 6 / 24) * DAY_S

    def hazard(self, kind: Class, node: str) -> float:
        """Per second, but for the week."""
        times = LEMON_TIMES if node == self.truth.lemon else 1.0
        return kind.per_node_day * self.frailty[node] * times / DAY_S

    def expected(self, kind: Class, node: str, begin_s: float, end_s: float) -> float:
        """Integral of the hazard."""
        turn = 2 * math.pi / WEEK_S
        swing = SWING / turn * (math.cos(turn * begin_s) - math.cos(turn * end_s))
        return self.hazard(kind, node) * (end_s - begin_s + swing)

    def failure(self, kind: Class, node: str, begin_s: float, end_s: float) -> float | None:
        """When the node fails while it runs, by thinning; None where it does not."""
        most = self.hazard(kind, node) * (1 + SWING)
        time_s = begin_s
        while True:
            time_s += float(self.rng.exponential(1 / most))
            if time_s >= end_s:
                return None
            if self.rng.random() * (1 + SWING) < 1 + SWING * math.sin(
                2 * math.pi * time_s / WEEK_S
            ):
                return time_s

    def name(self, node: str, time_s: float) -> str:
        """Of the node at that time."""
        return self.renamed.get(node, node) if time_s >= RENAMED_DAY * DAY_S else node

    def job(
        self,
        kind: Class,
        nodes: tuple[str, ...],
        begin_s: float,
        end_s: float,
        state: str,
        user: str,
        number: int | None = None,
    ) -> int:
        """Write one attempt; the number of its job."""
        if number is None:
            self.n_jobs += 1
            number = self.n_jobs
        code = "1:0" if state == "FAILED" else "0:0"
        names = ",".join(self.name(node, begin_s) for node in nodes)
        gpus = f"gres/gpu:{kind.name}={GPUS * len(nodes)}," if kind.gpus else ""
        partition = "gpu" if kind.gpus else "cpu"
        self.jobs.append(
            (
                end_s,
                f"{number}|j{number % 11}|{user}|c|{partition}|{state}|{code}|{at(begin_s - 60)}"
                f"|{at(begin_s)}|{at(end_s)}|{int(end_s) - int(begin_s)}|14400|{len(nodes)}"
                f"|{names}|cpu={64 * len(nodes)},{gpus}node={len(nodes)}\n",
            )
        )
        self.truth.node_days[kind.name] += len(nodes) * (end_s - begin_s) / DAY_S
        for node in nodes:
            in_store = self.expected(kind, node, begin_s, end_s)
            self.truth.expected[kind.name] += in_store
            if kind is CLASSES[0] and len(nodes) > 1:
                self.truth.large["expected"] += in_store
                self.truth.large["node_days"] += (end_s - begin_s) / DAY_S
        return number

    def state(
        self, begin_s: float, end_s: float, node: str, state: str, why: str, who: str
    ) -> None:
        """Write one state of a node."""
        name = self.name(node, begin_s)
        self.states.append((begin_s, f"c|{name}|{at(begin_s)}|{at(end_s)}|{state}|{why}|{who}\n"))

    def line(self, time_s: float, node: str, text: str) -> None:
        """Write a line of the kernel; some do not arrive."""
        first, after = (day * DAY_S for day in MISSING_DAYS)
        if node in self.silent and first <= time_s < after:
            return
        name = self.name(node, time_s)
        self.kernel.append((time_s, f"{at(time_s)}+00:00 {name} kernel: {text}\n"))

    def repair_s(self) -> float:
        """How long a repair takes."""
        which = int(self.rng.random() > REPAIRS[0][0])
        _, mean, sigma = REPAIRS[which]
        return float(self.rng.lognormal(mean, sigma))

    def run(self) -> None:
        """Run every group of nodes to the end of the logs."""
        for kind in CLASSES:
            large = kind.runs * kind.run_nodes
            for place in range(kind.runs):
                part = kind.nodes[place * kind.run_nodes : (place + 1) * kind.run_nodes]
                self._group(kind, part, 72 * HOUR_S, f"team{place}")
            for node in kind.nodes[large:]:
                self._group(kind, (node,), 14 * HOUR_S, "")
        for _, node in self.nodes:
            for day in range(DAYS):
                self.line((day + float(self.rng.random())) * DAY_S, node, ALIVE)
            boot = "x86/fpu: Supporting XSAVE feature 0x001"
            if not node.startswith("c"):
                boot = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15"
            self.line(60.0, node, boot)

    def _group(self, kind: Class, nodes: tuple[str, ...], mean_s: float, owner: str) -> None:
        time_s = float(self.rng.uniform(0, 6)) * HOUR_S
        number: int | None = None
        is_run = len(nodes) > 1
        while time_s < END_S:
            user = owner or f"u{self.rng.integers(USERS)}"
            length_s = max(600.0, float(self.rng.gamma(1.3, mean_s / 1.3)))
            if nodes[0] == self.truth.hole and self.hole_s < time_s < self.hole_s + 0.5 * DAY_S:
                length_s = float(self.rng.uniform(12, 28))
                self.job(kind, nodes, time_s, time_s + length_s, "FAILED", user)
                self.truth.hole_jobs += 1
                self.truth.kinds["node_hardware"] += 1
                time_s += length_s + float(self.rng.exponential(200.0))
                continue
            if nodes[0] == self.truth.hole and time_s <= self.hole_s < time_s + length_s:
                length_s = max(60.0, self.hole_s - time_s)
            end_s, then = self._end(kind, nodes, time_s, time_s + length_s)
            number, time_s = then(user, time_s, end_s, number if is_run else None)
            time_s += float(self.rng.exponential(600.0))

    def _end(
        self, kind: Class, nodes: tuple[str, ...], begin_s: float, end_s: float
    ) -> tuple[float, Callable[[str, float, float, int | None], tuple[int | None, float]]]:
        """The first of what may end an attempt, and what then happens."""
        fails = self.rng.random() < USER_FAILS / max(1, len(nodes) / 4)
        ends = [(end_s, "done")]
        if fails:
            ends.append((begin_s + (end_s - begin_s) * float(self.rng.beta(0.8, 1.6)) + 40, "user"))
        if self.serviced & set(nodes):
            ends.append((self.maintenance_s + float(self.rng.uniform(0, 60)), "planned"))
        if self.broken_fs & set(nodes):
            ends.append((self.outage_s + float(self.rng.uniform(0, 120)), "shared"))
        failed = [
            (time_s, node)
            for node in nodes
            if (time_s := self.failure(kind, node, begin_s, end_s)) is not None
        ]
        if failed:
            ends.append((min(failed)[0], min(failed)[1]))
        ends.append((END_S, "done"))
        first_s, what = min(one for one in ends if one[0] > begin_s)

        def then(
            user: str, begin_s: float, end_s: float, number: int | None
        ) -> tuple[int | None, float]:
            if what in ("done", "user"):
                state = "FAILED" if what == "user" else "COMPLETED"
                self.truth.kinds["user_program"] += what == "user"
                self.job(kind, nodes, begin_s, end_s, state, user, number)
                return None, end_s
            if what == "planned":
                self.truth.planned += 1
                self.truth.kinds["operator"] += 1
                number = self.job(kind, nodes, begin_s, end_s, "NODE_FAIL", user, number)
                for node in nodes:
                    if node in self.serviced:
                        why = "scheduled maintenance: firmware"
                        self.state(end_s, end_s + 8 * HOUR_S, node, "DOWN", why, ADMIN)
                return number, end_s + 8 * HOUR_S
            if what == "shared":
                self.truth.kinds["shared"] += 1
                self.truth.failures[kind.name] += 1
                number = self.job(kind, nodes, begin_s, end_s, "FAILED", user, number)
                for node in sorted(self.broken_fs & set(nodes)):
                    self.truth.checked += 1
                    why = "NHC: check_fs_mount: /scratch not mounted"
                    self.state(end_s, end_s + FS_HOURS * HOUR_S, node, "DRAIN", why, NHC)
                return None, end_s + FS_HOURS * HOUR_S
            return self._failed(kind, nodes, what, user, begin_s, end_s, number)

        return first_s, then

    def _failed(
        self,
        kind: Class,
        nodes: tuple[str, ...],
        node: str,
        user: str,
        begin_s: float,
        fault_s: float,
        number: int | None,
    ) -> tuple[int | None, float]:
        """One node of an attempt fails."""
        signs = GPU_SIGNS if kind.gpus else CPU_SIGNS
        shares = np.array([one.share for one in signs])
        sign = signs[int(self.rng.choice(len(signs), p=shares / shares.sum()))]
        self.truth.failures[kind.name] += 1
        # a GSP that times out is the driver's
        self.truth.kinds["system_software" if sign.hangs else "node_hardware"] += 1
        end_s = fault_s
        if sign.hangs:
            end_s = fault_s + float(self.rng.uniform(2, 5)) * HOUR_S
            self.truth.hangs += 1
        if sign.line:
            self.line(fault_s - float(self.rng.uniform(1, 50)), node, sign.line)
        number = self.job(kind, nodes, begin_s, end_s, sign.state, user, number)
        if sign.reason is None:
            return None, end_s
        state, who = ("DOWN*", SLURM) if sign.reason == "Not responding" else ("DRAIN", NHC)
        if sign.reason == "Node unexpectedly rebooted":
            state, who = "DOWN", SLURM
        out_s = end_s + float(self.rng.uniform(5, 60))
        back_s = out_s + self.repair_s()
        self.truth.repairs += 1
        self.state(out_s, back_s, node, state, sign.reason, who)
        again = number if sign.state == "NODE_FAIL" else None
        return again, back_s

    def write(self, folder: Path) -> list[Path]:
        """The logs."""
        made = {
            "sacct.psv": JOBS + "".join(text for _, text in sorted(self.jobs)),
            "events.psv": STATES + "".join(text for _, text in sorted(self.states)),
            "kernel.log": "".join(text for _, text in sorted(self.kernel)),
            "nodes.txt": "".join(
                f"NodeName={self.name(node, END_S)} Arch=x86_64 CPUTot=64 RealMemory=512000"
                + (f" Gres=gpu:{kind.name}:{GPUS}" if kind.gpus else "")
                + f" State=IDLE Partitions={'gpu' if kind.gpus else 'cpu'}\n"
                for kind, node in self.nodes
            ),
        }
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in made]


def site(seed: int) -> Site:
    """The site of a seed, run to its end."""
    found = Site(seed)
    found.run()
    return found
