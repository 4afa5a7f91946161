"""Whether failures are independent, and which model describes them."""

from __future__ import annotations

import math

from ettr.analysis.fleet import FleetModels
from ettr.models.base import Fit
from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.numbers import DASH, number, p_value
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.funnel import funnel_figure
from ettr.report.sections.rate_intervals import intervals_table
from ettr.words import counted

_TITLE = "Do failures cluster"
_ABOVE_OUTER_LIMIT = "above 99.8 %"
NAMED_NODES = 5


def models_section(models: FleetModels) -> Section:
    """The dispersion test, the models and what each means."""
    spread = models.dispersion
    if spread is None:
        return Section("models", _TITLE, "No exposure, so no model can be fitted.")
    found = models.clustering
    lead = spread.meaning if found is None else found.meaning
    if models.bursts is not None:
        lead += f" {models.bursts.meaning}"
    notes = [
        f"{counted(spread.rate.failures, 'failure')} over {number(spread.rate.node_days, 5)} "
        "node-days.",
        *models.notes,
    ]
    if models.worst_nodes:
        notes.append(
            "A high count alone does not make a node a lemon: compare it with the count expected "
            "at the fleet's rate."
        )
    return Section(
        "models",
        _TITLE,
        lead,
        () if models.funnel is None else (node_funnel(models.funnel),),
        (
            intervals_table(spread.rate, found, spread.confidence),
            _fits_table(models.fits),
            _nodes_table(models),
        ),
        tuple(notes),
    )


def _fits_table(fits: tuple[Fit, ...]) -> TextTable:
    return TextTable(
        "Models of failures by node",
        ("model", "AIC", "p of fit", "parameters", "meaning"),
        tuple(
            (
                fit.model,
                number(fit.aic, 6),
                DASH if fit.goodness is None else p_value(fit.goodness.p_value),
                "; ".join(
                    f"{p.name} {number(p.estimate)} [{number(p.low)}, {number(p.high)}] {p.unit}"
                    for p in fit.parameters
                ),
                fit.meaning,
            )
            for fit in fits
        ),
        frozenset({1, 2}),
    )


def _nodes_table(models: FleetModels) -> TextTable:
    return TextTable(
        "Nodes with the most failures",
        ("node", "failures", "node-days", "expected at the fleet's rate"),
        tuple(
            (node.node, number(node.failures), number(node.node_days), number(node.expected))
            for node in models.worst_nodes
        ),
        frozenset({1, 2, 3}),
    )


def node_funnel(funnel: Funnel) -> Figure:
    """The nodes against chance; those furthest above it by name."""
    high = [point for point in funnel.points if point.place.startswith("above")]
    far = sum(point.place == _ABOVE_OUTER_LIMIT for point in high)
    high.sort(key=lambda point: -_excess(point, funnel.target_per_node_day))
    n_nodes = len(funnel.points)
    caption = (
        f"Each node's rate against its exposure. {far:,} of {counted(n_nodes, 'node')} lie above "
        "the 99.8 % control limit; if all nodes failed alike and independently, "
        f"{number(0.001 * n_nodes, 2)} or fewer would be expected there."
    )
    return funnel_figure(
        funnel,
        "node-funnel",
        "Funnel of nodes",
        caption,
        what="nodes",
        named=frozenset(point.name for point in high[:NAMED_NODES]),
    )


def _excess(point: FunnelPoint, per_node_day: float) -> float:
    """Standard deviations above the fleet's rate."""
    expected = per_node_day * point.rate.node_days
    return (point.rate.failures - expected) / math.sqrt(expected)
