"""`ettr report`: one HTML file, or JSON, from a store or straight from logs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli.output import complain, progress_bar, say, say_json
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.sources.base import ReadOptions
    from ettr.store import Store


def report(
    what: Annotated[
        list[str], typer.Argument(metavar="STORE | FILE...", help="A store, or logs to read.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write it.")
    ] = Path("report.html"),
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON with the same numbers; write no HTML.")
    ] = False,
    source: opt.SourceOption = None,
    fields: opt.FieldsOption = None,
    timezone: opt.TimezoneOption = None,
    nodes: opt.NodesOption = None,
    gpus_per_node: opt.GpusPerNodeOption = None,
    cluster: opt.ClusterOption = None,
    start: opt.StartOption = None,
    table: opt.TableOption = None,
    columns: opt.ColumnsOption = None,
    taxonomy: opt.TaxonomyOption = None,
    believe: opt.BelieveOption = None,
    above_gpus: opt.AboveGpusOption = 128,
    confidence: opt.ConfidenceOption = 0.9,
    window: opt.WindowOption = None,
    run_id: opt.RunIdOption = None,
    checkpoint_min: opt.CheckpointOption = None,
    restart_min: opt.RestartOption = None,
) -> None:
    """Write a reliability report: how often it fails, why, at which size, what it costs.

    From a store, or straight from logs (read into a store of its own, gone afterwards).
    """
    from ettr.analysis import Analysis

    options = opt.read_options(
        fields=fields,
        timezone=timezone,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cluster=cluster,
        start=start,
        table=table,
        columns=columns,
    )
    assumptions = opt.assumptions(
        taxonomy=taxonomy,
        believe=believe,
        above_gpus=above_gpus,
        gpus_per_node=gpus_per_node,
        confidence=confidence,
        window=window,
        run_id=run_id,
        checkpoint_min=checkpoint_min,
        restart_min=restart_min,
    )
    if not json:
        _writable(output)
    with _opened(what, options, source) as store:
        analysis = Analysis(store, assumptions)
        if json:
            from ettr.report.page import SECTIONS, document

            with progress_bar(len(SECTIONS), "parts") as tell:
                made = document(analysis, tell)
            say_json(made)
        else:
            _write_page(analysis, output)


def _write_page(analysis: Analysis, output: Path) -> None:
    from ettr.report.html import render
    from ettr.report.page import SECTIONS, page
    from ettr.report.summary import summary_text

    with progress_bar(len(SECTIONS), "parts") as tell:
        made = page(analysis, tell)
    _write(output, render(made))
    say(summary_text(made))
    say()
    say(f"Report: {output}")


def _write(output: Path, text: str) -> None:
    """Write the whole file or leave the old one; a device such as /dev/null is written to.

    Raises:
        OSError: it cannot be written (a full disk, say); names the file.
    """
    whole = output.is_file() or not output.exists()
    draft = output.with_name(f".{output.name}.draft") if whole else output
    try:
        draft.write_text(text, encoding="utf-8")
        if whole:
            draft.replace(output)
    except OSError as error:
        if whole:
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(output)) from error


def _writable(output: Path) -> None:
    """Find out before the work that the report can be written.

    Raises:
        UsageError: it cannot.
    """
    if output.is_dir():
        raise UsageError(f"--output {output}: is a folder; give a file name such as report.html")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--output {output}: its folder cannot be made: {error.strerror}"
        ) from error


@contextmanager
def _opened(what: list[str], options: ReadOptions, source: str | None) -> Iterator[Store]:
    """The store that is named, or one of its own made from the files that are."""
    from ettr.cli.ingest import ingest_all
    from ettr.store import is_store, open_store

    if len(what) == 1 and is_store(what[0]):
        with open_store(what[0]) as store:
            yield store
        return
    stores = [name for name in what if is_store(name)]
    if stores:
        raise UsageError(
            f"{stores[0]} is a store and other files are named beside it; `ettr ingest "
            f"{stores[0]} FILE...` reads them into it first"
        )
    files = opt.existing_files([Path(name) for name in what])
    with (
        tempfile.TemporaryDirectory(prefix="ettr-") as folder,
        open_store(Path(folder) / "store", create=True) as store,
    ):
        for one in ingest_all(store, files, options, source):
            if one.rows_rejected:
                complain(
                    f"{one.name}: {one.rows_rejected:,} of {one.rows_read:,} records rejected; "
                    "the data-quality section says why"
                )
        yield store
