"""Nodes that slow runs down, and the runs that could be judged."""

from __future__ import annotations

from collections.abc import Iterator

from ettr.analysis.slow_nodes import ComparedRuns, SlowByRuns, SlowReport
from ettr.report.numbers import DASH, number, percent
from ettr.report.section import Section, TextTable
from ettr.words import by_number

LISTED = 20


def slow_section(report: SlowReport) -> Section:
    """The claim in a sentence, the candidates, the runs."""
    return Section(
        "slow",
        "Slow nodes",
        _lead(report),
        (),
        (_nodes(report), _runs(report), _by_runs(report), *_by_tests(report)),
        (
            f"Slow is at least {percent(report.min_slowdown, 2)} more work in a step than the "
            "median node of the run. GPU-hours are what all ranks waited for the node over the "
            "next slowest, one GPU a rank.",
            *_notes_on_runs(report),
        ),
    )


def _notes_on_runs(report: SlowReport) -> list[str]:
    found = report.by_runs
    if found.not_judged is not None:
        return [f"By step times of runs nothing is judged: {found.not_judged}."]
    notes = [
        "By step times of runs: an attempt of a run with the node against its other attempts, on "
        "as many nodes. Nodes that were always together are one row: which of them is slow these "
        "logs cannot say. GPU-hours are all of its attempts' times the slowdown.",
        f"{_least(found)} Claimed is what by itself is ordinary with a probability of "
        f"{percent(report.false_discovery, 2)} at most. A node that is far off by nature is "
        "not distinguished from one that became slow.",
    ]
    if any(one.segments_without_gpus for one in found.candidates):
        notes.append(
            "Attempts that do not say their GPUs add nothing to the GPU-hours of their nodes; "
            "“at least”: some of the node's attempts do not."
        )
    return notes


def _lost(one: SlowByRuns) -> str:
    if one.lost_gpu_hours is None:
        return DASH
    least = "at least " if one.segments_without_gpus else ""
    return f"{least}{number(one.lost_gpu_hours, 3)}"


def _least(found: ComparedRuns) -> str:
    """How slow a node has to be for a claim by runs."""
    spread = f"Ordinary nodes differ by about {percent(found.spread, 2)}:"
    if found.least_slowdown is None:
        return f"{spread} no slowdown of a single node would be enough for a claim."
    return (
        f"{spread} a single node has to be {percent(found.least_slowdown, 2)} slower than one in "
        "the middle for a claim, however often it ran."
    )


def _by_tests(report: SlowReport) -> Iterator[TextTable]:
    """Nodes by tests of bus bandwidth, where there are any."""
    if report.by_tests.segments:
        yield TextTable(
            "By bus bandwidth of nccl-tests: a node or its link",
            ("nodes", "probability", "claimed", "slower by", "interval", "tests compared"),
            tuple(
                (
                    ", ".join(one.nodes),
                    number(one.posterior, 2),
                    "yes" if one.claimed else "no",
                    percent(one.slowdown.estimate, 2),
                    f"{percent(one.slowdown.low, 2)} to {percent(one.slowdown.high, 2)}",
                    number(report.by_tests.segments),
                )
                for place, one in enumerate(report.by_tests.candidates)
                if one.claimed or place < LISTED
            ),
            frozenset({1, 3, 5}),
        )


def _by_runs(report: SlowReport) -> TextTable:
    return TextTable(
        "By step times of the runs that a node was in",
        ("nodes", "probability", "claimed", "steps longer by", "interval", "runs", "GPU-hours"),
        tuple(
            (
                ", ".join(one.nodes),
                number(one.posterior, 2),
                "yes" if one.claimed else "no",
                percent(one.slowdown.estimate, 2),
                f"{percent(one.slowdown.low, 2)} to {percent(one.slowdown.high, 2)}",
                number(one.runs),
                _lost(one),
            )
            for place, one in enumerate(report.by_runs.candidates)
            if one.claimed or place < LISTED
        ),
        frozenset({1, 3, 5, 6}),
    )


def _lead(report: SlowReport) -> str:
    judged = [run for run in report.runs if run.not_judged is None]
    by_runs = report.by_runs.not_judged is None
    by_tests = report.by_tests.not_judged is None
    if not judged and not by_runs and not by_tests:
        if not report.runs:
            return "Not measured: no run has progress records of steps of several ranks."
        return "Not measured: no run records the steps of several ranks with their waits."
    several = _has_clusters(report)
    named = [
        _of(one.cluster, _name(one.node, one.ranks), several)
        for one in report.candidates
        if one.claimed
    ]
    together = [
        " or ".join(_of(one.cluster, node, several) for node in one.nodes)
        for one in (*report.by_runs.candidates, *report.by_tests.candidates)
        if one.claimed
    ]
    named += [one for one in dict.fromkeys(together) if one not in named]
    compared = max(len(judged), report.by_runs.runs if by_runs else 0)
    runs = by_number("{n} [run|runs]", compared)
    if by_tests:
        tests = by_number("{n} [test|tests] of bus bandwidth", report.by_tests.segments)
        runs = f"{runs} and {tests}" if compared else tests
    if not named:
        return f"No node is claimed to be slow in {runs}."
    shown = ", ".join(named[:LISTED]) + (", ..." if len(named) > LISTED else "")
    return (
        f"{by_number('{n} [node is|nodes are] claimed to be slow', len(named))} in {runs}: {shown}."
    )


def _has_clusters(report: SlowReport) -> bool:
    """Whether runs are of several clusters, so that names need theirs."""
    clusters = {one.cluster for one in report.runs}
    found = (*report.by_runs.candidates, *report.by_tests.candidates)
    return len(clusters | {one.cluster for one in found}) > 1


def _of(cluster: str | None, name: str, several: bool) -> str:
    return f"{cluster}/{name}" if several and cluster is not None else name


def _name(node: str | None, ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if node is None else node


def _nodes(report: SlowReport) -> TextTable:
    several = _has_clusters(report)
    return TextTable(
        "Candidates",
        ("run", "node", "ranks", "probability", "claimed", "slower by", "interval", "GPU-hours"),
        tuple(
            (
                _of(one.cluster, one.run_id, several),
                one.node or DASH,
                ",".join(map(str, one.ranks)),
                number(one.posterior, 2),
                "yes" if one.claimed else "no",
                percent(one.slowdown.estimate, 2),
                f"{percent(one.slowdown.low, 2)} to {percent(one.slowdown.high, 2)}",
                number(one.lost_gpu_hours, 3),
            )
            for place, one in enumerate(report.candidates)
            if one.claimed or place < LISTED
        ),
        frozenset({3, 5, 6, 7}),
    )


def _runs(report: SlowReport) -> TextTable:
    several = _has_clusters(report)
    return TextTable(
        "Runs",
        ("run", "ranks", "steps", "spread of ordinary nodes", "not judged"),
        tuple(
            (
                _of(one.cluster, one.run_id, several),
                number(one.ranks),
                number(one.steps),
                percent(one.spread, 2),
                one.not_judged or "",
            )
            for one in report.runs
        ),
        frozenset({1, 2, 3}),
    )
