"""The checkpoint interval: Young, Daly, the optimum of the paper's form, and the exact one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.renewal import exact_ettr, long_run_ettr
from ettr.plan.run import PlannedRun, changed
from ettr.units import SECONDS_PER_DAY
from ettr.words import spell


def _checked(write_s: float, mttf_s: float) -> None:
    if write_s < 0 or not mttf_s > 0:
        raise UsageError(
            f"write_s {write_s}, mttf_s {mttf_s}: give a write time of 0 or more and an MTTF "
            "above 0, in seconds"
        )


def young_interval_s(write_s: float, mttf_s: float) -> float:
    """Young's interval, sqrt(2 w M): where writes and lost work cost the same.

    Raises:
        UsageError: a negative time.

    **Source**: Young (1974), Communications of the ACM 17(9).
    """
    _checked(write_s, mttf_s)
    return math.sqrt(2.0 * write_s * mttf_s)


def daly_interval_s(write_s: float, mttf_s: float, restart_s: float = 0.0) -> float:
    """Daly's first-order interval, sqrt(2 w (M + R)) - w, 0 at least.

    Raises:
        UsageError: a negative time.

    **Source**: Daly (2006), Future Generation Computer Systems 22, the modified Young form.
    """
    _checked(write_s, mttf_s)
    if restart_s < 0:
        raise UsageError(f"restart_s {restart_s}: give 0 or more seconds")
    return max(0.0, math.sqrt(2.0 * write_s * (mttf_s + restart_s)) - write_s)


def daly_higher_order_interval_s(write_s: float, mttf_s: float) -> float:
    """Daly's higher-order interval; the MTTF where a write takes 2 MTTF or more.

    Raises:
        UsageError: a negative time.

    **Source**: Daly (2006), Future Generation Computer Systems 22, the perturbation solution.
    """
    _checked(write_s, mttf_s)
    if write_s >= 2.0 * mttf_s:
        return mttf_s
    ratio = write_s / (2.0 * mttf_s)
    series = 1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0
    return math.sqrt(2.0 * write_s * mttf_s) * series - write_s


def paper_interval_s(write_s: float, mttf_s: float, restart_s: float) -> float:
    """The interval at which the paper's second form is largest: -w + sqrt(w² + 2w(1 - λu0)/λ).

    Raises:
        UsageError: a negative time, or a restart as long as the MTTF, for which the form has none.

    **Source**: set the derivative of (1 - λ(u0 + Δt/2)) / (1 + w/Δt) to 0; the form is that of
    Kokolis et al. (HPCA 2025).
    """
    _checked(write_s, mttf_s)
    if not 0 <= restart_s < mttf_s:
        raise UsageError(
            f"restart_s {restart_s} against an MTTF of {mttf_s} s: the paper's form needs a "
            "restart shorter than the MTTF; restart faster, use fewer nodes, or use "
            "exact_interval_s"
        )
    return -write_s + math.sqrt(write_s**2 + 2.0 * write_s * (mttf_s - restart_s))


def exact_interval_s(write_s: float, mttf_s: float) -> float:
    """The interval at which the exact form is largest, in seconds; at most the MTTF.

    It depends on neither restart nor queue time: they cost the same whatever the interval. With
    x = λΔt and h = λw the optimum solves (1 - x) e^(x+h) = 1, that is x = 1 + W0(-e^(-1-h)) with
    Lambert's W.

    Raises:
        UsageError: a negative time.

    **Source**: derived in docs/explanation/ettr-models.md; a known form of the exact optimum.
    """
    _checked(write_s, mttf_s)
    if math.isinf(mttf_s):
        return math.inf
    return optimal_share(write_s / mttf_s) * mttf_s


def optimal_share(write_share: float) -> float:
    """The x in [0, 1] with -x - ln(1 - x) = `write_share`, both in units of the MTTF.

    Newton's steps on a convex, rising function from a bound above the root, so they only descend.
    """
    x = min(math.sqrt(2.0 * write_share), -math.expm1(-1.0 - write_share))
    if x in (0.0, 1.0):
        return x
    for _ in range(60):
        step = (_minus_x_minus_log(x) - write_share) * (1.0 - x) / x
        if not step > 1e-16 * x:
            break
        x -= step
    return x


def _minus_x_minus_log(x: float) -> float:
    if x > 0.01:
        return -x - math.log1p(-x)
    # the two nearly cancel: Σ x^k / k from k = 2
    return x * x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x * (1 / 5 + x * (1 / 6 + x / 7)))))


def with_best_interval(run: PlannedRun) -> PlannedRun:
    """`run` with the interval at which its exact ETTR is largest.

    A run of finite length is cut into equal parts: the expected time of a part is convex in its
    length, so no other cut is better, and the best number of parts is next to that of the long run.

    Raises:
        UsageError: a long run whose checkpoints cost nothing, or that never fails.
    """
    best_s = exact_interval_s(run.write_s, run.mttf_s)
    if math.isinf(run.productive_s):
        if best_s == 0 or math.isinf(best_s):
            raise UsageError(
                f"write_s {run.write_s} and an MTTF of {run.mttf_s} s leave no best interval: "
                "give a write time and a failure rate above 0"
            )
        return replace(run, interval_s=best_s)
    if best_s == 0:
        raise UsageError(
            "write_s 0 leaves no best interval: the shorter the better; give a write time above 0"
        )
    parts = max(1, math.floor(run.productive_s / best_s))
    options = [replace(run, interval_s=run.productive_s / n) for n in (parts, parts + 1)]
    return max(options, key=exact_ettr)


@dataclass(frozen=True, slots=True)
class IntervalChoice:
    """One way to choose the checkpoint interval, and what it gives.

    `paper_ettr` is by the paper's second form; None where that form has no meaning.
    """

    rule: str
    interval_s: float
    ettr: float
    paper_ettr: float | None


def interval_choices(run: PlannedRun, *, planned_best: bool) -> tuple[IntervalChoice, ...]:
    """The interval of each rule for a run, its own first; only those that are positive."""
    write_s, mttf_s = run.write_s, run.mttf_s
    rules = [("exact optimum (planned)" if planned_best else "given (planned)", run.interval_s)]
    if write_s > 0 and math.isfinite(mttf_s):
        if not planned_best:
            rules.append(("exact optimum", exact_interval_s(write_s, mttf_s)))
        rules.append(("Young: sqrt(2 w MTTF)", young_interval_s(write_s, mttf_s)))
        rules.append(("Daly, first order", daly_interval_s(write_s, mttf_s, run.restart_s)))
        rules.append(("Daly, higher order", daly_higher_order_interval_s(write_s, mttf_s)))
        if run.restart_s < mttf_s:
            paper_s = paper_interval_s(write_s, mttf_s, run.restart_s)
            rules.append(("optimum of the paper's form", paper_s))
    return tuple(
        IntervalChoice(rule, at.interval_s, exact_ettr(at), second_form_where_valid(at))
        for rule, at in (
            (rule, replace(run, interval_s=interval_s))
            for rule, interval_s in rules
            if interval_s > 0
        )
    )


def best_interval_band(run: PlannedRun, per_node_day: Interval) -> Interval | None:
    """The exact optimum at a failure rate and at its ends; None where there is none."""
    if not run.write_s or not run.failures_per_s:
        return None

    def best_s(rate: float) -> float:
        return exact_interval_s(run.write_s, SECONDS_PER_DAY / (run.n_nodes * rate))

    return Interval(
        best_s(per_node_day.estimate) if per_node_day.estimate else None,
        best_s(per_node_day.high) if math.isfinite(per_node_day.high) else 0.0,
        best_s(per_node_day.low) if per_node_day.low else math.inf,
    )


AXES = ("failures_per_node_day", "n_nodes", "interval_s", "write_s", "restart_s", "queue_s")


def contour(
    run: PlannedRun,
    across: str,
    across_values: Sequence[float],
    up: str,
    up_values: Sequence[float],
    *,
    best_interval: bool = False,
) -> tuple[tuple[float, ...], ...]:
    """Exact ETTR of the long run; one row for each of `up_values`, one entry an `across_values`.

    Args:
        up: Another of `AXES`.

    Raises:
        UsageError: axes that are unknown or the same, or a value that no run can have.
    """
    if across == up or across not in AXES or up not in AXES:
        raise UsageError(f"axes {across!r}, {up!r}: give two different ones of {', '.join(AXES)}")
    if not across_values or not up_values:
        raise UsageError("a grid needs one value or more on each axis; give them")
    for name, values in ((across, across_values), (up, up_values)):
        for extreme in (min(values), max(values)):
            # the ends are checked as any run is, and what lies between them is then sound
            changed(run, name, extreme)
    inputs = {name: float(getattr(run, name)) for name in AXES}
    rows = []
    for y in up_values:
        inputs[up] = y
        row = []
        for x in across_values:
            inputs[across] = x
            rate = inputs["failures_per_node_day"] * inputs["n_nodes"] / SECONDS_PER_DAY
            write_s, interval_s = inputs["write_s"], inputs["interval_s"]
            if best_interval and write_s and rate:
                interval_s = optimal_share(rate * write_s) / rate
            row.append(
                long_run_ettr(rate, interval_s, write_s, inputs["restart_s"], inputs["queue_s"])
            )
        rows.append(tuple(row))
    return tuple(rows)


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
