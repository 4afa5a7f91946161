"""Which checks to run before a job: the subset whose minutes cost less than what they prevent.

It minimises node-hours of checks + false alarms + P(incident | subset) * cost of an incident.
With checks of different kinds the best subset is a prefix of the checks in the order of their gain
in log-survival over their cost: the cost is linear and the probability concave in that gain. Where
checks cover the same kinds, the gain is what those before left, and a check is dropped again where
that is cheaper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.errors import UsageError
from ettr.files import toml_tables

# -- the probability that a node has a hidden defect, and what time, checks and jobs do to it ------
# A defect of a kind arises at a constant rate, is hidden until it strikes a running job at another
# constant rate, and is then repaired. Without jobs the probability is 1 - exp(-rate * hours since
# a check that covers the kind). Rates and hours have shape (nodes, kinds), or broadcast to it.


Floats = NDArray[np.float64]
_NO_STRIKE_PER_H = 1e-12


def after_idle(belief: ArrayLike, rate_per_h: ArrayLike, hours: ArrayLike) -> Floats:
    """The belief after hours without a job."""
    kept = np.exp(-np.multiply(rate_per_h, hours))
    return np.asarray(1 - (1 - np.asarray(belief)) * kept, dtype=np.float64)


def after_survival(
    belief: ArrayLike, rate_per_h: ArrayLike, strike_per_h: ArrayLike, hours: ArrayLike
) -> Floats:
    """The belief after hours of a job that nothing struck.

    Solves db/dt = (1 - b)(rate - strike b): defects arise, and each would have struck.
    """
    before = np.minimum(np.asarray(belief, dtype=np.float64), 1 - 1e-12)
    rate, strike = _apart(rate_per_h, strike_per_h)
    # y = (rate - strike b) / (1 - b) grows as exp((rate - strike) t)
    y = (rate - strike * before) / (1 - before)
    # beyond e^700 all is at its end
    y = y * np.exp(np.minimum((rate - strike) * np.asarray(hours), 700.0))
    return np.asarray(np.clip((rate - y) / (strike - y), 0.0, 1.0), dtype=np.float64)


def after_pass(belief: ArrayLike, coverage: ArrayLike) -> Floats:
    """The belief after a check that found nothing and covers a defect with a probability."""
    before, covered = np.asarray(belief, dtype=np.float64), np.asarray(coverage)
    left = before * (1 - covered)
    return np.asarray(left / np.maximum(left + 1 - before, 1e-300), dtype=np.float64)


def survival(rate_per_h: ArrayLike, strike_per_h: ArrayLike, hours: float) -> tuple[Floats, Floats]:
    """The probability that hours of a job are not struck, without and with a defect at its start.

    A node that has a defect with probability b survives with (1 - b) times the first and b times
    the second.
    """
    rate, strike = _apart(rate_per_h, strike_per_h)
    with_defect = np.exp(-strike * hours)
    unhurt = np.exp(-rate * hours)
    clean = unhurt + rate * (unhurt - with_defect) / (strike - rate)
    return np.clip(clean, 1e-300, 1.0), np.asarray(with_defect, dtype=np.float64)


def log_survival(belief: Floats, clean: Floats, with_defect: Floats) -> Floats:
    """The logarithm of the probability that a job is not struck, of each belief."""
    kept = clean - belief * np.maximum(clean - with_defect, 0.0)
    return np.asarray(np.log(np.maximum(kept, 1e-300)), dtype=np.float64)


def _apart(rate_per_h: ArrayLike, strike_per_h: ArrayLike) -> tuple[Floats, Floats]:
    """Both rates, no two equal: the forms above divide by their difference."""
    rate = np.asarray(rate_per_h, dtype=np.float64)
    strike = np.maximum(np.asarray(strike_per_h, dtype=np.float64), _NO_STRIKE_PER_H)
    rate, strike = np.broadcast_arrays(rate, strike)
    near = np.abs(rate - strike) <= 1e-6 * strike
    return rate, np.where(near, strike * (1 + 1e-5), strike)


# -- which checks to run before a job: the subset whose minutes cost less than what they prevent


Bools = NDArray[np.bool_]
_LEAST_GAIN = 1e-12
_MOST_EXCHANGED = 12
"""Checks up to which exchanges of two are tried: their number is the square."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The nodes of a job to come, and what is believed of them.

    Attributes:
        belief: Probability of a hidden defect, shape (nodes, kinds).
        clean: Probability that a node without a defect of a kind is not struck during the job,
            shape (nodes, kinds); `with_defect` of one with it, shape (kinds,) or the same.
        incident_node_h: What an incident costs, in node-hours.
        restarts: Whether a struck job goes on and may be struck again: what counts is then the
            expected number of incidents, -log P(none), and not the probability of one. Both agree
            where that is small; where a job is hardly ever spared, only the number falls by checks.
    """

    belief: Floats
    clean: Floats
    with_defect: Floats
    incident_node_h: float
    restarts: bool = False

    def incidents(self, log_survived: ArrayLike) -> Floats:
        """Expected incidents that are paid for, by the log of the probability of none."""
        none = np.asarray(log_survived, dtype=np.float64)
        return -none if self.restarts else np.asarray(-np.expm1(none), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Offer:
    """What the checks can do, by index.

    Attributes:
        coverage: Probability that a check finds a defect, shape (checks, kinds).
        hours: How long a check holds a node.
        false_node_h: What false alarms of a check cost per node that it runs on, in node-hours.
        waits: Whether the whole job waits for the nodes that are checked. Without it only those
            nodes are held up, as where checks run in the queue.
    """

    coverage: Floats
    hours: Floats
    false_node_h: Floats
    waits: bool


@dataclass(frozen=True, slots=True)
class CheckChoice:
    """The answer of the selector.

    Attributes:
        runs: Whether a check is run on a node, shape (checks, nodes).
        struck_before: Probability that the job is struck without any check.
        struck_after: The same after the chosen ones.
        checks_node_h: What they cost, with false alarms.
        saved_node_h: By how much the expected cost of the job falls; 0 where nothing pays.
    """

    runs: Bools
    struck_before: float
    struck_after: float
    checks_node_h: float
    saved_node_h: float

    @property
    def pays(self) -> bool:
        """Whether any check is worth its time."""
        return bool(self.runs.any())


def choose(prospect: Prospect, offer: Offer) -> CheckChoice:
    """The checks to run, and on which nodes."""
    order = _of_job if offer.waits else _of_nodes
    runs = _pruned(prospect, offer, order(prospect, offer))
    before = _expected(prospect, offer, np.zeros_like(runs))
    after = _expected(prospect, offer, runs)
    if after[0] >= before[0] - 1e-9:
        runs, after = np.zeros_like(runs), before
    return CheckChoice(runs, before[1], after[1], after[2], before[0] - after[0])


def expected_node_h(prospect: Prospect, offer: Offer, runs: Bools) -> float:
    """What a job costs beyond its own time if these checks are run: checks and incidents."""
    return _expected(prospect, offer, runs)[0]


def _expected(prospect: Prospect, offer: Offer, runs: Bools) -> tuple[float, float, float]:
    """Expected cost in all, probability that the job is struck, cost of the checks."""
    missed = np.log(np.maximum(1 - offer.coverage, 1e-300))
    left = prospect.belief * np.exp(runs.T.astype(np.float64) @ missed)
    none = log_survival(left, prospect.clean, prospect.with_defect).sum()
    held_h = offer.hours @ runs
    time_node_h = held_h.max(initial=0.0) * runs.shape[1] if offer.waits else held_h.sum()
    checks_node_h = float(time_node_h + offer.false_node_h @ runs.sum(axis=1))
    incidents_node_h = float(prospect.incidents(none)) * prospect.incident_node_h
    return checks_node_h + incidents_node_h, float(-np.expm1(none)), checks_node_h


def _gain(prospect: Prospect, offer: Offer, left: Floats) -> Callable[[int], Floats]:
    """What a further check adds to the log-survival of each node."""
    clean = prospect.clean
    with_defect = np.broadcast_to(prospect.with_defect, clean.shape)
    now = log_survival(left, clean, with_defect)

    def of(check: int) -> Floats:
        kinds = np.flatnonzero(offer.coverage[check] > 0)
        fewer = left[:, kinds] * (1 - offer.coverage[check, kinds])
        then = log_survival(fewer, clean[:, kinds], with_defect[:, kinds])
        return np.asarray((then - now[:, kinds]).sum(axis=1), dtype=np.float64)

    return of


def _of_job(prospect: Prospect, offer: Offer) -> Bools:
    """Checks that all nodes wait for, each on every node where it can find anything."""
    checks, nodes = len(offer.hours), len(prospect.belief)
    left, runs = prospect.belief.copy(), np.zeros((checks, nodes), dtype=np.bool_)
    best, best_cost = runs.copy(), _expected(prospect, offer, runs)[0]
    open_ones = set(range(checks))
    while open_ones:
        gain = _gain(prospect, offer, left)
        gains = {check: gain(check) for check in open_ones}
        ratio = {
            check: gains[check].sum()
            / max(offer.hours[check] * nodes + offer.false_node_h[check] * nodes, 1e-12)
            for check in open_ones
        }
        first = max(sorted(ratio), key=lambda check: ratio[check])
        # a unit of log-survival is worth an incident at most
        if ratio[first] * prospect.incident_node_h < 1.0:
            break
        open_ones.remove(first)
        runs[first] = gains[first] > 0
        left[runs[first]] *= 1 - offer.coverage[first]
        cost = _expected(prospect, offer, runs)[0]
        if cost < best_cost:
            best, best_cost = runs.copy(), cost
    return _improved(prospect, offer, best)


def _improved(prospect: Prospect, offer: Offer, runs: Bools) -> Bools:
    """Drop or add a check, else exchange two, as long as that is cheaper."""
    usable = np.asarray(prospect.belief @ offer.coverage.T > 0)
    cost, checks = _expected(prospect, offer, runs)[0], range(len(runs))
    singly = True
    while singly or len(runs) <= _MOST_EXCHANGED:
        inside = np.asarray(runs.any(axis=1))
        moves: list[tuple[int, ...]] = [(one,) for one in checks]
        if not singly:
            moves = [(a, b) for a in checks for b in checks if inside[a] and not inside[b]]
        tried = []
        for move in moves:
            changed = runs.copy()
            for check in move:
                changed[check] = False if inside[check] else usable[:, check]
            tried.append((_expected(prospect, offer, changed)[0], changed))
        least, found = min(tried, key=lambda one: one[0], default=(cost, runs))
        if least < cost - 1e-9:
            runs, cost, singly = found, least, True
        elif singly:
            singly = False
        else:
            break
    return runs


def _of_nodes(prospect: Prospect, offer: Offer) -> Bools:
    """Checks that hold up only the nodes they run on: pairs of both in the order of their worth."""
    checks, nodes = len(offer.hours), len(prospect.belief)
    left, every = prospect.belief.copy(), np.arange(nodes)
    cost = np.maximum(offer.hours + offer.false_node_h, 1e-12)
    done = np.zeros((checks, nodes), dtype=np.bool_)
    worst = np.full(nodes, np.inf)
    pairs = []
    for _ in range(checks):
        gain = _gain(prospect, offer, left)
        gains = np.array([gain(check) for check in range(checks)])
        ratio = np.where(done, -1.0, gains / cost[:, None])
        first = ratio.argmax(axis=0)
        gained = gains[first, every]
        useful = (ratio[first, every] > 0) & (gained > _LEAST_GAIN)
        if not useful.any():
            break
        at = every[useful]
        # of one node a later check may not come before an earlier one
        worst[at] = np.minimum(worst[at], ratio[first[at], at])
        pairs.append(np.stack([first[at], at, worst[at], gained[at], cost[first[at]]]))
        done[first[at], at] = True
        left[at] *= 1 - offer.coverage[first[at]]
    runs = np.zeros((checks, nodes), dtype=np.bool_)
    if not pairs:
        return runs
    check, node, worth, gained, price = np.concatenate(pairs, axis=1)
    order = np.argsort(-worth, kind="stable")
    survived = log_survival(prospect.belief, prospect.clean, prospect.with_defect).sum()
    struck = prospect.incidents(survived + np.concatenate([[0.0], np.cumsum(gained[order])]))
    spent = np.concatenate([[0.0], np.cumsum(price[order])])
    taken = order[: int(np.argmin(spent + struck * prospect.incident_node_h))]
    runs[check[taken].astype(int), node[taken].astype(int)] = True
    return runs


def _pruned(prospect: Prospect, offer: Offer, runs: Bools) -> Bools:
    """Without nodes on which a check gains less than its false alarms cost."""
    if not offer.waits or not runs.any():
        return runs
    left, pruned = prospect.belief.copy(), runs.copy()
    survives = 1.0 if prospect.restarts else 1 - _expected(prospect, offer, runs)[1]
    for check in np.flatnonzero(runs.any(axis=1)):
        worth = _gain(prospect, offer, left)(int(check)) * survives * prospect.incident_node_h
        pruned[check] &= worth > offer.false_node_h[check]
        left[runs[check]] *= 1 - offer.coverage[check]
    cheaper = _expected(prospect, offer, pruned)[0] <= _expected(prospect, offer, runs)[0]
    return pruned if cheaper else runs


# -- a site's catalogue of checks: commands, minutes, and what each covers -------------------------
# format = "ettr checks 1"
#
# [[check]]
# name = "dcgmi diag"
# command = "dcgmi diag -r 3"
# minutes = 12                     # left out: not known
# needs_idle = true
# false_alarm_share = 0.002        # of its runs on a sound node
# covers = {gpu-memory = 0.8}      # left out: as the logs have it


FORMAT = "ettr checks 1"
_KEYS = ("name", "command", "minutes", "needs_idle", "false_alarm_share", "covers")
_MOST = 1000


@dataclass(frozen=True, slots=True)
class OfferedCheck:
    """A check that can be run. Null is what nobody has said.

    Attributes:
        covers: Probability of finding a defect, by symptom; null for what the logs say.
    """

    name: str
    command: str | None = None
    minutes: float | None = None
    needs_idle: bool | None = None
    false_alarm_share: float | None = None
    covers: Mapping[str, float] | None = None


def read_catalogue(path: Path) -> tuple[OfferedCheck, ...]:
    """The checks of a file.

    Raises:
        UsageError: it cannot be read, or a value cannot be; all problems are listed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); give a TOML file of checks") from None
    tables = toml_tables(text, str(path), FORMAT, "checks")
    rows = tables.get("check")
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST:
        raise UsageError(f"{path}: give each check as a table [[check]], {_MOST} at most")
    problems: list[str] = []
    found = [_check(at, row, problems) for at, row in enumerate(rows, 1)]
    names = [one.name for one in found]
    problems += [
        f"{name}: is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise UsageError(f"{path}:" + "".join(f"\n  {one}" for one in problems))
    return tuple(found)


def _check(at: int, row: object, problems: list[str]) -> OfferedCheck:
    values = row if isinstance(row, dict) else {}
    name = values.get("name")
    where = name if isinstance(name, str) and name else f"check {at}"
    if where != name:
        problems.append(f"{where}: name is {name!r:.80}; give a text")
    for key in sorted(values.keys() - set(_KEYS)):
        problems.append(f"{where}: {key:.80} is not a key; known: {', '.join(_KEYS)}")
    minutes = _within(where, values, "minutes", 1e5, problems)
    if minutes == 0:
        problems.append(f"{where}: minutes is 0; leave it out where it is not known")
    false_share = _within(where, values, "false_alarm_share", 1.0, problems)
    command, idle, covers = (values.get(key) for key in ("command", "needs_idle", "covers"))
    if command is not None and not isinstance(command, str):
        problems.append(f"{where}: command is {command!r:.80}; give a text")
    if idle is not None and not isinstance(idle, bool):
        problems.append(f"{where}: needs_idle is {idle!r:.80}; give true or false")
    if covers is not None and not isinstance(covers, dict):
        problems.append(f"{where}: covers is {covers!r:.80}; give {{symptom = share}}")
    covered: Mapping[str, object] = covers if isinstance(covers, dict) else {}
    shares = {
        symptom: _within(f"{where}: covers", covered, symptom, 1.0, problems) or 0.0
        for symptom in covered
    }
    return OfferedCheck(
        str(where),
        command if isinstance(command, str) else None,
        minutes,
        idle if isinstance(idle, bool) else None,
        false_share,
        shares if isinstance(covers, dict) else None,
    )


def _within(
    where: str, values: Mapping[str, object], key: str, most: float, problems: list[str]
) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:  # type: ignore[operator]
        problems.append(f"{where}: {key:.80} is {value!r:.80}; give a number from 0 to {most:g}")
        return None
    return float(value)  # type: ignore[arg-type]


_NUMBERED = re.compile(r"(.*?)(\d{1,15})", re.DOTALL)


def slurm_list(nodes: Iterable[str]) -> str:
    """Names of nodes as Slurm writes them: n[1-3,7],login."""
    found = [(_NUMBERED.fullmatch(name), name) for name in set(nodes)]
    # 007 and 7 are two names, 007 and 012 are of one width
    padded = {(one[1], len(one[2])) for one, _ in found if one and one[2].startswith("0")}
    split = [
        (one[1], len(one[2]) if (one[1], len(one[2])) in padded else 0, int(one[2]), True)
        if one
        else (name, 0, 0, False)
        for one, name in found
    ]
    split.sort()
    parts = []
    for (prefix, width, numbered), group in groupby(split, lambda one: (one[0], one[1], one[3])):
        numbers = [one[2] for one in group]
        if not numbered:
            parts.append(prefix)
            continue
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][1] + 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        texts = [
            f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
            for first, last in runs
        ]
        alone = len(texts) == 1 and "-" not in texts[0]
        parts.append(f"{prefix}{texts[0]}" if alone else f"{prefix}[{','.join(texts)}]")
    return ",".join(parts)
