"""Expected ETTR by the paper's forms: right to first order in the failures of an interval."""

import math

from ettr.errors import UsageError
from ettr.plan.run import PlannedRun, spell


def _time_left(run: PlannedRun) -> float:
    """1 - λ(u0 + Δt/2), the share of scheduled time that is not lost to failures."""
    left = 1.0 - run.lost_share
    if left <= 0:
        raise UsageError(
            f"λ(u0 + Δt/2) is {run.lost_share:.3g} with an interval of {spell(run.interval_s)}, a "
            f"restart of {spell(run.restart_s)} and an MTTF of {spell(run.mttf_s)}; the paper's "
            "forms need less than 1: shorten the interval or the restart, use fewer nodes, or use "
            "the exact form"
        )
    return left


def first_form_ettr(run: PlannedRun) -> float:
    """Expected ETTR without checkpoint overhead: (1 - a) / (1 + (u0 + q)/R + λq).

    a = λ(u0 + Δt/2); `write_s` is not used.

    Raises:
        UsageError: a is 1 or more, where the form has no meaning.

    **Source**: Kokolis et al. (arXiv 2410.21680v1), as the general form gives it to first order
    with w = 0; it reproduces the what-ifs of that version.
    """
    per_run = (run.restart_s + run.queue_s) / run.productive_s
    return _time_left(run) / (1.0 + per_run + run.failures_per_s * run.queue_s)


def second_form_ettr(run: PlannedRun) -> float:
    """Expected ETTR of a long run of high priority: (1 - a) / (1 + w/Δt).

    a = λ(u0 + Δt/2); `queue_s` and `productive_s` are not used.

    Raises:
        UsageError: a is 1 or more, where the form has no meaning.

    **Source**: Kokolis et al. (HPCA 2025, arXiv 2410.21680v2).
    """
    return _time_left(run) / (1.0 + run.write_s / run.interval_s)


def second_form_where_valid(run: PlannedRun) -> float | None:
    """Expected ETTR by the second form; None where it has no meaning."""
    return second_form_ettr(run) if run.lost_share < 1.0 else None


def general_form_ettr(run: PlannedRun) -> float:
    """Expected ETTR to first order, with queue time and finite length.

    (1 - a) / [(1 + w/Δt + u0/R)(1 + λq) + (q/R)(1 - a)], a = λ(u0 + Δt/2).

    Raises:
        UsageError: a is 1 or more, where the form has no meaning.

    **Source**: derived in docs/explanation/ettr-models.md from the definitions of Kokolis et al.
    """
    left = _time_left(run)
    scheduled = 1.0 + run.write_s / run.interval_s + run.restart_s / run.productive_s
    waits = run.queue_s / run.productive_s * left
    value = left / (scheduled * (1.0 + run.failures_per_s * run.queue_s) + waits)
    return value if math.isfinite(value) else 0.0


def general_form_where_valid(run: PlannedRun) -> float | None:
    """Expected ETTR by the general form; None where it has no meaning."""
    return general_form_ettr(run) if run.lost_share < 1.0 else None
