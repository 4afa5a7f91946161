"""`ettr elastic`: run ranks under a supervisor that replaces those that die."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.output import complain, say
from ettr.cli.printing import Printing

if TYPE_CHECKING:
    from ettr.elastic.supervision.agent import AgentReport
    from ettr.elastic.supervision.nodes import SupervisorReport

SETTINGS = {
    "elastic": {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}}
}


def elastic(
    context: typer.Context,
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, max=1024, help="Ranks to run.")],
    spares: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Warm spare processes, ready to take a slot."),
    ] = 1,
    heartbeat: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Replace a rank that has been silent for this long."),
    ] = 30.0,
    leave: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Replace a rank that has not left the old generation this long after the "
            "next one began; default 15 s more than the script's Timeouts.collective_s.",
        ),
    ] = None,
    max_failures: Annotated[
        int, typer.Option(min=0, help="Give up after this many lost processes.")
    ] = 64,
    nnodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that start the training; any more that join are spares."),
    ] = None,
    rdzv: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address at which the nodes meet; the node that has it supervises. Under "
            "srun, default the first node of the step.",
        ),
    ] = None,
    node_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this node; default its host name.")
    ] = None,
    rack: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Rack of this node; copies go to another rack."),
    ] = None,
    node_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Give up a node that has been silent for this long."),
    ] = 10.0,
    node_wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for a node to join.")
    ] = 600.0,
    stop_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Moment by which to ask the run to stop, as SIGTERM does: it saves at the "
            "end of the step.",
        ),
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Run CMD as a number of ranks on this node; one that dies is replaced, the rest live on.

    Usage: ettr elastic -n 4 -- python train.py. On several nodes, the same command on each:
    ettr elastic --nnodes 2 --rdzv node001:29400 -n 8 -- python train.py; or srun ettr elastic. The
    script calls ElasticGroup.run (see the tutorial "Survive a killed rank"). Exit 1 if the run
    could not be brought to its end, 75 if it was asked to end (SIGTERM, --stop-after) and all ranks
    have saved the same step: start it again.
    """
    from ettr.checkpoint.notice import EXIT_STATUS, StopNotice
    from ettr.elastic.supervision.agent import node_setting, run_node
    from ettr.elastic.supervision.handshake import Meeting
    from ettr.elastic.supervision.nodes import SupervisorOptions, SupervisorReport
    from ettr.elastic.supervision.supervisor import supervise

    options = SupervisorOptions(
        spares=spares,
        heartbeat_timeout_s=heartbeat,
        leave_s=leave,
        max_failures=max_failures,
        node_timeout_s=node_timeout,
        node_wait_s=node_wait,
    )
    setting = node_setting(
        os.environ,
        meeting=None if rdzv is None else Meeting.parse(rdzv),
        n_nodes=nnodes,
        name=node_name,
        rack=rack,
    )
    with StopNotice(deadline_s=stop_after, margin_s=0.0) as notice:
        report = (
            supervise(context.args, ranks, options=options, on_event=complain, notice=notice)
            if setting is None
            else run_node(
                context.args, ranks, setting, options=options, on_event=complain, notice=notice
            )
        )
    if isinstance(report, SupervisorReport):
        _say_run(report, printing)
    else:
        _say_node(report, printing)
    if not report.finished:
        raise typer.Exit(EXIT_STATUS if report.stopped else 1)


def _say_run(report: SupervisorReport, printing: Printing) -> None:
    from ettr.report.rows import plain

    document = {
        "finished": report.finished,
        "stopped": report.stopped,
        "reason": report.reason,
        "ranks": report.world,
        "generations": report.generations,
        "wall_s": round(report.wall_s, 3),
        "losses": [asdict(loss) for loss in report.losses],
    }
    if printing.summary(plain(document)):
        return
    for loss in report.losses:
        say(f"lost slot {loss.slot} (pid {loss.pid}, {loss.cause}) at step {loss.step}")
    say(f"{_end_of(report)}; {len(report.losses)} lost, {report.wall_s:.1f} s")


def _say_node(report: AgentReport, printing: Printing) -> None:
    from ettr.report.rows import plain

    if printing.summary(plain({"finished": report.finished, **asdict(report)})):
        return
    cut_off = f"; cut off {report.n_fenced} times" if report.n_fenced else ""
    say(f"node {report.node}: {_end_of(report)}{cut_off}")


def _end_of(report: SupervisorReport | AgentReport) -> str:
    if report.finished:
        return "trained to the end"
    return str(report.reason) if report.stopped else f"gave up: {report.reason}"
