"""`ettr project`: a fleet's failure rate at another scale, with bands and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli import rates
from ettr.cli.output import show
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.analysis.fleet_evidence import FleetEvidence
    from ettr.analysis.model_choice import ChosenModels, Spans


def project(
    store: rates.StoreOrNothing = None,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="LIST", help="Scales, such as 4096,16384,131072."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="LIST", help="The same in nodes.")
    ] = None,
    gpus_per_node: opt.GpusPerNodeOption = None,
    *,
    counts: rates.TypedCounts,
    seen_gpus: Annotated[
        int | None,
        typer.Option("--seen-gpus", metavar="N", min=1, help="GPUs of the jobs they were seen in."),
    ] = None,
    seen_gpus_per_node: Annotated[
        int | None,
        typer.Option("--seen-gpus-per-node", metavar="G", min=1, help="GPUs of the nodes seen."),
    ] = None,
    spares: Annotated[
        int, typer.Option("--spares", metavar="S", min=0, help="Nodes held ready.")
    ] = 0,
    repair: Annotated[
        str | None,
        typer.Option("--repair", metavar="TIME", help="Mean time until a failed node is back."),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", metavar="D", help="Length of the run in days.")
    ] = None,
    times: rates.RunTimes,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="constant, gamma-mixed, weibull, lognormal or piecewise; repeatable, the first in "
            "the middle of the bands. If absent: the first two, the better one first.",
        ),
    ] = None,
    ages: Annotated[
        str | None,
        typer.Option(
            "--ages",
            metavar="FROM,TO",
            help="Clock of the nodes over the run, for weibull and lognormal: 0d,90d.",
        ),
    ] = None,
    clock: Annotated[
        str,
        typer.Option(
            "--clock",
            metavar="CLOCK",
            help="What --ages counts: use (since a node's last failure) or age (in service).",
        ),
    ] = "use",
    rating: opt.Rating,
    json: opt.JsonOption = False,
) -> None:
    """Project failures to other scales: MTTF and ETTR with bands, spares, and warnings.

    From a store, or from typed failures and node-days. Without --gpus or --nodes: powers of two
    from the largest job seen up.
    """
    from ettr.analysis.projecting import project_fleet, scales_for
    from ettr.defaults import GPUS_PER_NODE
    from ettr.plan.run import nodes_of
    from ettr.report.sections.projection import projection_section

    if gpus is not None and nodes is not None:
        raise UsageError("give --gpus or --nodes, not both")
    if (store is None) is not counts.given:
        raise UsageError("give a STORE, or --failures K with --node-days T")
    if store is not None and (seen_gpus or seen_gpus_per_node):
        raise UsageError(
            "--seen-gpus and --seen-gpus-per-node: a store tells them itself; leave them out, or "
            "give --failures K with --node-days T instead of a STORE"
        )
    q.positive("--days", days, "days")
    assumptions = rating.assumptions()
    span = None if ages is None else q.span_days("--ages", ages)
    wanted = _Wanted(tuple(model or ()), span, clock)
    if store is not None:
        record, models = _stored(store, assumptions, wanted)
    else:
        seen_nodes = seen_gpus and nodes_of(seen_gpus, seen_gpus_per_node or GPUS_PER_NODE)
        record = counts.record(seen_nodes, seen_gpus_per_node)
        models = wanted.fitted(record, None, rating.confidence)
    per_node = gpus_per_node or record.gpus_per_node or GPUS_PER_NODE
    if gpus is not None:
        scales = tuple(
            nodes_of(n, max(1, round(per_node))) for n in q.whole_numbers("--gpus", gpus)
        )
    elif nodes is not None:
        scales = q.whole_numbers("--nodes", nodes)
    else:
        scales = scales_for(record, per_node)
    found = project_fleet(
        record,
        scales,
        times.shape(1),
        gpus_per_node=per_node,
        spares=spares,
        repair_days=None if repair is None else q.seconds("--repair", repair) / 86400.0,
        run_days=days,
        confidence=rating.confidence,
        models=models,
    )
    show("ettr-projection", found, projection_section, json)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Models asked for by name; none where the fleet's counts shall decide."""

    names: tuple[str, ...]
    ages_days: tuple[float, float] | None
    clock: str

    def fitted(
        self, record: FleetEvidence, spans: Spans | None, confidence: float
    ) -> ChosenModels | None:
        from ettr.analysis.model_choice import choose_models

        if not self.names and self.ages_days is None and self.clock == "use":
            return None
        return choose_models(
            self.names or ("constant",),
            record,
            spans,
            ages_days=self.ages_days,
            clock=self.clock,
            confidence=confidence,
        )


def _stored(
    store: str, assumptions: Assumptions, wanted: _Wanted
) -> tuple[FleetEvidence, ChosenModels | None]:
    from ettr.analysis import Analysis
    from ettr.analysis.fleet_evidence import evidence_to_plan_with, planned_above_gpus
    from ettr.analysis.model_choice import stored_spans
    from ettr.store import open_store

    with open_store(store) as opened:
        analysis = Analysis(opened, assumptions)
        record = evidence_to_plan_with(analysis, store)
        spans = stored_spans(analysis, planned_above_gpus(analysis))
        return record, wanted.fitted(record, spans, assumptions.confidence)
