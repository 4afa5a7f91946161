"""Probabilities of causes against planted ones, on simulated clusters of 256 nodes over 60 days.

Each cluster has 40 users with 3 programs each that crash by chances of their own (Beta, a few
crash nearly always), attempts of 1 to 32 nodes that last lognormal times, nodes whose hardware
fails by a Weibull law with a heavy tail over nodes (and 3 lemons), switches that take a share of
their 16 nodes' jobs with them, software that fails in bad spells of a day, and operators who
cancel. Four of five faults of nodes leave the symptom, mostly the right one; half make the
scheduler name a node; one crash in fifty of a program meets an unrelated symptom. None of these
laws is one that the code assumes.

`stated` is the mean probability of the cause in its bin, `true` the share of the interruptions of
which it was the planted cause, `error` the standard error of the difference between the two, from
cluster to cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from campaigns import Table
from ettr.attribution.ledger import (
    BY_OPERATOR,
    CAUSES,
    FAILED,
    NODE_FAILED,
    CauseDomain,
    Interruptions,
    evidence_table,
    fit_ledger,
)
from ettr.attribution.shared_bursts import burst_odds
from ettr.taxonomy import load_taxonomy

TITLE = "Causes of interruptions"
SIZE = 40
NODES, DAYS, USERS, PROGRAMS, ATTEMPTS, SWITCH = 256, 60.0, 40, 3, 20_000, 16
JOB_NODES = np.array([1, 1, 1, 1, 2, 4, 8, 16, 32])
SYMPTOMS = {
    CauseDomain.NODE: ("gpu-unavailable", "gpu-memory", "pcie", "nvlink"),
    CauseDomain.SHARED: ("infiniband", "filesystem"),
    CauseDomain.SYSTEM: ("gpu-driver", "filesystem", "system-services"),
}
BINS = (0.0, 0.02, 0.1, 0.3, 0.7, 0.9, 0.98, 1.0)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One simulated cluster: what the model sees, and the planted causes."""

    given: Interruptions
    truth: np.ndarray


def draw(rng: np.random.Generator) -> Cluster:
    """Attempts with planted ends; those that nothing ends are exposure alone."""
    program = rng.choice(
        USERS * PROGRAMS, ATTEMPTS, p=rng.dirichlet(np.full(USERS * PROGRAMS, 0.4))
    )
    crash = rng.beta(0.3, 1.5, USERS * PROGRAMS)
    start = rng.uniform(0, DAYS, ATTEMPTS)
    length = np.minimum(rng.lognormal(-1.6, 1.2, ATTEMPTS), 6.0)
    size = rng.choice(JOB_NODES, ATTEMPTS)
    first = rng.integers(0, NODES, ATTEMPTS)
    rate = 0.004 * rng.weibull(0.7, NODES)
    rate[rng.choice(NODES, 3, replace=False)] = 0.2
    outages = np.sort(rng.uniform(0, DAYS, 6))
    hit = rng.integers(0, NODES // SWITCH, 6)
    bad_days = rng.choice(int(DAYS), 4, replace=False)
    ends: list[tuple[int, int, float, int]] = []  # attempt, cause, end, node
    for at in range(ATTEMPTS):
        nodes = (first[at] + np.arange(size[at])) % NODES
        found = [(start[at] + length[at], -1, -1)]
        if rng.random() < crash[program[at]]:
            found.append((start[at] + length[at] * rng.beta(0.5, 2), 3, -1))
        own = rng.exponential(1 / rate[nodes])
        found.append((start[at] + own.min(), 0, int(nodes[own.argmin()])))
        for when, switch in zip(outages, hit, strict=True):
            if start[at] < when and (nodes // SWITCH == switch).any() and rng.random() < 0.7:
                found.append((when + rng.uniform(0, 0.003), 1, -1))
        for day in bad_days:
            begin = max(start[at], float(day))
            wait = rng.exponential(1 / (0.03 * size[at]))
            if begin + wait < day + 1:
                found.append((begin + wait, 2, -1))
        if rng.random() < 0.01:
            found.append((start[at] + length[at] * rng.random(), 4, -1))
        when, cause, node = min(found)
        length[at] = when - start[at]
        if cause >= 0:
            ends.append((at, cause, when, node))
    return _cluster(ends, program, first, size, length, rng)


def _cluster(
    ends: list[tuple[int, int, float, int]],
    program: np.ndarray,
    first: np.ndarray,
    size: np.ndarray,
    length: np.ndarray,
    rng: np.random.Generator,
) -> Cluster:
    ends.sort(key=lambda one: one[2])
    kinds: dict[str, int] = {}
    evidence, named = [], []
    for _, cause, _, node in ends:
        kind, names = _evidence(CAUSES[cause], rng)
        evidence.append(kinds.setdefault(kind, len(kinds)))
        named.append(node if names else -1)
    pairs = [
        (of, int((first[at] + step) % NODES), float(length[at]))
        for of, (at, _, _, _) in enumerate(ends)
        for step in range(size[at])
    ]
    every = np.concatenate([(first[at] + np.arange(size[at])) % NODES for at in range(ATTEMPTS)])
    pair_node = np.array([node for _, node, _ in pairs])
    pair_of = np.array([of for of, _, _ in pairs])
    places: dict[str, list[int]] = {"all": list(range(len(ends)))}
    for of, node in zip(pair_of.tolist(), pair_node.tolist(), strict=True):
        places.setdefault(f"switch {node // SWITCH}", []).append(of)
    program_at = np.array([program[at] for at, _, _, _ in ends])
    times_s = 86400 * np.array([when for _, _, when, _ in ends])
    given = Interruptions(
        np.array(evidence),
        tuple(kinds),
        program_at,
        np.arange(USERS * PROGRAMS) // PROGRAMS,
        np.bincount(program, minlength=USERS * PROGRAMS).astype(float),
        pair_of,
        pair_node,
        np.array([days for _, _, days in pairs]),
        np.array(named)[pair_of] == pair_node,
        np.bincount(every, np.repeat(length, size), NODES),
        np.bincount(every, minlength=NODES).astype(float),
        burst_odds(times_s, program_at // PROGRAMS, places, 86400 * DAYS),
        np.array([int(when) for _, _, when, _ in ends]),
        int(DAYS) + 7,
    )
    return Cluster(given, np.array([cause for _, cause, _, _ in ends]))


def _evidence(cause: CauseDomain, rng: np.random.Generator) -> tuple[str, bool]:
    """What is seen of an end, and whether a log names the node."""
    if cause is CauseDomain.OPERATOR:
        return BY_OPERATOR, False
    every = [one for some in SYMPTOMS.values() for one in some]
    if cause is CauseDomain.USER:
        return (str(rng.choice(every)) if rng.random() < 0.02 else FAILED), False
    names = cause is CauseDomain.NODE and rng.random() < 0.5
    if rng.random() < 0.8:
        own = SYMPTOMS[cause] if rng.random() < 0.95 else every
        return str(rng.choice(own)), names
    return (NODE_FAILED if names or rng.random() < 0.5 else FAILED), names


def run(size: int) -> Table:
    """Reliability by cause and bin over `size` clusters."""
    symptoms = load_taxonomy().symptoms
    sums: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
    for seed in range(size):
        cluster = draw(np.random.default_rng(seed))
        fit = fit_ledger(cluster.given, evidence_table(cluster.given.kinds, symptoms, True))
        for column in range(len(CAUSES) - 1):
            stated = fit.probability[:, column]
            place = np.clip(np.searchsorted(BINS, stated, side="right") - 1, 0, len(BINS) - 2)
            for at in range(len(BINS) - 1):
                mine = place == at
                row = (int(mine.sum()), float(stated[mine].sum()))
                true = int((cluster.truth[mine] == column).sum())
                sums.setdefault((column, at), []).append((*row, true))
    rows = [
        row
        for column in range(len(CAUSES) - 1)
        for row in _reliability(column, [sums[column, at] for at in range(len(BINS) - 1)])
    ]
    return Table(
        ("cause", "probability", "interruptions", "stated", "true", "error"),
        tuple(rows),
        "cluster",
        "true shares within their intervals of the stated ones; sums of probabilities equal counts",
    )


def _reliability(column: int, bins: list[list[tuple[int, float, int]]]) -> list[tuple[str, ...]]:
    cause, made = CAUSES[column].value, []
    whole = [tuple(map(sum, zip(*some, strict=True))) for some in zip(*bins, strict=True)]
    labels = [f"{low:g} to {high:g}" for low, high in pairwise(BINS)]
    for label, counted in (*zip(labels, bins, strict=True), ("all", whole)):
        n = sum(one[0] for one in counted)
        if not n:
            continue
        stated, true = (sum(one[at] for one in counted) / n for at in (1, 2))
        gaps = np.array([one[2] - one[1] for one in counted])
        error = gaps.std() * len(counted) ** 0.5 / n
        made.append((cause, label, str(n), f"{stated:.3f}", f"{true:.3f}", f"{error:.3f}"))
    return made
