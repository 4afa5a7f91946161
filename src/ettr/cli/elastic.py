"""`ettr elastic`: run ranks under a supervisor that replaces those that die."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.output import complain, say, say_json

SETTINGS = {
    "elastic": {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}}
}


def elastic(
    context: typer.Context,
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, help="Ranks to run.")],
    spares: Annotated[
        int, typer.Option(min=0, help="Warm processes that wait, everything imported, for a slot.")
    ] = 1,
    heartbeat: Annotated[
        float, typer.Option(metavar="SECONDS", help="A rank silent for so long is replaced.")
    ] = 30.0,
    leave: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="A rank that does not leave a generation for so long after the next began is "
            "replaced; without it 15 s more than the script's Timeouts.collective_s.",
        ),
    ] = None,
    max_failures: Annotated[int, typer.Option(min=0, help="Losses after which to give up.")] = 64,
    json: opt.JsonOption = False,
) -> None:
    """Run CMD as a number of ranks on this machine; one that dies is replaced, the rest live on.

    Usage: ettr elastic -n 4 -- python train.py. The script calls ElasticGroup.run (see the tutorial
    "Survive a killed rank"). Exit 1 if the run could not be brought to its end.
    """
    from ettr.elastic import SupervisorOptions, supervise

    options = SupervisorOptions(
        spares=spares, heartbeat_timeout_s=heartbeat, leave_s=leave, max_failures=max_failures
    )
    report = supervise(context.args, ranks, options=options, on_event=complain)
    if json:
        say_json(
            {
                "finished": report.finished,
                "reason": report.reason,
                "ranks": report.world,
                "generations": report.generations,
                "wall_s": round(report.wall_s, 3),
                "losses": [asdict(loss) for loss in report.losses],
            }
        )
    else:
        for loss in report.losses:
            say(f"lost slot {loss.slot} (pid {loss.pid}, {loss.cause}) at step {loss.step}")
        ended = "trained to the end" if report.finished else f"gave up: {report.reason}"
        say(f"{ended}; {len(report.losses)} lost, {report.wall_s:.1f} s")
    if not report.finished:
        raise typer.Exit(1)
