"""`ettr chaos`: run any command under faults on a seeded schedule."""

from __future__ import annotations

import json as json_
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.output import complain, say
from ettr.cli.printing import Printing
from ettr.files import write_text
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.chaos.run import ChaosReport

SETTINGS = {
    "chaos": {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}}
}
_LONGEST_S = 30 * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class FaultSchedule(OptionGroup):
    """Which faults, and when."""

    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="KIND", help="kill, stop, flip, truncate, fill, limit; repeatable."
        ),
    ] = None
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Mean time between two faults.")
    ] = 10.0
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same schedule.")
    ] = 0
    at_most: Annotated[int | None, typer.Option(min=0, help="Number of faults.")] = None
    after: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time before the first fault.")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class FaultTargets(OptionGroup):
    """What the faults hit, and how hard."""

    folder: Annotated[
        Path | None,
        typer.Option(help="Folder to damage files in and to fill (flip, truncate, fill)."),
    ] = None
    match: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Hit only processes with this in their command line."),
    ] = ""
    launcher: Annotated[
        bool,
        typer.Option("--launcher", help="Never hit CMD itself, which only starts other processes."),
    ] = False
    hold: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long a stop, a limit or a full disk lasts."),
    ] = 5.0
    ballast: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="Most disk space that `fill` may take.")
    ] = 1 << 28


def chaos(
    context: typer.Context,
    when: FaultSchedule,
    targets: FaultTargets,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time limit of CMD.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report to this file, as JSON.")
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Run CMD under injected faults: kill, stop, flip bits, cut files, fill the disk.

    Usage: ettr chaos --launcher --fault kill --every 20 -- torchrun ... train.py. Processes are
    drawn from those below CMD (without --launcher CMD itself as long as it has had none); files
    only from --folder. Everything held is given back. Exit 1 if CMD did not end with status 0.
    """
    from ettr.chaos.run import ChaosPlan, Fault, run, schedule
    from ettr.report.rows import plain

    faults = schedule(
        when.seed,
        when.fault or [Fault.KILL],
        every_s=when.every,
        for_s=_LONGEST_S if timeout is None else timeout,
        after_s=when.after,
        at_most=when.at_most,
    )
    plan = ChaosPlan(
        faults,
        None if targets.folder is None else str(targets.folder),
        targets.match,
        hold_s=targets.hold,
        ballast_bytes=targets.ballast,
    )
    outcome = run(
        context.args, plan, timeout_s=timeout, launcher=targets.launcher, on_event=complain
    )
    document = outcome.as_dict() | {"seed": when.seed, "every_s": when.every}
    if report is not None:
        write_text(report, json_.dumps(document, indent=2) + "\n")
    if not printing.summary(plain(document)):
        _print(outcome)
    if not outcome.survived:
        raise typer.Exit(1)


def _print(outcome: ChaosReport) -> None:
    for one in outcome.done:
        say(f"{one.at_s:8.2f} s  {one.fault:<8} {one.what}")
    ended = "was ended by its time limit" if outcome.timed_out else f"status {outcome.status}"
    say(f"{len(outcome.done)} faults in {outcome.wall_s:.1f} s; the command: {ended}")
