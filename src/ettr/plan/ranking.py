"""Checkpoint schemes ranked for a job, with the reason for each place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.levels import Levels, best_levels, levels_ettr
from ettr.plan.run import spell
from ettr.plan.schemes import SCHEMES, Domain, JobShape, RecoveryLevel, Scheme, Terms
from ettr.units import SECONDS_PER_DAY

LONGEST_INTERVAL_S = 7 * SECONDS_PER_DAY

FailuresPerDay = Mapping[Domain, Interval]
"""Failures of the whole job per day by what failed, each with its interval; 0 where left out."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A scheme for a job.

    Attributes:
        scheme: The scheme.
        terms: Its terms for the job.
        usable: Whether the job can use it.
        ettr: Expected ETTR of the long run at `interval_s`, and at the ends of the failure rates.
        interval_s: The best productive time between light checkpoints.
        lost_s: Expected work lost a failure, over all that fails.
        lost_by_domain_s: Expected work lost, by what failed.
        why: In a sentence.
    """

    scheme: Scheme
    terms: Terms
    usable: bool
    ettr: Interval
    interval_s: float
    lost_s: float
    lost_by_domain_s: Mapping[Domain, float]
    why: str


def levels_of(
    terms: Terms, job: JobShape, per_s: Mapping[Domain, float], interval_s: float
) -> Levels:
    """The scheme as three kinds of failure; restarts are averaged over the domains of a kind.

    Args:
        terms: Of the scheme for `job`.
        job: The job.
        per_s: Failures of the whole job per second, by what failed.
        interval_s: Productive time between light checkpoints.
    """
    n_light = max(1.0, job.durable_period_s / interval_s) if terms.two_levels else 1.0

    def of_level(level: RecoveryLevel) -> tuple[float, float]:
        hits = [(per_s.get(d, 0.0), r) for d, r in terms.responses.items() if r.level is level]
        rate = sum(hit for hit, _ in hits)
        until_s = sum(
            hit * (r.restart_s + r.lost_s + r.lost_interval_share * interval_s) for hit, r in hits
        )
        return rate, until_s / rate if rate else 0.0

    (soft, soft_s), (light, light_s), (deep, deep_s) = map(of_level, RecoveryLevel)
    return Levels(
        interval_s,
        terms.stall_s,
        terms.slowdown,
        terms.lag_s,
        n_light,
        durable_lag_s=job.persist_s if terms.two_levels else 0.0,
        soft_per_s=soft,
        light_per_s=light,
        deep_per_s=deep,
        soft_s=soft_s,
        light_restart_s=light_s,
        deep_restart_s=deep_s,
        queue_s=job.queue_s,
    )


def lost_by_domain_s(terms: Terms, job: JobShape, interval_s: float) -> dict[Domain, float]:
    """Expected work lost in a failure, by what failed: to first order, half of what is unsaved.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    lost = {}
    for domain, response in terms.responses.items():
        if response.level is RecoveryLevel.SOFT:
            lost[domain] = response.lost_s + response.lost_interval_share * interval_s
        elif response.level is RecoveryLevel.LIGHT:
            lost[domain] = interval_s / 2.0 + terms.lag_s
        else:
            lost[domain] = max(job.durable_period_s, interval_s) / 2.0 + job.persist_s
    return lost


def expected_lost_s(lost_s: Mapping[Domain, float], per_s: Mapping[Domain, float]) -> float:
    """Expected work lost a failure: the mean over domains, each by its share of the failures."""
    total = sum(per_s.values())
    return sum(per_s.get(d, 0.0) * lost for d, lost in lost_s.items()) / total if total else 0.0


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
    terms = scheme.terms(job)
    at_estimate = {d: (rate.estimate or 0.0) / SECONDS_PER_DAY for d, rate in per_day.items()}
    at_low = {d: rate.low / SECONDS_PER_DAY for d, rate in per_day.items()}
    at_high = {d: rate.high / SECONDS_PER_DAY for d, rate in per_day.items()}
    longest_s = job.durable_period_s if terms.two_levels else LONGEST_INTERVAL_S

    interval_s, ettr = best_levels(
        lambda at_s: levels_of(terms, job, at_estimate, at_s),
        terms.shortest_interval_s,
        longest_s,
    )
    low, high = (levels_ettr(levels_of(terms, job, at, interval_s)) for at in (at_high, at_low))
    lost = lost_by_domain_s(terms, job, interval_s)
    mean_lost_s = expected_lost_s(lost, at_estimate)
    return Ranked(
        scheme,
        terms,
        terms.obstacle is None,
        Interval(ettr, low, high),
        interval_s,
        mean_lost_s,
        lost,
        _why(scheme, terms, levels_of(terms, job, at_estimate, interval_s), mean_lost_s, ettr),
    )


def _why(scheme: Scheme, terms: Terms, at: Levels, lost_s: float, ettr: float) -> str:
    if terms.obstacle:
        return f"{scheme.name.capitalize()} cannot be used: {terms.obstacle}."
    steady = 1.0 - at.interval_s / (at.interval_s * (1.0 + at.slowdown) + at.stall_s)
    per_day = (at.soft_per_s + at.light_per_s + at.deep_per_s) * SECONDS_PER_DAY
    survived = ", ".join(terms.survives) or "nothing without durable storage"
    return (
        f"{scheme.name.capitalize()} saves every {spell(at.interval_s)} for "
        f"{100 * steady:.1f} % of the time and loses {spell(lost_s)} of work in each of "
        f"{per_day:.3g} failures a day; it survives without durable storage: {survived}. Expected "
        f"ETTR {ettr:.3f}."
    )


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """A scheme as a plan shows it: what it gives a job, what it needs, and why."""

    name: str
    source: str
    assumptions: str
    usable: bool
    ettr: Interval
    interval_s: float
    stall_s: float
    lost_s: float
    survives: tuple[str, ...]
    host_bytes: float
    storage_bytes: float
    quality: str
    why: str


def rank_by_shares(
    job: JobShape, per_node_day: Interval, design_per_node_day: float, shares: Mapping[str, float]
) -> tuple[SchemeChoice, ...]:
    """The schemes for a job whose nodes fail at one rate, the best first.

    Args:
        job: The job.
        per_node_day: Failure rate of a node, with its interval.
        design_per_node_day: The rate to design for.
        shares: Share of the failures by what they take down (`Domain.key`).

    Raises:
        UsageError: the rate has no upper end, or is 0.
    """
    if not math.isfinite(per_node_day.high):
        raise UsageError("the rate has no upper end; give an exposure to rank schemes with")

    def of(domain: Domain) -> Interval:
        factor = shares.get(domain.key, 0.0) * job.n_nodes
        low, middle, high = (
            factor * rate for rate in (per_node_day.low, design_per_node_day, per_node_day.high)
        )
        return Interval(middle, min(low, middle), max(high, middle))

    return tuple(map(_shown, rank(job, {domain: of(domain) for domain in Domain})))


def _shown(one: Ranked) -> SchemeChoice:
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
        survives=tuple(str(domain) for domain in terms.survives),
        host_bytes=terms.host_bytes,
        storage_bytes=terms.storage_bytes,
        quality=terms.quality,
        why=one.why,
    )
