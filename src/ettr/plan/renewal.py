"""Expected ETTR by the exact renewal form: failures strike at any time the run holds its nodes.

Assumptions, all of them: the run fails at a constant rate λ while it restarts, trains (catching up
included) and writes, and not while it waits; a failure in a restart means another wait and a
restart from its beginning; a failure in a write loses the write and the interval before it; each
attempt starts from the last complete checkpoint; the run ends with a write of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.plan.run import PlannedRun, SimulatedRun
from ettr.words import spell


def long_run_ettr(
    failures_per_s: float, interval_s: float, write_s: float, restart_s: float, queue_s: float
) -> float:
    """ETTR of a run without end: λΔt e^(-λu0) / [(1 + λq)(e^(λ(Δt + w)) - 1)].

    Unchecked and fast, for grids; `exact_ettr` is the checked one.

    **Source**: derived in docs/explanation/ettr-models.md.
    """
    segment_s = interval_s + write_s
    load = failures_per_s * segment_s
    # below this the next term of the series is under the precision of a float
    if load < 1e-300:
        return interval_s / segment_s
    # exponents below 0 only, so that nothing overflows
    gone = math.exp(-failures_per_s * restart_s - load) / -math.expm1(-load)
    return failures_per_s * interval_s * gone / (1.0 + failures_per_s * queue_s)


def exact_ettr(run: PlannedRun) -> float:
    """ETTR of a run: productive time over expected wall-clock, 0 where that is beyond a float.

    **Source**: derived in docs/explanation/ettr-models.md.
    """
    if math.isinf(run.productive_s):
        return long_run_ettr(
            run.failures_per_s, run.interval_s, run.write_s, run.restart_s, run.queue_s
        )
    return run.productive_s / expected_wallclock_s(run)


def ettr_by_rate(run: PlannedRun) -> Callable[[float], float]:
    """Exact ETTR of `run` as a function of the failures per day of the whole run.

    The checkpoint interval stays as it is: it is chosen once, before the true rate is known, so a
    band at the best interval of each rate would promise too much.
    """

    def ettr(failures_per_day: float) -> float:
        return exact_ettr(replace(run, failures_per_node_day=failures_per_day / run.n_nodes))

    return ettr


def segments(run: PlannedRun) -> tuple[int, float]:
    """Full intervals of a run, and the productive seconds of the last one, shorter or equal.

    The first number does not count the last segment.
    """
    # a hair less than one more, so that 10 intervals of 0.1 s make 1 s
    n_full = max(0, math.ceil(run.productive_s / run.interval_s * (1.0 - 1e-12)) - 1)
    return n_full, run.productive_s - n_full * run.interval_s


def expected_segment_s(run: PlannedRun, productive_s: float) -> float:
    """Expected wall-clock for `productive_s` of work and its write: (1/λ + q) e^(λu0) (e^(λL) - 1).

    **Source**: derived in docs/explanation/ettr-models.md.
    """
    rate = run.failures_per_s
    length_s = productive_s + run.write_s
    try:
        if not rate:
            return length_s
        grown = math.expm1(rate * length_s) / rate
        return grown * (1.0 + rate * run.queue_s) * math.exp(rate * run.restart_s)
    except OverflowError:
        return math.inf


def expected_recovery_s(run: PlannedRun) -> float:
    """Expected wait and restarts until the run trains: q e^(λu0) + (e^(λu0) - 1)/λ."""
    rate = run.failures_per_s
    if not rate:
        return run.queue_s + run.restart_s
    try:
        return run.queue_s * math.exp(rate * run.restart_s) + (
            math.expm1(rate * run.restart_s) / rate
        )
    except OverflowError:
        return math.inf


def expected_wallclock_s(run: PlannedRun) -> float:
    """Expected wall-clock of a run from submission to its last write; infinite for the long run."""
    if math.isinf(run.productive_s):
        return math.inf
    n_full, last_s = segments(run)
    full_s = n_full * expected_segment_s(run, run.interval_s) if n_full else 0.0
    return expected_recovery_s(run) + full_s + expected_segment_s(run, last_s)


def expected_failures(run: PlannedRun) -> float:
    """Failures expected until a run is done: λ times the time in which it holds nodes."""
    rate = run.failures_per_s
    if not rate:
        return 0.0
    if math.isinf(run.productive_s):
        return math.inf
    n_full, last_s = segments(run)
    try:
        per_segment = n_full * math.expm1(rate * (run.interval_s + run.write_s)) if n_full else 0.0
        once = math.expm1(rate * (last_s + run.write_s))
        return math.expm1(rate * run.restart_s) + math.exp(rate * run.restart_s) * (
            per_segment + once
        )
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Shares of the wall-clock time of a long run; they sum to 1."""

    productive: float
    writing: float
    lost: float
    restarting: float
    queued: float


def time_shares(run: PlannedRun) -> TimeShares:
    """Shares of the wall-clock time of a long run; `productive_s` is not used."""
    rate, length_s = run.failures_per_s, run.interval_s + run.write_s
    ettr = long_run_ettr(rate, run.interval_s, run.write_s, run.restart_s, run.queue_s)
    if not rate:
        return TimeShares(ettr, 1.0 - ettr, 0.0, 0.0, 0.0)
    waiting = rate * run.queue_s / (1.0 + rate * run.queue_s)
    held = 1.0 - waiting
    # of the time that nodes are held, training and writing have e^(-λu0)
    training = held * math.exp(-rate * run.restart_s)
    kept = training * rate * length_s * math.exp(-rate * length_s) / -math.expm1(-rate * length_s)
    return TimeShares(
        productive=ettr,
        writing=kept * run.write_s / length_s,
        lost=training - kept,
        restarting=held - training,
        queued=waiting,
    )


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Stops of one length at one distance, from the beginning of one to that of the next."""

    length_s: float
    every_s: float

    def __post_init__(self) -> None:
        """Check the times.

        Raises:
            UsageError: a stop is as long as the time between two, or a time cannot be.
        """
        if not 0 < self.length_s < self.every_s < math.inf:
            raise UsageError(
                f"maintenance of {spell(self.length_s)} every {spell(self.every_s)} leaves no time "
                "to train; give a length above 0 and a longer time between two, such as 4h/30d"
            )


@dataclass(frozen=True, slots=True)
class Maintained:
    """A run with planned maintenance.

    Attributes:
        share: Of the wall-clock, for stops, the saves before and the restarts after them.
    """

    plan: MaintenancePlan
    share: float
    ettr: float
    wallclock_s: float | None


def maintained(run: PlannedRun, plan: MaintenancePlan) -> Maintained:
    """A run with stops: each costs a save, its length and a recovery, and no work.

    The wait in the queue after it is counted, failures during the stop are not.
    """
    once_s = run.write_s + plan.length_s + expected_recovery_s(run)
    share = min(1.0, once_s / plan.every_s)
    ettr = exact_ettr(run) * (1.0 - share)
    finite = math.isfinite(run.productive_s)
    wallclock_s = run.productive_s / ettr if finite and ettr > 0 else math.inf if finite else None
    return Maintained(plan, share, ettr, wallclock_s)


AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Sizes and failure rates at which a page has a run simulated, as factors of its own."""


def simulated_around(
    run: PlannedRun, simulated: SimulatedRun, ettr_of: Callable[[PlannedRun], float]
) -> tuple[tuple[float, ...], ...]:
    """ETTR by simulation over that of the exact form: a row a failure rate, a column a size.

    The middle is the run itself. Intervals of checkpoints follow the failures of the whole run.

    Args:
        ettr_of: simulates a run, roughly.
    """
    middle = simulated.run_ettr(run.productive_s) / exact_ettr(run)
    rows = []
    for of_rate in AROUND:
        row = []
        for of_size in AROUND:
            one = replace(
                run,
                n_nodes=max(1, round(of_size * run.n_nodes)),
                failures_per_node_day=of_rate * run.failures_per_node_day,
                interval_s=run.interval_s / math.sqrt(of_rate * of_size),
            )
            is_own = of_rate == of_size == 1.0
            row.append(middle if is_own else ettr_of(one) / exact_ettr(one))
        rows.append(tuple(row))
    return tuple(rows)
