"""Slow nodes found by the step times of runs that change their nodes, and ordinary nodes accused.

Four runs at a time on 4, 8 or 16 of 64 nodes each, no node in two at once. Interruptions come every
12 hours on average; the run then goes on, on nodes drawn again from the free ones, and ends after a
week on average. No rank records its waits: a segment shows the median step alone, which is that of
its slowest node, with noise of its own (Student's law with 4 degrees, scale .01). Ordinary nodes
differ by a gamma law of deviation .005 (alike), or by Student's law with 5 degrees and scale .01
(unequal): there some are 3 % slower than the median by nature, and to claim one of them counts as
false. `slow`: by how much the one slow node is. By day: share of the draws in which that node is
claimed by the history so far, with its standard error; without a slow node, in which any is. A set
of nodes that were always together counts as found where the slow one is among them. Claims are at a
stated false-discovery share of .10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from campaigns import Table
from ettr.lemons.slow_runs import RunSegments, slow_by_runs

TITLE = "Slow nodes by runs"
SIZE = 40
NODES, SLOTS, SIZES = 64, 4, (4, 8, 16)
BETWEEN_INTERRUPTIONS_DAYS, RUN_DAYS, LEAST_DAYS = 0.5, 7.0, 0.02
STATED = 0.1
DAYS = (1, 2, 3, 5, 7, 14, 28)
ALIKE, UNEQUAL = "alike", "unequal"
CASES = tuple((nodes, by) for nodes in (ALIKE, UNEQUAL) for by in (0.0, 0.05, 0.1, 0.2))


@dataclass(frozen=True, slots=True)
class Segment:
    """What a run did on one set of nodes."""

    run: int
    start_day: float
    end_day: float
    log_step: float
    nodes: np.ndarray


def draw(nodes: str, by: float, rng: np.random.Generator) -> tuple[list[Segment], int | None]:
    """The segments of four weeks, and the slow node."""
    if nodes == ALIKE:
        own = np.log(rng.gamma(0.005**-2, 0.005**2, NODES))
    else:
        own = np.log1p(0.01 * rng.standard_t(5, NODES))
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
    return made, slow


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
    return [] if isinstance(judged, str) else [one.nodes for one in judged if one.claimed]


def run(size: int) -> Table:
    """`size` histories of each case."""
    rows = []
    for number, (nodes, by) in enumerate(CASES):
        found, wrong, claimed = np.zeros((size, len(DAYS)), dtype=bool), 0, 0
        for seed in range(size):
            segments, slow = draw(nodes, by, np.random.default_rng([number, seed]))
            for at, day in enumerate(DAYS):
                sets = claims(segments, day)
                found[seed, at] = any(slow is None or slow in one for one in sets)
                wrong += sum(slow not in one for one in sets)
                claimed += len(sets)
        share = found.mean(axis=0)
        # none or all of so many draws is no certainty
        near = (found.sum(axis=0) + 0.5) / (size + 1)
        error = np.sqrt(near * (1 - near) / size)
        half = [day for day, one in zip(DAYS, share, strict=True) if one >= 0.5]
        rows.append(
            (
                nodes,
                f"1 by {by:.0%}" if by else "no slow node",
                *(f"{one:.2f} ({of:.2f})" for one, of in zip(share, error, strict=True)),
                "–" if not by else (f"{24 * half[0]}" if half else f"over {24 * DAYS[-1]}"),
                f"{wrong / claimed:.3f}" if claimed else "–",
            )
        )
    return Table(
        (
            *("ordinary nodes", "slow", *(f"day {day}" for day in DAYS)),
            *("hours until half", "false discovery"),
        ),
        tuple(rows),
        "[row, draw]",
        "found at 5, 10 and 20 %, and within how many hours; no claim without a slow node",
        verdict(rows),
    )


def verdict(rows: Sequence[tuple[str, ...]]) -> str:
    """What the claims do not keep, by the rows of this package, as Markdown.

    Args:
        rows: of the whole table.
    """
    missed = [
        f"- {nodes}, {slow}: "
        + (f"a claim in {last} of the draws by day {DAYS[-1]}" if slow == "no slow node" else false)
        for nodes, slow, *_, last, _, false in rows
        if false != "–" and float(false) > STATED
    ]
    lines = [f"Where more than the stated {STATED:.2f} of the claimed sets are ordinary nodes:", ""]
    return "\n".join([*lines, *missed]) if missed else ""
