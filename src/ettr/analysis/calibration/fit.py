"""`ettr simulate fit`: a scenario from a site's own history, and its jobs from its accounting.

The jobs: their arrivals, sizes, lengths, ends, owners and priorities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from ettr.analysis.analysis import Analysis
from ettr.analysis.calibration.fit_faults import fit_faults
from ettr.analysis.calibration.record import (
    OWN_ENDS,
    Z90,
    Attempts,
    Fitted,
    Flags,
    Machine,
    Places,
    ScenarioMaker,
    SiteRecord,
    site_record,
    whole_sizes,
    work_of,
)
from ettr.errors import UsageError
from ettr.estimates.exact import share_interval
from ettr.metrics.instants import Floats, to_seconds
from ettr.metrics.survival import durations
from ettr.models.data import Lifetimes
from ettr.models.log_location_scale import Lognormal
from ettr.selection import Selection
from ettr.sim.cluster.scenario import (
    MOST_GPUS_PER_NODE,
    ClusterScenario,
    scenario_of,
    scenario_text,
    text_of,
)
from ettr.sim.cluster.scenario_parts import JobClass, Priority
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import counted

MOST_SIZES = 12
LEAST_LENGTHS = 8
"""Jobs of one size that must have ended for a law of their own."""
UNKNOWN_ERROR = 1.5
"""Standard error of a logarithm or a logit of which the logs say next to nothing."""
_RESUBMITTED_S = 12 * SECONDS_PER_HOUR
_WEEKEND = 5


def fit_jobs(
    maker: ScenarioMaker,
    attempts: Attempts,
    machine: Machine,
    begin_s: float,
    end_s: float,
    saves: tuple[float, int] | None = None,
) -> None:
    """Fit all that accounting shows; attempts submitted later are left out, later ends unknown.

    Args:
        saves: seconds between checkpoints that training recorded, and of how many.
    """
    interval = None
    if saves is not None:
        interval_s = max(1, round(saves[0] - maker.base.checkpoints.write_s))
        interval = Fitted(interval_s, f"{saves[1]:,} checkpoints of recorded training")
        rules = replace(maker.base.checkpoints, interval_s=interval_s)
        maker.base = replace(maker.base, checkpoints=rules)
    known = (attempts.submit_s >= begin_s) & (attempts.submit_s < end_s)
    follows = _resubmissions(attempts, end_s)
    again = follows >= 0
    new = attempts.is_first & known & ~again
    _arrivals(maker, attempts, new, begin_s, end_s)
    sizes, classes = _sizes(attempts, new, machine)
    if unsized := int((new & np.isnan(sizes)).sum()):
        maker.notes.append(
            f"{unsized:,} of {int(new.sum()):,} jobs do not say how many {machine.unit} they ask "
            "for: they are taken to be of the sizes of the others."
        )
    _lengths(maker, attempts, machine, known, end_s, follows, sizes, classes)
    _outcomes(maker, attempts, known, end_s)
    _owners(maker, attempts, known)
    _priorities(maker, attempts, new, machine)
    _scheduling(maker, attempts, known, end_s)
    _resubmitting(maker, attempts, follows, known, end_s, interval)


def _resubmissions(attempts: Attempts, end_s: float) -> Places:
    """By which first attempts an owner submits again what the infrastructure ended as FAILED."""
    broken = attempts.failed & (attempts.state == "FAILED") & (attempts.end_s < end_s)
    sizes = np.nan_to_num(attempts.size)
    open_ones: dict[tuple[str, str, float], list[int]] = {}
    for i in np.nonzero(broken & (attempts.name != ""))[0].tolist():
        open_ones.setdefault((attempts.user[i], attempts.name[i], sizes[i]), []).append(i)
    follows = np.full(len(attempts), -1, dtype=np.int64)
    if not open_ones:
        return follows
    order = np.argsort(attempts.submit_s, kind="stable")
    for i in order[attempts.is_first[order]].tolist():
        ended = open_ones.get((attempts.user[i], attempts.name[i], sizes[i]), [])
        for before in ended:
            if 0 <= attempts.submit_s[i] - attempts.end_s[before] <= _RESUBMITTED_S:
                follows[i] = before
                ended.remove(before)
                break
    return follows


def lengths_of(
    attempts: Attempts,
    follows: Places,
    base: ClusterScenario,
    machine: Machine,
    known: Flags,
    end_s: float,
) -> tuple[Floats, Flags, Flags]:
    """How long each piece of work takes, whatever the ids under which it was submitted.

    Args:
        follows: The attempt from which each one goes on under another id; -1 for none.

    Returns:
        Work at each attempt, whether it came to its end there, and whether no attempt at the same
        work comes later.
    """
    work = np.arange(int(attempts.job.max()) + 1)
    (again,) = np.nonzero((follows >= 0) & known)
    for i in again[np.argsort(attempts.submit_s[again], kind="stable")].tolist():
        work[attempts.job[i]] = work[attempts.job[follows[i]]]
    whole = replace(attempts, job=work[attempts.job])
    silence_s = base.checks.heartbeat_s
    work_s, ended = work_of(whole, base.checkpoints, silence_s, machine, known, end_s)
    has_later = np.append(known[1:], False) & ~attempts.is_last
    has_later[follows[again]] = True
    return work_s, ended, known & ~has_later & (attempts.start_s < end_s) & (work_s > 0)


def _arrivals(
    maker: ScenarioMaker, attempts: Attempts, new: Flags, begin_s: float, end_s: float
) -> None:
    times_s = attempts.submit_s[new & (attempts.submit_s >= begin_s)]
    days = (end_s - begin_s) / SECONDS_PER_DAY
    n = times_s.size
    daily = np.bincount(((times_s - begin_s) // SECONDS_PER_DAY).astype(int), minlength=int(days))
    first_day = int(begin_s // SECONDS_PER_DAY)
    weekday = (first_day + 3 + np.arange(daily.size)) % 7  # 1970-01-01 was a Thursday
    is_weekend = weekday >= _WEEKEND
    weekend, week = daily[is_weekend], daily[~is_weekend]
    factor = None
    if weekend.size >= 4 and week.sum() and weekend.sum():
        ratio = float(weekend.mean() / week.mean())
        spread = math.hypot(_mean_error(weekend), _mean_error(week))
        what = f"{weekend.size} days of weekends"
        factor = Fitted(
            ratio, what, ratio * math.exp(-Z90 * spread), ratio * math.exp(Z90 * spread)
        )
    expected = np.where(is_weekend, weekend.mean() if weekend.size else 0.0, week.mean())
    index = (
        max(
            1.0,
            float(np.sum((daily - expected) ** 2 / np.maximum(expected, 1e-9)))
            / max(1, daily.size - 2),
        )
        if daily.size > 3
        else 1.0
    )
    half = Z90 * math.sqrt(max(n, 1) * index)
    known_factor = maker.base.arrivals.weekend_factor if factor is None else float(factor.value)
    # days of a mean week that have as many jobs as those days
    days = (week.size + known_factor * weekend.size) / ((5.0 + 2.0 * known_factor) / 7.0)
    rate = Fitted(
        n / days,
        f"{n:,} jobs in {daily.size} days, variance of days over Poisson's {index:.2g}",
        max(0.0, n - half) / days,
        (n + half) / days,
    )
    # a simulation has one rate from each full hour to the next, the highest from the peak on
    hours = times_s % SECONDS_PER_DAY // SECONDS_PER_HOUR
    angle = 2.0 * math.pi * hours / 24.0
    wave = complex(np.cos(angle).mean(), np.sin(angle).mean()) if n else 0j
    amplitude = min(0.95, 2.0 * abs(wave))
    known = n >= 100
    error = math.sqrt(2.0 * index / max(n, 1))
    hour = (math.atan2(wave.imag, wave.real) / (2.0 * math.pi) * 24.0) % 24.0
    maker.part(
        "arrivals",
        jobs_per_day=rate,
        day_amplitude=Fitted(
            amplitude,
            "first harmonic of the hours of submission",
            max(0.0, amplitude - Z90 * error),
            min(0.99, amplitude + Z90 * error),
        )
        if known
        else None,
        peak_hour=Fitted(hour, "the same") if known else None,
        weekend_factor=factor,
    )


def _mean_error(counts: npt.NDArray[np.generic]) -> float:
    """Standard error of the logarithm of a mean of counts of days."""
    return max(
        float(counts.std(ddof=1)) / math.sqrt(counts.size),
        math.sqrt(counts.mean()) / math.sqrt(counts.size),
    ) / max(float(counts.mean()), 1e-9)


def _sizes(attempts: Attempts, new: Flags, machine: Machine) -> tuple[Floats, Floats]:
    """The size of each attempt as a scenario has it, and the sizes that are distinguished."""
    whole = np.minimum(whole_sizes(attempts, machine), machine.n_nodes * machine.per_node)
    kinds, counts = np.unique(whole[new & ~np.isnan(whole)], return_counts=True)
    weight = counts / counts.sum() + kinds * counts / (kinds @ counts)
    kept = np.sort(kinds[np.argsort(-weight)[:MOST_SIZES]])
    nearest = np.abs(np.log(np.where(np.isnan(whole), 1.0, whole))[:, None] - np.log(kept)[None, :])
    made = np.where(np.isnan(whole), np.nan, kept[np.argmin(nearest, axis=1)])
    return made, kept


def _lengths(
    maker: ScenarioMaker,
    attempts: Attempts,
    machine: Machine,
    known: Flags,
    end_s: float,
    follows: Places,
    sizes: Floats,
    classes: Floats,
) -> None:
    work_s, ended, last = lengths_of(attempts, follows, maker.base, machine, known, end_s)
    new = attempts.is_first & known & (follows < 0) & ~np.isnan(sizes)
    total = int(new.sum())
    is_requeued = _requeued(attempts, known, end_s)
    pooled = _law(work_s[last], ended[last], "jobs of all sizes")
    entries: list[tuple[JobClass, dict[str, Fitted | None]]] = []
    for gpus in classes.tolist():
        n = int((new & (sizes == gpus)).sum())
        if not n:
            continue
        own = last & (sizes == gpus)
        law = pooled
        if int(ended[own].sum()) >= LEAST_LENGTHS:
            law = _law(work_s[own], ended[own], f"{int(own.sum()):,} jobs")
        else:
            maker.assumed(f"length of {gpus:.0f}-{machine.unit[:-1]} jobs (too few; as of all)")
        share = share_interval(n, total)
        entries.append(
            (
                JobClass(1, 0.0, 1.0, 0.0),
                {
                    "gpus": Fitted(gpus, f"{machine.unit} asked for"),
                    "share": Fitted.of(share, f"{n:,} of {total:,} jobs"),
                    "requeued_share": _requeued_share(is_requeued[new & (sizes == gpus)]),
                    **law,
                },
            )
        )
    shares = sum(values["share"].value for _, values in entries)  # type: ignore[union-attr, misc]
    if abs(shares - 1.0) > 1e-9:
        raise AssertionError(f"shares of sizes sum to {shares}")
    maker.entries("jobs", entries)  # type: ignore[arg-type]


def _requeued(attempts: Attempts, known: Flags, end_s: float) -> Flags:
    """Attempts of jobs that somebody put back into the queue, and not the infrastructure."""
    own = known & (attempts.state == "REQUEUED") & ~attempts.failed & (attempts.end_s < end_s)
    return np.isin(attempts.job, attempts.job[own])


def _requeued_share(is_requeued: Flags) -> Fitted:
    n, of = int(is_requeued.sum()), is_requeued.size
    return Fitted.of(share_interval(n, of), f"{n:,} of {of:,} jobs were put back")


def _law(work_s: Floats, ended: Flags, what: str) -> dict[str, Fitted | None]:
    """Mean, sigma and law of lengths, some of which are only known to be at least so long."""
    found = durations(work_s / SECONDS_PER_HOUR, ended)
    fit = Lognormal().fit(Lifetimes(work_s, ended))
    sigma = fit.parameter("sigma")
    median_s = fit.parameter("median")
    n, total_s = int(ended.sum()), float(work_s.sum())
    exponential = -n * math.log(total_s / n) - n
    of = f"{what}, {n:,} of which ended by themselves"
    if fit.log_likelihood is not None and exponential + 1.0 > fit.log_likelihood:
        half = Z90 / math.sqrt(n)
        mean_s = total_s / n
        return {
            "mean_s": Fitted(mean_s, of, mean_s * math.exp(-half), mean_s * math.exp(half)),
            "sigma": Fitted(0.0, of),
            "law": Fitted("exponential", of),
        }
    value = min(sigma.estimate or 0.0, 5.0)
    mean_s = (median_s.estimate or 1.0) * math.exp(value * value / 2.0)
    half = _log_half(median_s.low, median_s.high)
    half = math.hypot(half, value * (sigma.high - sigma.low) / 2.0)
    seen_s = found.mean_h.estimate
    if seen_s is not None and n > 0.9 * ended.size:
        seen_s *= SECONDS_PER_HOUR
        if seen_s > 0 and abs(math.log(seen_s / mean_s)) > 2.0 * half / Z90:
            # no lognormal law: keep the mean, which decides the load, and the median
            mean_s = seen_s
            ratio = max(mean_s / (found.median_h.estimate or 1.0) / SECONDS_PER_HOUR, 1.0)
            value = min(math.sqrt(2.0 * math.log(ratio)), 5.0)
            of += "; no lognormal law, mean and median kept"
            mean = Fitted.of(found.mean_h.scaled(SECONDS_PER_HOUR), of)
            return {"mean_s": mean, "sigma": Fitted(value, of), "law": Fitted("lognormal", of)}
    return {
        "mean_s": Fitted(mean_s, of, mean_s * math.exp(-half), mean_s * math.exp(half)),
        "sigma": Fitted(value, of, min(sigma.low, value), max(min(sigma.high, 5.0), value)),
        "law": Fitted("lognormal", of),
    }


def _log_half(low: float, high: float) -> float:
    return math.log(high / low) / 2.0 if low > 0 and high < math.inf else 1.0


def _outcomes(maker: ScenarioMaker, attempts: Attempts, known: Flags, end_s: float) -> None:
    ran = known & (attempts.end_s < end_s) & ~np.isnan(attempts.start_s) & ~attempts.failed
    own = ran & np.isin(attempts.state.astype(str), OWN_ENDS)
    total = int(own.sum())
    values: dict[str, Fitted | None] = {}
    for name, state in (
        ("failed_share", "FAILED"),
        ("cancelled_share", "CANCELLED"),
        ("out_of_memory_share", "OUT_OF_MEMORY"),
        ("timeout_share", "TIMEOUT"),
    ):
        n = int((attempts.state[own] == state).sum())
        values[name] = (
            Fitted.of(share_interval(n, total), f"{n:,} of {total:,} ends") if total else None
        )
    values |= _patience(maker, attempts, known, end_s)
    limits = attempts.limit_s / (attempts.end_s - attempts.start_s)
    asked_s = attempts.limit_s[known & (attempts.limit_s > 0)]
    longest = asked_s.max() if asked_s.size else math.nan
    usual = own & (attempts.state == "COMPLETED") & (limits >= 1) & (attempts.limit_s < longest)
    if int(usual.sum()) >= LEAST_LENGTHS:
        # log-uniform from 1 to F: the mean of the logarithm is log(F) / 2
        value = float(np.clip(np.exp(2.0 * np.median(np.log(limits[usual]))), 1.0, 1e6))
        values["longest_limit_factor"] = Fitted(value, f"limits of {int(usual.sum()):,} jobs")
    maker.part("outcomes", "", **values)


def _patience(
    maker: ScenarioMaker, attempts: Attempts, known: Flags, end_s: float
) -> dict[str, Fitted | None]:
    """Share of owners who cancel a job that waits, and after how long, by maximum likelihood."""
    from scipy.optimize import minimize

    first = known & attempts.is_first
    gone = first & np.isnan(attempts.start_s) & (attempts.state == "CANCELLED")
    gone &= attempts.end_s < end_s
    until_s = np.where(gone, attempts.end_s, np.fmin(attempts.start_s, end_s))
    until_s = np.where(np.isnan(until_s), end_s, until_s)
    wait_s = np.maximum(until_s - attempts.submit_s, 0.0)
    n = int(gone.sum())
    if n < 5:
        maker.assumed("outcomes.impatient_share, mean_patience_s: few jobs were cancelled waiting")
        return {"impatient_share": Fitted(0.0, f"{n} jobs cancelled while waiting")}
    left_s, stayed_s = wait_s[gone], wait_s[first & ~gone]

    def loss(point: Floats) -> float:
        share = 1.0 / (1.0 + math.exp(-float(point[0])))
        mean_s = math.exp(float(np.clip(point[1], 0.0, 20.0)))
        stay = np.log1p(-share + share * np.exp(-stayed_s / mean_s))
        leave = math.log(share) - math.log(mean_s) - left_s / mean_s
        prior = ((point[1] - math.log(maker.base.outcomes.mean_patience_s)) / 2.0) ** 2 / 2.0
        return -float(stay.sum() + leave.sum()) + float(prior)

    start = np.array([-2.0, math.log(max(float(left_s.mean()), 60.0))])
    found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400})
    point = np.array([float(found.x[0]), float(np.clip(found.x[1], 0.0, 20.0))])
    half = Z90 * _standard_errors(loss, point)
    low, share, high = (1.0 / (1.0 + math.exp(-x)) for x in point[0] + half[0] * np.arange(-1, 2))
    low_s, mean_s, high_s = np.exp(point[1] + half[1] * np.arange(-1, 2)).tolist()
    what = f"{n} jobs cancelled while waiting"
    return {
        "impatient_share": Fitted(share, what, low, high),
        "mean_patience_s": Fitted(mean_s, what, low_s, high_s),
    }


def _standard_errors(loss: Callable[[Floats], float], point: Floats) -> Floats:
    """Errors of two parameters at the minimum of a negative log-likelihood, the other unknown."""
    step = 0.05
    hessian = np.empty((2, 2))
    for i, j in ((0, 0), (0, 1), (1, 1)):
        a, b = np.zeros(2), np.zeros(2)
        a[i] = b[j] = step
        second = loss(point + a + b) - loss(point + a - b) - loss(point - a + b)
        hessian[i, j] = hessian[j, i] = (second + loss(point - a - b)) / (4.0 * step * step)
    unknown = np.full(2, UNKNOWN_ERROR)
    if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] <= 0:
        return unknown
    made: Floats = np.minimum(np.sqrt(np.diag(np.linalg.inv(hessian))), unknown)
    return made


def _owners(maker: ScenarioMaker, attempts: Attempts, known: Flags) -> None:
    users = {one for one in attempts.user[known].tolist() if one}
    n = len(users)
    maker.part("users", users=Fitted(n, "names in accounting") if n else None)


def _priorities(maker: ScenarioMaker, attempts: Attempts, new: Flags, machine: Machine) -> None:
    """Qualities of service in the order of their priorities."""
    gang = attempts.size >= machine.per_node
    names = Counter(attempts.qos[new].tolist())
    if not names or set(names) == {""}:
        one = Priority("all", 1, 1.0, 1.0)
        maker.assumed("priorities (the log names no quality of service)")
        maker.entries("priorities", [(one, {})])
        return
    levels = {
        name: float(
            np.nan_to_num(
                np.nanmedian(np.append(attempts.priority[new & (attempts.qos == name)], 0.0))
            )
        )
        for name in names
    }
    order = sorted(names, key=lambda name: (levels[name], name))
    distinct = len(set(levels.values())) == len(levels)
    if not distinct and len(order) > 1:
        maker.assumed("priorities.level (the log does not order them; all are alike)")
    whole = {True: int((new & gang).sum()), False: int((new & ~gang).sum())}
    entries: list[tuple[Priority, dict[str, Fitted | None]]] = []
    for rank, name in enumerate(order):
        counts = {
            side: int((new & (gang == side) & (attempts.qos == name)).sum()) for side in whole
        }
        share = {
            side: counts[side] / whole[side] if whole[side] else 1.0 / len(order) for side in whole
        }
        entries.append(
            (
                Priority(name or "none", 10, 0.0, 0.0),
                {
                    "name": Fitted(name or "none", "quality of service"),
                    "level": Fitted(10 * (rank + 1) if distinct else 10, "order of priorities"),
                    "share_of_shared": Fitted(share[False], f"{counts[False]:,} jobs"),
                    "share_of_gangs": Fitted(share[True], f"{counts[True]:,} jobs"),
                },
            )
        )
    maker.entries("priorities", entries)  # type: ignore[arg-type]


def _scheduling(maker: ScenarioMaker, attempts: Attempts, known: Flags, end_s: float) -> None:
    over = known & (attempts.end_s < end_s)
    preempted = over & (attempts.state == "PREEMPTED")
    n = int(preempted.sum())
    limits_s = attempts.limit_s[known & (attempts.limit_s > 0)]
    delay_s = (attempts.eligible_s - attempts.submit_s)[over & ~attempts.is_first]
    delay_s = delay_s[delay_s >= 0]
    ran_s = (attempts.end_s - attempts.start_s)[preempted]
    maker.part(
        "scheduling",
        preemption=Fitted("newest-first" if n else "none", f"{n:,} attempts were preempted"),
        preempt_after_s=Fitted(float(np.floor(ran_s.min())), f"shortest of {n:,} preempted")
        if n >= 10
        else None,
        longest_job_s=Fitted(float(limits_s.max()), "longest time limit")
        if limits_s.size
        else None,
        requeue_delay_s=Fitted(float(np.median(delay_s)), f"{delay_s.size:,} requeues")
        if delay_s.size >= 5
        else None,
    )


def _resubmitting(
    maker: ScenarioMaker,
    attempts: Attempts,
    follows: Places,
    known: Flags,
    end_s: float,
    interval: Fitted | None,
) -> None:
    """Share of the jobs which faults ended that come again, and the interval of checkpoints."""
    broken = known & attempts.failed & (attempts.state == "FAILED") & (attempts.name != "")
    broken &= attempts.end_s <= end_s - _RESUBMITTED_S
    comes_again = np.zeros(len(attempts), dtype=np.bool_)
    comes_again[follows[follows >= 0]] = True
    total, n = int(broken.sum()), int((broken & comes_again).sum())
    if total < 10:
        maker.part("checkpoints", "no scheduler records it", interval_s=interval)
        return
    maker.part(
        "checkpoints",
        "no scheduler records it",
        interval_s=interval,
        resubmit_chance=Fitted.of(
            share_interval(n, total), f"{n} of {total} jobs that faults ended"
        ),
    )


BASE = "rsc-1-like"
LEAST_DAYS = 3.0
LEAST_JOBS = 50


@dataclass(frozen=True, slots=True)
class SiteFit:
    """A scenario fitted to a site.

    Attributes:
        not_fitted: Values that the logs cannot bear: those of the base, or assumed without it.
    """

    scenario: ClusterScenario
    text: str
    store: str
    since: str
    until: str
    fitted: int
    values: int
    not_fitted: tuple[str, ...]
    notes: tuple[str, ...]


def fit_site(analysis: Analysis, name: str, until: datetime | None = None) -> SiteFit:
    """Fit a scenario to a store's logs.

    Args:
        name: Of the store; the scenario is called `NAME-fit`.
        until: End of the part that is fitted, at midnight UTC; all of the logs where None.

    Raises:
        UsageError: too little is left to fit.
    """
    record = site_record(analysis)
    begin, end = fitted_days(analysis, until)
    whole = begin <= analysis.logs_period.start
    part = analysis.of(Selection(since=None if whole else begin, until=end))
    simulated = analysis.selection_head.simulated
    origin = f"simulated {name}" if simulated else name
    maker = ScenarioMaker(scenario_of(scenario_text(BASE)[0]), origin)
    if simulated:
        maker.notes.append(f"{name} is not a real cluster. {simulated}")
    maker.notes.extend(_doubts(analysis))
    _machines(maker, analysis, record.machine)
    maker.notes.extend(_without_gpus(record))
    begin_s, end_s = to_seconds(begin), to_seconds(end)
    days = (end_s - begin_s) / SECONDS_PER_DAY
    maker.part(
        "period",
        start=Fitted(begin.date().isoformat(), "first day of the logs"),
        days=Fitted(days, "days of the logs"),
    )
    _fit_jobs(maker, record, begin_s, end_s)
    fit_faults(maker, part, record.machine, end_s)
    scenario = maker.scenario(f"{name}-fit")
    since, last = begin.date().isoformat(), end.date().isoformat()
    text = text_of(scenario, _head(maker, since, last))
    fitted = sum(one.startswith("fitted") for one in scenario.sources.values())
    return SiteFit(
        scenario,
        text,
        origin,
        since,
        last,
        fitted,
        len(scenario.sources),
        tuple(maker.not_fitted),
        tuple(maker.notes),
    )


def _doubts(analysis: Analysis) -> Iterator[str]:
    """What makes the logs another history than that of their period, a sentence each."""
    if _known_from(analysis) > analysis.logs_period.start:
        yield (
            "Fitted from the first whole day on of which the logs know more than what outlasted "
            "it (the report's data quality says what that is)."
        )
    if analysis.left_out is not None:
        yield from analysis.left_out.certain


def fitted_days(analysis: Analysis, until: datetime | None) -> tuple[datetime, datetime]:
    """Midnights between which a store is fitted.

    The first is that of the period; where the logs begin in the middle of jobs or outages, that
    after they do: what was over by then is missing.
    """
    period = analysis.logs_period
    begin = datetime.combine(period.start.astimezone(UTC).date(), datetime.min.time(), UTC)
    known_from = _known_from(analysis)
    if known_from > period.start:
        day = known_from.astimezone(UTC).date() + timedelta(days=1)
        begin = datetime.combine(day, datetime.min.time(), UTC)
    days = math.ceil((period.end - begin).total_seconds() / SECONDS_PER_DAY)
    last = begin + timedelta(days=days)
    if until is not None and until > last:
        raise UsageError(
            f"--until {until.date()}: the logs end on {period.end.astimezone(UTC).date()}; days "
            "after them would count as days without jobs and failures"
        )
    end = last if until is None else until
    left_days = max(0.0, (end - begin).total_seconds() / SECONDS_PER_DAY)
    if left_days < LEAST_DAYS:
        raise UsageError(
            f"{analysis.store.where}: {left_days:.1f} days are left to fit, as the logs can be "
            f"fitted from {begin.date()} to {last.date()} and the fit would end on {end.date()}; "
            f"give {LEAST_DAYS:g} days or more"
        )
    return begin, end


def _known_from(analysis: Analysis) -> datetime:
    ends = [one.first_end for one in analysis.dump_windows if one.first_end is not None]
    if analysis.early_start is not None:
        ends.append(analysis.early_start.known_from)
    return max([analysis.logs_period.start, *ends])


def _fit_jobs(maker: ScenarioMaker, record: SiteRecord, begin_s: float, end_s: float) -> None:
    attempts = record.attempts
    submitted = (attempts.submit_s >= begin_s) & (attempts.submit_s < end_s)
    n = int((attempts.is_first & submitted).sum())
    if record.has_jobs and n >= LEAST_JOBS:
        saves = record.save_interval_s(begin_s, end_s)
        fit_jobs(maker, attempts, record.machine, begin_s, end_s, saves)
        return
    if record.has_jobs:
        raise UsageError(
            f"{n} jobs were submitted in the part that is fitted; a fit takes {LEAST_JOBS} or more"
        )
    maker.part("arrivals", "no accounting", jobs_per_day=Fitted(0.0, "no jobs in the logs"))
    per_node = record.machine.per_node
    one = replace(maker.base.jobs[0], gpus=min(per_node, maker.base.jobs[0].gpus), share=1.0)
    maker.entries("jobs", [(one, {})])
    maker.entries("priorities", [(one_, {}) for one_ in maker.base.priorities])
    for group in ("outcomes", "users", "scheduling", "checkpoints"):
        maker.part(group, "no accounting")


def _machines(maker: ScenarioMaker, analysis: Analysis, machine: Machine) -> None:
    """Nodes, racks and pods; all nodes are alike in a scenario."""
    if machine.per_node > MOST_GPUS_PER_NODE:
        raise UsageError(
            f"nodes have {machine.per_node} {machine.unit}; a scenario has at most "
            f"{MOST_GPUS_PER_NODE}"
        )
    rows = analysis.facts.rows("nodes")
    rows = [row for row in rows if machine.has(row["cluster"], row["node"])]
    racks = Counter(row["rack"] for row in rows if row["rack"])
    pods = {(row["pod"], row["rack"]) for row in rows if row["pod"] and row["rack"]}
    alike = [row for row in rows if row["n_gpus"] in (machine.per_node, None)] or rows
    types = Counter(row["gpu_type"] for row in alike if row["gpu_type"])
    kinds = {(row["gpu_type"], row["n_gpus"]) for row in rows}
    if len(kinds) > 1:
        maker.notes.append(
            f"The nodes are of {len(kinds)} kinds; the scenario has only the most frequent one."
        )
    maker.notes.extend(_other_total(analysis, machine))
    if machine.unit != "GPUs":
        maker.notes.append(f"No job names GPUs, so {machine.unit} are counted instead.")
    n_pods = len({pod for pod, _ in pods})
    maker.part(
        "machines",
        nodes=Fitted(
            machine.n_nodes,
            "nodes with GPUs that the logs name" if machine.bare else "nodes that the logs name",
        ),
        gpus_per_node=Fitted(machine.per_node, f"most frequent; {machine.unit}"),
        nodes_per_rack=Fitted(float(np.median(list(racks.values()))), f"{len(racks)} racks")
        if racks
        else None,
        racks_per_pod=Fitted(max(1.0, len(pods) / n_pods), f"{n_pods} pods") if pods else None,
        gpu_type=Fitted(types.most_common(1)[0][0], "inventory") if types else None,
    )


def _without_gpus(record: SiteRecord) -> Iterator[str]:
    """What has no GPUs and is left out, where others have some."""
    if nodes := len(record.machine.bare):
        yield (
            f"{counted(nodes, 'node')} without GPUs {'is' if nodes == 1 else 'are'} left out, with "
            "the faults, the outages and the time in service there."
        )
    if jobs := record.bare_jobs:
        yield (
            f"{counted(jobs, 'job')} that {'asks' if jobs == 1 else 'ask'} for no GPUs "
            f"{'is' if jobs == 1 else 'are'} left out."
        )


def _other_total(analysis: Analysis, machine: Machine) -> Iterator[str]:
    """That nodes which are all alike have more or fewer GPUs together than those of the logs."""
    gpus_of = analysis.logs_fleet.gpus.items()
    known = [gpus for node, gpus in gpus_of if machine.has(*node) and not math.isnan(gpus)]
    unknown = machine.n_nodes - len(known)
    total = round(sum(known)) + unknown * machine.per_node
    made = machine.n_nodes * machine.per_node
    if machine.unit != "GPUs" or total == made:
        return
    yield (
        f"{machine.n_nodes:,} nodes of {machine.per_node} GPUs have {made:,}, and those of the "
        f"logs {total:,}: the scenario has {'more' if made > total else 'fewer'} GPUs than the "
        "cluster, so that its queue, its waits and its utilisation are those of another one, "
        "and a back-test takes the utilisation of both as a share of that number."
    )


def _head(maker: ScenarioMaker, since: str, until: str) -> list[str]:
    lines = [
        f"Fitted to {maker.origin}, {since} until {until}, by ettr simulate fit.",
        "low and high are the ends of 90 % intervals; a back-test draws each such value from its "
        "own.",
    ]
    return lines + [f"Not fitted: {one}" for one in maker.not_fitted] + maker.notes
