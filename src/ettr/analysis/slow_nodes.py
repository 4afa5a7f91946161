"""Slow nodes of a store: the work of each rank in each step, from progress records."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ettr.analysis.slow_runs import ComparedRuns, compared_runs
from ettr.defaults import FALSE_DISCOVERY
from ettr.estimates import Interval
from ettr.lemons.slow import MIN_SLOW, enough_steps, slow_nodes
from ettr.metrics.instants import fetch
from ettr.metrics.run_progress import with_cluster
from ettr.metrics.selected import in_period, of_jobs

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis

_Step = tuple[str | None, int]


@dataclass(frozen=True, slots=True)
class SlowCandidate:
    """A node of a run, or a rank where no record names its node.

    Attributes:
        run_id: The run.
        node: Its name as the records have it; None where they have none.
        ranks: Its ranks.
        posterior: Probability that it is slow.
        claimed: Whether it belongs to the claimed set.
        slowdown: Its work in a step over that of the median node, less 1.
        lost_gpu_hours: GPU-hours that all ranks of the run waited for it.
    """

    run_id: str
    node: str | None
    ranks: tuple[int, ...]
    posterior: float
    claimed: bool
    slowdown: Interval
    lost_gpu_hours: float


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run with step times of several ranks, and whether they could be judged.

    Attributes:
        run_id: The run.
        ranks: Ranks that record steps.
        steps: Steps that all of them record with their wait.
        spread: Standard deviation of ordinary nodes' work, as a share; None where not judged.
        not_judged: Why not; None where it was.
    """

    run_id: str
    ranks: int
    steps: int
    spread: float | None
    not_judged: str | None


@dataclass(frozen=True, slots=True)
class SlowReport:
    """The answer of `ettr slow`.

    Attributes:
        candidates: Most probable first.
        runs: What was judged.
        false_discovery: Largest expected share of ordinary nodes among the claimed of a run.
        min_slowdown: What slow is, as a share of the median node's work.
        by_runs: The same by step times of the runs that nodes were in, which need no waits.
    """

    candidates: tuple[SlowCandidate, ...]
    runs: tuple[JudgedRun, ...]
    false_discovery: float
    min_slowdown: float
    by_runs: ComparedRuns


def slow_report(analysis: Analysis, false_discovery: float = FALSE_DISCOVERY) -> SlowReport:
    """Nodes that slow their runs down, run by run.

    Args:
        analysis: of the store.
        false_discovery: largest expected share of ordinary nodes among the claimed.
    """
    candidates: list[SlowCandidate] = []
    judged = []
    for run_id, run in sorted(_runs(analysis).items()):
        verdict, own = _judged(run_id, run, false_discovery, analysis.assumptions.confidence)
        judged.append(verdict)
        candidates += own
    names = _chosen_nodes(analysis)
    candidates = [one for one in candidates if names is None or one.node in names]
    candidates.sort(key=lambda one: (-one.posterior, -(one.slowdown.estimate or 0), one.ranks))
    by_runs = compared_runs(analysis, false_discovery)
    if names is not None:
        asked = tuple(one for one in by_runs.candidates if names.intersection(one.nodes))
        by_runs = replace(by_runs, candidates=asked)
    return SlowReport(tuple(candidates), tuple(judged), false_discovery, MIN_SLOW, by_runs)


def _chosen_nodes(analysis: Analysis) -> set[str] | None:
    """Names of the nodes that are asked about; None for all. The others are compared with."""
    chosen = analysis.selection
    if not chosen.of_nodes:
        return None
    names = set(chosen.node)
    if chosen.gpu_type:
        nodes = analysis.tables["nodes"]
        typed = nodes.filter(nodes["gpu_type"].isin(chosen.gpu_type).fill_null(False))
        of_type = set(fetch(typed, "node")["node"].to_pylist())
        names = names & of_type if names else of_type
    return names


class _RunSteps:
    """Work of each step by rank, and the nodes of the ranks."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.work_s: defaultdict[_Step, dict[int, float]] = defaultdict(dict)
        self.node: dict[int, str] = {}
        self.moved = False


def _runs(analysis: Analysis) -> dict[str, _RunSteps]:
    progress = analysis.tables["progress"]
    steps = progress.filter((progress["event"] == "step") & progress["duration_s"].notnull())
    chosen = analysis.selection
    if chosen.cluster:
        steps = steps.filter(steps["cluster"].isin(chosen.cluster).fill_null(False))
    if chosen.partition or chosen.account or chosen.user or chosen.qos:
        # steps that name no job are of no partition, account, user or QOS that could be known
        attempts = analysis.tables["attempts"]
        jobs = of_jobs(attempts, chosen)
        steps = with_cluster(steps, attempts).semi_join(jobs, ["cluster", "job_id"])
    if chosen.has_period:
        steps = steps.filter(in_period(steps["time"], chosen))
    columns = ("run_id", "job_id", "rank", "step", "duration_s", "detail")
    found = fetch(steps.order_by("run_id", "rank", "time"), *columns)
    runs: defaultdict[str, _RunSteps] = defaultdict(_RunSteps)
    for run_id, job, rank, step, duration_s, detail in zip(
        *(found[name].to_pylist() for name in columns), strict=True
    ):
        run = runs[run_id]
        run.ranks.add(rank)
        facts = _facts(detail)
        node, wait_s = facts.get("node"), facts.get("wait_s")
        if isinstance(node, str):
            run.moved |= run.node.setdefault(rank, node) != node
        if isinstance(wait_s, int | float) and 0 <= wait_s < duration_s and step is not None:
            # a step done again after a restart replaces the first one
            run.work_s[job, step][rank] = duration_s - wait_s
    return {name: run for name, run in runs.items() if len(run.ranks) > 1}


def _facts(detail: str | None) -> dict[str, object]:
    try:
        facts = json.loads(detail) if detail else {}
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _judged(
    run_id: str, run: _RunSteps, false_discovery: float, confidence: float
) -> tuple[JudgedRun, list[SlowCandidate]]:
    ranks = sorted(run.ranks)
    whole = [one for one in run.work_s.values() if len(one) == len(ranks)]
    reason = _not_judged(run, ranks, len(whole))
    if reason is not None:
        return JudgedRun(run_id, len(ranks), len(whole), None, reason), []
    # where a rank moved to another node in the period, only ranks can be compared
    named = not run.moved and all(rank in run.node for rank in ranks)
    keys = [run.node[rank] if named else str(rank) for rank in ranks]
    names = sorted(set(keys), key=keys.index)
    place = np.array([names.index(key) for key in keys], dtype=np.int64)
    work_s = np.array([[one[rank] for rank in ranks] for one in whole])
    found = slow_nodes(work_s, place, false_discovery, confidence)
    made = [
        SlowCandidate(
            run_id,
            name if named else None,
            tuple(rank for rank, own in zip(ranks, place.tolist(), strict=True) if own == at),
            float(found.posterior[at]),
            bool(found.claimed[at]),
            Interval(float(found.slowdown[at]), float(found.low[at]), float(found.high[at])),
            float(found.lost_gpu_hours[at]),
        )
        for at, name in enumerate(names)
    ]
    return JudgedRun(run_id, len(ranks), len(whole), found.spread, None), made


def _not_judged(run: _RunSteps, ranks: list[int], steps: int) -> str | None:
    if not run.work_s:
        return "steps have no wait_s: in synchronous training all ranks take as long as the slowest"
    if not enough_steps(steps):
        return f"{steps} steps that all ranks record with their wait: too few"
    if len(ranks) < 4:
        return f"{len(ranks)} ranks: too few to say what is ordinary"
    return None
