"""What ran and how it ended: status mix and job sizes."""

from __future__ import annotations

from ettr.metrics.sizes import SizeMix
from ettr.metrics.status import StatusMix
from ettr.report.numbers import number, percent
from ettr.report.section import Figure, Section, Table

_PERCENT_AXIS = {"ticksuffix": " %", "rangemode": "tozero"}


def _bars(name: str, labels: list[str], shares: list[float | None]) -> dict[str, object]:
    return {
        "type": "bar",
        "name": name,
        "x": labels,
        "y": [None if share is None else share * 100 for share in shares],
        "hovertemplate": "%{x}: %{y:.3g} %<extra>" + name + "</extra>",
    }


def status_section(mix: StatusMix) -> Section:
    """How attempts end, by count and by the GPU time they held."""
    states = mix.states
    gpus = any(s.share_of_gpu_hours is not None for s in states)
    held = "GPU time" if gpus else "node time"
    labels = [s.state for s in states]
    shares = [s.share_of_gpu_hours if gpus else s.share_of_node_hours for s in states]
    lead = "No attempts in the logs."
    if states:
        ends = ", ".join(f"{s.state} {percent(s.share_of_attempts)}" for s in states[:4])
        heaviest = max(zip(shares, labels, strict=True), key=lambda pair: pair[0] or 0.0)
        lead = (
            f"Of {sum(s.attempts for s in states):,} attempts: {ends}. "
            f"Most {held} was held by attempts that are {heaviest[1]} ({percent(heaviest[0])})."
        )
    figure = Figure(
        "status",
        "How attempts end",
        f"Share of attempts beside their share of {held}.",
        (
            _bars("attempts", labels, [s.share_of_attempts for s in states]),
            _bars(held, labels, shares),
        ),
        {"yaxis": _PERCENT_AXIS},
    )
    table = Table(
        "End states",
        ("state", "attempts", "share", "GPU-hours", "share", "node-hours", "share"),
        tuple(
            (
                s.state,
                number(s.attempts),
                percent(s.share_of_attempts),
                number(s.gpu_hours, 6),
                percent(s.share_of_gpu_hours),
                number(s.node_hours, 6),
                percent(s.share_of_node_hours),
            )
            for s in states
        ),
        frozenset(range(1, 7)),
    )
    return Section("status", "How jobs end", lead, (figure,) if states else (), (table,))


def sizes_section(mix: SizeMix) -> Section:
    """Job sizes by count and by the time they held."""
    classes = mix.classes
    gpus = mix.size_unit == "gpus"
    unit = "GPUs" if gpus else "nodes"
    held = "GPU time" if gpus else "node time"
    shares = [c.share_of_gpu_hours if gpus else c.share_of_node_hours for c in classes]
    labels = [c.size.label for c in classes]
    lead = "No attempt ran."
    if classes:
        most = max(classes, key=lambda c: c.attempts)
        heavy = max(zip(shares, labels, strict=True), key=lambda pair: pair[0] or 0.0)
        lead = (
            f"Most attempts ({percent(most.share_of_attempts)}) are of {most.size.label} {unit}; "
            f"most {held} ({percent(heavy[0])}) is held by those of {heavy[1]} {unit}."
        )
    figure = Figure(
        "sizes",
        "Job sizes",
        f"Share of attempts beside their share of {held}, by {unit} allocated.",
        (
            _bars("attempts", labels, [c.share_of_attempts for c in classes]),
            _bars(held, labels, shares),
        ),
        {"yaxis": _PERCENT_AXIS, "xaxis": {"title": {"text": unit}, "type": "category"}},
    )
    table = Table(
        f"Job sizes in {unit}",
        (unit, "attempts", "share", "job-hours", "GPU-hours", "share", "node-hours", "share"),
        tuple(
            (
                c.size.label,
                number(c.attempts),
                percent(c.share_of_attempts),
                number(c.job_hours, 6),
                number(c.gpu_hours, 6),
                percent(c.share_of_gpu_hours),
                number(c.node_hours, 6),
                percent(c.share_of_node_hours),
            )
            for c in classes
        ),
        frozenset(range(8)),
    )
    return Section("sizes", "Job sizes", lead, (figure,) if classes else (), (table,))
