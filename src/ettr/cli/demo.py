"""`ettr demo`: logs of a simulated cluster, and what ettr answers from them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ettr.cli.file_options import ingest_all
from ettr.cli.output import say
from ettr.errors import UsageError

_DAYS = 30
_NOTE = (
    "SIMULATED by ettr demo: no cluster logged this. It shows what a report looks like, "
    "not how a cluster behaves."
)
_ASKED = ("goodput", "mttf", "lemons")


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="A new folder for the logs and the answers.")
    ] = Path("ettr-demo"),
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, help="Random seed; another gives another cluster."
        ),
    ] = 1,
) -> None:
    """Write a month of logs of a simulated cluster with planted failures, and answer from them.

    40 nodes of 8 GPUs: accounting, states of nodes and a kernel log as Slurm and Linux write them.
    It takes less than a minute, no browser, no cluster and no extra of the installation.
    """
    from ettr.analysis import Analysis
    from ettr.cli.report import write_page
    from ettr.report.parts import part_alone
    from ettr.report.text import first_sentence, without_intervals
    from ettr.sim.cluster.log import write_logs
    from ettr.sim.cluster.run import simulate_into
    from ettr.sim.cluster.scenario_file import scenario_of, scenario_text
    from ettr.sources.base import ReadOptions
    from ettr.store import open_store

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: already exists; name a new folder")
    text, name = scenario_text("small")
    text = text.replace("days = 7\n", f"days = {_DAYS}\n")
    made = scenario_of(text, name)
    logs, site, page = folder / "logs", folder / "site", folder / "report.html"
    logs.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ettr-") as place:
        truth = Path(place) / "truth"
        with open_store(Path(place) / "store", create=True) as simulated:
            found = simulate_into(simulated, made, seed, text, name, truth)
            files = write_logs(simulated, logs, _NOTE)
        shutil.copytree(truth, folder / "truth")
    say(
        f"{found.nodes:,} nodes, {_DAYS} days, {found.attempts:,} attempts of jobs; "
        f"{found.failed_attempts:,} of them ended by planted faults ({folder / 'truth'})."
    )
    say(f"\n$ ettr ingest {site} {logs}/* --timezone UTC")
    with open_store(site, create=True) as store:
        done = ingest_all(store, files, ReadOptions(timezone="UTC"), None)
        for one in done:
            say(f"{one.name}: {one.rows_read:,} records")
        analysis = Analysis(store)
        for part in _ASKED:
            section = part_alone(part, analysis)[0]
            say(f"\n$ ettr {part} {site}")
            say(without_intervals(section.answer or first_sentence(section.lead)))
        say(f"\n$ ettr report {site} -o {page}")
        write_page(analysis, page)
