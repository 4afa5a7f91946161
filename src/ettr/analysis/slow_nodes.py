"""Slow nodes of a store, by the work of each rank in each step, and by their runs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.defaults import FALSE_DISCOVERY
from ettr.estimates import Interval
from ettr.facts import Facts
from ettr.facts.stored import nodes_of_types
from ettr.lemons.slow_runs import (
    MIN_SLOW,
    RunSegments,
    SlowGroup,
    enough_steps,
    slow_by_runs,
    slow_nodes,
)
from ettr.units import SECONDS_PER_HOUR

_Step = tuple[str | None, int]
_RunKey = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class SlowCandidate:
    """A node of a run, or a rank where no record names its node."""

    cluster: str | None
    run_id: str
    node: str | None
    ranks: tuple[int, ...]
    posterior: float
    claimed: bool
    slowdown: Interval
    lost_gpu_hours: float


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run with step times of several ranks, and whether they could be judged."""

    cluster: str | None
    run_id: str
    ranks: int
    steps: int
    spread: float | None
    not_judged: str | None


@dataclass(frozen=True, slots=True)
class SlowReport:
    """The answer of `ettr slow`.

    Attributes:
        false_discovery: Largest expected share of ordinary nodes among the claimed of a run.
        by_tests: By the bus bandwidth of nccl-tests: a test is a segment, and tests of one kind on
            as many nodes a run.
    """

    candidates: tuple[SlowCandidate, ...]
    runs: tuple[JudgedRun, ...]
    false_discovery: float
    min_slowdown: float
    by_runs: ComparedRuns
    by_tests: ComparedRuns


def slow_report(analysis: Analysis, false_discovery: float = FALSE_DISCOVERY) -> SlowReport:
    """Nodes that slow their runs down, run by run."""
    candidates: list[SlowCandidate] = []
    judged = []
    for key, run in sorted(
        _runs(analysis).items(), key=lambda item: (item[0][0] or "", item[0][1])
    ):
        verdict, own = _judged(key, run, false_discovery, analysis.assumptions.confidence)
        judged.append(verdict)
        candidates += own
    by_runs = compared_runs(analysis, false_discovery)
    by_tests = compared_tests(analysis, false_discovery)
    if analysis.selection.of_nodes:  # the others are compared with
        asked = _asked_nodes(analysis)
        candidates = [one for one in candidates if asked(one.cluster, one.node)]

        def of_asked(found: ComparedRuns) -> ComparedRuns:
            kept = (c for c in found.candidates if any(asked(c.cluster, name) for name in c.nodes))
            return replace(found, candidates=tuple(kept))

        by_runs, by_tests = of_asked(by_runs), of_asked(by_tests)
    candidates.sort(key=lambda one: (-one.posterior, -(one.slowdown.estimate or 0), one.ranks))
    return SlowReport(
        tuple(candidates), tuple(judged), false_discovery, MIN_SLOW, by_runs, by_tests
    )


def _asked_nodes(analysis: Analysis) -> Callable[[str | None, str | None], bool]:
    """Whether a node, by cluster and name, is asked about."""
    chosen = analysis.selection
    types: defaultdict[tuple[str | None, str], set[bool]] = defaultdict(set)
    if chosen.gpu_type:
        typed = nodes_of_types(analysis.facts, chosen.gpu_type)
        for cluster, node in analysis.facts.distinct("node_classes", "cluster", "node"):
            for of in (cluster, None):
                types[of, node].add((cluster, node) in typed)

    def asked(cluster: str | None, node: str | None) -> bool:
        if node is None or (chosen.node and node not in chosen.node):
            return False
        of_type = types[cluster, node]
        return not chosen.gpu_type or (of_type == {True} if cluster is None else True in of_type)

    return asked


class _RunSteps:
    """Work of each step by rank, and the nodes of the ranks."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.work_s: defaultdict[_Step, dict[int, float]] = defaultdict(dict)
        self.node: dict[int, str] = {}
        self.moved = False


def _runs(analysis: Analysis) -> dict[_RunKey, _RunSteps]:
    chosen = analysis.selection
    # steps that name no job are of no partition, account, user or QOS that could be known
    of_jobs = chosen.partition or chosen.account or chosen.user or chosen.qos
    facts = analysis.facts.under(selection=chosen.without_nodes.at_any_time)
    rows = facts.arrow("rank_steps_of_jobs" if of_jobs else "rank_steps")
    columns = ("cluster", "run_id", "job_id", "rank", "step", "duration_s", "detail")
    clusters: defaultdict[str, set[str]] = defaultdict(set)
    for cluster, run_id in zip(*(rows[name].to_pylist() for name in columns[:2]), strict=True):
        clusters[run_id] |= {cluster} - {None}
    runs: defaultdict[_RunKey, _RunSteps] = defaultdict(_RunSteps)
    for cluster, run_id, job, rank, step, duration_s, detail in zip(
        *(rows[name].to_pylist() for name in columns), strict=True
    ):
        # records without a cluster are of the only one that has a run of the name
        known = min(clusters[run_id]) if len(clusters[run_id]) == 1 else cluster
        run = runs[known, run_id]
        run.ranks.add(rank)
        further = _facts(detail)
        node, wait_s = further.get("node"), further.get("wait_s")
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
    key: _RunKey, run: _RunSteps, false_discovery: float, confidence: float
) -> tuple[JudgedRun, list[SlowCandidate]]:
    ranks = sorted(run.ranks)
    whole = [one for one in run.work_s.values() if len(one) == len(ranks)]
    reason = _not_judged(run, ranks, len(whole))
    if reason is not None:
        return JudgedRun(*key, len(ranks), len(whole), None, reason), []
    # where a rank moved to another node in the period, only ranks can be compared
    named = not run.moved and all(rank in run.node for rank in ranks)
    keys = [run.node[rank] if named else str(rank) for rank in ranks]
    names = sorted(set(keys), key=keys.index)
    place = np.array([names.index(key) for key in keys], dtype=np.int64)
    work_s = np.array([[one[rank] for rank in ranks] for one in whole])
    found = slow_nodes(work_s, place, false_discovery, confidence)
    made = [
        SlowCandidate(
            *key,
            name if named else None,
            tuple(rank for rank, own in zip(ranks, place.tolist(), strict=True) if own == at),
            float(found.posterior[at]),
            bool(found.claimed[at]),
            Interval(float(found.slowdown[at]), float(found.low[at]), float(found.high[at])),
            float(found.lost_gpu_hours[at]),
        )
        for at, name in enumerate(names)
    ]
    return JudgedRun(*key, len(ranks), len(whole), found.spread, None), made


def _not_judged(run: _RunSteps, ranks: list[int], steps: int) -> str | None:
    if not run.work_s:
        return "steps have no wait_s: in synchronous training all ranks take as long as the slowest"
    if not enough_steps(steps):
        return f"{steps} steps that all ranks record with their wait: too few"
    if len(ranks) < 4:
        return f"{len(ranks)} ranks: too few to know what is ordinary"
    return None


# -- Slow nodes of runs whose ranks record no waits: step times by the nodes that a run was on ----

MIN_STEPS = 20
"""Steps of a segment at least: its median step is known to a few per cent of what steps vary by."""


@dataclass(frozen=True, slots=True)
class SlowByRuns:
    """A node, or nodes that were always together, by step times of the runs it was in."""

    cluster: str
    nodes: tuple[str, ...]
    posterior: float
    claimed: bool
    slowdown: Interval
    runs: int
    lost_gpu_hours: float | None
    segments_without_gpus: int


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The judgement by runs.

    Attributes:
        least_slowdown: By how much a node has to be slower to be claimed, however often it ran, as
            a share: less may be an ordinary node of this fleet. None where nothing is judged, or
            no slowdown is enough.
    """

    candidates: tuple[SlowByRuns, ...]
    runs: int
    segments: int
    not_judged: str | None
    spread: float | None = None
    least_slowdown: float | None = None


def compared_runs(analysis: Analysis, false_discovery: float) -> ComparedRuns:
    """Nodes of a store that make their runs slow, by step times with and without them.

    Args:
        false_discovery: largest probability of being ordinary of each that is claimed.
    """
    jobs = analysis.selection.without_nodes.at_any_time
    facts = analysis.facts.under(selection=jobs)
    measured = [row for row in facts.rows("run_segments") if row["n"] >= MIN_STEPS]
    if not measured:
        return ComparedRuns((), 0, 0, "no run with step times names its job, and the job its nodes")
    nodes_of = _nodes_of(facts)
    placed = [row for row in measured if row["attempt_id"] in nodes_of]
    if not placed:
        return ComparedRuns((), 0, 0, "no log names the nodes of the jobs of the runs")
    segments, nodes = _numbered(placed, nodes_of)
    return _compared(analysis, segments, nodes, false_discovery)


def _compared(
    analysis: Analysis,
    segments: RunSegments,
    nodes: Sequence[tuple[str, str]],
    false_discovery: float,
) -> ComparedRuns:
    """What segments on numbered nodes say."""
    runs, n = len(np.unique(segments.run)), len(segments.run)
    judged = slow_by_runs(segments, false_discovery, analysis.assumptions.confidence)
    if isinstance(judged, str):
        return ComparedRuns((), runs, n, judged)
    named = tuple(_named(group, nodes) for group in judged.groups)
    return ComparedRuns(named, runs, n, None, judged.spread, judged.least_slowdown)


_BANDWIDTH = re.compile(r"busbw ([0-9.e+]+) GB/s of (\w+) at ([0-9]+) bytes on ([0-9]+) nodes")


def compared_tests(analysis: Analysis, false_discovery: float) -> ComparedRuns:
    """Nodes of a store on which tests of bus bandwidth are slow, by tests with and without them.

    A collective is as fast as its slowest node or link, as a step is, so that the model is that of
    the runs; which of a node and its link it is, no test says.
    """
    tests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    says: dict[tuple[str, str], str] = {}
    for row in analysis.facts.rows("bandwidth_tests"):
        key = (row["cluster"], row["test"])
        tests[key].append(row["node"])
        says[key] = row["message"] or ""
    kinds: dict[tuple[str, ...], int] = {}
    nodes: dict[tuple[str, str], int] = {}
    kind, log_time, held = [], [], []
    for key in sorted(tests):
        found = _BANDWIDTH.search(says[key])
        speed = float(found[1]) if found else 0.0
        if found is None or not speed > 0 or int(found[4]) != len(set(tests[key])):
            continue
        kind.append(kinds.setdefault((key[0], *found.groups()[1:]), len(kinds)))
        log_time.append(-np.log(speed))
        own = [nodes.setdefault((key[0], name), len(nodes)) for name in sorted(set(tests[key]))]
        held.append(np.array(own, dtype=np.int64))
    if not held:
        return ComparedRuns((), 0, 0, "no test of bus bandwidth names its nodes")
    segments = RunSegments(np.array(kind), np.array(log_time), held, np.full(len(held), np.nan))
    return _compared(analysis, segments, list(nodes), false_discovery)


def _numbered(
    placed: Sequence[Mapping[str, Any]], nodes_of: Mapping[str, Sequence[str]]
) -> tuple[RunSegments, list[tuple[str, str]]]:
    """The segments with numbers for runs and nodes, and the nodes by their numbers."""
    nodes: dict[tuple[str, str], int] = {}
    runs: dict[tuple[str, str, int], int] = {}
    run, held = [], []
    for one in placed:
        names = nodes_of[one["attempt_id"]]
        # step times of other sizes are not comparable
        run.append(runs.setdefault((one["cluster"], one["run_id"], len(names)), len(runs)))
        places = [nodes.setdefault((one["cluster"], name), len(nodes)) for name in names]
        held.append(np.array(places, dtype=np.int64))
    log_step = np.log([one["step_s"] for one in placed])
    gpu_hours = [
        np.nan if one["n_gpus"] is None else one["steps_s"] / SECONDS_PER_HOUR * one["n_gpus"]
        for one in placed
    ]
    return RunSegments(np.array(run), log_step, held, np.array(gpu_hours)), list(nodes)


def _named(group: SlowGroup, nodes: Sequence[tuple[str, str]]) -> SlowByRuns:
    return SlowByRuns(
        nodes[group.nodes[0]][0],
        tuple(nodes[at][1] for at in group.nodes),
        group.posterior,
        group.claimed,
        Interval(group.slowdown, group.low, group.high),
        group.runs,
        group.lost_gpu_hours,
        group.segments_without_gpus,
    )


def _nodes_of(facts: Facts) -> dict[str, list[str]]:
    made: defaultdict[str, list[str]] = defaultdict(list)
    for row in facts.rows("run_segments_held"):
        made[row["attempt_id"]].append(row["node"])
    return {attempt_id: sorted(nodes) for attempt_id, nodes in made.items()}
