"""Values that a run needs for a target ETTR, one input at a time."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.plan.intervals import with_best_interval
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, changed
from ettr.words import spell

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


def _checked(target: float) -> None:
    if not 0.0 < target < 1.0:
        raise UsageError(
            f"a target ETTR of {target} cannot be: it lies above 0 and below 1; give 0.9 for 90 %"
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
    _checked(target)
    return tuple(required(run, name, target, keep_best=keep_best) for name in ONE_BY_ONE)


def required(run: PlannedRun, name: str, target: float, *, keep_best: bool = False) -> Requirement:
    """The value of `name` alone at which the exact ETTR of `run` reaches `target`.

    With `keep_best` the interval follows to its best (`requirements`).

    Raises:
        UsageError: a target that is no share, or an input that is not one of `ONE_BY_ONE`.
    """
    _checked(target)
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
        return f"{1e3 * value:.3g} failures per 1,000 node-days"
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
    return f"For an ETTR of {target:.3g} the {called} (now {now}) {allowed}, {verdict}."


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
    gap = f"{best:.3f}, short of {target:.3g}"
    return f"{perfect[name]} the ETTR is {gap}: {hints[name]} as well."
