"""The law of a node's time in service between faults: constant unless the nodes' own gaps deny it.

Nodes that differ in their rates look like one law with a falling hazard, and so does a fleet whose
rate changes in time. Whether the gaps are those of constant rates is therefore asked within nodes,
on a clock that runs as the faults of the whole fleet come: there the faults of a node of constant
rate are spread by chance alone, whatever its own rate and that of the fleet's days.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from ettr.analysis.calibration.record import Fitted
from ettr.metrics.instants import Floats
from ettr.models.log_location_scale import LogLocationScaleLife
from ettr.models.registry import law_of_age

FORMS = {"weibull": (0.2, 6.0), "lognormal": (0.1, 3.5)}
"""Laws of age, and the range of the parameter without a unit of each (shape, sigma)."""
LEAST_GAPS = 30
LEAST_NODES = 10
"""With two faults each: with fewer, a node's own faults are too much of the clock."""
P_VALUE = 0.01
"""Chance to give up a constant rate where it holds, over all symptoms of a site together."""
MOST_HAZARD = 1e6
"""Factor of the hazard of a lemon at most, as scenarios have it."""
_EVEN_SIGMA = math.sqrt(math.log(2.0))
"""Sigma of the lognormal law whose lives vary as much as those of a constant rate."""
_SHORT_S = 3600.0
_LEAST_GAIN = 2.0
"""Logarithm of the likelihood that a law must gain: its one parameter, and Akaike's two units."""
_DROP_90 = 2.7055 / 2.0
"""Half the 90 % quantile of chi-square with one degree of freedom."""
_NEAR_END = 1.01
_MOST_OFF = math.log(2.0)
"""Logarithm of how far the mean life of a law may be from the time in service per fault."""
_TINY = 1e-300

Places = npt.NDArray[np.int64]
FittedLaw = dict[str, Fitted]
"""`law` and `form` of a fault process."""


@dataclass(frozen=True, slots=True)
class FaultTimes:
    """Faults of one symptom on nodes without another reason to differ.

    Attributes:
        down_s: How long its node was out of service between it and the node's next one, or the
            end, shape (n,).
        quiet_s: Time in service of nodes without a fault of the symptom, shape (m,).
    """

    node: Places
    start_s: Floats
    down_s: Floats
    before_s: Floats
    begin_s: Floats
    end_s: Floats
    quiet_s: Floats


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The same in times in service, of which each ends with a fault or is cut off."""

    first_s: Floats
    gap_s: Floats
    last_s: Floats
    quiet_s: Floats

    @property
    def mean_s(self) -> float:
        """Time in service per fault."""
        parts = (self.first_s, self.gap_s, self.last_s, self.quiet_s)
        total_s = sum(float(part.sum()) for part in parts)
        return total_s / max(1, self.first_s.size + self.gap_s.size)


@dataclass(frozen=True, slots=True)
class Evenness:
    """Whether the faults of nodes are spread over their time as those of constant rates.

    Attributes:
        z: Standardised sum of squared spacings: above 0 where the faults of a node come in
            clusters, below 0 where they come more regularly than by chance.
    """

    z: float
    p_value: float
    n_nodes: int


def evenness(times: FaultTimes) -> Evenness:
    """Greenwood's test of the spacings within nodes, on the clock of the fleet's faults.

    Source:
        Greenwood (1946), J. Royal Statistical Society 109.
    """
    ordered = np.sort(times.start_s)

    def clock(at_s: Floats) -> Floats:
        # a fault is in the middle of the step that it makes
        left = np.searchsorted(ordered, at_s, side="left")
        return (left + np.searchsorted(ordered, at_s, side="right")) / 2.0

    order = np.lexsort((times.start_s, times.node))
    came = clock(times.start_s)
    back = clock(np.minimum(times.start_s + times.down_s, times.end_s))
    begins, ends = clock(times.begin_s), clock(times.end_s)
    excess = variance = 0.0
    n_nodes = 0
    for own in np.split(order, np.flatnonzero(np.diff(times.node[order])) + 1):
        if own.size < 2:
            continue
        since = np.append(begins[own[0]], back[own])
        spacings = np.maximum(0.0, np.append(came[own], ends[own[0]]) - since)
        slots = float(spacings.sum())
        if slots <= own.size:
            continue
        mean, of_node = _by_chance(own.size, slots)
        excess += float(np.sum((spacings / slots) ** 2)) - mean
        variance += of_node
        n_nodes += 1
    if not n_nodes:
        return Evenness(0.0, 1.0, 0)
    z = excess / math.sqrt(variance)
    return Evenness(z, float(2.0 * stats.norm.sf(abs(z))), n_nodes)


def _by_chance(n: int, slots: float) -> tuple[float, float]:
    """Mean and variance of the sum of squared spacings of n faults that fall on slots at random."""
    rest = slots - n
    of_part = rest / (n + 1.0)
    squared = 2.0 * rest * (rest - 1.0) / ((n + 1.0) * (n + 2.0)) + of_part
    between = (n - 1.0) * (squared + 2.0 * of_part + 1.0)
    at_ends = 2.0 * (squared + of_part + 0.25)
    continuous = 4.0 * n / ((n + 2.0) ** 2 * (n + 3.0) * (n + 4.0))
    return (between + at_ends) / slots**2, continuous * (rest / slots) ** 2


def service_times(times: FaultTimes) -> ServiceTimes:
    """Times in service between faults, and those that the beginning or the end of the logs cuts."""
    order = np.lexsort((times.start_s, times.node))
    node, start_s, down_s = times.node[order], times.start_s[order], times.down_s[order]
    follows = np.append(node[1:] == node[:-1], False)[: node.size]
    until_s = np.where(follows, np.append(start_s[1:], 0.0)[: node.size], times.end_s[order])
    in_service_s = np.maximum(until_s - start_s - down_s, 0.0)
    is_first = np.append(True, node[1:] != node[:-1])[: node.size]
    return ServiceTimes(
        times.before_s[order][is_first],
        in_service_s[follows],
        in_service_s[~follows],
        times.quiet_s,
    )


def log_likelihood(
    law: LogLocationScaleLife, ages_s: tuple[Floats, Floats], seen: ServiceTimes
) -> float:
    """Of a law that renews nodes at each fault, in a fleet that has been in service for long.

    `ages_s` are its `service_ages`. Gaps of less than an hour count as that alone: how long a check
    or an operator took is in them.

    Source:
        Cox (1962), Renewal Theory, section 5.2, for the first times and the nodes without faults.
    """
    clock_s, lived_s = ages_s
    mean_s = float(lived_s[-1])
    short = seen.gap_s < _SHORT_S
    long_s = seen.gap_s[~short]
    z = (np.log(long_s) - law.location) / law.scale
    log_hazard = law.form.log_hazard(z) - math.log(law.scale) - np.log(long_s)
    within = -math.expm1(-float(law.cumulative_hazard(np.array([_SHORT_S]))[0]))
    not_yet = 1.0 - np.interp(seen.quiet_s, clock_s, lived_s) / mean_s
    return float(
        np.sum(log_hazard)
        - sum(np.sum(law.cumulative_hazard(part)) for part in (long_s, seen.first_s, seen.last_s))
        - seen.first_s.size * math.log(mean_s)
        + int(short.sum()) * math.log(max(within, _TINY))
        + np.sum(np.log(np.maximum(not_yet, _TINY)))
    )


def fitted_law(times: FaultTimes, tests: int) -> FittedLaw | None:
    """Law and form of a fault process; None where a constant rate stands."""
    seen = service_times(times)
    if seen.gap_s.size < LEAST_GAPS:
        return None
    found = evenness(times)
    if found.n_nodes < LEAST_NODES or found.p_value * tests >= P_VALUE:
        return None
    even = law_of_age("weibull").law_with_mean(1.0, seen.mean_s)
    constant = log_likelihood(even, even.service_ages(), seen)
    likely, form, law = max((*_best_form(name, seen)[::-1], name) for name in FORMS)
    clusters = form < 1.0 if law == "weibull" else form > _EVEN_SIGMA
    if likely - constant < _LEAST_GAIN or clusters != (found.z > 0):
        return None  # what the gaps show over all nodes is not what they show within them
    low, high = FORMS[law]
    if not low * _NEAR_END < form < high / _NEAR_END:
        return None  # no law of this kind
    ends = _form_ends(law, seen, form, likely - _DROP_90)
    what = (
        f"{seen.gap_s.size} gaps between faults of a node; spacings within nodes z = {found.z:.1f}"
    )
    return {"law": Fitted(law, what), "form": Fitted(form, what, *ends)}


def _likely(law: str, seen: ServiceTimes, log_form: float) -> float:
    """Log-likelihood of a form at the mean life that suits it best."""
    life = law_of_age(law).law_with_mean(math.exp(log_form), seen.mean_s)
    clock_s, lived_s = life.service_ages()

    def at(log_share: float) -> float:
        # another mean is another unit of time
        share = math.exp(log_share)
        moved = replace(life, location=life.location + log_share)
        return -log_likelihood(moved, (clock_s * share, lived_s * share), seen)

    found = optimize.minimize_scalar(
        at, bounds=(-_MOST_OFF, _MOST_OFF), method="bounded", options={"xatol": 1e-2}
    )
    return -float(found.fun)


def _best_form(law: str, seen: ServiceTimes) -> tuple[float, float]:
    """The most likely form of a law, and its log-likelihood."""
    low, high = FORMS[law]
    found = optimize.minimize_scalar(
        lambda log_form: -_likely(law, seen, log_form),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(float(found.x)), -float(found.fun)


def _form_ends(law: str, seen: ServiceTimes, form: float, least: float) -> tuple[float, float]:
    """Where the profile likelihood falls to a value on each side; at most the range of forms."""

    def above(log_form: float) -> float:
        return _likely(law, seen, log_form) - least

    best = math.log(form)
    ends = [
        end if above(end) > 0 else float(optimize.brentq(above, end, best, xtol=1e-3))
        for end in map(math.log, FORMS[law])
    ]
    return math.exp(ends[0]), math.exp(ends[1])


def hazard_of_rate(times: float, processes: Sequence[tuple[FittedLaw | None, int]]) -> float:
    """Factor of the hazard of every process with which a node has so many times the faults.

    At constant rates it is the same number. Where lives differ much, as with a shape below 1, a
    smaller factor does it. Where they are nearly alike no factor may: then it is `MOST_HAZARD`.
    """
    total = sum(n for _, n in processes)
    if times <= 1.0 or not total or all(law is None for law, _ in processes):
        return times

    def over(log_factor: float) -> float:
        factor = math.exp(log_factor)
        made = sum(n * _more_often(law, factor) for law, n in processes)
        return made / total - times

    top = math.log(MOST_HAZARD)
    if over(top) < 0.0:
        return MOST_HAZARD
    return math.exp(float(optimize.brentq(over, 0.0, top, xtol=1e-6)))


def _more_often(law: FittedLaw | None, factor: float) -> float:
    """Mean life over that of nodes with so many times the hazard."""
    if law is None:
        return factor
    life = law_of_age(str(law["law"].value)).law_with_mean(float(law["form"].value), 1.0)
    clock_s, lived_s = life.service_ages()
    survival = np.exp(-factor * life.cumulative_hazard(clock_s))
    return float(lived_s[-1] / np.trapezoid(survival, clock_s))
