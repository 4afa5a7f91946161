"""`ettr chaos`: run any command under faults on a seeded schedule."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.output import complain, say, say_json

SETTINGS = {
    "chaos": {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}}
}


def chaos(
    context: typer.Context,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="KIND", help="kill, stop, flip, truncate, fill, limit; repeatable."
        ),
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Mean time between two faults.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="The same seed, the same schedule.")] = 0,
    at_most: Annotated[int | None, typer.Option(min=0, help="Number of faults.")] = None,
    after: Annotated[float, typer.Option(metavar="SECONDS", help="Quiet before the first.")] = 0.0,
    folder: Annotated[
        Path | None,
        typer.Option(help="Whose files are flipped, cut and crowded out (flip, truncate, fill)."),
    ] = None,
    match: Annotated[
        str, typer.Option(metavar="TEXT", help="Hit only processes whose command line holds it.")
    ] = "",
    hold: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a stop, a limit, a full disk lasts.")
    ] = 5.0,
    ballast: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="Most that `fill` may take.")
    ] = 1 << 28,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End the command after so long.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report there, as JSON.")] = None,
    json: opt.JsonOption = False,
) -> None:
    """Run CMD and do it harm: kill, stop, flip bits, cut files, fill the disk.

    Usage: ettr chaos --fault kill --every 20 -- torchrun ... train.py. Processes are drawn from
    those below CMD (CMD itself only if it has none); files only from --folder. Everything held is
    given back. Exit 1 if CMD did not end with status 0.
    """
    from ettr.chaos.run import run
    from ettr.chaos.schedule import ChaosPlan, Fault, schedule

    longest_s = timeout if timeout is not None else 30 * 86400.0
    faults = schedule(
        seed, fault or [Fault.KILL], every_s=every, for_s=longest_s, after_s=after, at_most=at_most
    )
    plan = ChaosPlan(
        faults, None if folder is None else str(folder), match, hold_s=hold, ballast_bytes=ballast
    )
    found = run(context.args, plan, timeout_s=timeout, on_event=complain)
    document = found.as_dict() | {"seed": seed, "every_s": every}
    if report is not None:
        report.write_text(json_.dumps(document, indent=2) + "\n")
    if json:
        say_json(document)
    else:
        for done in found.done:
            say(f"{done.at_s:8.2f} s  {done.fault:<8} {done.what}")
        ended = "was ended by its time limit" if found.timed_out else f"status {found.status}"
        say(f"{len(found.done)} faults in {found.wall_s:.1f} s; the command: {ended}")
    if not found.survived:
        raise typer.Exit(1)
