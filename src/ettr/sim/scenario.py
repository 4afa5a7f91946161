"""A run to simulate: its course, the law of its nodes, repairs, spares, bursts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ettr.errors import UsageError
from ettr.models.data import NodeRepair
from ettr.models.law import LifeLaw
from ettr.plan.levels import FailureKind, Levels, RecoveryLevel
from ettr.plan.run import PlannedRun
from ettr.sim.engine import Course, Floats, HazardTable
from ettr.words import spell

MOST_NODES = 200_000
"""Nodes and spares at most: each is played."""
_GRID = 4096
_SMALLEST_HAZARD, _LARGEST_HAZARD = 1e-14, 200.0
_LEVELS = {RecoveryLevel.SOFT: 0, RecoveryLevel.LIGHT: 1, RecoveryLevel.DEEP: 2}


@dataclass(frozen=True, slots=True)
class Bursts:
    """Failures that bring others: each one another, with a chance, on any node of the job.

    The node's own failures become rarer by the size of a burst, so that as many failures come in
    all. Counts in windows longer than a burst then vary 2 × size - 1 times as much as independent
    ones, which is the index that a report measures.

    Attributes:
        mean_size: Mean failures in a burst, 1 or more; its size is geometric.
        gap_s: Mean time in use from one failure of a burst to the next.

    Source:
        Bartlett (1963), Journal of the Royal Statistical Society B 25, for processes of clusters;
        E[K²] / E[K] of a geometric size K.
    """

    mean_size: float
    gap_s: float

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: a size below 1, or a gap that is no time.
        """
        if not (1.0 <= self.mean_size < math.inf and 0.0 < self.gap_s < math.inf):
            raise UsageError(
                f"bursts of {self.mean_size:g} failures, {self.gap_s:g} s apart: give a mean size "
                "of 1 or more and a gap above 0"
            )

    @property
    def chance(self) -> float:
        """Chance that a failure brings another one."""
        return 1.0 - 1.0 / self.mean_size


@dataclass(frozen=True, slots=True)
class RepairTime:
    """How long a failed node is away."""

    mean_s: float
    law: LifeLaw | None = None


@dataclass(frozen=True, slots=True)
class RunScenario:
    """A run of one job with everything that decides its length.

    Attributes:
        levels: Its checkpoints and kinds of failure; of the rates of kinds only their shares
            count.
        start_restart_s: Its first restart; it waits as after a failure before it.
        spares: Nodes held ready, which do not age while they wait.
        detection_s: From a failure until it is noticed; the job stands, and nodes may fail.
    """

    levels: Levels
    nodes_lost: tuple[int, ...]
    n_nodes: int
    life: LifeLaw
    start_restart_s: float
    productive_s: float = math.inf
    age_s: float | None = None
    node_repair: NodeRepair = NodeRepair(1.0)  # noqa: RUF009 - frozen
    repair_time: RepairTime | None = None
    spares: int = 0
    detection_s: float = 0.0
    bursts: Bursts | None = None

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: one or more cannot be; all are listed at once."""
        problems = []
        if len(self.nodes_lost) != len(self.levels.kinds) or not self.levels.per_s > 0:
            problems.append(
                f"{len(self.levels.kinds)} kinds of failure, {len(self.nodes_lost)} numbers of "
                "nodes lost: give one of each, and a share above 0"
            )
        if self.n_nodes < 1 or self.spares < 0:
            problems.append(
                f"{self.n_nodes} nodes and {self.spares} spares: give 1 or more, 0 or more"
            )
        if self.total_nodes > MOST_NODES:
            problems.append(
                f"{self.total_nodes:,} nodes: {MOST_NODES:,} can be simulated; use the exact form"
            )
        if self.spares and self.repair_time is None:
            problems.append("spares without a repair time: say how long a failed node is away")
        if self.age_s is None and self.node_repair.as_new_share == 0.0:
            problems.append(
                "minimal repair of a fleet in use for long: its rate depends on how long; give the "
                "age of the nodes"
            )
        if self.age_s is not None and not 0.0 <= self.age_s < math.inf:
            problems.append(f"age_s: {self.age_s:g}; give 0 or more seconds")
        if not self.detection_s >= 0.0:
            problems.append(f"detection_s: {self.detection_s:g}; give 0 or more seconds")
        if problems:
            raise UsageError(
                "cannot simulate this run:" + "".join(f"\n  {one}" for one in problems)
            )

    @property
    def total_nodes(self) -> int:
        """Nodes of the job and spares."""
        return self.n_nodes + self.spares

    @property
    def words(self) -> str:
        """What the simulation assumes, in words."""
        ages = "of all ages" if self.age_s is None else f"{spell(self.age_s)} old"
        if self.age_s == 0.0:
            ages = "new"
        clauses = [f"nodes {ages} when the run begins", self.node_repair.words]
        if self.repair_time is not None:
            kind = "each" if self.repair_time.law is None else "on average"
            clauses.append(
                f"repairs take {spell(self.repair_time.mean_s)} {kind}, {self.spares:,} spares"
            )
        if self.bursts is not None and self.bursts.mean_size > 1.0:
            clauses.append(
                f"failures in bursts of {self.bursts.mean_size:g} on average, "
                f"{spell(self.bursts.gap_s)} apart"
            )
        if self.detection_s:
            clauses.append(f"each is noticed after {spell(self.detection_s)}")
        return "; ".join(clauses)


def plain_run(
    run: PlannedRun, life: LifeLaw, nodes_lost: int = 1
) -> tuple[Levels, tuple[int, ...], int, LifeLaw, float, float]:
    """The first fields of a `RunScenario` of a run as the exact form has it."""
    kind = FailureKind(RecoveryLevel.LIGHT, 1.0, run.restart_s)
    levels = Levels(run.interval_s, run.write_s, kinds=(kind,), queue_s=run.queue_s)
    return levels, (nodes_lost,), run.n_nodes, life, run.restart_s, run.productive_s


def hazard_table(law: LifeLaw) -> HazardTable:
    """The cumulative hazard of a law as the loop looks it up."""
    ends = law.clock_at(np.array([_SMALLEST_HAZARD, _LARGEST_HAZARD]))
    if not ends[0] < np.inf:
        # it never fails
        return HazardTable(0.0, 1.0, np.array([-1e300, -1e300]))
    last = float(ends[1]) if math.isfinite(float(ends[1])) else float(ends[0]) * 1e30
    begin = math.log(max(float(ends[0]), 1e-290))
    grid = np.linspace(begin, math.log(min(last, 1e290)), _GRID)
    with np.errstate(divide="ignore"):
        log_hazard = np.log(law.cumulative_hazard(np.exp(grid)))
    return HazardTable(
        begin,
        float(grid[1] - grid[0]),
        np.maximum.accumulate(np.maximum(log_hazard, math.log(_SMALLEST_HAZARD) - 1.0)),
    )


def course_of(scenario: RunScenario) -> Course:
    """What the loop plays: kinds of failure in the order in which one overrides another."""
    levels = scenario.levels

    def wait_s(kind: FailureKind) -> float:
        return levels.queue_s if kind.waits else 0.0

    order = sorted(
        range(len(levels.kinds)),
        key=lambda i: (
            _LEVELS[levels.kinds[i].level],
            wait_s(levels.kinds[i]) + levels.kinds[i].restart_s,
        ),
    )
    kinds = [levels.kinds[i] for i in order]
    start = FailureKind(RecoveryLevel.DEEP, 0.0, scenario.start_restart_s)
    both = [*kinds, start]
    repair, bursts = scenario.repair_time, scenario.bursts
    fixed_s = -1.0 if repair is not None and repair.law is not None else 0.0
    if repair is not None and repair.law is None:
        fixed_s = repair.mean_s
    return Course(
        n_nodes=scenario.n_nodes,
        interval_s=levels.interval_s,
        slowdown=levels.slowdown,
        length_s=levels.length_s,
        lag_s=levels.lag_s,
        durable_lag_s=max(levels.lag_s, levels.durable_lag_s),
        per_durable=levels.n_light_per_durable,
        productive_s=scenario.productive_s,
        detection_s=scenario.detection_s,
        level=np.array([_LEVELS[kind.level] for kind in both], dtype=np.int64),
        restart_s=_array(kind.restart_s for kind in both),
        wait_s=_array(wait_s(kind) for kind in both),
        lost_s=_array(kind.lost_s for kind in both),
        stale_share=_array(kind.lost_staleness_share for kind in both),
        nodes_lost=np.array([scenario.nodes_lost[i] for i in order] + [0], dtype=np.int64),
        chance=_array(np.cumsum([kind.per_s for kind in kinds]) / levels.per_s),
        as_new_share=scenario.node_repair.as_new_share,
        repairs=repair is not None,
        fixed_repair_s=fixed_s,
        burst_chance=0.0 if bursts is None else bursts.chance,
        burst_gap_s=1.0 if bursts is None else bursts.gap_s,
        life=hazard_table(scenario.life.of_node()),
        repair=hazard_table(scenario.life if repair is None or repair.law is None else repair.law),
    )


def _array(values: object) -> Floats:
    return np.array(list(values), dtype=np.float64)  # type: ignore[call-overload]
