"""Slow nodes found by the step times of runs that change their nodes, and ordinary nodes accused.

Four runs at a time on 4, 8 or 16 of 64 nodes each, no node in two at once. Interruptions come every
12 hours on average; the run then goes on, on nodes drawn again from the free ones, and ends after a
week on average. No rank records its waits: a segment shows the median step alone, which is that of
its slowest node, with noise of its own (Student's law with 4 degrees, scale .01). Ordinary nodes
differ by a gamma law of deviation .005 (alike), or by Student's law with 5 degrees and scale .01
(unequal): there some are 3 % slower than the median by nature, and to claim one of them counts as
false. Two more kinds of fleet were written before the judgement was made, and it was not fitted to
them: nodes of two kinds 3 % apart, half of each, alike within their kind (two kinds), and a
lognormal law of deviation .01 (lognormal).

`slow`: by how much the one slow node is slower than the middle of the law. By day: share of the
draws in which that node is claimed by the history so far, with its standard error; without a slow
node, in which any is. A set of nodes that were always together counts as found where the slow one
is among them. Claims are those of all these days together, at a stated false-discovery share of
.10; wrong ones are of sets without the slow node, in brackets those with a node that is 5 % or more
slower by nature: no step time distinguishes it from one that became slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from campaigns import Table
from ettr.lemons.slow_runs import RunSegments, slow_by_runs

TITLE = "Slow nodes by runs"
SIZE = 20
NODES, SLOTS, SIZES = 64, 4, (4, 8, 16)
BETWEEN_INTERRUPTIONS_DAYS, RUN_DAYS, LEAST_DAYS = 0.5, 7.0, 0.02
STATED, MUCH = 0.1, 0.05
WORKERS = 2
DAYS = (1, 2, 3, 5, 7, 14, 28)
ALIKE, UNEQUAL, TWO_KINDS, LOGNORMAL = "alike", "unequal", "two kinds", "lognormal"
NO_SLOW = "no slow node"
LAWS = (ALIKE, UNEQUAL, TWO_KINDS, LOGNORMAL)
CASES = tuple((nodes, by) for nodes in LAWS for by in (0.0, 0.05, 0.1, 0.2))


@dataclass(frozen=True, slots=True)
class Segment:
    """What a run did on one set of nodes."""

    run: int
    start_day: float
    end_day: float
    log_step: float
    nodes: np.ndarray


def _ordinary(nodes: str, rng: np.random.Generator) -> np.ndarray:
    """Log of how much longer each ordinary node takes than one in the middle."""
    if nodes == UNEQUAL:
        return np.log1p(0.01 * rng.standard_t(5, NODES))
    if nodes == LOGNORMAL:
        return rng.normal(0.0, 0.01, NODES)
    own: np.ndarray = np.log(rng.gamma(0.005**-2, 0.005**2, NODES))
    own += rng.permutation(np.repeat([-0.015, 0.015], NODES // 2)) * (nodes == TWO_KINDS)
    return own


def draw(
    nodes: str, by: float, rng: np.random.Generator
) -> tuple[list[Segment], int | None, np.ndarray]:
    """The segments of four weeks, the slow node, and the log of how much longer each node takes."""
    own = _ordinary(nodes, rng)
    slow = int(rng.integers(NODES)) if by else None
    if slow is not None:
        own[slow] = np.log1p(by)
    made: list[Segment] = []
    # of each slot: its run, that run's step and size, and when segment and run end
    held = [np.zeros(0, dtype=np.int64)] * SLOTS
    run, base, size = [-1] * SLOTS, [0.0] * SLOTS, [0] * SLOTS
    until, run_until, runs = np.zeros(SLOTS), np.zeros(SLOTS), 0
    while (now := float(until.min())) < DAYS[-1]:
        slot = int(until.argmin())
        if now >= run_until[slot]:
            run[slot], runs = runs, runs + 1
            base[slot], size[slot] = rng.normal(2.0, 0.5), int(rng.choice(SIZES))
            run_until[slot] = now + rng.exponential(RUN_DAYS)
        busy = np.concatenate([held[other] for other in range(SLOTS) if other != slot])
        held[slot] = rng.choice(np.setdiff1d(np.arange(NODES), busy), size[slot], replace=False)
        lasts = LEAST_DAYS + rng.exponential(BETWEEN_INTERRUPTIONS_DAYS)
        until[slot] = min(now + lasts, max(float(run_until[slot]), now + LEAST_DAYS))
        step = base[slot] + own[held[slot]].max() + 0.01 * rng.standard_t(4)
        made.append(Segment(run[slot], now, float(until[slot]), step, held[slot]))
    return made, slow, own


def claims(segments: list[Segment], day: float) -> list[tuple[int, ...]]:
    """Sets of nodes that the history up to a day claims."""
    begun = [one for one in segments if one.start_day + LEAST_DAYS <= day]
    hours = [24.0 * (min(one.end_day, day) - one.start_day) for one in begun]
    judged = slow_by_runs(
        RunSegments(
            np.array([one.run for one in begun], dtype=np.int64),
            np.array([one.log_step for one in begun]),
            [one.nodes for one in begun],
            np.array(hours),
        ),
        STATED,
        0.9,
    )
    return [] if isinstance(judged, str) else [one.nodes for one in judged.groups if one.claimed]


@dataclass(frozen=True, slots=True)
class Judged:
    """The claims in one history, by day.

    Attributes:
        found: Whether the slow node is; without one, whether any is.
        wrong: Sets claimed without a slow node.
        by_nature: Those with an ordinary node that is slower by `MUCH` or more by nature.
        claimed: All sets.
    """

    found: tuple[bool, ...]
    wrong: tuple[int, ...]
    by_nature: tuple[int, ...]
    claimed: tuple[int, ...]


def judge(number_and_seed: tuple[int, int]) -> Judged:
    """One history of a case, judged at each day."""
    number, seed = number_and_seed
    segments, slow, own = draw(*CASES[number], np.random.default_rng([number, seed]))
    by_day = [claims(segments, day) for day in DAYS]
    return Judged(
        tuple(any(slow is None or slow in one for one in sets) for sets in by_day),
        tuple(sum(slow not in one for one in sets) for sets in by_day),
        tuple(
            sum(slow not in one and own[list(one)].max() >= np.log1p(MUCH) for one in sets)
            for sets in by_day
        ),
        tuple(len(sets) for sets in by_day),
    )


def run(size: int) -> Table:
    """`size` histories of each case."""
    asked = [(number, seed) for number in range(len(CASES)) for seed in range(size)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        judged = list(pool.map(judge, asked, chunksize=max(size // 8, 1)))
    rows = [
        _row(*case, judged[number * size : (number + 1) * size])
        for number, case in enumerate(CASES)
    ]
    return Table(
        (
            *("ordinary nodes", "slow", *(f"day {day}" for day in DAYS), "hours until half"),
            *("draws with a wrong claim", "wrong claims", "claims", "false discovery"),
        ),
        tuple(rows),
        "[row, draw]",
        "found at 5, 10 and 20 %, and within how many hours; no claim without a slow node",
        verdict(rows),
    )


def _row(nodes: str, by: float, judged: Sequence[Judged]) -> tuple[str, ...]:
    """A case as cells of the table."""
    found = np.array([one.found for one in judged])
    share, wrong = found.mean(axis=0), np.array([one.wrong for one in judged])
    claimed = sum(sum(one.claimed) for one in judged)
    by_nature = sum(sum(one.by_nature) for one in judged)
    # none or all of so many draws is no certainty
    near = (found.sum(axis=0) + 0.5) / (len(judged) + 1)
    error = np.sqrt(near * (1 - near) / len(judged))
    half = [day for day, one in zip(DAYS, share, strict=True) if one >= 0.5]
    return (
        nodes,
        f"1 by {by:.0%}" if by else NO_SLOW,
        *(f"{one:.2f} ({of:.2f})" for one, of in zip(share, error, strict=True)),
        "–" if not by else (f"{24 * half[0]}" if half else f"over {24 * DAYS[-1]}"),
        f"{wrong.any(axis=1).mean():.3f}",
        f"{wrong.sum()} ({by_nature})",
        f"{claimed}",
        f"{wrong.sum() / claimed:.3f}" if claimed else "–",
    )


def verdict(rows: Sequence[tuple[str, ...]]) -> str:
    """What the claims keep and what they do not, by the rows of this package, as Markdown.

    Args:
        rows: of the whole table.
    """
    missed, by_law = [], []
    for nodes, slow, *_, wrong, _, claimed, false in rows:
        if slow == NO_SLOW and float(wrong) > STATED:
            missed.append(f"- {nodes}, {slow}: a claim at some day in {wrong} of the draws")
        elif slow != NO_SLOW and false != "–" and float(false) > STATED:
            missed.append(f"- {nodes}, {slow}: {false} of {claimed} claims")
    for law in LAWS:
        counts = [(int(row[-2]), row[-1]) for row in rows if row[0] == law and row[-1] != "–"]
        all_of = sum(count for count, _ in counts)
        ordinary = sum(count * float(share) for count, share in counts)
        by_law.append(f"- {law}: {ordinary / max(all_of, 1):.3f} of {all_of}")
    return "\n".join(
        [
            "Ordinary nodes among the claimed sets of all four rows of a kind of fleet, the one "
            "without a slow node included:",
            "",
            *by_law,
            "",
            f"Rows with more than the stated {STATED:.2f}:",
            "",
            *(missed or ["- no row"]),
        ]
    )
