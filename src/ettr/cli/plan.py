"""`ettr plan`: what a run will take, from a store's failure rate or from typed numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.output import say, say_json
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.analysis.planning import PlanningRate, RunPlan, RunShape
    from ettr.plan.schemes import JobShape

ASSUMED_WRITE = "5min"
ASSUMED_RESTART = "5min"
ASSUMED_NETWORK = "50GB/s"
ASSUMED_DEVICE = "100GB/s"
ASSUMED_HOST = "500GB"

StoreOrNothing = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="A store whose failure rate to use; or type one."),
]
GpusOption = Annotated[
    int | None, typer.Option("--gpus", metavar="N", min=1, help="GPUs of the run.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--failures-per-1000-node-days", metavar="R", help="Failure rate of a node, typed in."
    ),
]
FailuresOption = Annotated[
    int | None,
    typer.Option("--failures", metavar="K", help="Failures seen, with --node-days: a rate."),
]
NodeDaysOption = Annotated[
    float | None, typer.Option("--node-days", metavar="T", help="Exposure in which they were seen.")
]
WriteOption = Annotated[
    str | None,
    typer.Option(
        "--write", metavar="TIME", help="Time a checkpoint stops training; 5min if absent."
    ),
]
RestartOption = Annotated[
    str | None,
    typer.Option(
        "--restart", metavar="TIME", help="From an attempt's start until it trains; 5min if absent."
    ),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--interval", metavar="TIME", help="Between checkpoints, such as 30min; the best if absent."
    ),
]
QueueOption = Annotated[
    str, typer.Option("--queue", metavar="TIME", help="Mean wait at first and after a failure.")
]


def plan(
    store: StoreOrNothing = None,
    gpus: GpusOption = None,
    nodes: opt.NodesOption = None,
    gpus_per_node: opt.GpusPerNodeOption = None,
    rate: RateOption = None,
    failures: FailuresOption = None,
    node_days: NodeDaysOption = None,
    interval: IntervalOption = None,
    write: WriteOption = None,
    restart: RestartOption = None,
    queue: QueueOption = "0s",
    days: Annotated[
        float | None,
        typer.Option("--days", metavar="D", help="Productive days needed; without end if absent."),
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", metavar="ETTR", help="ETTR wanted, such as 0.9.")
    ] = None,
    state_bytes: Annotated[
        str | None,
        typer.Option("--state-bytes", metavar="SIZE", help="Checkpoint size: ranks the schemes."),
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="TIME", help="Time of one training step.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option("--bandwidth", metavar="RATE", help="To durable storage, whole job: 200GB/s."),
    ] = None,
    network: Annotated[
        str, typer.Option("--network", metavar="RATE", help="Of one node, to its peers.")
    ] = ASSUMED_NETWORK,
    device: Annotated[
        str, typer.Option("--device", metavar="RATE", help="Of one node, GPUs to memory.")
    ] = ASSUMED_DEVICE,
    host_memory: Annotated[
        str, typer.Option("--host-memory", metavar="SIZE", help="Of a node, for checkpoints.")
    ] = ASSUMED_HOST,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, help="Data-parallel copies of state.")
    ] = 1,
    replace: Annotated[
        str, typer.Option("--replace", metavar="TIME", help="To replace only what failed.")
    ] = "60s",
    durable: Annotated[
        str, typer.Option("--durable-every", metavar="TIME", help="Durable copies, two levels.")
    ] = "1h",
    one_writer: Annotated[
        float,
        typer.Option("--one-writer-share", metavar="SHARE", help="Of storage, one checkpoint."),
    ] = 1.0,
    embedding: Annotated[
        float, typer.Option("--embedding-share", metavar="SHARE", help="Of state, embeddings.")
    ] = 0.0,
    expert: Annotated[
        float, typer.Option("--expert-share", metavar="SHARE", help="Of state, in experts.")
    ] = 0.0,
    logged: Annotated[
        str, typer.Option("--logged-bytes", metavar="SIZE", help="Between stages, a step.")
    ] = "0B",
    domain_shares: Annotated[
        str | None,
        typer.Option(
            "--failure-shares", metavar="LIST", help="process=0.2,node=0.7,rack=0.05,job=0.05"
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write the planner page with sliders."),
    ] = None,
    taxonomy: opt.TaxonomyOption = None,
    believe: opt.BelieveOption = None,
    above_gpus: opt.AboveGpusOption = 128,
    confidence: opt.ConfidenceOption = 0.9,
    window: opt.WindowOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Plan a run: MTTF, ETTR with a band, checkpoint interval and scheme, what reaches a target.

    The failure rate is that of a store, or typed in: as a rate, or as failures and node-days, which
    gives it an interval. Times take a unit: 10s, 5min, 1.5h, 2d.
    """
    from ettr.analysis.planning import DOMAINS, RunShape, plan_run
    from ettr.plan.run import nodes_of

    assumptions = opt.assumptions(
        taxonomy=taxonomy,
        believe=believe,
        above_gpus=above_gpus,
        gpus_per_node=gpus_per_node,
        confidence=confidence,
        window=window,
    )
    by_node, store_gpus_per_node = planning_rate(store, rate, failures, node_days, assumptions)
    per_node = gpus_per_node or store_gpus_per_node or 8
    n_nodes = nodes if nodes is not None else nodes_of(_needed(gpus), per_node)
    if gpus is not None and nodes is not None and nodes_of(gpus, per_node) != nodes:
        raise UsageError(
            f"--gpus {gpus} and --nodes {nodes} disagree at {per_node} GPUs a node; give one of "
            "them, or --gpus-per-node"
        )
    if days is not None and not 0 < days < math.inf:
        raise UsageError(f"--days {days:g}: give a positive number of days, or leave it out")
    if html is not None and html.is_dir():
        raise UsageError(f"--html {html}: is a folder; give a file name such as planner.html")
    shape = RunShape(
        n_nodes,
        None if interval is None else q.seconds("--interval", interval),
        q.seconds("--write", write or ASSUMED_WRITE),
        q.seconds("--restart", restart or ASSUMED_RESTART),
        q.seconds("--queue", queue),
        math.inf if days is None else days * 86400.0,
    )
    job = None
    if state_bytes is not None:
        job = _job(
            shape, per_node, state_bytes, step, storage, network=network, device=device,
            host_memory=host_memory, replicas=replicas, replace=replace, durable=durable,
            one_writer=one_writer, embedding=embedding, expert=expert, logged=logged,
        )  # fmt: skip
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
        assumptions=_assumed(
            write,
            restart,
            gpus_per_node or store_gpus_per_node,
            gpus,
            job,
            domain_shares is not None,
            by_node,
        ),
    )
    _show(made, html, json)


def _show(made: RunPlan, html: Path | None, json: bool) -> None:
    from ettr.report.document import plain
    from ettr.report.sections.plan import plan_section
    from ettr.report.text import section_text

    if html is not None:
        from ettr.report.planner_page import planner_html

        draft = html.with_name(f".{html.name}.draft")
        draft.write_text(planner_html(made), encoding="utf-8")
        draft.replace(html)
    if json:
        say_json({"format": "ettr-plan", "version": 1, **plain(made)})
        return
    say(section_text(plan_section(made)))
    if html is not None:
        say(f"\nPlanner page: {html}")


def _needed(gpus: int | None) -> int:
    if gpus is None:
        raise UsageError("how large is the run? give --gpus N or --nodes N")
    return gpus


def planning_rate(
    store: str | None,
    rate: float | None,
    failures: int | None,
    node_days: float | None,
    assumptions: Assumptions,
) -> tuple[PlanningRate, int | None]:
    """The failure rate asked for, and the GPUs in a node where a store tells them.

    Raises:
        UsageError: none is given, or several are.
    """
    from ettr.analysis import Analysis
    from ettr.analysis.planning import measured_rate, typed_rate
    from ettr.analysis.records import record_to_plan_with, typed_record
    from ettr.store import open_store

    counted = failures is not None or node_days is not None
    ways = [store is not None, rate is not None, counted]
    if sum(ways) != 1:
        raise UsageError(
            f"{'no' if not any(ways) else 'more than one'} failure rate: give a STORE, or "
            "--failures-per-1000-node-days R, or --failures K with --node-days T"
        )
    confidence = assumptions.confidence
    if rate is not None:
        return typed_rate(rate, confidence), None
    if counted:
        if failures is None or node_days is None:
            raise UsageError("--failures and --node-days go together; give both")
        return measured_rate(typed_record("the fleet", failures, node_days), confidence), None
    with open_store(str(store)) as opened:
        record = record_to_plan_with(Analysis(opened, assumptions), str(store))
    per_node = record.gpus_per_node
    return measured_rate(record, confidence), round(per_node) if per_node else None


def _job(
    shape: RunShape,
    gpus_per_node: int,
    state_bytes: str,
    step: str | None,
    storage: str | None,
    *,
    network: str,
    device: str,
    host_memory: str,
    replicas: int,
    replace: str,
    durable: str,
    one_writer: float,
    embedding: float,
    expert: float,
    logged: str,
) -> JobShape:
    from ettr.plan.schemes import JobShape

    if step is None or storage is None:
        raise UsageError(
            "to rank checkpoint schemes give --state-bytes, --step and --bandwidth together"
        )
    return JobShape(
        state_bytes=q.n_bytes("--state-bytes", state_bytes),
        step_s=q.seconds("--step", step),
        n_nodes=shape.n_nodes,
        storage_bytes_per_s=q.bytes_per_s("--bandwidth", storage),
        network_bytes_per_s=q.bytes_per_s("--network", network),
        device_bytes_per_s=q.bytes_per_s("--device", device),
        host_bytes=q.n_bytes("--host-memory", host_memory),
        restart_s=shape.restart_s,
        replace_s=q.seconds("--replace", replace),
        queue_s=shape.queue_s,
        gpus_per_node=gpus_per_node,
        replicas=replicas,
        one_writer_share=one_writer,
        durable_period_s=q.seconds("--durable-every", durable),
        embedding_share=embedding,
        expert_share=expert,
        logged_bytes_per_step=q.n_bytes("--logged-bytes", logged),
    )


def _shares(by_node: PlanningRate) -> dict[str, float] | None:
    """Failures that no node can be blamed for count against the whole job."""
    share = by_node.blamed_share
    return None if share is None else {"node": share, "job": 1.0 - share}


def _assumed(
    write: str | None,
    restart: str | None,
    gpus_per_node: int | None,
    gpus: int | None,
    job: JobShape | None,
    domains_told: bool,
    by_node: PlanningRate,
) -> tuple[str, ...]:
    taken = []
    for option, given, assumed in (
        ("--write", write, ASSUMED_WRITE),
        ("--restart", restart, ASSUMED_RESTART),
    ):
        if given is None:
            taken.append(f"{option} not given: {assumed}, as Kokolis et al. (HPCA 2025) assume.")
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
