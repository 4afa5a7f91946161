"""`ettr collect`: the commands that write a site's logs of a period, printed or run."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.output import complain, say
from ettr.cli.printing import Printing
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.collect.commands import CollectCommand, CollectPeriod
    from ettr.report.document import JsonValue

# what a shell makes of SIGTERM
_ENDED = 128 + signal.SIGTERM


def collect(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the files; --run creates it.")
    ],
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="From this date or time on; without an offset it is UTC.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Until this date or time; now if absent."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE", help="Begin where the accounting in this store ends."
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap",
            metavar="TIME",
            help="Time before the end of --store that is collected again.",
        ),
    ] = "1d",
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="The cluster, where slurmdbd serves several."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the commands instead of printing them.")
    ] = (False),
    printing: Printing,
) -> None:
    """Print or run the commands that write a site's logs of a period into a folder.

    Printed is a shell script. With --run each file appears when its command has succeeded, readable
    by its owner alone; the first command that fails ends it. With --store the period begins where
    the accounting in the store ends, so that a timer needs no dates.
    """
    from ettr.collect.commands import collect_commands
    from ettr.collect.running import collect as run_all

    period = _period(since, until, store, overlap, cluster)
    commands = collect_commands(period.since, period.until, cluster)
    sizes: dict[str, int | None] = {}
    if run:
        # as by Ctrl-C: what is half written goes, and the command under way ends
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
        try:
            done = run_all(commands, folder, os.environ, complain)
        finally:
            signal.signal(signal.SIGTERM, before)
        sizes = {one.path.name: one.size_bytes for one in done}
    entries: list[dict[str, JsonValue]] = [
        {
            "since": period.since.isoformat(),
            "until": period.until.isoformat(),
            "command": list(command.words),
            "file": str(folder / command.file_name),
            "needed": command.is_needed,
            "size_bytes": sizes.get(command.file_name),
        }
        for command in commands
    ]
    if printing.listed(entries):
        return
    if run:
        _say_files(folder, sizes, store)
    else:
        _say_script(folder, period, commands, store)


def _period(
    since: str | None, until: str | None, store: str | None, overlap: str, cluster: str | None
) -> CollectPeriod:
    from ettr.collect.commands import CollectPeriod, period_after
    from ettr.store import open_store

    end = datetime.now(UTC).replace(microsecond=0)
    end = q.if_given(q.utc_moment, "--until", until) or end
    overlap_s = q.seconds("--overlap", overlap)
    if since is not None:
        return CollectPeriod(q.utc_moment("--since", since), end, "as given")
    if store is None:
        raise UsageError(
            "give the start of the period with --since, or --store STORE to go on where it ends"
        )
    with open_store(store) as opened:
        return period_after(opened, store, end, timedelta(seconds=overlap_s), cluster)


def _say_script(
    folder: Path, period: CollectPeriod, commands: tuple[CollectCommand, ...], store: str | None
) -> None:
    from ettr.collect.commands import by_hand

    say(f"# from {period.since:%Y-%m-%dT%H:%M:%SZ} ({_comment(period.basis)})")
    say(f"# until {period.until:%Y-%m-%dT%H:%M:%SZ}")
    say("umask 077")
    say(f"mkdir -p -- {shlex.quote(str(folder))} || exit 1")
    for command in commands:
        say("\n".join(command.shell_lines(folder)))
    for what, how in by_hand(period.since):
        say(f"# {what}:\n#   {how}")
    say(f"# then: {_ingest(folder, store)}")


def _say_files(folder: Path, sizes: dict[str, int | None], store: str | None) -> None:
    for name, size_bytes in sizes.items():
        if size_bytes is not None:
            say(f"{folder / name}: {size_bytes:,} bytes")
    say(f"then: {_ingest(folder, store)}")


def _ingest(folder: Path, store: str | None) -> str:
    into = "STORE" if store is None else shlex.quote(store)
    return f"ettr ingest {into} {shlex.quote(str(folder))}/* --timezone UTC"


def _comment(text: str) -> str:
    """A text that stays in its line of a script."""
    return " ".join(text.split())
