"""`ettr compare`: which of several fleets, partitions or periods fails more often."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.output import show
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Analysis, Assumptions
    from ettr.analysis.fleet_evidence import FleetEvidence


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FLEET...",
            help="Stores, or failures over node-days such as new=12/6000.",
        ),
    ],
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="NAME", help="Of one store: this against the others; repeatable."
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="NAME", help="The same by cluster."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Of one store: the time before this."),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TIME", help="And from this on.")
    ] = None,
    all_jobs: Annotated[
        bool, typer.Option("--all-jobs", help="Count small jobs too, not only large ones.")
    ] = False,
    *,
    rating: opt.Rating,
    json: opt.JsonOption = False,
) -> None:
    """Compare failure rates: ratio with its exact interval and test, by symptom, funnel plot.

    Two or more stores; one store by --partition, --cluster, or --before and --after a moment; or
    typed numbers, failures over node-days: ettr compare old=30/5000 new=12/6000. Large jobs are
    compared where every fleet ran any, else all jobs.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.comparing import compare_fleets
    from ettr.analysis.fleet_evidence import typed_evidence
    from ettr.report.sections.compare import compare_section
    from ettr.store import open_store

    assumptions = rating.assumptions()
    cuts = _one_way(partition, cluster, before, after)
    typed = [q.failures_over_node_days(text) for text in what]
    with ExitStack() as stack:
        stores = {
            text: Analysis(stack.enter_context(open_store(text)), assumptions)
            for text, numbers in zip(what, typed, strict=True)
            if numbers is None
        }
        above = None if all_jobs else _large(list(stores.values()), assumptions)
        if cuts:
            if len(what) != 1 or not stores:
                raise UsageError(f"{cuts} cuts one store; give exactly one STORE with it")
            analysis = stores[what[0]]
            records = (
                _in_time(analysis, before, after, above)
                if before or after
                else _parts(analysis, cuts, tuple(partition or cluster or ()), above)
            )
        else:
            records = [
                _whole(stores[text], text, above)
                if numbers is None
                else typed_evidence(numbers[0] or text, numbers[1], numbers[2])
                for text, numbers in zip(what, typed, strict=True)
            ]
    show("ettr-comparison", compare_fleets(records, rating.confidence), compare_section, json)


def _one_way(
    partition: list[str] | None, cluster: list[str] | None, before: str | None, after: str | None
) -> str | None:
    ways = [
        name
        for name, given in (
            ("--partition", partition),
            ("--cluster", cluster),
            ("--before/--after", before or after),
        )
        if given
    ]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)}: cut the store one way at a time; give one of them")
    return ways[0] if ways else None


def _large(stores: list[Analysis], assumptions: Assumptions) -> int | None:
    """The size above which jobs count, where every store ran any; all jobs otherwise."""
    if all(analysis.rates.large_jobs.node_days > 0 for analysis in stores):
        return assumptions.above_gpus
    return None


def _whole(analysis: Analysis, name: str, above: int | None) -> FleetEvidence:
    from ettr.analysis.fleet_evidence import fleet_evidence

    return fleet_evidence(analysis, name, above_gpus=above)


def _in_time(
    analysis: Analysis, before: str | None, after: str | None, above: int | None
) -> list[FleetEvidence]:
    from ettr.analysis.fleet_evidence import periods

    given = [
        q.moment(option, text)
        for option, text in (("--before", before), ("--after", after))
        if text is not None
    ]
    early, late = periods(analysis, "the fleet", given[0], given[-1], above_gpus=above)
    # the later period first: the ratio then says what the change did
    return [late, early]


def _parts(
    analysis: Analysis, option: str, names: tuple[str, ...], above: int | None
) -> list[FleetEvidence]:
    from ettr.analysis.fleet_evidence import fleet_evidence, names_of

    column = option.removeprefix("--")
    known = names_of(analysis, column)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"{option} {unknown[0]}: no job ran there; the store knows {', '.join(known) or 'none'}"
        )

    def part(chosen: tuple[str, ...], name: str, others: bool) -> FleetEvidence:
        by_partition = chosen if column == "partition" else ()
        by_cluster = chosen if column == "cluster" else ()
        return fleet_evidence(
            analysis,
            name,
            partition=by_partition,
            cluster=by_cluster,
            others=others,
            above_gpus=above,
        )

    found = [part((name,), name, False) for name in names]
    if len(found) == 1:
        found.append(part(names, "all others", True))
    return found
