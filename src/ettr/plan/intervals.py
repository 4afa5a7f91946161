"""The checkpoint interval: Young, Daly, the paper's optimum, the exact one; needed inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, changed
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell


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
        IntervalChoice(rule, at.interval_s, exact_ettr(at), where_valid(second_form_ettr, at))
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


def _time_left(run: PlannedRun) -> float:
    """1 - λ(u0 + Δt/2), the share of scheduled time that is not lost to failures."""
    left = 1.0 - run.lost_share
    if left <= 0:
        raise UsageError(
            f"λ(u0 + Δt/2) is {significant(run.lost_share)} with an interval of "
            f"{spell(run.interval_s)}, a restart of {spell(run.restart_s)} and an MTTF of "
            f"{spell(run.mttf_s)}; the paper's forms need less than 1: shorten the interval or the "
            "restart, use fewer nodes, or use the exact form"
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


def where_valid(form: Callable[[PlannedRun], float], run: PlannedRun) -> float | None:
    """Expected ETTR by one of these forms; None where it has no meaning."""
    return form(run) if run.lost_share < 1.0 else None


# -- Values that a run needs for a target ETTR, one input at a time -------------------------------

ONE_BY_ONE = ("failures_per_node_day", "interval_s", "write_s", "restart_s", "queue_s")
_INPUT_NAMES = {
    "failures_per_node_day": "failure rate",
    "interval_s": "checkpoint interval",
    "write_s": "write time",
    "restart_s": "restart time",
    "queue_s": "queue time",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """The value that one input needs, all others as they are."""

    name: str
    today: float
    at_least: float | None
    at_most: float | None
    best_ettr: float
    sentence: str

    @property
    def reachable(self) -> bool:
        """Whether this input alone can reach the target."""
        return self.at_most is not None


def _checked_target(target: float) -> None:
    if not 0.0 < target < 1.0:
        raise UsageError(
            f"a target ETTR of {target} is not possible; give a share between 0 and 1, such as 0.9"
        )


def requirements(
    run: PlannedRun, target: float, *, keep_best: bool = False
) -> tuple[Requirement, ...]:
    """Needed failure rate, interval, write, restart and queue time, each alone.

    Args:
        keep_best: Let the interval follow to its best as another input moves: at an interval that
            is held, a rare failure leaves too many checkpoints.

    Raises:
        UsageError: a target that is no share.
    """
    _checked_target(target)
    return tuple(required(run, name, target, keep_best=keep_best) for name in ONE_BY_ONE)


def required(run: PlannedRun, name: str, target: float, *, keep_best: bool = False) -> Requirement:
    """The value of `name` alone at which the exact ETTR of `run` reaches `target`.

    With `keep_best` the interval follows to its best (`requirements`).

    Raises:
        UsageError: a target that is no share, or an input that is not one of `ONE_BY_ONE`.
    """
    _checked_target(target)
    if name not in ONE_BY_ONE:
        raise UsageError(f"{name!r} cannot be solved for; give one of {', '.join(ONE_BY_ONE)}")
    today: float = getattr(run, name)

    follows = keep_best and name != "interval_s"

    def ettr_at(value: float) -> float:
        moved = changed(run, name, value)
        if follows and moved.write_s and moved.failures_per_s:
            moved = with_best_interval(moved)
        return exact_ettr(moved)

    if name == "interval_s":
        best_s = best_interval_s(run)
        best = ettr_at(best_s) if best_s else _free_interval_ettr(run)
        if best < target:
            return Requirement(name, today, None, None, best, _short(run, name, target, best))
        least = _crossing(ettr_at, target, best_s, _SHORTEST_S) if best_s > _SHORTEST_S else 0.0
        most = _crossing(ettr_at, target, max(best_s, _SHORTEST_S), math.inf)
        return Requirement(name, today, least, most, best, _range(name, today, least, most, target))
    # at 0 itself there may be no best interval: without failures it is infinite
    least = today * _NEXT_TO_NOTHING if follows else 0.0
    best = ettr_at(least)
    if best < target:
        return Requirement(name, today, None, None, best, _short(run, name, target, best))
    most = _crossing(ettr_at, target, least, math.inf)
    return Requirement(name, today, 0.0, most, best, _range(name, today, 0.0, most, target))


_SHORTEST_S = 1e-3
_NEXT_TO_NOTHING = 1e-9


def best_interval_s(run: PlannedRun) -> float:
    """The interval at which `run` has the highest exact ETTR; 0 where shorter is always better."""
    if run.write_s == 0:
        return 0.0
    if run.failures_per_s == 0:
        return run.productive_s if math.isfinite(run.productive_s) else 1e12
    return with_best_interval(run).interval_s


def _free_interval_ettr(run: PlannedRun) -> float:
    """ETTR as intervals that cost nothing become short: only recoveries are left."""
    finite = math.isfinite(run.productive_s)
    return exact_ettr(changed(run, "interval_s", run.productive_s / 1e7 if finite else _SHORTEST_S))


def _crossing(ettr_at: Callable[[float], float], target: float, good: float, bad: float) -> float:
    """The value between `good` and `bad` at which the target is just reached."""
    if math.isinf(bad):
        bad = max(2.0 * good, 1e-9)
        while ettr_at(bad) >= target:
            bad *= 2.0
            if bad > 1e15:
                return math.inf
    elif ettr_at(bad) >= target:
        return bad
    for _ in range(100):
        middle = (good + bad) / 2.0
        if middle in (good, bad):
            break
        if ettr_at(middle) >= target:
            good = middle
        else:
            bad = middle
    return good


def _in_units(name: str, value: float) -> str:
    if name == "failures_per_node_day":
        return f"{significant(1e3 * value)} failures per 1,000 node-days"
    return spell(value)


def _range(name: str, today: float, least: float, most: float, target: float) -> str:
    called, now = _INPUT_NAMES[name], _in_units(name, today)
    if math.isinf(most):
        allowed = f"must be at least {_in_units(name, least)}" if least else "may take any value"
    elif least > 0:
        allowed = f"may lie between {_in_units(name, least)} and {_in_units(name, most)}"
    else:
        allowed = f"may be at most {_in_units(name, most)}"
    verdict = "which holds today" if least <= today <= most else "which alone would suffice"
    return f"For an ETTR of {significant(target)} the {called} (now {now}) {allowed}, {verdict}."


def _short(run: PlannedRun, name: str, target: float, best: float) -> str:
    hints = {
        "failures_per_node_day": "write faster or lengthen the interval",
        "interval_s": "write faster, restart faster, queue less or fail less",
        "write_s": "shorten the interval or the restart, queue less or fail less",
        "restart_s": "change the interval, write faster, queue less or fail less",
        "queue_s": "change the interval, write or restart faster, or fail less",
    }
    perfect = {
        "failures_per_node_day": "Even without failures",
        "interval_s": "Even at the best interval",
        "write_s": "Even with writes that cost nothing",
        "restart_s": "Even with instant restarts",
        "queue_s": "Even without a queue",
    }
    gap = f"{best:.3f}, short of {significant(target)}"
    return f"{perfect[name]} the ETTR is {gap}: {hints[name]} as well."
