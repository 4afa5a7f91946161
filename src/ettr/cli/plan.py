"""`ettr plan`: what a run will take, from a store's failure rate or from typed numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli import rates
from ettr.cli.output import check_writable, say, show, write_whole
from ettr.cli.scheme_options import SchemeOptions
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.analysis.planning import PlanningRate, RunPlan
    from ettr.plan.schemes import JobShape


def plan(
    store: rates.StoreOrNothing = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=1, help="GPUs of the run.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", min=1, help="Nodes of the run, instead.")
    ] = None,
    gpus_per_node: opt.GpusPerNodeOption = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--failures-per-1000-node-days", metavar="R", help="Failure rate of a node, typed in."
        ),
    ] = None,
    *,
    counts: rates.TypedCounts,
    times: rates.RunTimes,
    days: Annotated[
        float | None,
        typer.Option("--days", metavar="D", help="Productive days needed; without end if absent."),
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", metavar="ETTR", help="ETTR wanted, such as 0.9.")
    ] = None,
    schemes: SchemeOptions,
    domain_shares: Annotated[
        str | None,
        typer.Option(
            "--failure-shares",
            metavar="LIST",
            help="What failures bring down: process=0.2,node=0.7,rack=0.05,job=0.05.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write the planner page with sliders."),
    ] = None,
    rating: opt.Rating,
    json: opt.JsonOption = False,
) -> None:
    """Plan a run: MTTF, ETTR with a band, checkpoint interval and scheme, what reaches a target.

    The failure rate is that of a store, or typed in: as a rate, or as failures and node-days, which
    gives it an interval. Times take a unit: 10s, 5min, 1.5h, 2d.
    """
    from ettr.analysis.planning import DOMAINS, plan_run
    from ettr.plan.run import nodes_of

    by_node, store_gpus_per_node = planning_rate(store, rate, counts, rating.assumptions())
    per_node = gpus_per_node or store_gpus_per_node or 8
    n_nodes = nodes if nodes is not None else nodes_of(_needed(gpus), per_node)
    if gpus is not None and nodes is not None and nodes_of(gpus, per_node) != nodes:
        raise UsageError(
            f"--gpus {gpus} and --nodes {nodes} disagree at {per_node} GPUs a node; give one of "
            "them, or --gpus-per-node"
        )
    q.positive("--days", days, "days")
    if html is not None:
        check_writable("--html", html)
    shape = times.shape(n_nodes, math.inf if days is None else days * 86400.0)
    job = schemes.job(shape, per_node)
    made = plan_run(
        shape,
        by_node,
        gpus_per_node=per_node,
        n_gpus=gpus,
        target=target,
        job=job,
        domain_shares=(
            q.shares("--failure-shares", domain_shares, DOMAINS)
            if domain_shares
            else _shares(by_node)
        ),
        assumptions=(
            *times.assumed(),
            *_assumed(
                gpus_per_node or store_gpus_per_node,
                gpus,
                job,
                domain_shares is not None,
                by_node,
            ),
        ),
    )
    _show(made, html, json)


def _show(made: RunPlan, html: Path | None, json: bool) -> None:
    from ettr.report.sections.plan import plan_section

    if html is not None:
        from ettr.report.planner_page import planner_html

        write_whole(html, planner_html(made))
    show("ettr-plan", made, plan_section, json)
    if html is not None and not json:
        say(f"\nPlanner page: {html}")


def _needed(gpus: int | None) -> int:
    if gpus is None:
        raise UsageError("how large is the run? give --gpus N or --nodes N")
    return gpus


def planning_rate(
    store: str | None, rate: float | None, counts: rates.TypedCounts, assumptions: Assumptions
) -> tuple[PlanningRate, int | None]:
    """The failure rate asked for, and the GPUs in a node where a store tells them.

    Raises:
        UsageError: none is given, or several are.
    """
    from ettr.analysis.planning import measured_rate, typed_rate

    ways = [store is not None, rate is not None, counts.given]
    if sum(ways) != 1:
        raise UsageError(
            f"{'no' if not any(ways) else 'more than one'} failure rate: give a STORE, or "
            "--failures-per-1000-node-days R, or --failures K with --node-days T"
        )
    confidence = assumptions.confidence
    if rate is not None:
        return typed_rate(rate, confidence), None
    if store is None:
        return measured_rate(counts.record(), confidence), None
    record = rates.stored_evidence(store, assumptions)
    per_node = record.gpus_per_node
    return measured_rate(record, confidence), round(per_node) if per_node else None


def _shares(by_node: PlanningRate) -> dict[str, float] | None:
    """Failures that no node can be blamed for count against the whole job."""
    share = by_node.blamed_share
    return None if share is None else {"node": share, "job": 1.0 - share}


def _assumed(
    gpus_per_node: int | None,
    gpus: int | None,
    job: JobShape | None,
    domains_told: bool,
    by_node: PlanningRate,
) -> tuple[str, ...]:
    taken = []
    if gpus is not None and gpus_per_node is None:
        taken.append("--gpus-per-node not given: 8.")
    if job is not None:
        taken.append(
            f"For the schemes a node sends {job.network_bytes_per_s / 1e9:g} GB/s to its peers, "
            f"copies {job.device_bytes_per_s / 1e9:g} GB/s to its memory and has "
            f"{job.host_bytes / 1e9:g} GB of it for checkpoints (--network, --device, "
            "--host-memory)."
        )
    if job is not None and not domains_told:
        share = by_node.blamed_share
        taken.append(
            "Every failure is taken to bring down one node (--failure-shares says otherwise)."
            if share is None
            else f"{share:.0%} of failures blame a node; the others are taken to bring down the "
            "whole job (--failure-shares says otherwise)."
        )
    return tuple(taken)
