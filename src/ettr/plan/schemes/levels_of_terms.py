"""Terms of a scheme as the kinds of failure that `ettr.plan.levels` solves; the work it loses."""

import math
from collections.abc import Mapping

from ettr.plan.levels import FailureKind, Levels, RecoveryLevel
from ettr.plan.schemes.base import Domain, JobShape, Response, Terms
from ettr.units import SECONDS_PER_DAY

LONGEST_INTERVAL_S = 7 * SECONDS_PER_DAY


def levels_of(
    terms: Terms, job: JobShape, per_s: Mapping[Domain, float], interval_s: float
) -> Levels:
    """The scheme at a checkpoint interval, each kind of failure with its own recovery.

    Args:
        terms: Of the scheme for `job`.
        job: The job.
        per_s: Failures of the whole job per second, by what failed.
        interval_s: Productive time between light checkpoints.
    """
    return Levels(
        interval_s,
        terms.stall_s,
        terms.slowdown,
        terms.lag_s,
        n_light_per_durable(terms, interval_s),
        terms.durable_stall_s,
        terms.durable_lag_s,
        tuple(
            FailureKind(
                response.level,
                per_s.get(domain, 0.0),
                response.restart_s,
                _fixed_loss_s(response, job),
                response.lost_staleness_share,
                response.waits,
            )
            for domain, response in terms.responses.items()
        ),
        job.queue_s,
    )


def _fixed_loss_s(response: Response, job: JobShape) -> float:
    """Work to be made good whatever the interval: that of absent nodes included."""
    return response.lost_s + response.absent_share * job.queue_s


def n_light_per_durable(terms: Terms, interval_s: float) -> int:
    """Light checkpoints from one durable one to the next: the whole number nearest the period."""
    return max(1, math.floor(terms.durable_period_s / interval_s + 0.5))


def durable_every_s(terms: Terms, interval_s: float) -> float | None:
    """Productive time between durable checkpoints: the whole intervals nearest to their period.

    None for a scheme that has no such period.
    """
    apart = terms.two_levels and terms.durable_period_s > 0
    return n_light_per_durable(terms, interval_s) * interval_s if apart else None


def longest_interval_s(terms: Terms) -> float:
    """Longest interval that a scheme is tried at."""
    return terms.durable_period_s or LONGEST_INTERVAL_S


def lost_by_domain_s(terms: Terms, job: JobShape, interval_s: float) -> dict[Domain, float]:
    """Expected work lost in a failure, by what failed: to first order, half of what is unsaved.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    staleness_s = interval_s / 2.0 + terms.lag_s
    durable_s = n_light_per_durable(terms, interval_s) * interval_s / 2.0 + terms.durable_lag_s
    lost = {}
    for domain, response in terms.responses.items():
        if response.level is RecoveryLevel.SOFT:
            fixed_s = _fixed_loss_s(response, job)
            lost[domain] = fixed_s + response.lost_staleness_share * staleness_s
        else:
            lost[domain] = staleness_s if response.level is RecoveryLevel.LIGHT else durable_s
    return lost


def expected_lost_s(lost_s: Mapping[Domain, float], per_s: Mapping[Domain, float]) -> float:
    """Expected work lost a failure: the mean over domains, each by its share of the failures."""
    total = sum(per_s.values())
    return sum(per_s.get(d, 0.0) * lost for d, lost in lost_s.items()) / total if total else 0.0
