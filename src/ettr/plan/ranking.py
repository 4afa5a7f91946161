"""Checkpoint schemes ranked for a job, with the reason for each place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.assumed import InputValue, values_of
from ettr.plan.levels import Levels, best_interval, ettr_by_interval, levels_ettr
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
        f"{scheme.name.capitalize()} saves every {spell(at.interval_s)} for "
        f"{100 * steady:.1f} % of the time and loses {spell(lost_s)} of work in each of "
        f"{significant(at.per_s * SECONDS_PER_DAY)} failures a day; it survives without durable "
        "storage: "
        f"{survived}. Expected ETTR {ettr:.3f}."
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
    def of(cls, per_node_day: Interval, design_per_node_day: float) -> "NodeRate":
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
