"""`ettr compare`: which of several fleets, partitions or periods fails more often."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.groups import Input, Only, OptionGroup, TypedOptions, needs
from ettr.cli.output import Answering, PageFile
from ettr.cli.selecting import OnEngine, Pricing, Selecting
from ettr.errors import UsageError
from ettr.selection import Selection

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.analysis.fleet_evidence import FleetEvidence
    from ettr.analysis.selecting import SelectionHead
    from ettr.plan.cost import Price


_SELECTING = ("since", "until", "account", "user", "qos", "node", "gpu_type", "place")
"""Partitions and clusters cut the store instead (`Cut`)."""
_RATING = (*(option.name for option in fields(opt.Rating)), "interval")
"""What rates depend on, and what failures lose besides."""
BY_GPU_TYPE = "gpu-type"
TypedFleet = tuple[str | None, int, float]
"""Name, failures and node-days of a fleet that was typed."""


@dataclass(frozen=True, slots=True)
class Cut(OptionGroup):
    """How one store is cut into the fleets to compare."""

    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="NAME", help="This partition against the others; repeatable."
        ),
    ] = None
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", metavar="NAME", help="This cluster against the others; repeatable."
        ),
    ] = None
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHAT", help="gpu-type: one type of GPU against another."),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Within one store: the time before this moment; UTC unless it has an offset.",
        ),
    ] = None
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TIME", help="Only the time from this moment on."),
    ] = None
    previous: Annotated[
        bool,
        typer.Option(
            "--previous",
            help="Within one store: the period of --since and --until (default: the last 30 "
            "days) against the one before.",
        ),
    ] = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options given."""
        given = {
            "--partition": self.partition,
            "--cluster": self.cluster,
            "--by": self.by,
            "--before/--after": self.before or self.after,
            "--previous": self.previous,
        }
        return tuple(name for name, value in given.items() if value)

    def moments(self) -> tuple[datetime, datetime] | None:
        """End of the earlier period and start of the later one; None where neither is given.

        Raises:
            UsageError: a time cannot be understood.
        """
        given = [
            q.utc_moment(option, text)
            for option, text in (("--before", self.before), ("--after", self.after))
            if text is not None
        ]
        return (given[0], given[-1]) if given else None

    def fleets(self, analysis: Analysis, above_gpus: int | None) -> list[FleetEvidence]:
        """The fleets that the store is cut into."""
        from ettr.analysis.fleet_evidence import parts, periods, types_of_gpu

        if self.by is not None:
            return types_of_gpu(analysis, above_gpus)
        moments = self.moments()
        if moments is not None:
            return periods(analysis, "the fleet", *moments, above_gpus=above_gpus)
        if self.partition:
            return parts(analysis, "partition", self.partition, above_gpus)
        return parts(analysis, "cluster", self.cluster or (), above_gpus)


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FLEET...",
            help="Stores, or failures over node-days such as new=12/6000.",
        ),
    ],
    *,
    cut: Cut,
    all_jobs: Annotated[
        bool,
        typer.Option("--all-jobs", help="Count small jobs too, not only large ones."),
        needs(Input.STORE),
    ] = False,
    published: Annotated[
        bool,
        typer.Option("--published", help="Compare one fleet with published rates."),
    ] = False,
    on: OnEngine,
    selecting: Annotated[Selecting, Only(*_SELECTING)],
    rating: Annotated[opt.AnalysisOptions, Only(*_RATING)],
    pricing: Pricing,
    typed: TypedOptions,
    page: PageFile,
    printing: Answering,
) -> None:
    """Compare failure rates: ratio with its exact interval and test, by symptom, funnel plot.

    Two or more stores; one store by --partition, --cluster, several --gpu-type, or --before and
    --after a moment; or
    typed numbers, failures over node-days: ettr compare old=30/5000 new=12/6000. Large jobs are
    compared where every fleet ran any, else all jobs.
    """
    numbers = [q.failures_over_node_days(text) for text in what]
    stores = [text for text, known in zip(what, numbers, strict=True) if known is None]
    _check_cut(cut, what, stores)
    if published and (cut.options or len(what) != 1):
        raise UsageError("--published compares one fleet with published ones; give exactly one")
    typed.check(
        {
            Input.STORE: bool(stores),
            Input.COUNTS: len(stores) < len(what),
            Input.LARGE_JOBS: not all_jobs,
            Input.PREVIOUS: cut.previous,
        }
    )
    page.check()
    from ettr.analysis.comparing import compare_fleets
    from ettr.report.sections.compare import compare_section

    selection, price = selecting.selection(), pricing.price()
    if cut.previous:
        _show_previous(what[0], on, selection, price, rating, all_jobs, page, printing)
        return
    if price is not None:
        raise UsageError("--gpu-hour-price: failure rates hold no GPU-hours; give --previous too")
    named = list(zip(what, numbers, strict=True))
    fleets, head = _fleets(named, cut, on, all_jobs, rating, selection)
    if published:
        from ettr.analysis.comparing import compare_with_published
        from ettr.report.sections.compare import published_section

        (fleet,) = fleets
        compared_with = compare_with_published(fleet, rating.confidence)
        printing.show("ettr-published", compared_with, published_section, "published", head)
        page.write(
            published_section(compared_with),
            f"Does {fleet.name} fail more often than published fleets?",
            rating.confidence,
            head,
            printing,
        )
        return
    if len(fleets) == 1:
        raise UsageError(
            "one fleet alone cannot be compared; give two or more, or compare it with its own past "
            "(--previous, --before TIME) or with published fleets (--published)"
        )
    compared = compare_fleets(fleets, rating.confidence, paired=cut.moments() is not None)
    printing.show("ettr-comparison", compared, compare_section, "fleets", head)
    question = f"Do {' and '.join(one.name for one in fleets)} fail equally often?"
    page.write(compare_section(compared), question, rating.confidence, head, printing)


def _show_previous(
    where: str,
    on: OnEngine,
    selection: Selection,
    price: Price | None,
    rating: opt.AnalysisOptions,
    all_jobs: bool,
    page: PageFile,
    printing: Answering,
) -> None:
    """Print a period of a store against the one before it."""
    from ettr.analysis import Analysis
    from ettr.analysis.comparing import period_trend
    from ettr.analysis.fleet_evidence import common_above_gpus
    from ettr.report.rows import priced
    from ettr.report.sections.compare import previous_section

    with on.open(where) as store:
        analysis = Analysis(store, rating.assumptions(), selection, price)
        above = None if all_jobs else common_above_gpus([analysis], rating.above_gpus)
        trend = period_trend(analysis, above)
        if trend is None:
            raise UsageError(f"{where}: holds no job accounting, so no period can be compared")
        head = analysis.selection_head
    printing.show("ettr-periods", trend, previous_section, "", head, price)
    section = priced(previous_section(trend), price)
    question = "Does it fail more often than in the period before?"
    page.write(section, question, rating.confidence, head, printing)


def _fleets(
    named: list[tuple[str, TypedFleet | None]],
    cut: Cut,
    on: OnEngine,
    all_jobs: bool,
    rating: opt.Rating,
    selection: Selection,
) -> tuple[list[FleetEvidence], SelectionHead | None]:
    """The fleets named, each a store or typed numbers, or the parts that one store is cut into.

    And what is selected of the stores; None where numbers alone were typed.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.fleet_evidence import common_above_gpus, fleet_evidence, typed_evidence
    from ettr.analysis.selecting import head_of

    with ExitStack() as stack:
        opened = {
            text: stack.enter_context(on.open(text)) for text, typed in named if typed is None
        }
        stores = {
            text: Analysis(store, rating.assumptions(), selection) for text, store in opened.items()
        }
        above = None if all_jobs else common_above_gpus([*stores.values()], rating.above_gpus)
        head = head_of([store.selection_head for store in stores.values()])
        if cut.options:
            (whole,) = stores.values()
            return cut.fleets(whole, above), head
        if len(named) == 1 and len(selection.gpu_type) > 1:
            (store,) = opened.values()
            of_types = [
                (one, Analysis(store, rating.assumptions(), replace(selection, gpu_type=(one,))))
                for one in selection.gpu_type
            ]
            above = (
                None
                if all_jobs
                else common_above_gpus([one for _, one in of_types], rating.above_gpus)
            )
            return [fleet_evidence(one, name, above_gpus=above) for name, one in of_types], head
        return [
            fleet_evidence(stores[text], opened[text].where, above_gpus=above)
            if typed is None
            else typed_evidence(typed[0] or text, typed[1], typed[2])
            for text, typed in named
        ], head


def _check_cut(cut: Cut, what: list[str], stores: list[str]) -> None:
    if cut.by not in (None, BY_GPU_TYPE):
        raise UsageError(f"--by {cut.by}: a store can be split by {BY_GPU_TYPE} only")
    if len(cut.options) > 1:
        raise UsageError(f"{' and '.join(cut.options)}: these split the store; give one of them")
    if cut.options and (len(what) != 1 or not stores):
        raise UsageError(f"{cut.options[0]} splits one store; give exactly one STORE with it")
