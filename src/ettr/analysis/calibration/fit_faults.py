"""Faults of nodes by symptom, bursts, repairs and lemons, and the law of the time between them.

The law of a node's time in service is constant unless the nodes' own gaps deny it. Nodes that
differ in their rates look like one law with a falling hazard, and so does a fleet whose rate
changes in time. Whether the gaps are those of constant rates is therefore asked within nodes, on a
clock that runs as the faults of the whole fleet come: there the faults of a node of constant rate
are spread by chance alone, whatever its own rate and that of the fleet's days.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats
from scipy.special import bdtr, bdtrc

from ettr.analysis.analysis import Analysis
from ettr.analysis.calibration.record import (
    Z90,
    Fitted,
    Flags,
    Machine,
    Places,
    ScenarioMaker,
    Texts,
    spread_within,
)
from ettr.analysis.clustering import fault_clustering
from ettr.analysis.node_faults import faults_of
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.metrics.availability import Service
from ettr.metrics.faults import NodeFaults
from ettr.metrics.instants import Floats
from ettr.metrics.rates import estimated_rate
from ettr.metrics.survival import durations
from ettr.models.data import Lifetimes
from ettr.models.log_location_scale import LogLocationScaleLife, Lognormal
from ettr.models.registry import law_of_age
from ettr.sim.cluster.scenario import EVIDENCE
from ettr.sim.cluster.scenario_parts import BurstProcess, FaultProcess
from ettr.units import DAYS_PER_YEAR, MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

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
        mean, of_node = _squares_by_chance(own.size, slots)
        excess += float(np.sum((spacings / slots) ** 2)) - mean
        variance += of_node
        n_nodes += 1
    if not n_nodes:
        return Evenness(0.0, 1.0, 0)
    z = excess / math.sqrt(variance)
    return Evenness(z, float(2.0 * stats.norm.sf(abs(z))), n_nodes)


def _squares_by_chance(n: int, slots: float) -> tuple[float, float]:
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


# -- bursts of one symptom: faults on several nodes at a time, and what of them is not seen as one
# A burst hits each node with the same chance. Its rate and its hit share are those of all bursts,
# seen or not: of the seen ones alone they would be too few and too large.


LEAST_BURST_NODES = 3
BURST_GAP_S = 1800.0
LEAST_SEEN = 0.25
"""Bursts of which fewer are seen cannot be distinguished from those of which so many are."""


@dataclass(frozen=True, slots=True)
class FittedBursts:
    """Bursts of one symptom."""

    groups: list[Places]
    per_year: Interval
    hit_share: Interval
    spread_s: float
    seen_share: float
    unseen_faults: float
    what: str


def fitted_bursts(start_s: Floats, node: Texts, days: float, n_nodes: int) -> FittedBursts | None:
    """Bursts among the faults of one symptom; None where they cluster no more than by chance."""
    groups = _groups(start_s, node)
    expected = _by_chance(start_s.size, days)
    if not groups or len(groups) <= expected + 2.0 * math.sqrt(expected):
        return None
    n = len(groups)
    n_nodes = max(n_nodes, LEAST_BURST_NODES)
    nodes = float(np.mean([len(set(node[one].tolist())) for one in groups]))
    single = start_s.size - sum(one.size for one in groups)
    least = _least_share(nodes, n, n_nodes, single)
    share = _hit_share(nodes, least, n_nodes)
    half = Z90 * math.sqrt(_seen_variance(share, n_nodes) / n)
    low, high = (_hit_share(nodes + side * half, least, n_nodes) for side in (-1.0, 1.0))
    seen_share = _seen_share(share, n_nodes)
    what = f"{n} bursts of {nodes:.1f} nodes on average"
    if seen_share < 0.995:
        what += (
            f", and those on fewer than {LEAST_BURST_NODES}, which look like single faults: "
            f"{seen_share:.0%} are seen"
            + (", the fewest that are considered" if share == least else "")
        )
    return FittedBursts(
        groups,
        _per_year(n, days, [_seen_share(one, n_nodes) for one in (low, share, high)]),
        Interval(share, low, high),
        max(1.0, spread_of([start_s[one] for one in groups])),
        seen_share,
        n / seen_share * _unseen_hits(share, n_nodes),
        what,
    )


def _per_year(n: int, days: float, seen_shares: Sequence[float]) -> Interval:
    """Bursts a year, seen or not: of their number, and of the share that is seen, by chance."""
    fewest, share, most = seen_shares
    seen = estimated_rate(n, days / DAYS_PER_YEAR * 1000.0, 0.9).per_1000_node_days
    at = (seen.estimate or 0.0) / share
    below = math.hypot(math.log(at * share / seen.low), math.log(most / share))
    above = math.hypot(math.log(seen.high / share / at), math.log(share / fewest))
    return Interval(at, at * math.exp(-below), at * math.exp(above))


def _least_share(nodes: float, n: int, n_nodes: int, single: int) -> float:
    """The least chance of a node to be hit that is considered."""

    def is_too_small(share: float) -> bool:
        seen_share = _seen_share(share, n_nodes)
        return seen_share < LEAST_SEEN or n / seen_share * _unseen_hits(share, n_nodes) > single

    # where all bursts are seen it is the mean's
    least, most = 0.0, min(1.0, nodes / n_nodes)
    for _ in range(60):
        middle = (least + most) / 2.0
        least, most = (middle, most) if is_too_small(middle) else (least, middle)
    return most


def _hit_share(nodes: float, least: float, n_nodes: int) -> float:
    """Chance of a node to be hit."""

    def above(share: float) -> float:
        return _seen_hits(share, n_nodes) - nodes

    if above(least) >= 0.0:
        return least
    return 1.0 if nodes >= n_nodes else float(optimize.brentq(above, least, nodes / n_nodes))


def _seen_share(share: float, n_nodes: int) -> float:
    """Chance of a burst to hit enough nodes to be seen."""
    return float(bdtrc(LEAST_BURST_NODES - 1, n_nodes, share))


def _seen_hits(share: float, n_nodes: int) -> float:
    """Nodes hit by a burst that is seen, in the mean."""
    # k of a binomial number of n is n p times one of n - 1
    hits = n_nodes * share * float(bdtrc(LEAST_BURST_NODES - 2, n_nodes - 1, share))
    return hits / _seen_share(share, n_nodes)


def _seen_variance(share: float, n_nodes: int) -> float:
    """Of the number of nodes hit by a burst that is seen."""
    pairs = n_nodes * (n_nodes - 1) * share**2
    pairs *= float(bdtrc(LEAST_BURST_NODES - 3, n_nodes - 2, share)) / _seen_share(share, n_nodes)
    mean = _seen_hits(share, n_nodes)
    return max(0.0, pairs + mean - mean**2)


def _unseen_hits(share: float, n_nodes: int) -> float:
    """Nodes hit by a burst where it is not seen, over all bursts."""
    return n_nodes * share * float(bdtr(LEAST_BURST_NODES - 2, n_nodes - 1, share))


def spread_of(groups: Sequence[Floats]) -> float:
    """Within how long faults of a burst come, from their times in each of some bursts.

    Of k times that are uniform over it the first and the last are (k - 1)/(k + 1) of it apart in
    the mean: a half for three.

    Source:
        David and Nagaraja (2003), Order Statistics, 3rd edition, section 2.5.
    """
    sizes = np.array([times_s.size for times_s in groups], dtype=np.float64)
    ranges_s = sum(float(np.ptp(times_s)) for times_s in groups)
    return ranges_s / float(((sizes - 1.0) / (sizes + 1.0)).sum())


def _groups(start_s: Floats, node: Texts) -> list[Places]:
    """Faults that follow each other within the gap, where they hit enough nodes."""
    if not start_s.size:
        return []
    place = np.argsort(start_s, kind="stable")
    cuts = np.nonzero(np.diff(start_s[place]) > BURST_GAP_S)[0] + 1
    return [
        group
        for group in np.split(place, cuts)
        if len(set(node[group].tolist())) >= LEAST_BURST_NODES
    ]


def _by_chance(n: int, days: float) -> float:
    """Expected groups of three among independent faults: runs of two short gaps."""
    rate_per_s = n / max(days * SECONDS_PER_DAY, 1.0)
    short = -math.expm1(-rate_per_s * BURST_GAP_S)
    return n * short * short * (1.0 - short)


# -- faults of nodes by symptom, bursts, repairs and lemons, from what the analysis finds of them


SILENT = "not-responding"
OF_HARDWARE, OF_SERVICES = "node-hardware", "system-services"
"""For faults that no error names: those that end jobs, and those that only drain a node."""
LEAST_REPAIRS = 8
SPREAD_OF_REPAIRS = 1.0
"""Of the logarithms of the mean repairs of symptoms; assumed, as between those of rsc-1-like."""
_PLAIN = FaultProcess(OF_HARDWARE, "constant", 1.0, 0.0, "high", 0.0, 0.0, 1.0, 3600.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Faults:
    """Faults in the fitted time, with what each ended; columns of one length."""

    name: Texts
    node: Texts
    start_s: Floats
    repair_s: Floats
    is_over: Flags
    is_silent: Flags
    crashed: Flags
    ended: Flags
    busy: Flags

    def only(self, kept: Flags) -> _Faults:
        return _Faults(*(getattr(self, one)[kept] for one in self.__dataclass_fields__))


def fit_faults(maker: ScenarioMaker, analysis: Analysis, machine: Machine, end_s: float) -> None:
    """Fit rates, effects, repairs, bursts and lemons."""
    of_all, _ = faults_of(analysis.facts, analysis.given)
    raw = of_all.of_nodes([machine.has(*node) for node in of_all.nodes])
    fleet = _fleet_of(analysis, machine)
    zero = {
        "false_high_per_node_day": Fitted(0.0, "false alarms count among the faults"),
        "false_low_per_node_day": Fitted(0.0, "false alarms count among the faults"),
    }
    maker.part("checks", "no log of checks that found nothing", **zero)
    if not len(of_all) and not analysis.logs_read.node_states:
        _from_jobs(maker, analysis, machine)
        return
    faults = faults_with_effects(raw, analysis, end_s)
    # faults without an outage took no node out of service
    down_s = float(np.nansum(faults.repair_s))
    node_days = max(fleet.node_s - down_s, 0.0) / SECONDS_PER_DAY
    pooled = sorted(set(faults.name.tolist()) - set(EVIDENCE) - {SILENT})
    faults = replace(faults, name=named_symptoms(faults))
    if pooled:
        maker.notes.append(
            f"Faults of the kinds {', '.join(pooled)} stand under {OF_HARDWARE} or {OF_SERVICES}."
        )
    single = np.ones(len(faults.name), dtype=np.bool_)
    bursts, unseen = _bursts(maker, analysis, machine, faults, single)
    share, times, what = _lemons(analysis, machine)
    of_others = 1.0 / (1.0 + share * (times - 1.0))
    everything = _repair_of_any(faults)
    names = sorted(set(faults.name.tolist()))
    laws = _laws(maker, _ordinary_spans(analysis, fleet), faults, single)
    counts = {name: int((single & (faults.name == name)).sum()) for name in names}
    alone = {name: max(0, round(counts[name] - unseen.get(name, 0.0))) for name in names}
    hazard = hazard_of_rate(times, [(laws[name], alone[name]) for name in names])
    if hazard >= MOST_HAZARD:
        maker.notes.append(
            f"Lemons fail {times:.3g} times as often in the logs and more seldom in the scenario: "
            "the lives of its nodes are too much alike for it."
        )
    maker.part("lemons", share=Fitted(share, what), factor=Fitted(hazard, what))
    entries = []
    for name in names:
        own = faults.only(faults.name == name)
        entries.append(
            (
                replace(_PLAIN, symptom=name),
                {
                    "symptom": Fitted(name, "attribution"),
                    "per_1000_node_days": _rate(
                        analysis, fleet, own, (counts[name], alone[name]), node_days, of_others
                    ),
                    **(laws[name] or {}),
                    **_effects(own),
                    **(
                        _repair(own.repair_s, own.is_over, "outages")
                        or _drawn_to(everything, own)
                        or {}
                    ),
                },
            )
        )
    maker.assumed("faults.as_new_share (a fault sets the node's clock back)")
    maker.entries("faults", entries)  # type: ignore[arg-type]
    maker.entries("bursts", bursts)  # type: ignore[arg-type]


def faults_with_effects(raw: NodeFaults, analysis: Analysis, end_s: float) -> _Faults:
    """What each fault ended, whether jobs ran on its node, and its repair without the draining."""
    names = np.array([node for _, node in raw.nodes], dtype=object)[raw.node]
    ends: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for row in analysis.failure_rows:
        if row["node"] is not None and row["end"] is not None:
            ends[row["node"]].append((row["end"].timestamp(), row["state"]))
    held = _held(analysis, set(names.tolist()))
    within_s = analysis.assumptions.window.length_s
    n = len(raw)
    crashed, ended, busy = (np.zeros(n, dtype=np.bool_) for _ in range(3))
    is_over = raw.is_over.copy()
    repair_s = raw.down_s.copy()
    for i in range(n):
        start_s = float(raw.start_s[i])
        near = [state for at_s, state in ends.get(names[i], ()) if abs(at_s - start_s) <= within_s]
        crashed[i], ended[i] = "FAILED" in near, bool(near)
        down_s = repair_s[i]
        if start_s + np.nan_to_num(down_s) > end_s:
            repair_s[i], is_over[i] = end_s - start_s, False
        last_s = max(
            (min(b, end_s) for a, b in held.get(names[i], ()) if a < start_s < b), default=start_s
        )
        busy[i] = bool(near) or last_s > start_s
        if not near and np.isfinite(down_s):
            repair_s[i] = max(repair_s[i] - (last_s - start_s), 60.0)
    is_silent = (raw.category == SILENT).astype(np.bool_)
    return _Faults(
        raw.category.copy(), names, raw.start_s, repair_s, is_over, is_silent, crashed, ended, busy
    )


def _held(analysis: Analysis, nodes: set[str]) -> dict[str, list[tuple[float, float]]]:
    """When jobs held the nodes that had faults."""
    facts = analysis.facts.under(asked_node_names=frozenset(nodes - {None}))
    made: dict[str, list[tuple[float, float]]] = defaultdict(list)
    held = facts.columns("held_on_asked")
    starts_s, ends_s = (held[name] / MICROSECONDS_PER_SECOND for name in ("start_us", "end_us"))
    ends_s = np.nan_to_num(ends_s, nan=math.inf)
    for node, a, b in zip(held["node"].tolist(), starts_s.tolist(), ends_s.tolist(), strict=True):
        made[node].append((a, b))
    return made


def named_symptoms(faults: _Faults) -> Texts:
    """Symptoms of a scenario: silent nodes are of hardware, what only drains a node of services."""
    made = faults.name.copy()
    for kind in set(made.tolist()) - set(EVIDENCE):
        own = faults.name == kind
        harms = kind == SILENT or not faults.busy[own].any() or _ends_jobs(faults.only(own))
        made[own] = OF_HARDWARE if harms else OF_SERVICES
    return made


def _ends_jobs(faults: _Faults) -> bool:
    """Whether most of the faults on busy nodes ended a job."""
    busy = int(faults.busy.sum())
    return busy == 0 or 2 * int(faults.ended.sum()) >= busy


def _laws(
    maker: ScenarioMaker, spans: dict[str, tuple[float, float]], faults: _Faults, single: Flags
) -> dict[str, FittedLaw | None]:
    """Law and form of each symptom, None for a constant rate."""
    names = sorted(set(faults.name.tolist()))
    ordinary = single & np.isin(faults.node, list(spans))
    laws = {
        name: fitted_law(fault_times(faults, name, ordinary, spans), len(names)) for name in names
    }
    steady = [name for name in names if laws[name] is None]
    if steady:
        maker.assumed(
            f"faults.law, form of {', '.join(steady)} (a constant rate: the gaps between faults of "
            f"a node do not deny it, or are fewer than {LEAST_GAPS})"
        )
    return laws


def fault_times(
    faults: _Faults, name: str, ordinary: Flags, spans: dict[str, tuple[float, float]]
) -> FaultTimes:
    """Ordinary faults of a symptom, and how long repairs of any fault kept their nodes out."""
    names, number = np.unique(faults.node.astype(str), return_inverse=True)
    order = np.lexsort((faults.start_s, number))
    number = number[order].astype(np.int64)
    repaired_s = np.concatenate(([0.0], np.cumsum(np.nan_to_num(faults.repair_s[order]))))
    (own,) = np.nonzero((ordinary & (faults.name == name))[order])
    node, start_s = number[own], faults.start_s[order][own]
    begin_s, end_s = (np.array([spans.get(one, (0.0, 0.0))[i] for one in names]) for i in (0, 1))
    follows = np.append(node[1:] == node[:-1], False)[: own.size]
    until = np.where(
        follows, np.append(own[1:], 0)[: own.size], np.searchsorted(number, node, side="right")
    )
    until_s = np.where(follows, np.append(start_s[1:], 0.0)[: own.size], end_s[node])
    down_s = np.minimum(repaired_s[until] - repaired_s[own], np.maximum(until_s - start_s, 0.0))
    earlier_s = repaired_s[own] - repaired_s[np.searchsorted(number, node, side="left")]
    down_of = dict(
        zip(
            names.tolist(),
            np.bincount(number, np.diff(repaired_s), minlength=len(names)).tolist(),
            strict=True,
        )
    )
    struck = set(names[np.unique(node)].tolist())
    quiet_s = [b - a - down_of.get(one, 0.0) for one, (a, b) in spans.items() if one not in struck]
    return FaultTimes(
        node=node,
        start_s=start_s,
        down_s=down_s,
        before_s=np.maximum(start_s - begin_s[node] - earlier_s, 0.0),
        begin_s=begin_s[node],
        end_s=end_s[node],
        quiet_s=np.maximum(np.array(quiet_s, dtype=np.float64), 0.0),
    )


def _fleet_of(analysis: Analysis, machine: Machine) -> Service:
    """The time in service of the nodes that a scenario has."""
    fleet = analysis.fleet
    if not machine.bare:
        return fleet
    return replace(
        fleet,
        spans_s={node: span for node, span in fleet.spans_s.items() if machine.has(*node)},
        gpus={node: n_gpus for node, n_gpus in fleet.gpus.items() if machine.has(*node)},
    )


def _ordinary_spans(analysis: Analysis, fleet: Service) -> dict[str, tuple[float, float]]:
    """When each node that `ettr lemons` does not claim was in service."""
    claimed = {one.node for one in analysis.lemon_nodes.candidates if one.claimed}
    return {node: span for (_, node), span in fleet.spans_s.items() if node not in claimed}


def _rate(
    analysis: Analysis,
    fleet: Service,
    own: _Faults,
    singles: tuple[int, int],
    node_days: float,
    of_others: float,
) -> Fitted:
    """Faults of an ordinary node per 1,000 days in service; wider where they cluster."""
    single, alone = singles
    counts: dict[tuple[str, str | None], int] = defaultdict(int)
    cluster = next(iter(fleet.spans_s), ("", None))[0]
    for node in own.node.tolist():
        counts[cluster, node] += 1
    spread = None
    if fleet.node_s > 0 and own.node.size:
        spread = fault_clustering(own.start_s, counts, fleet, analysis.period, 0.9).believed
    rate = estimated_rate(alone, node_days, 0.9, spread)
    ordinary = rate.per_1000_node_days.scaled(of_others)
    what = f"{single} faults in {node_days:,.0f} node-days"
    if alone < single:
        what += f", {single - alone} of which are of bursts on fewer than {LEAST_BURST_NODES} nodes"
    return Fitted.of(ordinary, what)


def _effects(own: _Faults) -> dict[str, Fitted | None]:
    n = own.name.size
    silent = int(own.is_silent.sum())
    rest = own.only(own.busy & ~own.is_silent)
    crashed = int(rest.crashed.sum())
    high = _ends_jobs(rest) if rest.name.size else True
    share = crashed / rest.name.size if rest.name.size else 0.0
    loud = (n - silent) / n
    down = share_interval(silent, n)
    what = f"{crashed} of {rest.name.size} on nodes with jobs"
    is_exact = silent in (0, n)
    return {
        "severity": Fitted(
            "high" if high else "low", f"{int(rest.ended.sum())} of {rest.name.size} ended jobs"
        ),
        "node_down_chance": Fitted(
            silent / n,
            f"{silent} of {n} silent",
            *((None, None) if is_exact else (down.low, down.high)),
        ),
        "crash_chance": Fitted(min(share * loud, 1.0 - silent / n), what)
        if rest.name.size
        else None,
    }


def _repair(repair_s: Floats, is_over: Flags, what: str) -> dict[str, Fitted | None] | None:
    """Mean of the repair times, and sigma of a lognormal law; None where too few are known."""
    known = np.isfinite(repair_s) & (repair_s > 0)
    over = is_over & known
    n = int(over.sum())
    if n < LEAST_REPAIRS:
        return None
    found = durations(repair_s[known] / SECONDS_PER_HOUR, over[known])
    fit = Lognormal().fit(Lifetimes(repair_s[known], over[known]))
    sigma = fit.parameter("sigma")
    words = f"{n} {what}, median {(found.median_h.estimate or 0.0):.3g} h"
    value = min(sigma.estimate or 0.0, 5.0)
    mean_h, median_h = found.mean_h, found.median_h.estimate
    of_law_s = (fit.parameter("median").estimate or 1.0) * math.exp(value * value / 2.0)
    if median_h and mean_h.estimate and not mean_h.contains(of_law_s / SECONDS_PER_HOUR):
        # no lognormal law: one with the mean and the median of the repairs
        value = min(math.sqrt(2.0 * math.log(max(mean_h.estimate / median_h, 1.0))), 5.0)
        words += "; no lognormal law, mean and median kept"
        mean = Fitted.of(mean_h.scaled(SECONDS_PER_HOUR), words)
        return {"repair_mean_s": mean, "repair_sigma": Fitted(value, words)}
    return {
        "repair_mean_s": Fitted.of(found.mean_h.scaled(SECONDS_PER_HOUR), words),
        "repair_sigma": Fitted(
            value, words, min(sigma.low, value), max(min(sigma.high, 5.0), value)
        ),
    }


def _repair_of_any(faults: _Faults) -> dict[str, Fitted | None] | None:
    """The repair of all kinds, with the sigma of one kind where their own repairs show it."""
    found = _repair(faults.repair_s, faults.is_over, "outages of all kinds")
    known = faults.is_over & np.isfinite(faults.repair_s) & (faults.repair_s > 0)
    alike = spread_within(faults.repair_s[known] / SECONDS_PER_HOUR, faults.name[known])
    if found is None or alike is None:
        return found
    value, apart = min(alike[0], 5.0), math.exp(Z90 / math.sqrt(2.0 * alike[1]))
    within = Fitted(value, "outages of one kind", value / apart, min(value * apart, 5.0))
    return {**found, "repair_sigma": within}


def _drawn_to(
    everything: dict[str, Fitted | None] | None, own: _Faults
) -> dict[str, Fitted | None] | None:
    """The repair of a symptom with few known repairs, drawn towards that of all symptoms."""
    if everything is None:
        return None
    mean, sigma = everything["repair_mean_s"], everything["repair_sigma"]
    if mean is None or sigma is None or not float(mean.value) > 0:
        return everything
    known = own.is_over & np.isfinite(own.repair_s) & (own.repair_s > 0)
    n, spread = int(known.sum()), max(float(sigma.value), 0.5)
    weight = n * (SPREAD_OF_REPAIRS / spread) ** 2
    log_mean = math.log(float(mean.value))
    if n:
        log_own = float(np.log(own.repair_s[known]).mean()) + spread * spread / 2.0
        log_mean = (log_mean + weight * log_own) / (1.0 + weight)
    value = math.exp(log_mean)
    factor = math.exp(Z90 * SPREAD_OF_REPAIRS / math.sqrt(1.0 + weight))
    words = f"{n} outages of its own, drawn towards {mean.what}"
    return {
        "repair_mean_s": Fitted(value, words, value / factor, value * factor),
        "repair_sigma": replace(sigma, what=f"that of {mean.what}, each about its kind's mean"),
    }


def _bursts(
    maker: ScenarioMaker, analysis: Analysis, machine: Machine, faults: _Faults, single: Flags
) -> tuple[list[tuple[BurstProcess, dict[str, Fitted | None]]], dict[str, float]]:
    """Groups of faults of one symptom that hit several nodes within half an hour."""
    entries: list[tuple[BurstProcess, dict[str, Fitted | None]]] = []
    unseen: dict[str, float] = {}
    for name in sorted(set(faults.name.tolist())):
        (place,) = np.nonzero(faults.name == name)
        found = fitted_bursts(
            faults.start_s[place], faults.node[place], analysis.period.days, machine.n_nodes
        )
        if found is None:
            continue
        single[place[np.concatenate(found.groups)]] = False
        unseen[name] = found.unseen_faults
        entries.append(
            (
                BurstProcess(name, "cluster", 0.0, 0.0, 0.0),
                {
                    "symptom": Fitted(name, found.what),
                    "scope": Fitted("cluster", "places of bursts are not distinguished"),
                    "per_year": Fitted.of(found.per_year, found.what),
                    "hit_share": Fitted.of(found.hit_share, found.what),
                    "spread_s": Fitted(found.spread_s, found.what),
                },
            )
        )
    if not entries:
        maker.notes.append(
            "No bursts: no symptom hit several nodes at a time more often than chance."
        )
    return entries, unseen


def _lemons(analysis: Analysis, machine: Machine) -> tuple[float, float, str]:
    """Share of the nodes that `ettr lemons` claims, their faults over others', and the reason."""
    claimed = [
        one
        for one in analysis.lemon_nodes.candidates
        if one.claimed and machine.has(one.cluster, one.node)
    ]
    failures = sum(one.failures for one in claimed)
    expected = sum(one.expected for one in claimed)
    if not claimed or not expected > 0:
        return 0.0, 1.0, f"none of {machine.n_nodes} nodes is claimed"
    times = max(1.0, failures / expected)
    return (
        len(claimed) / machine.n_nodes,
        times,
        f"{len(claimed)} of {machine.n_nodes} nodes are claimed, with {times:.3g} times the faults",
    )


def _from_jobs(maker: ScenarioMaker, analysis: Analysis, machine: Machine) -> None:
    """Rates of failures of jobs, where no log of nodes shows faults."""
    if machine.bare:
        maker.notes.append(
            "Rates of faults are those of the failures of all jobs, per node-day of all jobs, on "
            "nodes without GPUs too."
        )
    entries = []
    totals: dict[str, int] = defaultdict(int)
    for one in analysis.rates.by_symptom:
        name = one.symptom if one.symptom in EVIDENCE else OF_HARDWARE
        totals[name] += one.all_jobs.failures
    node_days = analysis.rates.all_jobs.node_days
    spread = analysis.clustering.all_jobs.believed
    for name, n in sorted(totals.items()):
        rate = estimated_rate(n, node_days, 0.9, spread.thinned(1.0)).per_1000_node_days
        silent = name == OF_HARDWARE
        entries.append(
            (
                replace(_PLAIN, symptom=name),
                {
                    "symptom": Fitted(name, "failures of jobs"),
                    "per_1000_node_days": Fitted.of(
                        rate, f"{n} failures in {node_days:,.0f} node-days of jobs"
                    ),
                    "node_down_chance": Fitted(1.0 if silent else 0.0, "no log of nodes"),
                },
            )
        )
    maker.assumed("faults.repair_mean_s, repair_sigma (no log of node states)")
    maker.assumed("faults.severity, crash_chance, law (no log of nodes)")
    maker.assumed("bursts")
    base = maker.base.faults
    usual = base[0] if base else _PLAIN
    entries = [
        (replace(part, repair_mean_s=usual.repair_mean_s, repair_sigma=usual.repair_sigma), values)
        for part, values in entries
    ]
    maker.entries("faults", entries)  # type: ignore[arg-type]
    maker.entries("bursts", [])
    none = Fitted(0.0, "no log of nodes"), Fitted(1.0, "no log of nodes")
    maker.part("lemons", share=none[0], factor=none[1])
