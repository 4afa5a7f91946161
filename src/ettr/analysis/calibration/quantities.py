"""What a back-test compares: the same quantities of a real and of a simulated cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ettr.analysis.calibration.record import LOST_CAP_S, Attempts, SiteRecord
from ettr.metrics.instants import Floats
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

LEAST_WAITS = 20
"""Fewer jobs of a size say little about how long they wait."""
LEAST_REPAIRS = 5
STATES = ("FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")
SOON_S = 7.0 * SECONDS_PER_DAY
WAIT_FLOOR_S = 3600.0
"""Waits are compared as log(wait + this).

A queue whose load is known to a tenth may have no waits or long ones: without such a floor the
logarithms of predicted waits are far from normal, and right scenarios fail.
"""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of one cluster in one time.

    Attributes:
        scaled: The same where its chance is about normal with a spread that hardly depends on it:
            square roots of counts, arc sines of shares, logarithms of times.
        least_spread: Standard deviation on that scale that chance alone gives it, at least.
    """

    value: float | None
    unit: str
    scaled: float = math.nan
    least_spread: float = 0.0


def quantities_of(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    """The quantities by name (`ettr.sim.cluster.scenario.QUANTITIES`).

    Source:
        Anscombe (1948), Biometrika 35, for the square root and the arc sine.
    """
    made: dict[str, Quantity] = {}
    attempts = record.attempts
    if record.has_jobs:
        made |= _of_jobs(record, begin_s, end_s)
        made |= _waits(attempts, record.machine.per_node, begin_s, end_s)
    made |= _of_outages(record, begin_s, end_s)
    return made


def _held_s(attempts: Attempts, begin_s: float, end_s: float) -> Floats:
    """Seconds within the time that each attempt ran."""
    until_s = np.where(np.isnan(attempts.end_s), end_s, attempts.end_s)
    held_s = np.minimum(until_s, end_s) - np.maximum(attempts.start_s, begin_s)
    made: Floats = np.nan_to_num(np.maximum(held_s, 0.0))
    return made


def _of_jobs(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    attempts, machine = record.attempts, record.machine
    new = attempts.is_first & (attempts.submit_s >= begin_s) & (attempts.submit_s < end_s)
    held_s = _held_s(attempts, begin_s, end_s)
    size = np.nan_to_num(attempts.size)
    all_s = machine.n_nodes * machine.per_node * (end_s - begin_s)
    nodes = np.where(attempts.n_nodes > 0, attempts.n_nodes, np.ceil(size / machine.per_node))
    node_days = float(held_s @ nodes) / SECONDS_PER_DAY
    ended = (attempts.end_s >= begin_s) & (attempts.end_s < end_s)
    failed = ended & attempts.failed
    n_failed, n_ended = int(failed.sum()), int(ended.sum())
    lost_s = np.minimum(np.nan_to_num(attempts.end_s - attempts.start_s), LOST_CAP_S) * size
    lost = float(lost_s[failed].sum()) / SECONDS_PER_HOUR / ((end_s - begin_s) / SECONDS_PER_DAY)
    used = float(held_s @ size) / all_s
    made = {
        "jobs submitted": _count(int(new.sum()), 1.0, "jobs"),
        "failure rate": _count(n_failed, 1000.0 / node_days, "per 1,000 node-days")
        if node_days > 0
        else Quantity(None, "per 1,000 node-days"),
        "utilisation": Quantity(used, "share", _arc_sine(used), 0.005),
        "lost goodput": Quantity(lost, "GPU-hours a day", math.sqrt(lost + 1.0), 0.05),
    }
    for state in STATES:
        ends = attempts.state[ended] == state
        made[f"share {state}"] = _share(int(ends.sum()), n_ended)
    return made


def _waits(attempts: Attempts, per_node: int, begin_s: float, end_s: float) -> dict[str, Quantity]:
    since_s = np.where(np.isnan(attempts.eligible_s), attempts.submit_s, attempts.eligible_s)
    started = attempts.is_first & (since_s >= begin_s) & (attempts.start_s < end_s)
    nodes = attempts.size / per_node
    made: dict[str, Quantity] = {}
    for name, least, most in (
        ("part of a node", 0.0, 1.0),
        ("1 node", 1.0, 2.0),
        ("2 to 8 nodes", 2.0, 9.0),
        ("9 nodes and more", 9.0, math.inf),
    ):
        own = started & (nodes >= least) & (nodes < most)
        waits_s = np.maximum(attempts.start_s[own] - since_s[own], 0.0)
        for label, level in (("median", 0.5), ("90 %", 0.9)):
            key = f"wait of {name}, {label}"
            if waits_s.size < LEAST_WAITS:
                made[key] = Quantity(None, "s")
                continue
            wait_s = float(np.quantile(waits_s, level))
            made[key] = Quantity(wait_s, "s", math.log(wait_s + WAIT_FLOOR_S), 0.1)
    return made


def _of_outages(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    out = record.outages
    if out is None:
        return {}
    began = (out.start_s >= begin_s) & (out.start_s < end_s)
    node_days = record.machine.n_nodes * (end_s - begin_s) / SECONDS_PER_DAY
    over = (out.end_s >= begin_s) & (out.end_s < end_s)
    hours = (out.end_s[over] - out.start_s[over]) / SECONDS_PER_HOUR
    made = {
        "outages per node": _count(int(began.sum()), 1000.0 / node_days, "per 1,000 node-days"),
        "outages soon after another": _soon_after(out.node[began], out.start_s[began]),
    }
    enough = hours.size >= LEAST_REPAIRS
    # the long ones decide how many spares a run needs
    for label, value, least_spread in (
        ("median", np.median(hours) if enough else 0.0, 0.02),
        ("mean", np.mean(hours) if enough else 0.0, 0.02),
        ("90 %", np.quantile(hours, 0.9) if enough else 0.0, 0.1),
    ):
        key = f"repair time, {label}"
        if not enough:
            made[key] = Quantity(None, "h")
            continue
        scaled = math.log(float(value) + 1.0 / 60.0)
        made[key] = Quantity(float(value), "h", scaled, least_spread)
    return made


def _soon_after(node: npt.NDArray[np.int64], start_s: Floats) -> Quantity:
    """Share of outages that begin within a week of the one before of their node."""
    order = np.lexsort((start_s, node))
    node, start_s = node[order], start_s[order]
    soon = (node[1:] == node[:-1]) & (np.diff(start_s) < SOON_S)
    return _share(int(soon.sum()), node.size)


def _count(n: int, factor: float, unit: str) -> Quantity:
    return Quantity(n * factor, unit, 2.0 * math.sqrt((n + 0.375) * factor), math.sqrt(factor))


def _share(n: int, whole: int) -> Quantity:
    if whole < LEAST_WAITS:
        return Quantity(None, "share")
    return Quantity(
        n / whole, "share", _arc_sine((n + 0.375) / (whole + 0.75)), 0.5 / math.sqrt(whole)
    )


def _arc_sine(share: float) -> float:
    return math.asin(math.sqrt(min(max(share, 0.0), 1.0)))
