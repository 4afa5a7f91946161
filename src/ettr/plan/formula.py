"""The formulas behind a plan, with its numbers in them."""

import math
from collections.abc import Iterator

from ettr.plan.renewal import exact_ettr, expected_failures, expected_wallclock_s
from ettr.plan.run import PlannedRun, spell
from ettr.units import SECONDS_PER_DAY


def formulas(run: PlannedRun, *, best_planned: bool) -> tuple[str, ...]:
    """The formulas of a plain run, one a line, the source of each in docs/explanation.

    Args:
        run: As planned.
        best_planned: Whether its interval is the best one.
    """
    return (*_rate(run), *_interval(run, best_planned), *_ettr(run))


def _rate(run: PlannedRun) -> Iterator[str]:
    yield (
        f"λ = N r / 86,400 s = {run.n_nodes:,} × {run.failures_per_node_day:.6g} a day / 86,400 s "
        f"= {run.failures_per_s:.6g} per s"
    ).replace("86,400", f"{SECONDS_PER_DAY:,.0f}")
    yield f"MTTF = 1 / λ = {run.mttf_s:.6g} s = {spell(run.mttf_s)}"


def _interval(run: PlannedRun, best_planned: bool) -> Iterator[str]:
    if not best_planned:
        yield f"Δt = {run.interval_s:.6g} s, as given"
        return
    rate, interval_s, write_s = run.failures_per_s, run.interval_s, run.write_s
    left = (1.0 - rate * interval_s) * math.exp(min(700.0, rate * (interval_s + write_s)))
    finite = " (before it is fitted to whole intervals)" if math.isfinite(run.productive_s) else ""
    yield (
        f"Δt solves (1 − λΔt) e^(λ(Δt + w)) = 1{finite}: Δt = {interval_s:.6g} s, where the left "
        f"side is {left:.6g}"
    )


def _ettr(run: PlannedRun) -> Iterator[str]:
    rate, interval_s = run.failures_per_s, run.interval_s
    load, restart = rate * (interval_s + run.write_s), rate * run.restart_s
    if math.isinf(run.productive_s):
        form = "ETTR = λΔt e^(−λu0) / [(1 + λq) (e^(λ(Δt + w)) − 1)]"
        work, queue = f"{rate * interval_s:.6g}", f"{rate * run.queue_s:.6g}"
        numbers = f"{work} × e^(−{restart:.6g}) / [(1 + {queue}) × (e^{load:.6g} − 1)]"
        yield f"{form} = {numbers} = {exact_ettr(run):.6g}"
        return
    segment = "E[S(x)] = (1/λ + q) e^(λu0) (e^(λ(x + w)) − 1)"
    yield (
        f"E[W] = E[D] + (K − 1) E[S(Δt)] + E[S(rest)] with {segment}, "
        f"= {expected_wallclock_s(run):.6g} s for R = {run.productive_s:.6g} s of work; "
        f"{expected_failures(run):.4g} failures expected"
    )
    yield f"ETTR = R / E[W] = {exact_ettr(run):.6g}"
