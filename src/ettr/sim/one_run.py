"""One run simulated until its ETTR, or its length, is known as well as was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.models.data import LifeLaw, NodeRepair
from ettr.plan.levels import FailureKind, Levels, RecoveryLevel
from ettr.plan.renewal import TimeShares, exact_ettr
from ettr.plan.run import PlannedRun, SimulatedRun
from ettr.plan.wallclock import QUANTILES, ends
from ettr.sim import engine
from ettr.sim.compiled import engine_name
from ettr.sim.engine import Course, Draws, Floats, HazardTable, Replica, play, stream
from ettr.units import SECONDS_PER_DAY
from ettr.words import spell

# -- a run to simulate: its course, the law of its nodes, repairs, spares, bursts ------------------


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


# -- one run simulated until its ETTR, or its length, is known as well as was asked for ------------


Flags = NDArray[np.bool_]
Z90 = 1.6448536269514722
"""Standard errors to either side of a mean that hold 90 %."""
_FIRST_REPLICAS = 8
_LEAST_REPLICAS = 32
_MOST_FAILURES = 100_000
"""Failures at which one replica is given up."""
_LEAST_FOR_QUANTILES = 256
_FAILURES_A_REPLICA = 300
_WARM_UP_SHARE = 0.2
_LEAST_FACTOR = 1e-200
_MANY_FAILURES = 400_000


@dataclass(frozen=True, slots=True)
class Precision:
    """How well to know the result, and how long to try.

    Attributes:
        most_failures: Failures in all replicas at most, which bounds the time.
    """

    ettr_error: float = 0.001
    most_replicas: int = 4096
    most_failures: int = _MANY_FAILURES


@dataclass(frozen=True, slots=True)
class ShortShares:
    """Shares of the wall-clock that the exact form does not know."""

    detecting: float
    short_of_nodes: float


@dataclass(frozen=True, slots=True)
class SimulatedLengths:
    """Wall-clock of a run of finite length."""

    mean_s: float
    mean_error_s: float
    each_s: tuple[float, ...]

    def quantile_s(self, share: float) -> float:
        """The wall-clock within which that share of the replicas ended."""
        return float(np.quantile(self.each_s, share))


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a simulated run comes to.

    Attributes:
        shares: Where the wall-clock goes; with `short`, they sum to 1.
        short: The shares that `shares` has no place for.
    """

    ettr: float
    ettr_error: float
    shares: TimeShares
    short: ShortShares
    failures_per_node_day: float
    lengths: SimulatedLengths | None
    replicas: int
    failures: int
    unfinished: int
    precise: bool
    seed: int
    engine: str

    @property
    def interval(self) -> Interval:
        """ETTR with an interval of 90 % for the simulation alone, not for its inputs."""
        return Interval(
            self.ettr, self.ettr - Z90 * self.ettr_error, self.ettr + Z90 * self.ettr_error
        )


def simulate_run(
    scenario: RunScenario,
    seed: int,
    precision: Precision = Precision(),
    horizon_s: float | None = None,
) -> RunOutcome:
    """A run simulated by its scenario, in replicas that double until it is known well enough.

    A long run is watched from a fifth of the horizon on; one whose nodes have a given age, which
    changes, from its beginning. A replica that gets neither to its end nor to the horizon within
    100,000 failures is given up, and counted.

    Args:
        horizon_s: How long to watch a long run, in each replica; if None, 300 failures of a fleet
            in use for long.
    """
    watched = Watch.of(scenario, horizon_s)
    rows = np.empty((0, engine.N_ROW))
    ended = np.empty(0, dtype=np.bool_)
    while True:
        target = min(max(_FIRST_REPLICAS, 2 * ended.size), precision.most_replicas)
        more = [watched.replica(seed, number) for number in range(ended.size, target)]
        rows = np.concatenate([rows, np.array([row for row, _ in more])])
        ended = np.concatenate([ended, np.array([over for _, over in more])])
        outcome = _outcome(scenario, rows, ended, seed)
        least = _LEAST_REPLICAS if outcome.lengths is None else _LEAST_FOR_QUANTILES
        precise = ended.size >= least and outcome.ettr_error <= precision.ettr_error
        if (
            precise
            or target == precision.most_replicas
            or outcome.failures >= precision.most_failures
        ):
            return replace(outcome, precise=precise)


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """A scenario made ready to be played again and again."""

    scenario: RunScenario
    course: Course
    marks_s: Floats
    ages: tuple[Floats, Floats] | None

    @classmethod
    def of(cls, scenario: RunScenario, horizon_s: float | None = None) -> Watch:
        """Ready a scenario, its life scaled for bursts."""
        course = course_of(scenario)
        if scenario.bursts is not None:
            # own failures rarer by the size of a burst: the clock of a life runs slower
            later = math.log(scenario.bursts.mean_size)
            course = course._replace(life=course.life._replace(begin=course.life.begin + later))
        ages = None
        node = scenario.life.of_node()
        if scenario.age_s is None:
            ages = node.service_ages()
        marks_s = np.empty(0)
        if math.isinf(scenario.productive_s):
            marks_s = _marks_s(scenario, horizon_s)
        return cls(scenario, course, marks_s, ages)

    def replica(self, seed: int, number: int) -> tuple[Floats, bool]:
        """One replica: its row, counted from the first mark on, and whether it got to its end."""
        scenario, total = self.scenario, self.scenario.total_nodes
        fleet = stream(seed, "fleet", number)
        # a node of no rate at all would divide by 0
        factor = np.maximum(scenario.life.node_factors(total, fleet), _LEAST_FACTOR)
        age_s = np.full(total, scenario.age_s or 0.0)
        if self.ages is not None:
            grid_s, lived_s = self.ages
            age_s = np.interp(fleet.random(total) * lived_s[-1], lived_s, grid_s)
            if scenario.bursts is not None:
                age_s = age_s * scenario.bursts.mean_size
        state = _begin(factor, age_s, self.marks_s)
        draws = Draws(*(stream(seed, name, number) for name in Draws._fields))
        ended = play(self.course, state, draws, _MOST_FAILURES)
        if self.marks_s.size == 0:
            return _last_row(state), ended
        row = state.rows[-1].copy()
        if self.marks_s.size > 1:
            row -= state.rows[0]
        return row, ended


def _marks_s(scenario: RunScenario, horizon_s: float | None) -> Floats:
    if horizon_s is None and scenario.age_s is not None:
        raise UsageError(
            "nodes of a given age grow older, so there is no long run; give the length of the run, "
            "or a horizon"
        )
    if horizon_s is None:
        mean_s = scenario.life.of_node().mean_s() / scenario.n_nodes
        recovery_s = scenario.start_restart_s + scenario.levels.queue_s + scenario.detection_s
        horizon_s = _FAILURES_A_REPLICA * (mean_s + recovery_s)
        if scenario.repair_time is not None:
            horizon_s = max(horizon_s, 20.0 * scenario.repair_time.mean_s)
    if not 0 < horizon_s < math.inf:
        raise UsageError(
            f"a run without end is watched for {horizon_s:g} s; give a horizon above 0, or a "
            "finite length of the run"
        )
    if scenario.age_s is not None:
        return np.array([horizon_s])
    return np.array([_WARM_UP_SHARE * horizon_s, horizon_s])


def _begin(factor: Floats, age_s: Floats, marks_s: Floats) -> Replica:
    """All nodes ready, nothing done."""
    total = factor.size
    count = np.zeros(engine.N_COUNTS, dtype=np.int64)
    count[engine.SPARES] = total
    at = np.zeros(engine.N_AT)
    at[engine.BURST_S] = math.inf
    outside = np.full(total, -1, dtype=np.int64)
    return Replica(
        at=at,
        tally=count,
        factor=factor,
        age_s=age_s,
        since_s=np.zeros(total),
        due_s=np.full(total, math.inf),
        active=np.zeros(total, dtype=np.int64),
        active_place=outside,
        back_s=np.full(total, math.inf),
        away=np.zeros(total, dtype=np.int64),
        away_place=outside.copy(),
        spare=np.arange(total, dtype=np.int64),
        debt_place_s=np.zeros(engine.MOST_DEBTS),
        debt_s=np.zeros(engine.MOST_DEBTS),
        marks_s=marks_s,
        rows=np.zeros((marks_s.size, engine.N_ROW)),
    )


def _last_row(state: Replica) -> Floats:
    at, row = state.at, np.zeros(engine.N_ROW)
    row[engine.ROW_WALL] = at[engine.WALL_S]
    row[engine.ROW_PLACE] = at[engine.PLACE_S]
    row[engine.ROW_OWED] = at[engine.OWED_S]
    row[engine.ROW_QUEUED : engine.ROW_FAILURES] = at[engine.QUEUED_S : engine.TRAINING_S + 1]
    row[engine.ROW_FAILURES] = state.tally[engine.FAILURES]
    return row


def _outcome(scenario: RunScenario, rows: Floats, ended: Flags, seed: int) -> RunOutcome:
    finite = math.isfinite(scenario.productive_s)
    wall_s, failures = rows[:, engine.ROW_WALL], rows[:, engine.ROW_FAILURES]
    n = rows.shape[0]
    kept = scenario.levels.interval_s / scenario.levels.length_s
    work_s = rows[:, engine.ROW_PLACE] * kept - rows[:, engine.ROW_OWED]
    if finite:
        work_s = np.where(ended, scenario.productive_s, 0.0)
    sums = rows.sum(axis=0)
    total_s = float(wall_s.sum())
    ettr = float(work_s.sum()) / total_s
    # of a ratio of means, by the delta method
    error = float(np.std(work_s - ettr * wall_s, ddof=1)) * math.sqrt(n) / total_s
    in_use_s = float(
        sums[engine.ROW_RESTARTING] + sums[engine.ROW_DETECTING] + sums[engine.ROW_TRAINING]
    )
    return RunOutcome(
        ettr=ettr,
        ettr_error=error,
        shares=_shares(sums, float(work_s.sum())),
        short=ShortShares(
            float(sums[engine.ROW_DETECTING]) / total_s, float(sums[engine.ROW_SHORT]) / total_s
        ),
        failures_per_node_day=float(failures.sum())
        / (scenario.n_nodes * in_use_s / SECONDS_PER_DAY),
        lengths=_lengths(wall_s, ended) if finite else None,
        replicas=n,
        failures=int(failures.sum()),
        unfinished=int(n - ended.sum()),
        precise=False,
        seed=seed,
        engine=engine_name(),
    )


def _shares(sums: Floats, work_s: float) -> TimeShares:
    place_s, owed_s = float(sums[engine.ROW_PLACE]), float(sums[engine.ROW_OWED])
    total_s = float(sums[engine.ROW_WALL])
    return TimeShares(
        productive=work_s / total_s,
        writing=(place_s - owed_s - work_s) / total_s,
        lost=(float(sums[engine.ROW_TRAINING]) - place_s + owed_s) / total_s,
        restarting=float(sums[engine.ROW_RESTARTING]) / total_s,
        queued=float(sums[engine.ROW_QUEUED]) / total_s,
    )


def _lengths(wall_s: Floats, ended: Flags) -> SimulatedLengths:
    """Of the replicas; one that was given up counts as endless."""
    each_s = np.sort(np.where(ended, wall_s, math.inf))
    mean_s = float(each_s.mean())
    error_s = float(np.std(each_s, ddof=1)) / math.sqrt(each_s.size) if ended.all() else math.inf
    return SimulatedLengths(mean_s, error_s, tuple(map(float, each_s)))


_FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
_OFF = 0.1
"""A simulation of a fleet in use for long meets the failures of the rate to within this share."""
_NOTICED = 0.0005
"""An interval must gain so much to be preferred to the one planned: the last digit printed."""
_COARSE = Precision(0.004, most_replicas=256, most_failures=100_000)
_ROUGH = Precision(0.008, most_replicas=64, most_failures=20_000)


@dataclass(frozen=True, slots=True)
class PlannedSimulation:
    """What to simulate a planned run with.

    Attributes:
        life_of: Law of a node's life, by its mean in seconds, which is that of the failure rate.
        age_s: Age of the nodes when the run begins; None for a fleet in use for long.
    """

    life_of: Callable[[float], LifeLaw]
    words: str
    node_repair: NodeRepair
    repair_time: RepairTime | None = None
    spares: int = 0
    detection_s: float = 0.0
    age_s: float | None = None
    bursts: Bursts | None = None
    seed: int = 1
    precision: Precision = Precision()

    def scenario(self, run: PlannedRun) -> RunScenario:
        """The run at its own failure rate, interval and length."""
        life = self.life_of(SECONDS_PER_DAY / run.failures_per_node_day)
        return RunScenario(
            *plain_run(run, life),
            age_s=self.age_s,
            node_repair=self.node_repair,
            repair_time=self.repair_time,
            spares=self.spares,
            detection_s=self.detection_s,
            bursts=self.bursts,
        )

    def outcome(self, run: PlannedRun, precision: Precision | None = None) -> RunOutcome:
        """The run simulated."""
        return simulate_run(self.scenario(run), self.seed, precision or self.precision)


def simulated_plan(
    run: PlannedRun, by: PlannedSimulation, per_node_day: Interval | None = None
) -> SimulatedRun:
    """A planned run simulated, at the rate to design for and at the ends of its interval.

    Intervals are compared on the same random streams.

    Raises:
        UsageError: nothing fails, or nodes of a given age and a run without end.
    """
    if not run.failures_per_node_day > 0:
        raise UsageError("nothing fails at a rate of 0: there is nothing to simulate")
    long_run = by.age_s is None
    if not long_run and math.isinf(run.productive_s):
        raise UsageError("nodes of a given age grow older in a run without end; give --days")
    watched = replace(run, productive_s=math.inf) if long_run else run
    outcome = by.outcome(watched)
    finite = outcome
    if long_run and math.isfinite(run.productive_s) and ends(run):
        finite = by.outcome(run)
    tried = {
        factor: by.outcome(replace(watched, interval_s=factor * run.interval_s), _COARSE).ettr
        for factor in _FACTORS
    }
    best = max(tried, key=lambda factor: tried[factor])
    # on like streams a difference is known better than either end of it
    gain = tried[best] - tried[1.0]
    best, gain = (best, gain) if gain > _NOTICED else (1.0, 0.0)
    scenario, lengths = by.scenario(run), finite.lengths
    off = _off_the_rate(watched, outcome) if long_run else ""
    return SimulatedRun(
        law=f"{by.words}; {scenario.words}",
        why=off,
        ettr=outcome.ettr,
        ettr_error=outcome.ettr_error,
        exact_ettr=exact_ettr(watched),
        best_interval_s=best * run.interval_s,
        best_ettr=outcome.ettr + gain,
        mean_s=None if lengths is None else lengths.mean_s,
        quantiles=()
        if lengths is None
        else tuple((share, lengths.quantile_s(share)) for share in QUANTILES),
        draws=outcome.replicas,
        seed=by.seed,
        engine=f"simulation, event by event ({outcome.engine})",
        failures="the failures and repairs given",
        long_run=long_run,
        ettr_at_rate_ends=_at_ends(watched, by, outcome, per_node_day),
        failures_per_node_day=outcome.failures_per_node_day,
        short_of_nodes=None if by.repair_time is None else outcome.short.short_of_nodes,
        detecting=outcome.short.detecting if by.detection_s else None,
        precise=outcome.precise and finite.precise and not off,
    )


def rough_ettr(run: PlannedRun, by: PlannedSimulation) -> float:
    """Simulated ETTR of a run as one of many, which need not be known well."""
    long_run = by.age_s is None
    return by.outcome(replace(run, productive_s=math.inf) if long_run else run, _ROUGH).ettr


def _off_the_rate(run: PlannedRun, outcome: RunOutcome) -> str:
    """Why a simulation is not to be believed: it has not met the failures that its law promises."""
    share = outcome.failures_per_node_day / run.failures_per_node_day
    if abs(share - 1.0) <= _OFF:
        return ""
    return (
        f"The simulation met {share:.2f} times the failures of the rate: the law is so extreme "
        "that rare nodes or bursts decide, and the simulated ETTR is not to be relied on."
    )


def _at_ends(
    run: PlannedRun, by: PlannedSimulation, outcome: RunOutcome, per_node_day: Interval | None
) -> Interval | None:
    """ETTR simulated at the ends of the rate; None where it has none, or no upper one."""
    if per_node_day is None or not 0 < per_node_day.low < per_node_day.high < math.inf:
        return None
    low, high = (
        by.outcome(replace(run, failures_per_node_day=rate), _COARSE).ettr
        for rate in (per_node_day.high, per_node_day.low)
    )
    return Interval(outcome.ettr, min(low, outcome.ettr), max(high, outcome.ettr))
