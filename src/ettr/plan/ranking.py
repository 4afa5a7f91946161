"""What a ranking of checkpoint schemes stands on: bands over rate and assumptions, turning points.

Standard library only. Under other assumptions a scheme gets the interval that is best there, as a
site that knows them would choose; the ends of the failure rate keep it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.assumed import (
    JOB_SHARE,
    Assumption,
    InputValue,
    SchemeInput,
    Setting,
    Shares,
    assumptions_of,
    values_of,
)
from ettr.plan.levels import (
    Levels,
    best_interval,
    ettr_by_interval,
    golden_section,
    levels_ettr,
)
from ettr.plan.schemes import SCHEMES, Domain, JobShape, Scheme, Terms, terms_for
from ettr.plan.schemes.base import (
    durable_every_s,
    expected_lost_s,
    levels_of,
    longest_interval_s,
    lost_by_domain_s,
    n_light_per_durable,
)
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell

# -- checkpoint schemes ranked for a job, with the reason for each place ---------------------------


FailuresPerDay = Mapping[Domain, Interval]
"""Failures of the whole job per day by what failed, each with its interval; 0 where left out."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A scheme for a job; one that the job cannot use has no ETTR, interval and loss.

    Attributes:
        ettr: Expected ETTR of the long run at `interval_s`, and at the ends of the failure rates.
    """

    scheme: Scheme
    terms: Terms
    usable: bool
    ettr: Interval
    interval_s: float | None
    lost_s: float | None
    lost_by_domain_s: Mapping[Domain, float]
    why: str


def rank(
    job: JobShape, per_day: FailuresPerDay, schemes: Sequence[Scheme] = SCHEMES
) -> tuple[Ranked, ...]:
    """The schemes for a job, the highest expected ETTR first, those it cannot use last.

    Each has its own best interval; the band keeps that interval and moves all rates to their ends.

    Raises:
        UsageError: a rate that cannot be, or no failure at all, so that no scheme is better than
            none.
    """
    for domain, rate in per_day.items():
        if not 0 <= rate.low <= (rate.estimate or 0.0) <= rate.high:
            raise UsageError(
                f"{domain}: a rate of {rate.estimate} between {rate.low} and {rate.high}: give "
                "0 <= low <= rate <= high, in failures per day"
            )
    if not any(rate.estimate for rate in per_day.values()):
        raise UsageError("all failure rates are 0: nothing to protect from; give one above 0")
    ranked = [_ranked(scheme, job, per_day) for scheme in schemes]
    return tuple(sorted(ranked, key=lambda one: (not one.usable, -(one.ettr.estimate or 0.0))))


def _ranked(scheme: Scheme, job: JobShape, per_day: FailuresPerDay) -> Ranked:
    terms = terms_for(scheme, job)
    if terms.obstacle is not None:
        return _unusable(scheme, terms)
    at_estimate = {d: (rate.estimate or 0.0) / SECONDS_PER_DAY for d, rate in per_day.items()}
    at_low = {d: rate.low / SECONDS_PER_DAY for d, rate in per_day.items()}
    at_high = {d: rate.high / SECONDS_PER_DAY for d, rate in per_day.items()}
    by_interval = ettr_by_interval(levels_of(terms, job, at_estimate, terms.shortest_interval_s))
    interval_s, ettr = best_interval(
        lambda at_s: by_interval(at_s, n_light_per_durable(terms, at_s)),
        terms.shortest_interval_s,
        longest_interval_s(terms),
    )
    low, high = (levels_ettr(levels_of(terms, job, at, interval_s)) for at in (at_high, at_low))
    lost = lost_by_domain_s(terms, job, interval_s)
    mean_lost_s = expected_lost_s(lost, at_estimate)
    return Ranked(
        scheme,
        terms,
        True,
        Interval(ettr, low, high),
        interval_s,
        mean_lost_s,
        lost,
        _why(scheme, terms, levels_of(terms, job, at_estimate, interval_s), mean_lost_s, ettr),
    )


def _unusable(scheme: Scheme, terms: Terms) -> Ranked:
    why = f"{scheme.name.capitalize()} cannot be used: {terms.obstacle}."
    return Ranked(scheme, terms, False, Interval.unknown(), None, None, {}, why)


def _why(scheme: Scheme, terms: Terms, at: Levels, lost_s: float, ettr: float) -> str:
    steady = 1.0 - at.interval_s / at.length_s
    survived = ", ".join(terms.survives) or "nothing without durable storage"
    return (
        f"{scheme.name.capitalize()} saves every {spell(at.interval_s)} for {100 * steady:.1f} % "
        f"of the time and loses {spell(lost_s)} of work in each of "
        f"{significant(at.per_s * SECONDS_PER_DAY)} failures a day; it survives without durable "
        f"storage: {survived}. Expected ETTR {ettr:.3f}."
    )


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """A scheme as a plan shows it: what it gives a job, what it needs, and why.

    `durable_every_s` is the productive time between durable checkpoints, for a scheme that takes
    them apart from the others: whole intervals, as near as can be to the period asked for.
    `inputs` are the scheme's own.
    """

    name: str
    source: str
    assumptions: str
    usable: bool
    ettr: Interval
    interval_s: float | None
    stall_s: float
    lost_s: float | None
    durable_every_s: float | None
    survives: tuple[str, ...]
    host_bytes: float
    storage_bytes: float
    quality: str
    why: str
    inputs: Mapping[str, InputValue]


@dataclass(frozen=True, slots=True)
class NodeRate:
    """Failures of one node per day: the rate to design for, and the ends of its interval."""

    design: float
    low: float
    high: float

    @classmethod
    def of(cls, per_node_day: Interval, design_per_node_day: float) -> NodeRate:
        """The rate to design for between the ends of an interval.

        Raises:
            UsageError: the interval has no upper end.
        """
        if not math.isfinite(per_node_day.high):
            raise UsageError("the rate has no upper end; give an exposure to rank schemes with")
        return cls(
            design_per_node_day,
            min(per_node_day.low, design_per_node_day),
            max(per_node_day.high, design_per_node_day),
        )


def rank_by_shares(
    job: JobShape, rate: NodeRate, shares: Mapping[str, float], schemes: Sequence[Scheme] = SCHEMES
) -> tuple[Ranked, ...]:
    """The schemes for a job whose nodes fail at one rate, the best first.

    Args:
        shares: Share of the failures by what they take down (`Domain.key`).

    Raises:
        UsageError: the rate is 0.
    """

    def of(domain: Domain) -> Interval:
        factor = shares.get(domain.key, 0.0) * job.n_nodes
        return Interval(factor * rate.design, factor * rate.low, factor * rate.high)

    return rank(job, {domain: of(domain) for domain in Domain}, schemes)


def shown(one: Ranked) -> SchemeChoice:
    """A ranked scheme as a plan shows it."""
    terms = one.terms
    return SchemeChoice(
        name=one.scheme.name,
        source=one.scheme.source,
        assumptions=one.scheme.assumptions,
        usable=one.usable,
        ettr=one.ettr,
        interval_s=one.interval_s,
        stall_s=terms.stall_s,
        lost_s=one.lost_s,
        durable_every_s=None if one.interval_s is None else durable_every_s(terms, one.interval_s),
        survives=tuple(str(domain) for domain in terms.survives),
        host_bytes=terms.host_bytes,
        storage_bytes=terms.storage_bytes,
        quality=terms.quality,
        why=one.why,
        inputs=values_of(one.scheme),
    )


# -- what a ranking of checkpoint schemes stands on: bands over rate and assumptions, turning
# points


_NOTICED = 0.0005
"""A scheme rests on an assumption whose range moves its ETTR by so much: the last digit printed."""
_LEVEL = 0.001
_TRIED = (0.3, 1.0)
_BISECTIONS = 12
_GOLDEN_STEPS = 12


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The value of one assumption at which another scheme takes the first place.

    Attributes:
        share_of_range: How far it lies on the way from the value assumed to the end of the range;
            0 is at hand, 1 at the end.
    """

    assumption: Assumption
    turns_at: float
    then_first: str
    share_of_range: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        one = self.assumption
        return (
            f"{one.label}, assumed to be {one.spelled(one.value)}; at {one.spelled(self.turns_at)} "
            f"{self.then_first} is first"
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """What a ranking stands on.

    Attributes:
        rests_on: Assumptions that move the ETTR of a scheme by a digit that is printed, those that
            move it most first.
        fixed_restart: Usable schemes whose ETTR does not depend on the restart.
    """

    first: str | None
    lead_ettr: float | None
    assumptions: tuple[Assumption, ...]
    bands: Mapping[str, Interval]
    rests_on: Mapping[str, tuple[Assumption, ...]]
    turning_points: tuple[TurningPoint, ...]
    fixed_restart: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader of the ranking should know, a sentence each."""
        if self.first is None:
            return ()
        if (self.bands[self.first].estimate or 0.0) < _NOTICED:
            return ("No scheme makes progress at this failure rate, so their order means nothing.",)
        return (*self._deciding(), *self._overlap(), *self._without_restart())

    def _deciding(self) -> tuple[str, ...]:
        if not self.turning_points:
            return (
                (f"No single assumption within its range takes the first place from {self.first}."),
            )
        lead, ahead = self.lead_ettr, ""
        if lead is not None and lead < _LEVEL:
            ahead = f" (ahead by {significant(lead, 1)} only)"
        point = self.turning_points[0].sentence
        return (f"What decides the first place of {self.first}{ahead}: {point}.",)

    def _overlap(self) -> tuple[str, ...]:
        band = self.bands[self.first or ""]
        others = [
            name
            for name, other in self.bands.items()
            if name != self.first and other.high > band.low
        ]
        if not others:
            return ()
        return (
            f"Over the rate and the assumptions the band of {self.first} overlaps those "
            f"of {len(others)} of {len(self.bands) - 1} other schemes: measure the "
            "assumed costs to know their order.",
        )

    def _without_restart(self) -> tuple[str, ...]:
        if not self.fixed_restart:
            return ()
        names = ", ".join(self.fixed_restart)
        return (
            f"The ETTR of {names} does not depend on --restart: after the failures counted here "
            "they replace what failed, in a time of their own or that of --replace. The other "
            "schemes restart the whole job.",
        )


def standing(
    job: JobShape,
    rate: NodeRate,
    shares: Shares,
    ranked: Sequence[Ranked],
    assumed: frozenset[str],
    given: frozenset[SchemeInput] = frozenset(),
) -> Standing:
    """What a ranking stands on."""
    assumptions = assumptions_of(job, [one.scheme for one in ranked], assumed, given)
    usable = [one for one in ranked if one.usable]
    bands: dict[str, Interval] = {}
    rests_on: dict[str, tuple[Assumption, ...]] = {}
    concerning: dict[str, tuple[Assumption, ...]] = {}
    for one in usable:
        name = one.scheme.name
        setting = Setting(one.scheme, job, shares)
        concerning[name] = tuple(each for each in assumptions if _concerns(each, setting))
        bands[name], rests_on[name] = _band(setting, rate, one, concerning[name])
    return Standing(
        usable[0].scheme.name if usable else None,
        _lead(usable),
        assumptions,
        bands,
        rests_on,
        _turning_points(job, rate.design, shares, usable, assumptions, concerning),
        tuple(one.scheme.name for one in usable if _restart_free(one, job, rate.design, shares)),
    )


def _lead(usable: Sequence[Ranked]) -> float | None:
    if len(usable) < 2:
        return None
    return (usable[0].ettr.estimate or 0.0) - (usable[1].ettr.estimate or 0.0)


def _per_s(setting: Setting, per_node_day: float) -> dict[Domain, float]:
    factor = per_node_day * setting.job.n_nodes / SECONDS_PER_DAY
    return {domain: setting.shares.get(domain.key, 0.0) * factor for domain in Domain}


def _by_interval(setting: Setting, terms: Terms, per_node_day: float) -> Callable[[float], float]:
    """ETTR by the checkpoint interval."""
    per_s = _per_s(setting, per_node_day)
    ettr = ettr_by_interval(levels_of(terms, setting.job, per_s, terms.shortest_interval_s))
    return lambda at_s: ettr(at_s, n_light_per_durable(terms, at_s))


def _ettr(setting: Setting, per_node_day: float, interval_s: float) -> float:
    terms = terms_for(setting.scheme, setting.job)
    return _by_interval(setting, terms, per_node_day)(interval_s)


def _retuned(
    setting: Setting, terms: Terms, per_node_day: float, interval_s: float | None
) -> tuple[float, float]:
    """Best interval and the ETTR there, not below that at the interval given."""
    shortest_s = terms.shortest_interval_s
    of = _by_interval(setting, terms, per_node_day)
    held_s = max(interval_s or 0.0, shortest_s)
    longest_s = max(longest_interval_s(terms), shortest_s)
    ends = math.log(shortest_s), math.log(longest_s)
    tuned_s = math.exp(golden_section(lambda log_s: of(math.exp(log_s)), *ends, _GOLDEN_STEPS))
    held, tuned = of(held_s), of(tuned_s)
    return (held_s, held) if held >= tuned else (tuned_s, tuned)


def _concerns(assumption: Assumption, setting: Setting) -> bool:
    """Whether the terms of a scheme, or the failures, depend on an assumption."""
    if assumption.scheme is not None:
        return assumption.scheme == setting.scheme.name
    if assumption.name == JOB_SHARE:
        return True
    now = terms_for(setting.scheme, setting.job)
    ends = (setting.under(assumption, end) for end in (assumption.low, assumption.high))
    return any(terms_for(at.scheme, at.job) != now for at in ends)


@dataclass(frozen=True, slots=True)
class _End:
    """Some values of the assumptions, and the ETTR there."""

    ettr: float
    setting: Setting


def _band(
    setting: Setting, rate: NodeRate, one: Ranked, assumptions: Sequence[Assumption]
) -> tuple[Interval, tuple[Assumption, ...]]:
    """ETTR with all assumptions at their worse ends and at their better ones, rate included."""
    middle = one.ettr.estimate or 0.0
    worst = best = _End(middle, setting)

    def retuned(at: Setting) -> tuple[float, float]:
        return _retuned(at, terms_for(at.scheme, at.job), rate.design, one.interval_s)

    moves: list[tuple[float, Assumption]] = []
    # what fails decides which of the costs count
    for assumption in sorted(assumptions, key=lambda each: each.name != JOB_SHARE):

        def moved(begin: _End, of: Assumption = assumption) -> list[_End]:
            ends = (begin.setting.under(of, end) for end in {of.low, of.high} - {of.value})
            return [_End(retuned(at)[1], at) for at in ends]

        alone = moved(_End(middle, setting))
        reached = [middle, *(end.ettr for end in alone)]
        moves.append((max(reached) - min(reached), assumption))
        lows = alone if worst.setting is setting else moved(worst)
        highs = alone if best.setting is setting else moved(best)
        worst = min(worst, *lows, key=lambda end: end.ettr)
        best = max(best, *highs, key=lambda end: end.ettr)
    moves.sort(key=lambda move: -move[0])
    low, high = (
        _ettr(end.setting, per_node_day, retuned(end.setting)[0])
        for end, per_node_day in ((worst, rate.high), (best, rate.low))
    )
    return (
        Interval(one.ettr.estimate, min(low, middle), max(high, middle)),
        tuple(assumption for moved, assumption in moves if moved >= _NOTICED),
    )


def _restart_free(one: Ranked, job: JobShape, per_node_day: float, shares: Shares) -> bool:
    longer = replace(job, restart_s=2.0 * job.restart_s + 1.0)
    now, then = (
        _ettr(setting, per_node_day, one.interval_s or 0.0)
        for at in (job, longer)
        for setting in (Setting(one.scheme, at, shares),)
    )
    return math.isclose(now, then, rel_tol=1e-9)


@dataclass(frozen=True, slots=True)
class _Contest:
    """The usable schemes under one assumption: those it concerns, and the best of the others."""

    concerned: tuple[tuple[Setting, float | None], ...]
    best_other: tuple[float, str | None]
    per_node_day: float

    def leader(self, assumption: Assumption, value: float) -> str | None:
        """The scheme with the highest ETTR of those that can be used; None where none can."""
        best, name = self.best_other
        for scheme, ettr in self._ettrs(assumption, value):
            if ettr > best:
                best, name = ettr, scheme
        return name

    def against(self, first: str, assumption: Assumption, value: float) -> _Contest:
        """The same between one scheme and those that are ahead of it at a value."""
        ettrs = dict(self._ettrs(assumption, value))
        least = ettrs.get(first, -1.0)
        kept = {first, *(name for name, ettr in ettrs.items() if ettr > least)}
        concerned = tuple(one for one in self.concerned if one[0].scheme.name in kept)
        return replace(self, concerned=concerned)

    def _ettrs(self, assumption: Assumption, value: float) -> Iterator[tuple[str, float]]:
        for setting, interval_s in self.concerned:
            at = setting.under(assumption, value)
            terms = terms_for(at.scheme, at.job)
            if terms.obstacle is None:
                ettr = _retuned(at, terms, self.per_node_day, interval_s)[1]
                yield setting.scheme.name, ettr


def _turning_points(
    job: JobShape,
    per_node_day: float,
    shares: Shares,
    usable: Sequence[Ranked],
    assumptions: Sequence[Assumption],
    concerning: Mapping[str, tuple[Assumption, ...]],
) -> tuple[TurningPoint, ...]:
    if len(usable) < 2:
        return ()
    first = usable[0].scheme.name
    found = []
    for assumption in assumptions:
        contest = _contest(job, per_node_day, shares, usable, assumption, concerning)
        for end in {assumption.low, assumption.high} - {assumption.value}:
            point = _turning_point(contest, first, assumption, end) if contest.concerned else None
            if point is not None:
                found.append(point)
    return tuple(sorted(found, key=lambda point: point.share_of_range))


def _contest(
    job: JobShape,
    per_node_day: float,
    shares: Shares,
    usable: Sequence[Ranked],
    assumption: Assumption,
    concerning: Mapping[str, tuple[Assumption, ...]],
) -> _Contest:
    concerned: list[tuple[Setting, float | None]] = []
    best_other: tuple[float, str | None] = (-1.0, None)
    for one in usable:
        setting = Setting(one.scheme, job, shares)
        if assumption in concerning[one.scheme.name]:
            concerned.append((setting, one.interval_s))
        else:
            best_other = max(
                best_other, (one.ettr.estimate or 0.0, one.scheme.name), key=lambda at: at[0]
            )
    return _Contest(tuple(concerned), best_other, per_node_day)


def _turning_point(
    contest: _Contest, first: str, assumption: Assumption, end: float
) -> TurningPoint | None:
    """Where the first place changes hands on the way to one end; None if it does not."""

    def value_at(share: float) -> float:
        begin = assumption.value
        if begin > 0 and end > 0:
            return begin * math.pow(end / begin, share)
        return begin + (end - begin) * share

    def holds(share: float) -> bool:
        return contest.leader(assumption, value_at(share)) == first

    tried = (1.0,) if assumption.two_valued else _TRIED
    lost = next((share for share in tried if not holds(share)), None)
    if lost is None:
        return None
    # who is ahead there has overtaken on the way; the others need not be asked again
    contest = contest.against(first, assumption, value_at(lost))
    kept = max((share for share in _TRIED if share < lost), default=0.0)
    for _ in range(0 if assumption.two_valued else _BISECTIONS):
        middle = (kept + lost) / 2.0
        kept, lost = (middle, lost) if holds(middle) else (kept, middle)
    heir = contest.leader(assumption, value_at(lost))
    return None if heir is None else TurningPoint(assumption, value_at(lost), heir, lost)
