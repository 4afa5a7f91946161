"""Slow nodes of runs whose ranks record no waits: step times by the nodes that a run was on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ettr.estimates import Interval
from ettr.lemons.slow_runs import RunSegments, SlowGroup, slow_by_runs
from ettr.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis
    from ettr.facts import Facts

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
    rows = facts.rows("run_segments")
    names = [field.name for field in fields(_Segment)]
    measured = [_Segment(*(row[name] for name in names)) for row in rows if row["n"] >= MIN_STEPS]
    if not measured:
        return ComparedRuns((), 0, 0, "no run with step times names its job, and the job its nodes")
    nodes_of = _nodes_of(facts)
    placed = [one for one in measured if one.attempt_id in nodes_of]
    if not placed:
        return ComparedRuns((), 0, 0, "no log names the nodes of the jobs of the runs")
    segments, nodes = _numbered(placed, nodes_of)
    runs = len(np.unique(segments.run))
    judged = slow_by_runs(segments, false_discovery, analysis.assumptions.confidence)
    if isinstance(judged, str):
        return ComparedRuns((), runs, len(placed), judged)
    named = tuple(_named(group, nodes) for group in judged.groups)
    return ComparedRuns(named, runs, len(placed), None, judged.spread, judged.least_slowdown)


def _numbered(
    placed: Sequence[_Segment], nodes_of: Mapping[str, Sequence[str]]
) -> tuple[RunSegments, list[tuple[str, str]]]:
    """The segments with numbers for runs and nodes, and the nodes by their numbers."""
    nodes: dict[tuple[str, str], int] = {}
    runs: dict[tuple[str, str, int], int] = {}
    run, held = [], []
    for one in placed:
        names = nodes_of[one.attempt_id]
        # step times of other sizes are not comparable
        run.append(runs.setdefault((one.cluster, one.run_id, len(names)), len(runs)))
        places = [nodes.setdefault((one.cluster, name), len(nodes)) for name in names]
        held.append(np.array(places, dtype=np.int64))
    log_step = np.log([one.step_s for one in placed])
    gpu_hours = [
        np.nan if one.n_gpus is None else one.steps_s / SECONDS_PER_HOUR * one.n_gpus
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


@dataclass(frozen=True, slots=True)
class _Segment:
    """An attempt of a run: its median step, and all of them together, by its first rank."""

    cluster: str
    run_id: str
    attempt_id: str
    step_s: float
    steps_s: float
    n_gpus: int | None


def _nodes_of(facts: Facts) -> dict[str, list[str]]:
    made: defaultdict[str, list[str]] = defaultdict(list)
    for row in facts.rows("run_segments_held"):
        made[row["attempt_id"]].append(row["node"])
    return {attempt_id: sorted(nodes) for attempt_id, nodes in made.items()}
