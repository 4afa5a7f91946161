"""Probabilities of causes against planted ones, on simulated clusters over 60 days.

Each cluster has users with three programs each that crash by chances of their own, attempts of
several nodes that last lognormal times, nodes whose hardware fails by laws of several kinds,
switches (or the filesystem of all) whose outages end jobs, system software in bad spells or all the
time, and operators who cancel. Faults leave a symptom, mostly the right one, or none; ends of
programs meet unrelated symptoms. None of these laws is one that the code assumes.

The model, its constants and its widths were chosen by the kinds `chosen by`; the last change, that
it counts when many users lose many jobs each at once, was led to by one of them (80 nodes, few
users). The six kinds `held out` were written down after that, and nothing was changed since.
Without logs of nodes, daemons that end jobs everywhere look like an outage of what all share.

`stated` is the mean probability of the cause in its bin, of what is not put down to `unknown`,
`true` the share of the interruptions of which it was the planted cause, `error` the standard error
of the difference between the two, from cluster to cluster. Interruptions of one burst are one
event. `printed` is the interval of 90 % that `ettr causes` has for the true share where that
probability is stated. `by chance` says whether stated and true differ by no more than 1.96 errors,
`within` whether the true share lies in the printed interval, 1.645 errors allowed; bins of fewer
than 30 events or 10 clusters are too few to judge. The last rows have, for each kind of cluster,
the mean difference over all bins from .02 on, and how often the number of planted causes lies
within the interval of 90 % that is printed for it: of all causes, and of the cause with the fewest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from campaigns import Table
from campaigns.cause_clusters import Cluster, draw, known_symptoms
from campaigns.cause_families import FAMILIES, Family
from ettr.attribution.hazards import CAUSES, evidence_table
from ettr.attribution.ledger import expected_totals, fit_ledger, true_shares

TITLE = "Causes of interruptions"
SIZE = 20
LEAST_EVENTS, LEAST_CLUSTERS = 30, 10
STANDINGS = ("chosen by", "held out")
BINS = (0.0, 0.02, 0.1, 0.3, 0.7, 0.9, 0.98, 1.0)

_Row = tuple[int, int, float, int, float, float]
"""Of one cluster and bin: interruptions, events, and sums of probabilities, of planted causes, and
of the ends of the printed intervals."""


@dataclass(slots=True)
class _Scores:
    """What one kind of cluster gave: bins by cause and place, and totals."""

    standing: str
    clusters: int = 0
    bins: dict[tuple[int, int], list[_Row]] = field(default_factory=dict)
    within: np.ndarray = field(default_factory=lambda: np.zeros(len(CAUSES) - 1))


def run(size: int) -> Table:
    """Reliability by cause and bin over `size` clusters of each kind."""
    scores = {family.name: _Scores(family.standing) for family in FAMILIES}
    for number, family in enumerate(FAMILIES):
        for seed in range(size):
            _count(family, draw(family, np.random.default_rng([number, seed])), scores[family.name])
    rows: list[tuple[str, ...]] = []
    for name in STANDINGS:
        chosen = [one for one in scores.values() if one.standing == name]
        for column in range(len(CAUSES) - 1):
            rows += _reliability(name, column, chosen)
    verdict = " ".join(_verdict(name, rows) for name in STANDINGS)
    rows += [_of_family(name, one) for name, one in scores.items()]
    return Table(
        (
            *("clusters", "cause", "probability", "interruptions", "events", "stated", "true"),
            *("error", "printed", "by chance", "within"),
        ),
        tuple(rows),
        "[kind of cluster, draw]",
        "true shares within their intervals of the stated ones; sums of probabilities equal counts",
        verdict,
    )


def _count(family: Family, cluster: Cluster, scores: _Scores) -> None:
    has_checks = family.symptom > 0
    prior = evidence_table(cluster.given.kinds, known_symptoms(), has_checks)
    fit = fit_ledger(cluster.given, prior)
    totals = expected_totals(fit.probability, has_checks, 0.9)
    # no planted cause is an unknown one
    known = fit.probability / (1 - fit.probability[:, -1:])
    low, high = true_shares(known, has_checks, 0.9)
    scores.clusters += 1
    for column in range(len(CAUSES) - 1):
        planted = cluster.truth == column
        scores.within[column] += totals[column].contains(float(planted.sum()))
        stated = known[:, column]
        place = np.clip(np.searchsorted(BINS, stated, side="right") - 1, 0, len(BINS) - 2)
        for at in range(len(BINS) - 1):
            mine = place == at
            row = (
                int(mine.sum()),
                len(np.unique(cluster.event[mine])),
                float(stated[mine].sum()),
                int(planted[mine].sum()),
                float(low[mine, column].sum()),
                float(high[mine, column].sum()),
            )
            scores.bins.setdefault((column, at), []).append(row)


def _reliability(name: str, column: int, chosen: list[_Scores]) -> list[tuple[str, ...]]:
    made: list[tuple[str, ...]] = []
    labels = [f"{low:g} to {high:g}" for low, high in pairwise(BINS)]
    for at, label in enumerate(labels):
        counted = [row for one in chosen for row in one.bins[column, at]]
        n, events = (sum(row[of] for row in counted) for of in (0, 1))
        if not n:
            continue
        stated, true, low, high = (sum(row[of] for row in counted) / n for of in (2, 3, 4, 5))
        error = float(np.std([row[3] - row[2] for row in counted])) * len(counted) ** 0.5 / n
        few = events < LEAST_EVENTS or sum(row[0] > 0 for row in counted) < LEAST_CLUSTERS
        by_chance = abs(true - stated) <= 1.96 * error
        within = low - 1.645 * error <= true <= high + 1.645 * error
        figures = [f"{one:.3f}" for one in (stated, true, error)]
        made.append(
            (
                *(name, CAUSES[column].value, label, str(n), str(events), *figures),
                f"{low:.3f} to {high:.3f}",
                *("few" if few else "yes" if one else "no" for one in (by_chance, within)),
            )
        )
    return made


def _verdict(name: str, rows: list[tuple[str, ...]]) -> str:
    mine = [row for row in rows if row[0] == name and row[-1] != "few"]
    by_chance, within = (sum(row[of] == "yes" for row in mine) for of in (-2, -1))
    if not mine:
        return ""
    largest = max(mine, key=lambda row: abs(float(row[5]) - float(row[6])))
    return (
        f"Clusters {name}: of {len(mine)} bins with enough events the true share lies within the "
        f"printed interval in {within}, and differs from the stated one by no more than chance in "
        f"{by_chance}; the largest difference is {largest[5]} stated, {largest[6]} true "
        f"({largest[1]})."
    )


def off_by(scores: _Scores) -> float:
    """Mean gap of stated and true shares over the bins of all causes from .02 on."""
    gaps, total = 0.0, 0
    for (_, at), counted in scores.bins.items():
        if at:
            gaps += abs(sum(row[3] - row[2] for row in counted))
            total += sum(row[0] for row in counted)
    return gaps / max(total, 1)


def _of_family(name: str, scores: _Scores) -> tuple[str, ...]:
    n, events = (
        sum(row[of] for (column, _), some in scores.bins.items() if not column for row in some)
        for of in (0, 1)
    )
    within = scores.within / scores.clusters
    worst = int(within.argmin())
    return (
        f"{name} ({scores.standing})",
        "all",
        f"totals within their intervals: {within.mean():.2f}, {CAUSES[worst]} {within[worst]:.2f}",
        *(str(n), str(events), "–", "–", f"off by {off_by(scores):.3f}", "–", "–", "–"),
    )
