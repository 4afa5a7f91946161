"""What a failure model is fitted to: lifetimes, or counts over exposure."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Labels = NDArray[np.str_]


def _floats(name: str, values: ArrayLike, problems: list[str]) -> Floats:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if array.ndim != 1:
        problems.append(f"{name}: {array.ndim} dimensions; give a flat list of numbers")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        problems.append(f"{name}: {bad} of {array.size} values are not finite; drop or censor them")
    negative = int(np.count_nonzero(array < 0))
    if negative:
        problems.append(f"{name}: {negative} of {array.size} values are negative; give 0 or more")
    array.setflags(write=False)
    return array


def _labels(name: str, values: ArrayLike | None, size: int, problems: list[str]) -> Labels | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.str_)
    if array.shape != (size,):
        problems.append(f"{name}: {array.size} labels for {size} rows; give one a row")
    array.setflags(write=False)
    return array


def _refuse(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise UsageError(f"not valid {what}:" + "".join(f"\n  {line}" for line in problems))


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Lifetimes:
    """Spans of observation on a clock (age, or time since the last failure), one a row.

    Attributes:
        duration_s: Clock at the end of the span, in seconds, shape (n,).
        entry_s: Clock when observation began (left truncation), shape (n,); 0 where not given.
        group: What rows share, such as the node, shape (n,); None where every row stands alone.
        symptom: Why the span ended, shape (n,), empty for censored rows; None where not known.
    """

    duration_s: Floats
    observed: Bools
    entry_s: Floats
    group: Labels | None = None
    symptom: Labels | None = None

    def __init__(
        self,
        duration_s: ArrayLike,
        observed: ArrayLike,
        entry_s: ArrayLike | None = None,
        group: ArrayLike | None = None,
        symptom: ArrayLike | None = None,
    ) -> None:
        problems: list[str] = []
        duration = _floats("duration_s", duration_s, problems)
        seen = np.atleast_1d(np.asarray(observed, dtype=np.bool_))
        seen.setflags(write=False)
        entry = _floats(
            "entry_s", np.zeros(duration.size) if entry_s is None else entry_s, problems
        )
        if duration.size == 0:
            problems.append("duration_s: no rows; give at least one span of observation")
        for name, array in (("observed", seen), ("entry_s", entry)):
            if array.shape != duration.shape:
                problems.append(f"{name}: {array.size} values for {duration.size} durations")
        if not problems:
            late = int(np.count_nonzero(entry >= duration))
            if late:
                problems.append(
                    f"duration_s: {late} of {duration.size} spans end where or before they begin; "
                    "each needs duration_s > entry_s (drop spans of zero length)"
                )
        labels = _labels("group", group, duration.size, problems)
        symptoms = _labels("symptom", symptom, duration.size, problems)
        _refuse("lifetimes", problems)
        for field, value in (
            ("duration_s", duration),
            ("observed", seen),
            ("entry_s", entry),
            ("group", labels),
            ("symptom", symptoms),
        ):
            object.__setattr__(self, field, value)

    @property
    def failures(self) -> int:
        """Spans that ended in a failure."""
        return int(np.count_nonzero(self.observed))

    @property
    def node_days(self) -> float:
        """Time at risk, in node-days."""
        return float(np.sum(self.duration_s - self.entry_s)) / SECONDS_PER_DAY

    @property
    def rate(self) -> FailureRate:
        """Failures over time at risk."""
        return FailureRate(self.failures, self.node_days)

    def only(self, symptom: str) -> Lifetimes:
        """The same spans with every other symptom treated as censoring.

        Raises:
            UsageError: the spans carry no symptoms.
        """
        if self.symptom is None:
            raise UsageError("these lifetimes carry no symptoms; give `symptom`, one a row")
        return Lifetimes(
            self.duration_s, self.observed & (self.symptom == symptom), self.entry_s, self.group
        )


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Counts:
    """Failures over exposure for units that should behave alike: nodes, or windows of time.

    Attributes:
        failures: Failures of each unit, shape (n,).
        unit: What a unit is, in one word: `node`, `week`.
        unplaced: Failures that belong to no unit (no node could be blamed); they count in the rate
            of the fleet, not in the spread between units.
        unplaced_node_days: Exposure that belongs to no unit (the log names no nodes); likewise.
    """

    failures: NDArray[np.int64]
    exposure_node_days: Floats
    group: Labels | None = None
    unit: str = "node"
    unplaced: int = 0
    unplaced_node_days: float = 0.0

    def __init__(
        self,
        failures: ArrayLike,
        exposure_node_days: ArrayLike,
        group: ArrayLike | None = None,
        unit: str = "node",
        unplaced: int = 0,
        unplaced_node_days: float = 0.0,
    ) -> None:
        problems: list[str] = []
        given = _floats("failures", failures, problems)
        exposure = _floats("exposure_node_days", exposure_node_days, problems)
        if exposure.size == 1 and given.size > 1:
            exposure = np.full(given.size, exposure[0])
            exposure.setflags(write=False)
        if given.size == 0:
            problems.append(f"failures: no {unit}s; give at least one")
        if exposure.shape != given.shape:
            problems.append(f"exposure_node_days: {exposure.size} values for {given.size} {unit}s")
        elif not problems and np.any((exposure == 0) & (given > 0)):
            bad = int(np.count_nonzero((exposure == 0) & (given > 0)))
            problems.append(
                f"exposure_node_days: {bad} {unit}s failed without any exposure; give their "
                "node-days or leave them out"
            )
        if not problems and np.any(given != np.round(given)):
            problems.append("failures: not whole numbers; give counts, not rates")
        if unplaced < 0:
            problems.append(f"unplaced: {unplaced}; give 0 or more")
        if not 0 <= unplaced_node_days < np.inf:
            problems.append(f"unplaced_node_days: {unplaced_node_days}; give 0 or more")
        labels = _labels("group", group, given.size, problems)
        _refuse("counts", problems)
        whole = given.astype(np.int64)
        whole.setflags(write=False)
        for field, value in (
            ("failures", whole),
            ("exposure_node_days", exposure),
            ("group", labels),
            ("unit", unit),
            ("unplaced", unplaced),
            ("unplaced_node_days", unplaced_node_days),
        ):
            object.__setattr__(self, field, value)

    @property
    def total(self) -> int:
        """Failures of all units, those of no unit included."""
        return int(self.failures.sum()) + self.unplaced

    @property
    def node_days(self) -> float:
        """Exposure of all units, in node-days."""
        return float(self.exposure_node_days.sum())

    @property
    def rate(self) -> FailureRate:
        """All failures over all exposure, those of no unit included."""
        return FailureRate(self.total, self.node_days + self.unplaced_node_days)


def at_risk(begins: Floats, ends: Floats, clock: Floats) -> Floats:
    """Time that all spans together have been at risk up to each reading of their clock."""

    def before(values: Floats) -> Floats:
        ordered = np.sort(values)
        total = np.concatenate(([0.0], np.cumsum(ordered)))
        place = np.searchsorted(ordered, clock)
        result: Floats = clock * place - total[place]
        return result

    return before(begins) - before(ends)


def fleet_on_calendar(
    times_days: ArrayLike, start_days: float, end_days: float, n_nodes: int
) -> Lifetimes:
    """Failures of a fleet of constant size as spans on the calendar, for steps of its rate.

    The clock counts from `start_days`. Which node failed does not matter to a rate over time, so
    failures are dealt to the nodes in turn.

    Args:
        times_days: When failures happened, in days on any clock, shape (n,).

    Raises:
        UsageError: no time or nodes, or a failure outside the observed time.
    """
    times = np.sort(np.asarray(times_days, dtype=np.float64)) - start_days
    span = end_days - start_days
    if not span > 0 or n_nodes < 1:
        raise UsageError(
            f"{n_nodes} nodes from day {start_days} to {end_days} are no exposure; "
            "give 1 node or more and an end after the start"
        )
    outside = int(np.count_nonzero(~((times > 0) & (times <= span))))
    if outside:
        raise UsageError(
            f"times_days: {outside} of {times.size} failures lie outside the observed time; "
            "give the start and end of observation, or drop them"
        )
    slot = np.arange(times.size) % n_nodes
    before = np.concatenate((np.zeros(n_nodes), times))[: times.size]
    last = np.zeros(n_nodes)
    np.maximum.at(last, slot, times)
    kept = last < span
    ends = np.concatenate([times, np.full(int(kept.sum()), span)]) * SECONDS_PER_DAY
    begins = np.concatenate([before, last[kept]]) * SECONDS_PER_DAY
    if np.any(ends <= begins):
        raise UsageError(
            f"more than {n_nodes} failures at one moment; fold what one event caused into one"
        )
    return Lifetimes(ends, np.arange(ends.size) < times.size, begins)


def counts_by_window(
    times_days: ArrayLike, start_days: float, end_days: float, window_days: float, n_nodes: float
) -> Counts:
    """Failures of a fleet of constant size in whole windows of `window_days`, oldest first.

    The last window is left out where the observed time does not fill it.

    Raises:
        UsageError: no whole window fits, or there are no nodes.
    """
    if not n_nodes > 0:
        raise UsageError(f"n_nodes is {n_nodes}; give the number of nodes at risk, 1 or more")
    if not window_days > 0 or end_days - start_days < window_days:
        raise UsageError(
            f"no window of {window_days} days fits from {start_days} to {end_days}; "
            "give a positive window no longer than the observed time"
        )
    windows = int((end_days - start_days) / window_days + 1e-9)
    edges = start_days + window_days * np.arange(windows + 1)
    counts, _ = np.histogram(np.asarray(times_days, dtype=np.float64), edges)
    if windows and edges[-1] < end_days:  # histogram closes its last bin; ours are half-open
        counts[-1] -= np.count_nonzero(np.asarray(times_days) == edges[-1])
    return Counts(counts, n_nodes * window_days * np.ones(windows), unit="window")


class RepairLaw(StrEnum):
    """What a repair does to the clock of a node.

    The law decides as much as the failure law does: 300 new nodes with Weibull lifetimes of shape
    0.7 and mean 80 days fail 266 times in 45 days if repairs make them new, 236 times if not.
    """

    GOOD_AS_NEW = "good-as-new"
    MINIMAL = "minimal"


@dataclass(frozen=True, slots=True)
class NodeRepair:
    """Repairs of which a share makes the node new; the others leave it as old as it was.

    A share of 1 is good as new, 0 is minimal repair, between the two repair is imperfect.

    Source:
        Brown and Proschan (1983), Journal of Applied Probability 20.
    """

    as_new_share: float

    def __post_init__(self) -> None:
        """Check the share. Raises UsageError: it lies outside 0 to 1."""
        if not 0.0 <= self.as_new_share <= 1.0:
            raise UsageError(
                f"as_new_share is {self.as_new_share:g}; give the share of repairs that make a "
                "node new, from 0 (minimal repair) to 1 (good as new)"
            )

    @classmethod
    def of(cls, law: RepairLaw) -> NodeRepair:
        """The same by its name."""
        return cls(1.0 if law is RepairLaw.GOOD_AS_NEW else 0.0)

    @property
    def words(self) -> str:
        """The law, for a sentence."""
        if self.as_new_share == 1.0:
            return "repairs make a node as good as new"
        if self.as_new_share == 0.0:
            return "repairs leave a node as old as it was"
        return f"{self.as_new_share:.0%} of repairs make a node new, the others leave its age"

    def ages_after_s(self, age_s: Floats, rng: np.random.Generator) -> Floats:
        """Ages after the repair of nodes that failed at given ages, in seconds, shape (n,)."""
        return np.where(rng.random(age_s.size) < self.as_new_share, 0.0, age_s)


# -- how long a node lasts in use: the law of a failure model by plain parameters, and its samples
# A fit is an estimate with intervals; a law is what a simulation draws from. The clock of a law is
# the age of a node, in seconds of use since it was new.


_GRID = 16_384
_SMALLEST_HAZARD, _LARGEST_HAZARD = 1e-14, 60.0
_BISECTIONS = 110
_MOST_DOUBLINGS = 1000


class LifeLaw(ABC):
    """A law of the life of a node. A new one needs its cumulative hazard; the rest follows."""

    @abstractmethod
    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures of a node up to an age in seconds if repairs do not change its age.

        The chance that a new node lives longer is exp of minus this.
        """

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value; infinite if never."""
        return _inverse(self, np.asarray(hazard, dtype=np.float64))

    def node_factors(self, n: int, rng: np.random.Generator) -> Floats:
        """Factors of the hazard of n nodes, shape (n,): 1, unless nodes differ from each other."""
        del rng
        return np.ones(n)

    def of_node(self) -> LifeLaw:
        """The law of one node of factor 1: another one where nodes differ from each other."""
        return self

    def survival(self, clock_s: ArrayLike) -> Floats:
        """The chance that a new node lives longer than that, in seconds."""
        return np.exp(-self.cumulative_hazard(np.asarray(clock_s, dtype=np.float64)))

    def sample(self, n: int, rng: np.random.Generator, age_s: ArrayLike = 0.0) -> Floats:
        """Times until n nodes fail, given that they have survived to an age, in seconds.

        Args:
            age_s: Age of the nodes, one for all or shape (n,); new ones where 0.

        Returns:
            Shape (n,); infinite for a node that never fails.

        Raises:
            UsageError: an age is negative.

        Source:
            Inversion of the cumulative hazard: Devroye (1986), Non-Uniform Random Variate
            Generation, section VI.2.
        """
        age = np.broadcast_to(np.asarray(age_s, dtype=np.float64), (n,))
        if n and not float(age.min()) >= 0.0:
            raise UsageError(f"age_s is {float(age.min()):g}; give 0 or more seconds of use")
        hazard = self.cumulative_hazard(age) + rng.standard_exponential(n)
        return np.maximum(self.clock_at(hazard) - age, 0.0)

    def sample_in_service(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Ages of n nodes of a fleet in use for long, and the times until they fail, in seconds.

        Each node was new after its last failure. Failures then come at the rate of one a mean life.

        Raises:
            UsageError: the mean life is infinite, so that no fleet ever gets there.

        Source:
            Cox (1962), Renewal Theory, section 5.2: ages have a density in proportion to survival.
        """
        clock_s, lived_s = self.service_ages()
        age = np.interp(rng.random(n) * lived_s[-1], lived_s, clock_s)
        return age, self.sample(n, rng, age)

    def mean_s(self) -> float:
        """Mean life of a new node, in seconds; infinite where it never ends."""
        if not math.isfinite(float(self.clock_at(np.array([_LARGEST_HAZARD]))[0])):
            return math.inf
        return float(self.service_ages()[1][-1])

    def service_ages(self) -> tuple[Floats, Floats]:
        """A grid of ages, and the integral of survival up to each: the mean life at the end.

        Raises:
            UsageError: the mean life is infinite.
        """
        ends = self.clock_at(np.array([_SMALLEST_HAZARD, _LARGEST_HAZARD]))
        if not math.isfinite(float(ends[1])):
            raise UsageError(
                "the law has no finite mean life: nodes that never fail have no steady state; give "
                "an age of the nodes"
            )
        first = max(float(ends[0]), float(ends[1]) * 1e-280)
        clock_s = np.concatenate(([0.0], np.geomspace(first, float(ends[1]), _GRID)))
        survival = self.survival(clock_s)
        steps = np.diff(clock_s) * (survival[:-1] + survival[1:]) / 2.0
        return clock_s, np.concatenate(([0.0], np.cumsum(steps)))


def _inverse(law: LifeLaw, hazard: Floats) -> Floats:
    """Ages at which a cumulative hazard reaches values, found by bisection of its logarithm."""
    result = np.zeros_like(hazard)
    positive = hazard > 0
    if not positive.any():
        return result
    wanted = hazard[positive]
    low = high = 0.0
    for _ in range(_MOST_DOUBLINGS):
        if float(law.cumulative_hazard(np.exp([low]))[0]) < float(wanted.min()) or low < -600.0:
            break
        low = 2.0 * low - 1.0
    for _ in range(_MOST_DOUBLINGS):
        if float(law.cumulative_hazard(np.exp([high]))[0]) > float(wanted.max()) or high > 600.0:
            break
        high = 2.0 * high + 1.0
    high = min(high, 700.0)
    below, above = np.full_like(wanted, max(low, -700.0)), np.full_like(wanted, high)
    for _ in range(_BISECTIONS):
        middle = (below + above) / 2.0
        short = law.cumulative_hazard(np.exp(middle)) < wanted
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    reached = law.cumulative_hazard(np.exp(above)) >= wanted * (1.0 - 1e-9)
    result[positive] = np.where(reached, np.exp(above), np.inf)
    return result
