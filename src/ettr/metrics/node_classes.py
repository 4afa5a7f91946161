"""Failure rates by class of node: nodes without GPUs, and each type of GPU.

A rate of nodes of several kinds is that of none: old nodes without GPUs that fail ten times as
often say nothing of a run on GPUs. Where both ran, rates, MTTF and plans are of nodes with GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import Spread, rate_interval
from ettr.estimates.interval import Interval
from ettr.facts import Facts
from ettr.facts.node_lives import NO_GPUS, in_life
from ettr.metrics.rates import part_rate
from ettr.units import SECONDS_PER_DAY

GPU = "gpu"
ALIKE = 0.05
"""Chance of so different rates, below which types of GPU are not taken together."""
_PER_NODE_DAYS = 1000.0


@dataclass(frozen=True, slots=True)
class ClassRate:
    """One class of nodes.

    Attributes:
        name: `cpu`, a type of GPU, or `gpu` where the type is not known.
        per_1000_node_days: The rate, with the exact interval of independent failures, or of such as
            cluster like all failures do.
    """

    name: str
    has_gpus: bool
    failures: int
    node_days: float
    per_1000_node_days: Interval


def class_rates(facts: Facts, confidence: float = CONFIDENCE) -> tuple[ClassRate, ...]:
    """Rates of each class, that of most node-days first; empty where there is but one."""
    sources = ("nodes", "attempts", "partition_models")
    types = {kind for table in sources for (kind,) in facts.distinct(table, "gpu_type")} - {None}
    if not (_may_be_mixed(facts) or len(types) > 1):
        return ()
    rows = [row for row in facts.rows("class_rates") if row["node_s"] or row["failures"]]
    if len(rows) < 2:
        return ()
    made = []
    for row in rows:
        node_days, failures = (row["node_s"] or 0.0) / SECONDS_PER_DAY, row["failures"]
        interval = rate_interval(failures, node_days, confidence, _PER_NODE_DAYS)
        name = (row["gpu_type"] or GPU) if row["has_gpus"] else NO_GPUS
        made.append(ClassRate(name, row["has_gpus"], failures, node_days, interval))
    return tuple(sorted(made, key=lambda one: (-one.node_days, one.name)))


def _may_be_mixed(facts: Facts) -> bool:
    """Whether jobs ran with GPUs and others without: those may be of nodes that have none."""
    shapes = facts.columns("exposure_shapes")
    gpus = np.asarray(shapes["n_gpus"], dtype=np.float64)
    ran = np.nan_to_num(np.asarray(shapes["node_s"], dtype=np.float64)) > 0
    return bool((ran & (gpus == 0)).any() and (ran & (gpus > 0)).any())


def with_spread(
    classes: Sequence[ClassRate],
    spread: Spread | None,
    probable: Sequence[str],
    confidence: float = CONFIDENCE,
) -> tuple[ClassRate, ...]:
    """The classes with intervals that admit the clustering of all failures.

    Args:
        classes: with exact intervals.
        spread: of all failures.
        probable: the class of each job that probably failed too: high ends hold them.
        confidence: of the intervals.
    """
    total = sum(one.failures for one in classes)
    made = []
    for one in classes:
        more = probable.count(one.name)
        low, high = (
            part_rate(n, one.node_days, max(total, n), confidence, spread).per_1000_node_days
            for n in (one.failures, one.failures + more)
        )
        made.append(replace(one, per_1000_node_days=replace(low, high=high.high)))
    return tuple(made)


def main_class(classes: Sequence[ClassRate]) -> str:
    """The class that rates are of: `gpu`, a type of GPU, or nothing where all nodes are alike.

    Nodes without GPUs are never taken together with others. Types of GPU are where no two of them
    differ; else the rates are of the type on which most ran.
    """
    with_gpus = [one for one in classes if one.has_gpus and one.node_days > 0]
    if not with_gpus:
        return ""
    main, *others = with_gpus
    if main.name != GPU and any(
        _chance_of_difference(main, one) * len(others) < ALIKE for one in others
    ):
        return main.name
    return GPU if any(not one.has_gpus and one.node_days > 0 for one in classes) else ""


def _chance_of_difference(one: ClassRate, other: ClassRate) -> float:
    """Two-sided chance of so different counts if both rates were the same.

    Source:
        Przyborowski and Wilenski (1940), Biometrika 31: given their sum, one is binomial.
    """
    from ettr.estimates.special import betainc

    total = one.failures + other.failures
    share = one.node_days / (one.node_days + other.node_days)
    tails = (
        float(betainc(few, total - few + 1.0, part)) if few else 1.0
        for few, part in ((one.failures, share), (other.failures, 1.0 - share))
    )
    return min(1.0, 2.0 * min(tails))


def facts_of_class(facts: Facts, name: str) -> Facts:
    """The facts where what ran and what failed is of nodes of one class alone.

    An attempt on nodes of several counts by those of the class, and a failure by the node that is
    blamed, else by the nodes that it held.

    Args:
        facts: of a selection.
        name: `gpu` for all nodes with GPUs, or a type.
    """
    wanted = "c.has_gpus" if name == GPU else "c.has_gpus AND c.gpu_type = $gpu_type"
    bound = {} if name == GPU else {"gpu_type": name}
    held, classes, ran = (facts.table(one) for one in ("held", "node_classes", "gpu_attempts"))
    unplaced = (
        f"UNION ALL SELECT g.attempt_id, 1, 1 FROM {ran} g WHERE g.attempt_id NOT IN "  # noqa: S608
        f"(SELECT attempt_id FROM {held})"
    )
    ids = facts.keep(
        "class_attempts",
        f"SELECT h.attempt_id, count(*) AS n_held, "  # noqa: S608
        f"CAST(sum(CASE WHEN {wanted} THEN 1 ELSE 0 END) AS BIGINT) AS n_wanted FROM {held} h "
        f"LEFT JOIN {classes} c ON h.cluster = c.cluster AND h.node = c.node "
        f"AND {in_life('c', 'h')} GROUP BY h.attempt_id "
        f"HAVING sum(CASE WHEN {wanted} THEN 1 ELSE 0 END) > 0 {unplaced if name == GPU else ''}",
        view=False,
        bound=bound,
    )
    nodes = facts.keep(
        "class_nodes",
        f"SELECT c.cluster, c.node, c.from_us, c.to_us FROM {classes} c WHERE {wanted}",  # noqa: S608
        view=False,
        bound=bound,
    )
    part = "CASE WHEN i.n_wanted = i.n_held THEN t.{0} ELSE {1} END AS {0}"
    share = "CAST(i.n_wanted AS DOUBLE) / CAST(i.n_held AS DOUBLE)"
    exposure = ", ".join(
        (
            *("t.attempt_id", "t.start_us", "t.end_us", "t.elapsed_s", "t.n_gpus", "t.belongs"),
            "t.named",
            part.format("n_nodes", "i.n_wanted"),
            part.format("n_held", "i.n_wanted"),
            part.format("node_s", f"t.node_s * {share}"),
        )
    )
    of_nodes = (
        f"(t.node IS NULL OR EXISTS (SELECT 1 FROM {nodes} n "  # noqa: S608
        f"WHERE n.cluster = t.cluster AND n.node = t.node AND {in_life('n', 't')}))"
    )
    columns = {
        "chosen": ("t.*", ""),
        "exposure": (exposure, ""),
        "exposure_nodes": ("t.*", f" WHERE {of_nodes}"),
        "failures": ("t.*", f" WHERE {of_nodes}"),
    }
    parts = {
        table: facts.keep(
            f"class_{table}",
            f"SELECT {what} FROM {facts.table(table)} t "  # noqa: S608
            f"JOIN {ids} i ON t.attempt_id = i.attempt_id{where}",
            view=True,
        )
        for table, (what, where) in columns.items()
    }
    return facts.over(**parts)
