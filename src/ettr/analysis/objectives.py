"""Whether a site's objectives hold: budget and burn of each, and logs that fell silent."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ettr.analysis.analysis import Analysis
from ettr.analysis.clustering import calendar_edges
from ettr.estimates.exact import gamma_quantile
from ettr.estimates.interval import Interval
from ettr.metrics.coverage import HOLE_CHANCE, LEAST_DAYS, coverage
from ettr.metrics.goodput import lost_gpu_s
from ettr.metrics.instants import Floats, to_datetime, to_seconds
from ettr.metrics.objectives import Objective
from ettr.metrics.trend import cumulative_node_days
from ettr.units import (
    DAYS_PER_YEAR,
    MICROSECONDS_PER_SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

# -- whether failures burn a budget: a cumulative sum whose false-alarm rate is computed, not
# hoped
# The sum gains 1 at each failure and sinks with the failures that the budget expects meanwhile; it
# never sinks below 0. At its threshold an alert begins, and ends when the sum is back at 0. No test
# of that false-alarm rate finds a doubled rate sooner.
#
# Source:
#     Page (1954), Biometrika 41; Moustakides (1986), Annals of Statistics 14, for the optimum;
#     Brook and Evans (1972), Biometrika 59, for run lengths from a Markov chain.


RATIO = 2.0
"""The rate, as a multiple of the budget, that the sum is made to find."""
SINKS = (RATIO - 1.0) / math.log(RATIO)
"""What the sum loses while the budget expects one failure."""
_MOST_CELLS, _LEAST_PER_FAILURE, _MOST_PER_FAILURE = 320, 2, 24
_HIGHEST = 320.0


@dataclass(frozen=True, slots=True)
class BurnRule:
    """When the sum of a budget raises an alert.

    Attributes:
        threshold: Of the sum, in failures.
        false_alarms: Per failure that the budget expects, where the rate is just the budget's.
        dispersion: How many times the failures vary as much as independent ones.
    """

    threshold: float
    false_alarms: float
    dispersion: float


@dataclass(frozen=True, slots=True)
class BurnAlert:
    """From where to where an alert lasted, in failures that the budget expected until then.

    Attributes:
        until: None while it goes on.
    """

    since: float
    until: float | None


@dataclass(frozen=True, slots=True)
class Burn:
    """The alerts of a history, and the sum at its end as a share of the threshold."""

    alerts: tuple[BurnAlert, ...]
    level: float


@lru_cache(maxsize=256)
def burn_rule(false_alarms: float, dispersion: float = 1.0) -> BurnRule:
    """The lowest threshold with at most so many false alarms per expected failure.

    Args:
        dispersion: Failures come in clusters whose sizes are geometric, with this variance of a
            count over its mean (Pólya-Aeppli); 1 for independent ones.
    """
    phi = max(1.0, dispersion)
    low, high = 0.0, 2.0 * phi
    while _false_alarms(high, phi) > false_alarms and high < _HIGHEST * phi:
        low, high = high, 2.0 * high
    per = _cells_per_failure(high)
    least, most = math.floor(low * per), math.ceil(high * per)
    while most - least > 1:
        middle = (least + most) // 2
        if _false_alarms_of(middle, per, phi) > false_alarms:
            least = middle
        else:
            most = middle
    return BurnRule(most / per, _false_alarms_of(most, per, phi), phi)


def dispersion_of_losses(
    dispersion: float, times_s: Floats, losses: Floats, edges_s: Floats, allowed: Floats
) -> float:
    """How many times losses vary as much as those of independent failures of the same sizes.

    As much as their counts do where a burst takes jobs of one size, else less: by the pairs of
    failures of a week that are there beyond chance, and the losses of those pairs.

    Args:
        dispersion: Of the counts.
        allowed: What the budget allowed until each edge.
    """
    n, total, squares = len(losses), float(losses.sum()), float((losses**2).sum())
    weeks = int((edges_s[-1] - edges_s[0]) / (7.0 * SECONDS_PER_DAY))
    if dispersion <= 1.0 or weeks < 2 or not total:
        return dispersion
    marks = np.linspace(edges_s[0], edges_s[-1], weeks + 1)
    shares = np.diff(np.interp(marks, edges_s, allowed)) / allowed[-1]
    pairs = ((np.histogram(times_s, marks)[0] - n * shares) ** 2).sum() - n
    sums = np.histogram(times_s, marks, weights=losses)[0]
    of_pairs = ((sums - total * shares) ** 2).sum() - squares
    if pairs <= 0.0:
        return dispersion
    alike = of_pairs / pairs * n / squares
    share = min(1.0, max(total**2 / n / squares, float(alike)))
    return round(1.0 + share * (dispersion - 1.0), 2)


def _cells_per_failure(threshold: float) -> int:
    fits = int(_MOST_CELLS / threshold)
    return max(_LEAST_PER_FAILURE, min(_MOST_PER_FAILURE, fits))


def _false_alarms(threshold: float, phi: float) -> float:
    per = _cells_per_failure(threshold)
    return _false_alarms_of(math.ceil(threshold * per), per, phi)


@lru_cache(maxsize=512)
def _false_alarms_of(n_cells: int, per: int, phi: float) -> float:
    """Alarms per expected failure: one a cycle, from 0 up to the threshold and back to 0.

    The sum is a multiple of 1/per; in a step it loses one cell, then gains `per` a failure.
    """
    step = 1.0 / (per * SINKS)
    most = n_cells // per + 2
    chances = _counts(step, phi, most)
    rise = np.zeros((n_cells, n_cells))
    places = np.arange(n_cells)
    lower = np.maximum(places - 1, 0)
    for count, chance in enumerate(chances):
        to = lower + count * per
        inside = to < n_cells
        rise[places[inside], to[inside]] += chance
    up = np.linalg.solve(np.eye(n_cells) - rise, np.full(n_cells, step))[0]
    # back from the threshold, which holds the sum, until it is 0: states 1 to n_cells
    fall = np.zeros((n_cells, n_cells))
    for count, chance in enumerate(chances):
        to = np.minimum(places + count * per, n_cells)
        inside = to > 0
        fall[places[inside], to[inside] - 1] += chance
    rest = 1.0 - chances.sum()
    fall[:, -1] += rest
    down = np.linalg.solve(np.eye(n_cells) - fall, np.full(n_cells, step))[-1]
    return float(1.0 / (up + down))


def _counts(mean: float, phi: float, most: int) -> NDArray[np.float64]:
    """Probabilities of 0, 1, ... failures where `mean` are expected, by Panjer's recursion."""
    size = (phi + 1.0) / 2.0  # mean of a cluster
    clusters, again = mean / size, 1.0 - 1.0 / size
    sizes = np.array([0.0] + [again ** (k - 1) / size for k in range(1, most + 1)])
    chances = np.zeros(most + 1)
    chances[0] = math.exp(-clusters)
    for n in range(1, most + 1):
        k = np.arange(1, n + 1)
        chances[n] = clusters / n * float((k * sizes[k] * chances[n - k]).sum())
    return chances


def burn(
    expected: Sequence[float] | NDArray[Any],
    end: float,
    rule: BurnRule,
    weights: Sequence[float] | None = None,
) -> Burn:
    """The alerts of a history.

    Args:
        expected: How many failures the budget expected until each failure, in order.
        end: The same until the end of the history.
        weights: What each failure adds; 1 where None.
    """
    level, before, since = 0.0, 0.0, None
    alerts: list[BurnAlert] = []
    marks = [1.0] * len(expected) if weights is None else list(weights)
    for at, weight in [*zip(map(float, expected), marks, strict=True), (float(end), 0.0)]:
        spent = before + level / SINKS
        if since is not None and spent <= at:
            alerts.append(BurnAlert(since, spent))
            since = None
        level = min(rule.threshold, max(0.0, level - SINKS * (at - before)) + weight)
        if since is None and level >= rule.threshold:
            since = at
        before = at
    if since is not None:
        alerts.append(BurnAlert(since, None))
    return Burn(tuple(alerts), level / rule.threshold)


# -- whether a site's objectives hold: budget and burn of each, and logs that fell silent ----------


Verdict = Literal["met", "missed", "undecided", "unknown"]


@dataclass(frozen=True, slots=True)
class BudgetAlert:
    """An alert of a budget; `until` is null while it goes on."""

    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """One objective: what it allowed in its window, what came, and its alerts.

    Attributes:
        name: Of the objective.
        objective: The budget in words.
        of_jobs: The jobs that it is about, in words; empty for all.
        verdict: `met` or `missed` where the interval of `burn` is on one side of 1, else
            `undecided`; `unknown` where nothing ran or a log fell silent.
        window_days: The last so many days are what verdict, allowed, came and burn are of.
        allowed: Failures, or lost GPU-hours, that the budget has for the window.
        came: Those that came.
        burn: came / allowed with its interval; above 1 the budget does not last.
        dispersion: How many times failures, or what they lose, vary as much as of independent
            ones, as alerts admit.
        false_alarms_per_year: Of the alerts, where the rate is just that of the budget.
        sum_of_threshold: The cumulative sum as a share of its threshold, now.
        is_burning: Whether an alert goes on.
        alerts: In the whole of the period, the earliest first.
    """

    name: str
    objective: str
    of_jobs: str
    verdict: Verdict
    window_days: float
    allowed: float | None = None
    came: float | None = None
    burn: Interval = field(default_factory=Interval.unknown)
    dispersion: float = 1.0
    false_alarms_per_year: float | None = None
    sum_of_threshold: float = 0.0
    is_burning: bool = False
    alerts: tuple[BudgetAlert, ...] = ()


@dataclass(frozen=True, slots=True)
class SilentLog:
    """A log that stopped: so many days without a row do not come by chance."""

    table: str
    source: str
    last_day: str
    silent_days: int


@dataclass(frozen=True, slots=True)
class ObjectivesHeld:
    """All objectives of a site at one moment.

    Attributes:
        at: The moment: the end of the logs where none was given.
        objectives: In the order of the file.
        silent: Logs that fell silent before it: absent data is not green.
    """

    at: datetime
    objectives: tuple[ObjectiveState, ...]
    silent: tuple[SilentLog, ...]


def objectives_held(analysis: Analysis) -> ObjectivesHeld:
    """Whether the objectives of the site hold, and which logs fell silent."""
    given = analysis.assumptions
    at = given.now or analysis.period.end
    silent = silent_logs(analysis, at)
    asked = given.objectives if analysis.logs_read.jobs else ()
    return ObjectivesHeld(at, tuple(_state(analysis, one, bool(silent)) for one in asked), silent)


def silent_logs(analysis: Analysis, at: datetime) -> tuple[SilentLog, ...]:
    """Logs of which so long a silence at their median rate has a chance under one in 10,000."""
    found = []
    for one in coverage(analysis.facts):
        last = date.fromisoformat(one.last_day)
        days = (at.astimezone(UTC).date() - last).days - 1
        usual = float(np.median([day.rows for day in one.rows_per_day]))
        known = one.days_with_rows >= LEAST_DAYS
        if known and days > 0 and math.exp(-usual * days) < HOLE_CHANCE:
            found.append(SilentLog(one.table, one.source, one.last_day, days))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _History:
    """When failures came, what each took of the budget, and the budget until each edge.

    Attributes:
        scale: A typical failure, in the unit of the budget.
    """

    times_s: Floats
    weights: Floats
    edges_s: Floats
    allowed: Floats
    dispersion: float
    inflation: float
    scale: float = 1.0


def _state(whole: Analysis, objective: Objective, is_blind: bool) -> ObjectiveState:
    filters = dict(objective.of_jobs)
    if filters:
        whole = whole.of(replace(whole.selection, **filters))  # type: ignore[arg-type]
    history = _history(whole.covered, objective)
    words = "; ".join(f"{name} {' or '.join(names)}" for name, names in filters.items())
    if objective.above_gpus is not None:
        words = "; ".join(filter(None, (words, f"above {objective.above_gpus} GPUs")))
    if history is None:
        return ObjectiveState(
            objective.name, objective.words, words, "unknown", objective.window_days
        )
    found, alarms_per_year = _burn(history, objective.false_alarms_per_year)
    end_s = float(history.edges_s[-1])
    from_s = max(end_s - objective.window_days * SECONDS_PER_DAY, float(history.edges_s[0]))
    allowed = float(history.allowed[-1] - np.interp(from_s, history.edges_s, history.allowed))
    inside = history.times_s > from_s
    came = float(history.weights[inside].sum())
    ratio = _ratio(came, allowed, history, whole.assumptions.confidence)
    verdict: Verdict = "undecided"
    if is_blind or not allowed:
        verdict = "unknown"
    elif ratio.high < 1.0:
        verdict = "met"
    elif ratio.low > 1.0:
        verdict = "missed"
    return ObjectiveState(
        name=objective.name,
        objective=objective.words,
        of_jobs=words,
        verdict=verdict,
        window_days=objective.window_days,
        allowed=allowed,
        came=came,
        burn=ratio,
        dispersion=history.dispersion,
        false_alarms_per_year=alarms_per_year,
        sum_of_threshold=found.level,
        is_burning=bool(found.alerts) and found.alerts[-1].until is None,
        alerts=tuple(
            BudgetAlert(
                _moment(history, one.since),
                None if one.until is None else _moment(history, one.until),
            )
            for one in found.alerts
        ),
    )


def _history(analysis: Analysis, objective: Objective) -> _History | None:
    """What an objective is judged by; None where nothing ran, or sizes are not known."""
    facts, above = analysis.rate_facts, objective.above_gpus
    edges_s = calendar_edges(analysis.period)
    node_days = cumulative_node_days(facts, edges_s, above)
    # no attempt runs after the end of the logs
    edges_s[-1] = max(edges_s[-2], min(edges_s[-1], to_seconds(analysis.period.end)))
    if not node_days[-1] > 0:
        return None
    rows = [r for r in facts.rows("failures") if above is None or (r["n_gpus"] or 0) > above]
    rows.sort(key=lambda row: int(row["end_us"]))
    times_s = np.array([row["end_us"] / MICROSECONDS_PER_SECOND for row in rows])
    spread = analysis.clustering_of_all.spread.over_time
    if above is not None and spread.failures:
        spread = spread.thinned(len(rows) / spread.failures)
    excess = spread.index - 1.0 if spread.is_clustered else 0.0
    dispersion = round(1.0 + spread.share * max(0.0, excess), 2)
    varied = dispersion, spread.inflation(analysis.assumptions.confidence)
    if objective.effective is None:
        per_node = analysis.gpus_per_node
        if objective.nodes is None and not per_node:
            return None
        nodes = objective.nodes or (objective.gpus or 0.0) / (per_node or 1.0)
        rate = (objective.interruptions or 0.0) / (objective.per_days or 1.0) / nodes
        return _History(times_s, np.ones(len(rows)), edges_s, node_days * rate, *varied)
    hours_a_node_day = _gpu_hours_a_node_day(analysis, above)
    if hours_a_node_day is None:
        return None
    lost = _lost_gpu_hours(analysis, [row["attempt_id"] for row in rows])
    scale = float((lost**2).sum() / lost.sum()) if lost.sum() > 0 else 1.0
    budget = node_days * hours_a_node_day * (1.0 - objective.effective)
    of_losses = dispersion_of_losses(dispersion, times_s, lost, edges_s, budget)
    return _History(times_s, lost, edges_s, budget, of_losses, varied[1], scale)


def _gpu_hours_a_node_day(analysis: Analysis, above: int | None) -> float | None:
    shapes = analysis.rate_facts.columns("exposure_shapes")
    gpus, run_s, node_s = (
        np.nan_to_num(np.asarray(shapes[name], dtype=np.float64))
        for name in ("n_gpus", "job_s", "node_s")
    )
    chosen = gpus > (0 if above is None else above)
    node_days = node_s[chosen].sum() / SECONDS_PER_DAY
    if not node_days:
        return None
    return float((gpus * run_s)[chosen].sum() / SECONDS_PER_HOUR / node_days)


def _lost_gpu_hours(analysis: Analysis, attempts: list[str]) -> Floats:
    """What each failure lost, with the jobs preempted for its sake; 0 where no log says it."""
    cap_s = analysis.assumptions.lost_cap_min * SECONDS_PER_MINUTE
    lost: dict[str, float] = defaultdict(float)
    for row in analysis.rate_facts.rows("failures"):
        lost[row["attempt_id"]] += lost_gpu_s(row["elapsed_s"], row["n_gpus"], cap_s) or 0.0
    for link in analysis.preemptions:
        lost[link.failed_attempt_id] += lost_gpu_s(link.elapsed_s, link.n_gpus, cap_s) or 0.0
    return np.array([lost[one] / SECONDS_PER_HOUR for one in attempts])


def _burn(history: _History, per_year: float) -> tuple[Burn, float]:
    """The alerts, and how many a year come where the rate is just that of the budget."""
    allowed = history.allowed / history.scale
    days = (history.edges_s[-1] - history.edges_s[0]) / SECONDS_PER_DAY
    expected_a_year = float(allowed[-1]) / days * DAYS_PER_YEAR
    rule = burn_rule(_rounded(per_year / expected_a_year), history.dispersion)
    at = np.interp(history.times_s, history.edges_s, allowed)
    found = burn(at, float(allowed[-1]), rule, (history.weights / history.scale).tolist())
    return found, rule.false_alarms * expected_a_year


def _rounded(share: float) -> float:
    """Two digits, downwards: so that few rules are computed and none has more false alarms."""
    step = 10.0 ** (math.floor(math.log10(share)) - 1)
    return math.floor(share / step) * step


def _ratio(came: float, allowed: float, history: _History, confidence: float) -> Interval:
    """Exact for independent failures; else of a count that varies `inflation` times as much."""
    if not allowed:
        return Interval.unknown()
    tail, unit = (1.0 - confidence) / 2.0, history.scale * history.inflation
    count = came / unit
    low = gamma_quantile(count, tail) if count else 0.0
    high = gamma_quantile(count + 1.0, 1.0 - tail)
    return Interval(came / allowed, low * unit / allowed, high * unit / allowed)


def _moment(history: _History, spent: float) -> datetime:
    """When the budget had allowed so many failures."""
    return to_datetime(float(np.interp(spent * history.scale, history.allowed, history.edges_s)))
