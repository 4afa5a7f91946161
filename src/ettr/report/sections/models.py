"""Whether failures are independent, and which model of them to believe."""

from __future__ import annotations

import math

from ettr.analysis.fleet import FleetModels
from ettr.models.compare import Funnel, FunnelPoint
from ettr.report.numbers import DASH, between, counted, number
from ettr.report.section import Figure, Section, Table
from ettr.report.sections.funnel import PER_NODE_DAYS, funnel_figure

NAMED_NODES = 5


def models_section(models: FleetModels) -> Section:
    """The dispersion test, the models and what each means."""
    if models.dispersion is None:
        return Section("models", "Do failures cluster", "No exposure, so no model can be fitted.")
    spread = models.dispersion
    lead = spread.meaning
    if models.bursts is not None:
        lead += f" {models.bursts.meaning}"
    rate = spread.rate
    intervals = Table(
        "The failure rate with both intervals, per 1,000 node-days",
        ("interval", "rate", "believe"),
        tuple(
            (
                name,
                between(interval.scaled(PER_NODE_DAYS)),
                "yes" if spread.believe == name else "",
            )
            for name, interval in (
                ("poisson", spread.poisson),
                ("over-dispersed", spread.over_dispersed),
            )
        ),
        frozenset({1}),
    )
    fits = Table(
        "Models of failures by node",
        ("model", "AIC", "p of fit", "parameters", "meaning"),
        tuple(
            (
                fit.model,
                number(fit.aic, 6),
                DASH if fit.goodness is None else number(fit.goodness.p_value, 2),
                "; ".join(
                    f"{p.name} {number(p.estimate)} [{number(p.low)}, {number(p.high)}] {p.unit}"
                    for p in fit.parameters
                ),
                fit.meaning,
            )
            for fit in models.fits
        ),
        frozenset({1, 2}),
    )
    worst = Table(
        "Nodes with the most failures",
        ("node", "failures", "node-days", "expected at the fleet's rate"),
        tuple(
            (n.node, number(n.failures), number(n.node_days), number(n.expected))
            for n in models.worst_nodes
        ),
        frozenset({1, 2, 3}),
    )
    notes = (
        f"{counted(rate.failures, 'failure')} over {number(rate.node_days, 5)} node-days. "
        "A node with many failures is no lemon for that alone: see how many would be expected.",
        *models.notes,
    )
    figures = () if models.funnel is None else (_funnel(models.funnel),)
    return Section("models", "Do failures cluster", lead, figures, (intervals, fits, worst), notes)


def _funnel(found: Funnel) -> Figure:
    """The nodes against chance; those furthest above it by name."""
    high = [point for point in found.points if point.place.startswith("above")]
    far = sum(point.place == "above 99.8 %" for point in high)
    high.sort(key=lambda point: -_excess(point, found.target_per_node_day))
    n_nodes = len(found.points)
    says = (
        f"Each node's rate against its exposure. {far:,} of {n_nodes:,} nodes lie above the limits "
        f"of 99.8 %; if all failed alike and independently, {number(0.001 * n_nodes, 2)} or fewer "
        "would be expected there."
    )
    return funnel_figure(
        found,
        "node-funnel",
        "Funnel of nodes",
        says,
        what="nodes",
        named=frozenset(point.name for point in high[:NAMED_NODES]),
    )


def _excess(point: FunnelPoint, per_node_day: float) -> float:
    """Standard deviations above the fleet's rate."""
    expected = per_node_day * point.rate.node_days
    return (point.rate.failures - expected) / math.sqrt(expected)
