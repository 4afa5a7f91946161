"""What incident ledgers state: hours lost as people wrote them, never mixed with measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.facts import Facts
from ettr.facts.node_lives import nodes_of_types
from ettr.metrics.instants import moment
from ettr.selection import Selection
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class StatedLoss:
    """Incidents and the hours that those with a number state; `without_hours` state none."""

    incidents: int
    without_hours: int
    lost_h: float | None
    lost_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """The incidents of one kind, in the ledger's own words."""

    kind: str
    stated: StatedLoss


@dataclass(frozen=True, slots=True)
class IncidentLedger:
    """All ledgers of a store together."""

    first: datetime
    last: datetime
    total: StatedLoss
    by_kind: tuple[IncidentKind, ...]


def incident_ledger(rows: Sequence[Mapping[str, Any]]) -> IncidentLedger | None:
    """Incidents and the hours that they state; None where there is none."""
    if not rows:
        return None
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    times = [moment(row["time_us"]) for row in rows]
    return IncidentLedger(
        first=min(times),
        last=max(times),
        total=_stated(rows),
        by_kind=tuple(
            IncidentKind(kind, _stated(mine))
            for kind, mine in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
    )


def selected_incidents(facts: Facts) -> list[Mapping[str, Any]]:
    """Rows of the table `incidents` of the selected period, clusters and nodes."""
    chosen: Selection = facts.given("selection")
    typed = nodes_of_types(facts, chosen.gpu_type) if chosen.gpu_type else set()
    return [
        row
        for row in facts.rows("incidents")
        if chosen.holds(row["time_us"] / MICROSECONDS_PER_SECOND)
        and (not chosen.cluster or row["cluster"] in chosen.cluster)
        and (not chosen.node or row["node"] in chosen.node)
        and (not chosen.gpu_type or (row["cluster"], row["node"]) in typed)
    ]


def _stated(rows: Sequence[Mapping[str, Any]]) -> StatedLoss:
    return StatedLoss(
        incidents=len(rows),
        without_hours=sum(row["lost_h"] is None and row["lost_gpu_hours"] is None for row in rows),
        lost_h=_sum(row["lost_h"] for row in rows),
        lost_gpu_hours=_sum(row["lost_gpu_hours"] for row in rows),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
