"""A store's own failure law, where its failures are not independent at a constant rate."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.clustering import come_in_bursts
from ettr.analysis.fleet_evidence import FleetEvidence, evidence_to_plan_with, planned_above_gpus
from ettr.analysis.model_choice import StoredSpans
from ettr.analysis.node_faults import faults_of
from ettr.errors import UsageError
from ettr.metrics.instants import to_seconds
from ettr.models.data import Floats
from ettr.models.registry import law_of_age
from ettr.plan.outlook import PlanningRate
from ettr.plan.renewal import exact_ettr, expected_wallclock_s
from ettr.plan.run import PlannedRun, SimulatedRun
from ettr.plan.wallclock import (
    ENDLESS,
    QUANTILES,
    DeadlinePlan,
    SizedRun,
    TimeBudget,
    at_size,
    ends,
)
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY
from ettr.words import spell

# -- a time budget answered by simulation, where failures are not independent at a constant rate


# -- Laws by which the failures of a run may be drawn: a fleet's own timeline, or nodes that age --


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedTimeline:
    """Blocks of a fleet's own calendar of failures, put together at random.

    Within a block failures keep their distances, so that bursts stay bursts; blocks are
    independent. A larger run is several such fleets at once, a smaller one meets each failure with
    the chance that its rate asks for.

    **Source**: Künsch (1989), Annals of Statistics 17, the moving-block bootstrap, circular as in
    Politis and Romano (1992).
    """

    failures_s: Floats
    span_s: float
    block_s: float

    def __post_init__(self) -> None:
        """Check that there is something to replay.

        Raises:
            UsageError: no failure, or a block longer than the logs.
        """
        if not self.failures_s.size or not 0 < self.block_s <= self.span_s:
            raise UsageError(
                f"{self.failures_s.size} failures in {self.span_s:g} s, blocks of {self.block_s:g} "
                "s: give one failure or more and a block no longer than the logs"
            )

    @property
    def words(self) -> str:
        """The law and what it assumes, in words."""
        return (
            f"blocks of {spell(self.block_s)} of the store's own {self.failures_s.size:,} "
            "failures, drawn at random; a run of another size meets a failure of a burst in "
            "proportion to its nodes"
        )

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure from 0 to the horizon, ascending, shape (n,), in seconds."""
        fleets = failures_per_s * self.span_s / self.failures_s.size
        copies = max(1, math.ceil(fleets))
        blocks = max(1, math.ceil(horizon_s / self.block_s))
        begins = rng.uniform(0.0, self.span_s, copies * blocks)
        place = np.tile(np.arange(blocks) * self.block_s, copies)
        # the logs twice in a row, so that a block may reach over their end
        twice = np.concatenate([self.failures_s, self.failures_s + self.span_s])
        first = np.searchsorted(twice, begins)
        counts = np.searchsorted(twice, begins + self.block_s) - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        times = twice[np.repeat(first, counts) + within] + np.repeat(place - begins, counts)
        kept = times[rng.random(times.size) < fleets / copies]
        return np.sort(kept[kept < horizon_s])


@dataclass(frozen=True, slots=True)
class AgeingNodes:
    """Nodes with Weibull lives, as good as new after a failure, at all ages when the run begins.

    Attributes:
        shape: Of the lives: below 1 a failure makes the next one likelier, above 1 nodes wear out.
    """

    n_nodes: int
    shape: float

    @property
    def words(self) -> str:
        """The law and what it assumes, in words."""
        return (
            f"Weibull lives of shape {self.shape:.2f} of {self.n_nodes:,} nodes, good as new after "
            "each failure, at all ages when the run begins"
        )

    def times_s(self, failures_per_s: float, horizon_s: float, rng: np.random.Generator) -> Floats:
        """Moments of failure from 0 to the horizon, ascending, shape (n,), in seconds."""
        mean_s = self.n_nodes / failures_per_s
        scale_s = mean_s / math.gamma(1.0 + 1.0 / self.shape)
        # a life met at a random moment is longer in proportion to its length
        life_s = scale_s * rng.gamma(1.0 + 1.0 / self.shape, size=self.n_nodes) ** (
            1.0 / self.shape
        )
        next_s = life_s * rng.random(self.n_nodes)
        struck: list[Floats] = []
        while True:
            next_s = next_s[next_s < horizon_s]
            if not next_s.size:
                break
            struck.append(next_s)
            next_s = next_s + scale_s * rng.weibull(self.shape, next_s.size)
        return np.sort(np.concatenate(struck)) if struck else np.empty(0)


FailureLaw = ReplayedTimeline | AgeingNodes
LawOf = Callable[[PlannedRun], FailureLaw]
"""The failure law of a run, by its size and rate."""

_GROWTH = 1.1
_MOST_SIZES = 24
_FINEST = 0.005
_FULL_SHARE = 0.99
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Effort:
    """How many runs to draw at one size: so many, unless they hold more failures than that."""

    draws: int
    failures: float


_SEARCH = _Effort(120, 60_000)
_ANSWER = _Effort(400, 400_000)


def simulated_deadline(exact: DeadlinePlan, run: PlannedRun, law_of: LawOf) -> DeadlinePlan:
    """The smallest size at which the work ends in time, by simulation.

    Every size is drawn with the same seed, so that sizes are compared on like failures. A size is
    found to half a per cent of its nodes; its interval is the best by the exact form.
    """
    sizes = _Sizes(exact.budget, run, exact.work_node_s, law_of)
    as_planned = sizes.at(run.n_nodes, _ANSWER)
    fewest = max(1, math.floor(exact.work_node_s / exact.budget.within_s))
    tried, too_few = [as_planned], max(0, fewest - 1)
    n_nodes, enough = fewest, None
    for _ in range(_MOST_SIZES):
        one = sizes.at(n_nodes, _SEARCH)
        tried.append(one)
        if one.chance >= exact.budget.chance:
            enough = n_nodes
            break
        too_few, n_nodes = n_nodes, max(n_nodes + 1, math.ceil(n_nodes * _GROWTH))
    smallest = None if enough is None else sizes.smallest(too_few, enough)
    if smallest is None and as_planned.chance >= exact.budget.chance:
        smallest = as_planned
    likeliest = max((*tried, smallest or as_planned), key=lambda one: (one.chance, -one.mean_s))
    return replace(
        exact, as_planned=as_planned, smallest=smallest, likeliest=likeliest, simulated=True
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The work of a run at any size."""

    budget: TimeBudget
    run: PlannedRun
    work_node_s: float
    law_of: LawOf

    def smallest(self, too_few: int, enough: int) -> SizedRun | None:
        """The fewest nodes between two that end in time; None where more draws contradict it."""
        while enough - too_few > max(1.0, _FINEST * enough):
            middle = (too_few + enough) // 2
            if self.at(middle, _SEARCH).chance >= self.budget.chance:
                enough = middle
            else:
                too_few = middle
        for _ in range(_MOST_STEPS):
            one = self.at(enough, _ANSWER)
            if one.chance >= self.budget.chance:
                return one
            enough += max(1, round(_FINEST * enough))
        return None

    def at(self, n_nodes: int, effort: _Effort) -> SizedRun:
        """The work on so many nodes, with the share of the runs drawn that end in time."""
        run = at_size(self.run, n_nodes, self.work_node_s, self.budget)
        law, spares = self.law_of(run), None
        if self.budget.repair_s is not None and run.failures_per_s:
            run, spares = _with_spares(run, law, self.budget.repair_s)
        if not ends(run):
            return SizedRun(
                n_nodes, spares, run.interval_s, run.productive_s, math.inf, 0.0, 0.0, 0.0
            )
        lengths = _lengths_s(run, law, effort)
        chance = float(np.mean(lengths <= self.budget.within_s))
        # half a run either way, so that a share of 0 or 1 has an error too
        drawn = (chance * lengths.size + 0.5) / (lengths.size + 1.0)
        return SizedRun(
            n_nodes,
            spares,
            run.interval_s,
            run.productive_s,
            float(np.mean(lengths)),
            chance,
            run.productive_s / float(np.mean(lengths)),
            math.sqrt(drawn * (1.0 - drawn) / lengths.size),
        )


def _lengths_s(run: PlannedRun, law: FailureLaw, effort: _Effort) -> Floats:
    """Wall-clock of runs drawn by a law, shape (n,), in seconds."""
    in_a_run = max(1.0, run.failures_per_s * expected_wallclock_s(run))
    n = int(min(effort.draws, max(20.0, effort.failures / in_a_run)))
    return _drawn_s(run, law, n, np.random.default_rng(SEED))


def _horizon_s(run: PlannedRun) -> float:
    """Until when failures of a run are drawn."""
    return 4.0 * expected_wallclock_s(run) + 20.0 / run.failures_per_s


def _drawn_s(run: PlannedRun, law: FailureLaw, n: int, rng: np.random.Generator) -> Floats:
    failures = (law.times_s(run.failures_per_s, _horizon_s(run), rng).tolist() for _ in range(n))
    return np.array([progress(run, times_s).wallclock_s for times_s in failures])


def _with_spares(run: PlannedRun, law: FailureLaw, repair_s: float) -> tuple[PlannedRun, int]:
    """Spares with which the run has its nodes for 99 % of the time, and the run with the rest."""
    rng = np.random.default_rng(SEED)
    horizon_s = 200.0 * (repair_s + 1.0 / run.failures_per_s)
    # no more failures than a search should draw
    horizon_s = min(horizon_s, max(_SEARCH.failures / run.failures_per_s, 20.0 * repair_s))
    begins = law.times_s(run.failures_per_s, horizon_s, rng)
    moments = np.concatenate([begins, begins + rng.exponential(repair_s, begins.size)])
    order = np.argsort(moments)
    changes = np.repeat([1, -1], begins.size)[order]
    in_repair = np.cumsum(changes)[:-1]
    lasts_s = np.diff(moments[order])
    # from when as many are in repair as in the long run, until no more fail
    counted = (moments[order][:-1] >= min(5.0 * repair_s, horizon_s / 4)) & (
        moments[order][:-1] < horizon_s
    )
    weights = np.bincount(in_repair[counted], lasts_s[counted])
    if not weights.sum():
        return run, 0
    share_with = np.cumsum(weights) / weights.sum()
    spares = int(np.searchsorted(share_with, _FULL_SHARE))
    still = float(1.0 - share_with[min(spares, share_with.size - 1)])
    waits_s = run.queue_s + still / (1.0 - still) / run.failures_per_s
    return replace(run, queue_s=waits_s), spares


SEED = 1
_DRAWS = 60
_FAILURES_A_DRAW = 500
_RUN_DRAWS = 400
_MOST_FAILURES = 400_000
_FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.8, 4.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """Work kept at some moment of a run, and the moment."""

    productive_s: float
    wallclock_s: float


def progress(run: PlannedRun, failures_s: Sequence[float], horizon_s: float = math.inf) -> Progress:
    """Work that a run keeps under given failures, by its description.

    Each attempt waits, restarts, and trains from the last complete checkpoint; a failure in a
    write loses the interval before it; nothing fails while the run waits. After the last of the
    failures there are no more.
    """
    length_s = run.interval_s + run.write_s
    kept_s, clock_s, place = 0.0, run.queue_s, bisect_right(failures_s, run.queue_s)
    n_failures = len(failures_s)
    while True:
        fails_s = failures_s[place] if place < n_failures else math.inf
        trains_s = clock_s + run.restart_s
        if fails_s > trains_s:
            left_s = run.productive_s - kept_s
            done_s = trains_s + left_s + run.write_s * _writes(left_s, run.interval_s)
            if done_s <= min(fails_s, horizon_s):
                return Progress(run.productive_s, done_s)
            until_s = min(fails_s, horizon_s)
            kept_s += max(0.0, math.floor((until_s - trains_s) / length_s)) * run.interval_s
        if fails_s >= horizon_s:
            return Progress(kept_s, horizon_s)
        clock_s = fails_s + run.queue_s
        place = bisect_right(failures_s, clock_s, place + 1)


def _writes(left_s: float, interval_s: float) -> float:
    return math.inf if math.isinf(left_s) else math.ceil(left_s / interval_s * (1.0 - 1e-12))


def simulated_run(run: PlannedRun, law: FailureLaw, why: str) -> SimulatedRun:
    """A run under a failure law, at the rate of the run.

    The long-run ETTR is that of 60 draws of 500 expected failures each, the intervals are compared
    on the same draws, and a run of finite length is drawn up to 400 times.
    """
    rng = np.random.default_rng(SEED)
    endless = replace(run, productive_s=math.inf)
    # waiting takes time in which nothing fails: look long enough to see that many failures
    horizon_s = _FAILURES_A_DRAW * (1.0 / run.failures_per_s + run.queue_s + run.restart_s)
    draws = [law.times_s(run.failures_per_s, horizon_s, rng).tolist() for _ in range(_DRAWS)]

    def ettrs(interval_s: float) -> list[float]:
        at = replace(endless, interval_s=interval_s)
        return [progress(at, times, horizon_s).productive_s / horizon_s for times in draws]

    planned = ettrs(run.interval_s)
    tried = {factor: float(np.mean(ettrs(factor * run.interval_s))) for factor in _FACTORS}
    best = max(tried, key=lambda factor: tried[factor])
    mean_s, quantiles = _lengths(run, law, rng)
    return SimulatedRun(
        law=law.words,
        why=why,
        ettr=float(np.mean(planned)),
        ettr_error=float(np.std(planned, ddof=1) / math.sqrt(_DRAWS)),
        exact_ettr=exact_ettr(endless),
        best_interval_s=best * run.interval_s,
        best_ettr=tried[best],
        mean_s=mean_s,
        quantiles=quantiles,
        draws=_DRAWS,
        seed=SEED,
    )


def _lengths(
    run: PlannedRun, law: FailureLaw, rng: np.random.Generator
) -> tuple[float | None, tuple[tuple[float, float], ...]]:
    """Mean and quantiles of the wall-clock; None and nothing where they cannot be drawn."""
    if math.isinf(run.productive_s):
        return None, ()
    if expected_wallclock_s(run) > ENDLESS * run.productive_s:
        return None, ()
    per_draw = max(1.0, run.failures_per_s * _horizon_s(run))
    n = int(min(_RUN_DRAWS, max(20.0, _MOST_FAILURES / per_draw)))
    lengths = _drawn_s(run, law, n, rng)
    return float(np.mean(lengths)), tuple(
        (share, float(np.quantile(lengths, share))) for share in QUANTILES
    )


# -- a store's own failure law, where its failures are not independent at a constant rate ----------


FEW_FOR_AGEING = 30
_SMALL_P = 1e-6
_BLOCK_WINDOWS = 2.0
_BLOCKS_AT_LEAST = 4.0


@dataclass(frozen=True, slots=True)
class OwnFailures:
    """Failures of a store that are not independent at a constant rate."""

    why: str
    timeline: ReplayedTimeline | None
    shape: float | None

    def simulated(self, run: PlannedRun) -> SimulatedRun | None:
        """The run under this law; None where nothing fails, so that nothing can differ."""
        if run.failures_per_s <= 0:
            return None
        return simulated_run(run, self._law(run), self.why)

    def deadline(self, exact: DeadlinePlan, run: PlannedRun) -> DeadlinePlan:
        """The answer to a time budget under this law."""
        return exact if run.failures_per_s <= 0 else simulated_deadline(exact, run, self._law)

    def _law(self, run: PlannedRun) -> FailureLaw:
        if self.timeline is not None:
            return self.timeline
        return AgeingNodes(run.n_nodes, self.shape or 1.0)


def own_failures(analysis: Analysis, evidence: FleetEvidence) -> OwnFailures | None:
    """The failure law of a store; None where nothing speaks against independent failures.

    Without jobs only bursts are looked for: how long a node was in use is not known.
    """
    above_gpus = planned_above_gpus(analysis)
    spread = evidence.spread
    if spread is not None and spread.over_time.is_clustered:
        times_days = _moments_s(analysis, above_gpus) / SECONDS_PER_DAY
        if not come_in_bursts(spread.over_time, times_days, analysis.assumptions.confidence):
            # bursts that are not shown widen intervals, and look like ageing
            return None
        timeline = _timeline(analysis, above_gpus, spread.over_time.window_days or 1.0)
        if timeline is None:
            return None
        index, p_value = spread.over_time.index, spread.over_time.p_value or 0.0
        return OwnFailures(
            f"Failures come in bursts: counts in windows of time vary {index:.3g} times as much as "
            f"independent ones (p {'< 1e-6' if p_value < _SMALL_P else f'{p_value:.2g}'}).",
            timeline,
            None,
        )
    if not analysis.logs_read.jobs:
        return None
    return _ageing(analysis, above_gpus, evidence)


def _timeline(
    analysis: Analysis, above_gpus: int | None, window_days: float
) -> ReplayedTimeline | None:
    begin_s, end_s = to_seconds(analysis.period.start), to_seconds(analysis.period.end)
    times_s = np.sort(_moments_s(analysis, above_gpus)) - begin_s
    span_s = end_s - begin_s
    times_s = times_s[(times_s >= 0) & (times_s <= span_s)]
    if not times_s.size or span_s <= 0:
        return None
    # a block holds whole bursts, and the logs several blocks
    block_s = max(_BLOCK_WINDOWS * window_days, 1.0) * SECONDS_PER_DAY
    return ReplayedTimeline(times_s, span_s, min(block_s, span_s / _BLOCKS_AT_LEAST))


def _moments_s(analysis: Analysis, above_gpus: int | None) -> Floats:
    """When jobs failed; without jobs, when nodes did; in seconds since 1970."""
    if analysis.logs_read.jobs:
        failed = analysis.rate_facts.columns("failures")
        ends_s = failed["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
        if above_gpus is None:
            return ends_s
        return ends_s[np.nan_to_num(failed["n_gpus"].astype(np.float64)) > above_gpus]
    faults, _ = faults_of(analysis.facts, analysis.given)
    return faults.start_s


def _ageing(
    analysis: Analysis, above_gpus: int | None, evidence: FleetEvidence
) -> OwnFailures | None:
    if evidence.rate.failures < FEW_FOR_AGEING or evidence.counts.unit != "node":
        return None
    lives = StoredSpans(analysis, above_gpus).observed().since_failure
    if lives is None or int(lives.observed.sum()) < FEW_FOR_AGEING:
        return None
    try:
        fit = law_of_age("weibull").fit(lives, analysis.assumptions.confidence)
    except UsageError:
        return None
    shape = fit.parameter("shape")
    if shape.estimate is None or shape.low <= 1.0 <= shape.high:
        return None
    return OwnFailures(f"{fit.meaning.rstrip('.')}.", None, shape.estimate)


# -- The failure rate to plan a run with, as a store's jobs have shown it -------------------------

UNKNOWN_CLUSTERING = (
    "Two numbers cannot show whether failures cluster: the interval holds only if they "
    "are independent."
)


@dataclass(frozen=True, slots=True)
class StoredRate:
    """What a store gives a plan."""

    rate: PlanningRate
    gpus_per_node: int | None
    own: OwnFailures | None


def stored_rate(analysis: Analysis, name: str) -> StoredRate:
    """The rate of a store's large jobs, or of all where none was large, and its failure law.

    Raises:
        UsageError: no job has run.
    """
    evidence = evidence_to_plan_with(analysis, name)
    per_node = evidence.gpus_per_node
    rate = measured_rate(evidence, analysis.assumptions.confidence)
    own = own_failures(analysis, evidence)
    return StoredRate(rate, round(per_node) if per_node else None, own)


def measured_rate(evidence: FleetEvidence, confidence: float) -> PlanningRate:
    """The rate that a fleet has shown, with the interval to believe."""
    spread = None if evidence.spread is None else evidence.spread.believed
    rate = evidence.rate
    interval = rate.interval(confidence) if spread is None else spread.interval(rate, confidence)
    if not rate.failures:
        interval = replace(interval, estimate=None)
    on_a_node = int(evidence.counts.failures.sum())
    by_node = rate.failures and evidence.counts.unit == "node"
    return PlanningRate(
        interval,
        rate,
        on_a_node / rate.failures if by_node else None,
        UNKNOWN_CLUSTERING if evidence.spread is None else evidence.spread.meaning,
        confidence,
        evidence.by_confidence,
    )
