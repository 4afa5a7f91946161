"""Which checkpoint scheme suits a job, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.plan.levels import Levels, best_levels, levels_ettr
from ettr.plan.run import spell
from ettr.plan.schemes import SCHEMES, Domain, JobShape, Kind, Scheme, Terms
from ettr.units import SECONDS_PER_DAY

_LONGEST_INTERVAL_S = 7 * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class RateBand:
    """A failure rate with its interval, in failures per day of the whole job."""

    per_day: float
    low_per_day: float
    high_per_day: float

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            UsageError: a negative rate, or ends that do not enclose it.
        """
        if not 0 <= self.low_per_day <= self.per_day <= self.high_per_day:
            raise UsageError(
                f"rates {self.low_per_day}, {self.per_day}, {self.high_per_day}: give "
                "0 <= low <= rate <= high, in failures per day"
            )


_NONE = RateBand(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class FailureRates:
    """Failures of a job by what failed, per day of the whole job; none where left out."""

    process: RateBand = _NONE
    node: RateBand = _NONE
    rack: RateBand = _NONE
    job: RateBand = _NONE

    def per_s(self, end: str = "per_day") -> dict[Domain, float]:
        """Failures per second by domain, at `per_day`, `low_per_day` or `high_per_day`."""
        bands = (self.process, self.node, self.rack, self.job)
        return {
            domain: getattr(band, end) / SECONDS_PER_DAY
            for domain, band in zip(Domain, bands, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Ranked:
    """A scheme for a job.

    Attributes:
        scheme: The scheme.
        terms: What it states for the job.
        usable: Whether the job can use it.
        ettr: Expected ETTR of the long run at `interval_s`.
        ettr_low: At the upper ends of the rates.
        ettr_high: At the lower ends.
        interval_s: The best productive time between light checkpoints.
        lost_s: Expected work lost a failure, over all that fails.
        lost_by_domain_s: Expected work lost, by what failed.
        why: In a sentence.
    """

    scheme: Scheme
    terms: Terms
    usable: bool
    ettr: float
    ettr_low: float
    ettr_high: float
    interval_s: float
    lost_s: float
    lost_by_domain_s: Mapping[Domain, float]
    why: str


def levels_of(
    terms: Terms, job: JobShape, per_s: Mapping[Domain, float], interval_s: float
) -> Levels:
    """The scheme as kinds of failure; restarts are averaged over the domains of a kind."""
    n_light = max(1.0, job.durable_period_s / interval_s) if terms.two_levels else 1.0

    def of_kind(kind: Kind) -> tuple[float, float]:
        hits = [(per_s[d], r) for d, r in terms.responses.items() if r.kind is kind]
        rate = sum(hit for hit, _ in hits)
        until_s = sum(
            hit * (r.restart_s + r.lost_s + r.lost_interval_share * interval_s) for hit, r in hits
        )
        return rate, until_s / rate if rate else 0.0

    (soft, soft_s), (light, light_s), (deep, deep_s) = (of_kind(kind) for kind in Kind)
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
        if response.kind is Kind.SOFT:
            lost[domain] = response.lost_s + response.lost_interval_share * interval_s
        elif response.kind is Kind.LIGHT:
            lost[domain] = interval_s / 2.0 + terms.lag_s
        else:
            lost[domain] = max(job.durable_period_s, interval_s) / 2.0 + job.persist_s
    return lost


def expected_lost_s(lost_s: Mapping[Domain, float], per_s: Mapping[Domain, float]) -> float:
    """Expected work lost a failure: the mean over domains, each by its share of the failures."""
    total = sum(per_s.values())
    return sum(per_s[d] * lost for d, lost in lost_s.items()) / total if total else 0.0


def rank(
    job: JobShape, rates: FailureRates, schemes: Sequence[Scheme] = SCHEMES
) -> tuple[Ranked, ...]:
    """The schemes for a job, the highest expected ETTR first, those it cannot use last.

    Each has its own best interval; the band keeps that interval and moves all rates to their ends.

    Raises:
        UsageError: no failure at all, so that no scheme is better than none.
    """
    if not sum(rates.per_s().values()):
        raise UsageError("all failure rates are 0: nothing to protect from; give one above 0")
    found = [_ranked(scheme, job, rates) for scheme in schemes]
    return tuple(sorted(found, key=lambda one: (not one.usable, -one.ettr)))


def _ranked(scheme: Scheme, job: JobShape, rates: FailureRates) -> Ranked:
    terms, per_s = scheme.terms(job), rates.per_s()
    longest_s = job.durable_period_s if terms.two_levels else _LONGEST_INTERVAL_S

    def at(interval_s: float, end: str = "per_day") -> Levels:
        return levels_of(terms, job, rates.per_s(end), interval_s)

    interval_s, ettr = best_levels(at, terms.shortest_interval_s, longest_s)
    ends = [levels_ettr(at(interval_s, end)) for end in ("high_per_day", "low_per_day")]
    lost = lost_by_domain_s(terms, job, interval_s)
    mean_lost_s = expected_lost_s(lost, per_s)
    return Ranked(
        scheme,
        terms,
        terms.obstacle is None,
        ettr,
        ends[0],
        ends[1],
        interval_s,
        mean_lost_s,
        lost,
        _why(scheme, terms, at(interval_s), mean_lost_s, ettr),
    )


def _why(scheme: Scheme, terms: Terms, at: Levels, lost_s: float, ettr: float) -> str:
    if terms.obstacle:
        return f"{scheme.name.capitalize()} cannot be used: {terms.obstacle}."
    steady = 1.0 - at.interval_s / (at.interval_s * (1.0 + at.slowdown) + at.stall_s)
    per_day = (at.soft_per_s + at.light_per_s + at.deep_per_s) * SECONDS_PER_DAY
    survived = ", ".join(terms.survives) or "nothing without durable storage"
    return (
        f"{scheme.name.capitalize()} saves every {spell(at.interval_s)} for {steady:.1%} of the "
        f"time and loses {spell(lost_s)} of work in each of {per_day:.3g} failures a day; it "
        f"survives without durable storage: {survived}. Expected ETTR {ettr:.3f}."
    )
