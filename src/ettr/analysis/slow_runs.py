"""Slow nodes of runs whose ranks record no waits: step times by the nodes that a run was on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np

from ettr.estimates import Interval
from ettr.lemons.slow_runs import RunSegments, slow_by_runs
from ettr.metrics.instants import fetch
from ettr.metrics.selected import in_period, of_jobs
from ettr.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis

MIN_STEPS = 20
"""Steps of a segment at least: its median step is known to a few per cent of what steps vary by."""


@dataclass(frozen=True, slots=True)
class SlowByRuns:
    """A node, or nodes that were always together, by step times of the runs it was in.

    Attributes:
        cluster: Of the nodes.
        nodes: Their names; which of several is slow cannot be distinguished.
        posterior: Probability that one of them is slow.
        claimed: Whether it belongs to the claimed set.
        slowdown: How much longer steps take with it, as a share.
        runs: Runs that it was in for some segments and not for others.
        lost_gpu_hours: Of its segments, by that slowdown; None where no log names GPUs.
    """

    cluster: str
    nodes: tuple[str, ...]
    posterior: float
    claimed: bool
    slowdown: Interval
    runs: int
    lost_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The judgement by runs.

    Attributes:
        candidates: Most probable first.
        runs: Runs with step times on known nodes.
        segments: Their parts, each an attempt on one set of nodes.
        not_judged: Why nothing is judged; None where it is.
    """

    candidates: tuple[SlowByRuns, ...]
    runs: int
    segments: int
    not_judged: str | None


def compared_runs(analysis: Analysis, false_discovery: float) -> ComparedRuns:
    """Nodes of a store that make their runs slow, by step times with and without them.

    Args:
        analysis: of the store.
        false_discovery: largest expected share of ordinary nodes among the claimed.
    """
    found = _segments(analysis)
    if not found:
        return ComparedRuns((), 0, 0, "no run with step times names its job, and the job its nodes")
    nodes_of = _nodes_of(analysis, [one.attempt_id for one in found])
    names: dict[tuple[str, str], int] = {}
    runs: dict[tuple[str, str, int], int] = {}
    run, log_step, nodes, gpu_hours = [], [], [], []
    has_gpus = all(one.n_gpus is not None for one in found)
    for one in found:
        held = nodes_of.get(one.attempt_id)
        if not held:
            continue
        # step times of other sizes are not comparable
        run.append(runs.setdefault((one.cluster, one.run_id, len(held)), len(runs)))
        log_step.append(float(np.log(one.step_s)))
        places = [names.setdefault((one.cluster, node), len(names)) for node in held]
        nodes.append(np.array(places, dtype=np.int64))
        gpu_hours.append(one.steps_s / SECONDS_PER_HOUR * (one.n_gpus or 0))
    if not run:
        return ComparedRuns((), 0, 0, "no log names the nodes of the jobs of the runs")
    segments = RunSegments(np.array(run), np.array(log_step), nodes, np.array(gpu_hours))
    judged = slow_by_runs(segments, false_discovery, analysis.assumptions.confidence)
    if isinstance(judged, str):
        return ComparedRuns((), len(runs), len(run), judged)
    listed = list(names)
    made = tuple(
        SlowByRuns(
            listed[group.nodes[0]][0],
            tuple(listed[at][1] for at in group.nodes),
            group.posterior,
            group.claimed,
            Interval(group.slowdown, group.low, group.high),
            group.runs,
            group.lost_gpu_hours if has_gpus else None,
        )
        for group in judged
    )
    return ComparedRuns(made, len(runs), len(run), None)


@dataclass(frozen=True, slots=True)
class _Segment:
    """An attempt of a run: its median step, and all of them together."""

    cluster: str
    run_id: str
    attempt_id: str
    step_s: float
    steps_s: float
    n_gpus: int | None


def _segments(analysis: Analysis) -> list[_Segment]:
    """Median step and its steps of each attempt of a run, as its first rank records them."""
    progress, chosen = analysis.tables["progress"], analysis.selection
    steps = progress.filter(
        (progress["event"] == "step") & (progress["duration_s"] > 0) & progress["job_id"].notnull()
    )
    if chosen.has_period:
        steps = steps.filter(in_period(steps["time"], chosen))
    first = steps.group_by("run_id").agg(first_rank=steps["rank"].min())
    steps = steps.join(first, "run_id")
    steps = steps.filter(steps["rank"] == steps["first_rank"])
    attempts = of_jobs(analysis.tables["attempts"], chosen)
    held = attempts.filter(attempts["start"].notnull()).select(
        "attempt_id", "job_id", "start", "end", "n_gpus", of_cluster=attempts["cluster"]
    )
    met = steps.select("run_id", "job_id", "cluster", "time", "duration_s").join(held, "job_id")
    met = met.filter(
        (met["cluster"].isnull() | (met["cluster"] == met["of_cluster"]))
        & (met["time"] >= met["start"])
        & (met["end"].isnull() | (met["time"] <= met["end"]))
    )
    by_attempt = met.group_by("run_id", "attempt_id", cluster=met["of_cluster"]).agg(
        n=met.count(),
        step_s=met["duration_s"].median(),
        steps_s=met["duration_s"].sum(),
        n_gpus=met["n_gpus"].max(),
    )
    kept = by_attempt.filter(by_attempt["n"] >= MIN_STEPS)
    columns = ("cluster", "run_id", "attempt_id", "step_s", "steps_s", "n_gpus")
    rows = fetch(kept.order_by("cluster", "run_id", "attempt_id"), *columns).to_pylist()
    return [_Segment(**row) for row in rows]


def _nodes_of(analysis: Analysis, attempts: list[str]) -> dict[str, list[str]]:
    allocations = analysis.tables["allocations"]
    mine = ibis.memtable({"attempt_id": attempts})
    held = allocations.filter(allocations["node"].notnull()).semi_join(mine, "attempt_id")
    made: defaultdict[str, list[str]] = defaultdict(list)
    for row in fetch(held.order_by("attempt_id", "node"), "attempt_id", "node").to_pylist():
        made[row["attempt_id"]].append(row["node"])
    return dict(made)
