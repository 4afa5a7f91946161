"""Failure rates by class of node: nodes without GPUs, and each type of GPU.

A rate of nodes of several kinds is that of none: old nodes without GPUs that fail ten times as
often say nothing of a run on GPUs. Where both ran, rates, MTTF and plans are of nodes with GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import rate_interval
from ettr.estimates.interval import Interval
from ettr.facts import Facts
from ettr.facts.chosen import NO_GPUS, facts_of_attempts
from ettr.units import SECONDS_PER_DAY

GPU = "gpu"
_PER_NODE_DAYS = 1000.0


@dataclass(frozen=True, slots=True)
class ClassRate:
    """One class of nodes.

    Attributes:
        name: `cpu`, a type of GPU, or `gpu` where no inventory names the type.
    """

    name: str
    has_gpus: bool
    failures: int
    node_days: float
    per_1000_node_days: Interval


def class_rates(facts: Facts, confidence: float = CONFIDENCE) -> tuple[ClassRate, ...]:
    """Rates of each class, that of most node-days first; empty where there is but one."""
    types = {gpu_type for (gpu_type,) in facts.distinct("nodes", "gpu_type")} - {None}
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


def are_mixed(classes: tuple[ClassRate, ...]) -> bool:
    """Whether nodes with GPUs ran jobs, and nodes without did."""
    return len({one.has_gpus for one in classes if one.node_days > 0}) > 1


def facts_of_gpu_nodes(facts: Facts) -> Facts:
    """The facts where what ran and what failed is of nodes with GPUs alone."""
    return facts_of_attempts(facts, facts.table("gpu_attempts"))
