"""`ettr report`: one HTML file, or JSON, from a store or straight from logs; `ettr demo`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.file_options import Reading, existing_files, ingest_all
from ettr.cli.groups import Input, Only, TypedOptions
from ettr.cli.output import (
    Printing,
    check_writable,
    complain,
    end_of_selection,
    progress_bar,
    say,
    written_to,
)
from ettr.cli.selecting import Anonymising, OnEngine, Pricing, Selecting
from ettr.errors import UsageError
from ettr.files import private_folder, write_text

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.selection import Selection
    from ettr.sources.base import ReadOptions
    from ettr.store import Store


_READING = tuple(option.name for option in fields(Reading) if option.name != "cluster")
"""Of the options on files; `--cluster` is that of the selection, and names the rows of files."""


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE | FILE...", help="Store, or logs to read; - is standard input."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--html",
            metavar="FILE",
            help="File to write; default report.html, or stdout with --json or --brief.",
        ),
    ] = None,
    in_brief: Annotated[
        bool,
        typer.Option("--brief", help="Print ten lines for a mail or a chat; FILE.html: a page."),
    ] = False,
    detail: Annotated[
        bool, typer.Option("--detail", help="Also print everything that the answers are based on.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON with the same numbers; write no HTML.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the same numbers as two columns, key and value.")
    ] = False,
    *,
    reading: Annotated[Reading, Only(*_READING)],
    on: OnEngine,
    selecting: Selecting,
    analysing: opt.AnalysisOptions,
    pricing: Pricing,
    anonymising: Anonymising,
    typed: TypedOptions,
) -> None:
    """Write a reliability report: how often it fails, why, at which size, what it costs.

    From a store, or straight from logs (read into a temporary store).
    """
    from ettr.analysis import Analysis

    printing = Printing(json=json, csv=csv)
    store_given = _is_one_store(what)
    typed.check(
        {
            Input.STORE: store_given,
            Input.FILES: not store_given,
        }
    )
    price = pricing.price()
    selection = selecting.selection()
    assumptions = analysing.assumptions(reading.gpus_per_node)
    options = reading.read_options(None if store_given else analysing.taxonomy)
    if not store_given:
        options = replace(options, cluster=_one_name(selection.cluster))
        selection = replace(selection, cluster=())
    if assumptions.n_nodes is None:
        assumptions = replace(assumptions, n_nodes=reading.nodes)
    if printing.as_text and not in_brief:
        output = output or Path("report.html")
    if output is not None:
        check_writable("--output", output)

    def of(store: Store, chosen: Selection) -> Analysis:
        return Analysis(store, assumptions, chosen, price)

    with _opened(what, on, options, reading.source, selection, of) as read:
        analysis = read
        if anonymising.anonymise is not None:
            analysis, _ = anonymising.analysis(read.store, selection, of)
        _write(analysis, output, printing, in_brief=in_brief, detail=detail)
        end_of_selection(analysis.selection_head)


def _write(
    analysis: Analysis, output: Path | None, printing: Printing, *, in_brief: bool, detail: bool
) -> None:
    if output is not None and printing.as_text and not in_brief:
        write_page(analysis, output, detail=detail)
        return
    with written_to(output):
        if in_brief:
            _say_brief(analysis, printing, output)
        else:
            from ettr.report.page import document
            from ettr.report.registry import PARTS
            from ettr.report.rows import plain

            with progress_bar(len(PARTS), "parts") as advance:
                made = document(analysis, advance)
            printing.summary(plain(made))


def _say_brief(analysis: Analysis, printing: Printing, output: Path | None) -> None:
    from ettr.report.first_screen import brief, brief_html, brief_text
    from ettr.report.rows import plain_fields

    found = brief(analysis)
    if printing.summary({"format": "ettr-brief", "version": 1, **plain_fields(found)}):
        return
    is_page = output is not None and output.suffix in {".html", ".htm"}
    say((brief_html if is_page else brief_text)(found).rstrip("\n"))


def _one_name(clusters: tuple[str, ...]) -> str | None:
    """The name that --cluster gives the jobs of log files; None where it is absent.

    Raises:
        UsageError: several names.
    """
    if len(clusters) > 1:
        raise UsageError(
            f"--cluster {', '.join(clusters)}: log files take one name, for rows without "
            "one; ingest them into a store to select among clusters"
        )
    return clusters[0] if clusters else None


def write_page(analysis: Analysis, output: Path, *, detail: bool = False) -> None:
    """Write the page, and print its head."""
    from ettr.report.first_screen import brief_of_screen, brief_text
    from ettr.report.html import render
    from ettr.report.page import page, summary_text
    from ettr.report.registry import PARTS

    with progress_bar(len(PARTS), "parts") as advance:
        made = page(analysis, advance)
    write_text(output, render(made))
    if made.first is not None:
        say(brief_text(brief_of_screen(made.first)))
    if detail:
        say(f"\n{summary_text(made)}")
    say(f"\nReport: {output}")


def _no_folder_of_logs(path: Path) -> None:
    """Refuse a folder of logs with a hint, before opening it as a store fails.

    Raises:
        UsageError: it holds files but no store.
    """
    from ettr.store.layout import MANIFEST

    if not path.is_dir() or (path / MANIFEST).exists():
        return
    if any(one.is_file() and not one.name.startswith(".") for one in path.iterdir()):
        raise UsageError(
            f"{path}: is a folder of files, not a store; name the files: ettr report {path}/*"
        )


def _is_one_store(what: list[str]) -> bool:
    """Whether a store is named; else all are log files.

    Raises:
        UsageError: a folder of logs in place of a store, or a store next to other files.
    """
    from ettr.store import is_store

    stores = [name for name in what if is_store(name)]
    if stores and len(what) > 1:
        raise UsageError(
            f"{stores[0]} is a store and other files are named with it; `ettr ingest "
            f"{stores[0]} FILE...` reads them into it first"
        )
    if stores:
        _no_folder_of_logs(Path(stores[0]))
    return bool(stores)


@contextmanager
def _opened(
    what: list[str],
    on: OnEngine,
    options: ReadOptions,
    source: str | None,
    selection: Selection,
    analysis_of: Callable[[Store, Selection], Analysis],
) -> Iterator[Analysis]:
    """The analysis of the store that is named, or of a temporary one made from files."""
    if _is_one_store(what):
        with on.open(what[0]) as store:
            yield analysis_of(store, selection)
        return
    files = existing_files([Path(name) for name in what])
    with private_folder() as folder, on.open(folder / "store", create=True) as store:
        analysis = analysis_of(store, selection)
        for one in ingest_all(store, files, options, source, analysis):
            if one.rows_rejected:
                complain(
                    f"{one.name}: {one.rows_rejected:,} of {one.rows_read:,} records rejected; "
                    "the data-quality section says why"
                )
        yield analysis


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
    from ettr.report.parts import part_alone
    from ettr.report.section import first_sentence, without_intervals
    from ettr.sim.cluster.log import write_logs
    from ettr.sim.cluster.run import simulate_into
    from ettr.sim.cluster.scenario import scenario_of, scenario_text
    from ettr.sources.base import ReadOptions
    from ettr.store import open_store

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: already exists; name a new folder")
    text, name = scenario_text("small")
    text = text.replace("days = 7\n", f"days = {_DAYS}\n")
    made = scenario_of(text, name)
    logs, site, page = folder / "logs", folder / "site", folder / "report.html"
    logs.mkdir(parents=True)
    with private_folder() as place:
        truth = place / "truth"
        with open_store(place / "store", create=True) as simulated:
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
