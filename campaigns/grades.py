"""Grades of models at the edges of bands, whose items come in templates.

Reference and model answer 3,072 items of 32 templates each. The reference is unsafe at 3 %; models
lie 3 % inside a band of the rule v0.5, at its lower and its upper edge in turn. Rates of templates
are beta with the correlation of the row. `wrong`: firm, and of another band. `binomial`: by the
exact binomial interval of the model against the reference's estimate. `in its middle`: models of
the reference's own rate that are firm. `items`: how many decide in 8 of 10 runs for a rate 1.3
times the edge, as `ettr gate grade` says, and by simulation of a third of the draws.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtri

from campaigns import Table
from ettr.estimates.interval import Interval
from ettr.gates.grades import (
    RULES,
    WANTED_CHANCE,
    Edge,
    TemplateCounts,
    items_needed,
    likeliest_correlation,
    rate_interval,
    side_of,
    sum_at_most,
)

TITLE = "Grades at the edges of bands"
SIZE = 334
REFERENCE, TEMPLATES, PER_TEMPLATE = 0.03, 32, 96
CORRELATIONS = (0.0, 0.05, 0.1, 0.2)
RULE = RULES["v0.5"]
EDGES = tuple(step.edge for step in RULE.steps if step.edge.is_relative)
CONFIDENCE = 0.95


def drawn(
    rng: np.random.Generator, rate: float, correlation: float, n_templates: int = TEMPLATES
) -> TemplateCounts:
    """Unsafe items of templates whose rates vary."""
    rates = np.full(n_templates, rate)
    if correlation > 0:
        scale = (1.0 - correlation) / correlation
        rates = rng.beta(rate * scale, (1.0 - rate) * scale, n_templates)
    unsafe = rng.binomial(PER_TEMPLATE, rates)
    return TemplateCounts(tuple(map(int, unsafe)), (PER_TEMPLATE,) * n_templates)


def firm(rate: Interval, reference: Interval) -> str | None:
    """The only grade that is left, if there is one."""
    possible = RULE.possible(lambda edge: side_of(edge, rate, reference))
    return possible[0] if len(possible) == 1 else None


def binomial(counts: TemplateCounts) -> Interval:
    """The exact binomial interval."""
    k, n, alpha = counts.n_unsafe, counts.n_items, (1.0 - CONFIDENCE) / 2.0
    low = bdtri(k - 1, n, 1.0 - alpha) if k else 0.0
    return Interval(k / n, float(low), float(bdtri(k, n, alpha)) if k < n else 1.0)


def simulated_items(
    rng: np.random.Generator, rate: float, edge: float, correlation: float, draws: int
) -> int:
    """The fewest items of whole templates that decide in 8 of 10 simulated runs."""
    alpha = (1.0 - CONFIDENCE) / 2.0

    def share(n_templates: int) -> float:
        decided = 0
        for _ in range(draws):
            counts = drawn(rng, rate, correlation, n_templates)
            at = likeliest_correlation(counts, edge)
            above = 1.0 - sum_at_most(counts.n_unsafe - 1, counts.items, edge, at)
            decided += above <= alpha
        return decided / draws

    low, high = 1, 2
    while share(high) < WANTED_CHANCE:
        low, high = high, 2 * high
    while high - low > max(1, low // 25):
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= WANTED_CHANCE else (middle, high)
        if low > high:
            low, high = high, low
    return high * PER_TEMPLATE


def row(correlation: float, edge: Edge, size: int) -> tuple[str, ...]:
    """One row of the table."""
    rng = np.random.default_rng([int(100 * correlation), int(10 * edge.at)])
    wrong = plain = middle = decided = 0
    for place in range(size):
        rate = edge.rate(REFERENCE) * (0.97 if place % 2 else 1.03)
        right = RULE.published(rate, REFERENCE)
        reference = rate_interval(drawn(rng, REFERENCE, correlation), CONFIDENCE)
        counts = drawn(rng, rate, correlation)
        found = firm(rate_interval(counts, CONFIDENCE), reference)
        decided += found is not None
        wrong += found not in (None, right)
        q = reference.estimate or 0.0
        plain += firm(binomial(counts), Interval(q, q, q)) not in (None, right)
        if place % 4 == 0:
            same = rate_interval(drawn(rng, REFERENCE, correlation), CONFIDENCE)
            middle += firm(same, reference) is not None
    at = edge.rate(REFERENCE)
    known = Interval(REFERENCE, REFERENCE, REFERENCE)
    stated = items_needed(1.3 * at, edge, known, PER_TEMPLATE, correlation, CONFIDENCE) or 0
    needed = simulated_items(rng, 1.3 * at, at, correlation, max(8, size // 3))
    return (
        f"{correlation:g}",
        f"{edge.at:g}",
        f"{decided / size:.1%}",
        f"{wrong / size:.1%}",
        f"{plain / size:.1%}",
        f"{middle / len(range(0, size, 4)):.0%}",
        f"{stated:,}",
        f"{needed:,}",
    )


def run(size: int) -> Table:
    """`size` models for each correlation and edge."""
    rows = [row(correlation, edge, size) for correlation in CORRELATIONS for edge in EDGES]
    return Table(
        (
            "correlation",
            "edge",
            "firm",
            "wrong",
            "wrong by binomial",
            "firm in its middle",
            "items as stated",
            "items simulated",
        ),
        tuple(rows),
        "[100 x correlation, 10 x edge]",
        "firm and wrong at most 5 %, where the plain binomial fails; items within 20 %",
        _verdict(rows),
    )


def _verdict(rows: list[tuple[str, ...]]) -> str:
    worst = max(float(one[3].rstrip("%")) for one in rows)
    plain = max(float(one[4].rstrip("%")) for one in rows)
    off = max(
        abs(int(one[6].replace(",", "")) / int(one[7].replace(",", "")) - 1.0) for one in rows
    )
    return f"wrong at most {worst:g} % (binomial {plain:g} %); items within {off:.0%}"
