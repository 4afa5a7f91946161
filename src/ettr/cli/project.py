"""`ettr project` and `ettr forecast`: failures at another scale and in time to come, with bands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli import rates
from ettr.cli.groups import Input, Only, OptionGroup, TypedOptions, needs
from ettr.cli.output import Answering, PageFile
from ettr.cli.quantities import MOST_GPUS_PER_NODE
from ettr.cli.selecting import OnEngine, Selecting
from ettr.defaults import GPUS_PER_NODE
from ettr.errors import UsageError
from ettr.models.registry import LAWS_OF_AGE, MODELS

if TYPE_CHECKING:
    from ettr.analysis.fleet_evidence import FleetEvidence
    from ettr.analysis.model_choice import ChosenModels, StoredSpans
    from ettr.analysis.projecting import RateAlone, ScaleProjection
    from ettr.analysis.selecting import SelectionHead


def _listed(names: Iterable[str], last: str) -> str:
    """Names as a sentence lists them: a, b or c."""
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end


@dataclass(frozen=True, slots=True)
class Scales(OptionGroup):
    """The sizes to project to."""

    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="LIST", help="Scales, such as 4096,16384,131072."),
    ] = None
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="LIST", help="Scales in nodes.")
    ] = None
    gpus_per_node: rates.GpusPerNodeOption = None

    def in_nodes(
        self, evidence: FleetEvidence | RateAlone, gpus_per_node: float | None
    ) -> tuple[int, ...]:
        """The sizes in nodes; powers of two from the largest job seen up where none is given.

        Raises:
            UsageError: they cannot be understood, or are given twice.
        """
        from ettr.analysis.projecting import scales_for, scales_of_gpus

        if self.gpus is not None and self.nodes is not None:
            raise UsageError("give --gpus or --nodes, not both")
        if self.gpus is not None:
            return scales_of_gpus(q.whole_numbers("--gpus", self.gpus), gpus_per_node)
        if self.nodes is not None:
            return q.whole_numbers("--nodes", self.nodes)
        return scales_for(evidence, gpus_per_node)


@dataclass(frozen=True, slots=True)
class SeenSize(OptionGroup):
    """The size of the jobs behind typed numbers."""

    seen_gpus: Annotated[
        int | None,
        typer.Option("--seen-gpus", metavar="N", min=1, help="GPUs of the jobs that failed."),
        needs(Input.RATE),
    ] = None
    seen_gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--seen-gpus-per-node",
            metavar="G",
            min=1,
            max=MOST_GPUS_PER_NODE,
            help="GPUs per node of those jobs.",
        ),
        needs(Input.RATE),
    ] = None

    def nodes(self) -> int | None:
        """Nodes of those jobs; None where not given."""
        from ettr.plan.run import nodes_of

        if self.seen_gpus is None:
            return None
        return nodes_of(self.seen_gpus, self.gpus_of_node)

    @property
    def gpus_of_node(self) -> int:
        """GPUs of a node that was seen."""
        return self.seen_gpus_per_node or GPUS_PER_NODE


@dataclass(frozen=True, slots=True)
class SpareOptions(OptionGroup):
    """Nodes held ready, how long a failed one is away, and how long the run lasts."""

    spares: Annotated[
        int,
        typer.Option("--spares", metavar="S", min=0, help="Number of spare nodes held ready."),
        needs(Input.REPAIR),
    ] = 0
    repair: Annotated[
        str | None,
        typer.Option("--repair", metavar="TIME", help="Mean repair time of a failed node."),
    ] = None

    days: Annotated[
        str | None,
        typer.Option("--days", metavar="TIME", help="Length of the run, such as 54d, or days."),
    ] = None

    def repair_days(self) -> float | None:
        """Mean time until a failed node is back, in days.

        Raises:
            UsageError: it cannot be understood.
        """
        return q.if_typed(q.time_days, "--repair", self.repair)


@dataclass(frozen=True, slots=True)
class ModelOptions(OptionGroup):
    """The failure models in the bands."""

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help=f"{_listed(MODELS, 'or')}; repeatable, the first in the middle of the bands. If "
            "absent: the first two, the better one first.",
        ),
    ] = None
    ages: Annotated[
        str | None,
        typer.Option(
            "--ages",
            metavar="FROM,TO",
            help="Ages of the nodes at the start and the end of the run, for "
            f"{_listed(LAWS_OF_AGE, 'and')}: 0d,90d.",
        ),
        needs(Input.MODEL_OF_AGE),
    ] = None
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock",
            metavar="CLOCK",
            help="What --ages counts: use (since the node's last failure) or age (in service).",
        ),
        needs(Input.MODEL_OF_AGE),
    ] = None

    repair_law: Annotated[
        str | None,
        typer.Option(
            "--repair-law",
            metavar="LAW",
            help="What a repair does to that clock: good-as-new (of use) or minimal (of age).",
        ),
        needs(Input.MODEL_OF_AGE),
    ] = None

    def of_age(self) -> bool:
        """Whether one of them depends on the age of the nodes."""
        return any(name in LAWS_OF_AGE for name in self.model or ())

    def fitted(
        self, evidence: FleetEvidence, spans: StoredSpans | None, confidence: float
    ) -> ChosenModels | None:
        """The models asked for, fitted; None where the fleet's counts decide.

        Raises:
            UsageError: one is unknown, or does not apply to what there is.
        """
        from ettr.analysis.model_choice import CLOCKS, choose_models
        from ettr.projection.scale import RepairLaw

        if not self.model:
            return None
        return choose_models(
            self.model,
            evidence,
            spans,
            ages_days=None if self.ages is None else q.span_days("--ages", self.ages),
            clock=self.clock or CLOCKS[0],
            confidence=confidence,
            repair_law=None
            if self.repair_law is None
            else q.one_of("--repair-law", self.repair_law, RepairLaw),
        )


def project(
    store: rates.StoreOrNothing = None,
    *,
    scales: Scales,
    rate: rates.TypedRate,
    seen: SeenSize,
    spare: SpareOptions,
    times: rates.RunTimes,
    models: ModelOptions,
    on: OnEngine,
    selecting: Selecting,
    rating: opt.Rating,
    typed: TypedOptions,
    page: PageFile,
    printing: Answering,
) -> None:
    """Project failures to other scales: MTTF and ETTR with bands, spares, and warnings.

    From a store, from typed failures and node-days, or from a typed rate. Without --gpus or
    --nodes: powers of two from the largest job seen up.
    """
    from ettr.analysis.projecting import project_fleet, without_ends
    from ettr.report.sections.projection import projection_section

    ways = [store is not None, rate.given, rate.per_1000_node_days is not None]
    if sum(ways) != 1:
        raise UsageError(
            f"{'more than one' if any(ways) else 'no'} failure rate: give a STORE, or --failures K "
            "with --node-days T, or --failures-per-1000-node-days R"
        )
    typed.check(
        {
            Input.STORE: store is not None,
            Input.COUNTS: rate.has_interval,
            Input.RATE: store is None,
            Input.REPAIR: spare.repair is not None,
            Input.MODEL_OF_AGE: models.of_age(),
        }
    )
    page.check()
    run_days, shape = q.days("--days", spare.days), times.shape(1)
    evidence, chosen, cautions, head = (
        (*_typed(rate, seen, rating, models), (), None)
        if store is None
        else _stored(store, on, rating, models, selecting)
    )
    gpus_per_node = scales.gpus_per_node or evidence.gpus_per_node
    found = project_fleet(
        evidence,
        scales.in_nodes(evidence, gpus_per_node),
        shape,
        interval_s=times.interval_s(),
        gpus_per_node=gpus_per_node,
        spares=spare.spares,
        repair_days=spare.repair_days(),
        run_days=run_days,
        confidence=rating.confidence,
        models=chosen,
    )
    found = replace(found, notes=(*cautions, *found.notes))
    shown = found if printing.as_text else without_ends(found)
    printing.show("ettr-projection", shown, projection_section, "points", head)
    page.write(projection_section(found), _of_what(found), found.confidence, head, printing)


def _of_what(found: ScaleProjection) -> str:
    what = found.name[:1].upper() + found.name[1:]
    return f"{what}, {found.jobs}"


def _typed(
    rate: rates.TypedRate, seen: SeenSize, rating: opt.Rating, models: ModelOptions
) -> tuple[FleetEvidence | RateAlone, ChosenModels | None]:
    from ettr.analysis.fleet_evidence import typed_evidence
    from ettr.analysis.projecting import RateAlone

    if not rate.given:
        if models.model:
            raise UsageError(
                f"--model {models.model[0]}: a rate without its failures fits no model; give "
                "--failures with --node-days, or a STORE"
            )
        typed = rate.planning_rate(rating.confidence)
        return RateAlone(typed, seen.nodes(), seen.gpus_of_node), None
    counted = rate.rate()
    evidence = typed_evidence(
        "the fleet", counted.failures, counted.node_days, seen.nodes(), seen.gpus_of_node
    )
    return evidence, models.fitted(evidence, None, rating.confidence)


def _stored(
    store: str, on: OnEngine, rating: opt.Rating, models: ModelOptions, selecting: Selecting
) -> tuple[FleetEvidence, ChosenModels | None, tuple[str, ...], SelectionHead]:
    """What a store gives a projection, what may be wrong with its rate, what is selected."""
    from ettr.analysis import Analysis
    from ettr.analysis.fleet_evidence import evidence_to_plan_with, planned_above_gpus
    from ettr.analysis.model_choice import StoredSpans
    from ettr.report.findings import rate_cautions

    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        evidence = evidence_to_plan_with(analysis, opened.where)
        spans = StoredSpans(analysis, planned_above_gpus(analysis))
        fitted = models.fitted(evidence, spans, rating.confidence)
        return evidence, fitted, rate_cautions(analysis), analysis.selection_head


# -- `ettr forecast`: how many failures will come, and how well such forecasts held in the past ----


def forecast(
    store: opt.StoreArgument,
    *,
    ahead: Annotated[
        str,
        typer.Option("--ahead", metavar="LIST", help="How far ahead, such as 1d,7d,28d."),
    ] = "7d,28d",
    nodes: Annotated[
        float | None,
        typer.Option("--nodes", metavar="N", help="Nodes that will run; default as last."),
    ] = None,
    on: OnEngine,
    selecting: Selecting,
    rating: Annotated[
        opt.Rating,
        Only(
            *("taxonomy", "believe", "window"),
            *("burst_gap", "sticky_gap", "log_tolerance", "confidence"),
        ),
    ],
    printing: Answering,
) -> None:
    """Forecast failures: how many will come, with bands, and how often such bands held.

    Each length of time is forecast from windows of that length in the store's past, twelve at
    least. Every past window from the thirteenth on is forecast from what came before it alone.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.forecasting import forecast_failures
    from ettr.report.sections.projection import forecast_section

    lengths = [q.time_days("--ahead", part.strip()) for part in ahead.split(",")]
    q.positive("--nodes", nodes, "nodes")
    with on.open(store) as opened:
        analysis = Analysis(opened, rating.assumptions(), selecting.selection())
        found = forecast_failures(analysis, opened.where, lengths, nodes)
        head = analysis.selection_head
    printing.show("ettr-forecast", found, forecast_section, "ahead", head)
