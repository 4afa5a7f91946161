"""Options of the commands that read log files: what the files do not state themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.cli.options import LoggedGpusPerNodeOption, source_names, stored_table_names
from ettr.cli.output import complain, reading_bar
from ettr.cli.quantities import MOST_NODES
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.sources.base import ReadOptions
    from ettr.sources.ingest import Ingested
    from ettr.store import Store


OF_FILES = needs(Input.FILES)


@dataclass(frozen=True, slots=True)
class Reading(OptionGroup):
    """Properties of the files to read that the files do not state."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Format of the files; default: recognise it by content.",
            autocompletion=source_names,
        ),
        OF_FILES,
    ] = None
    fields: Annotated[
        str | None,
        typer.Option(
            "--fields",
            metavar="LIST",
            help="Column names of a dump without a header, comma-separated.",
        ),
        OF_FILES,
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", metavar="ZONE", help="Zone of local times, such as Europe/Zurich."
        ),
        OF_FILES,
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            max=MOST_NODES,
            help="Number of nodes in the fleet, if the log does not say.",
        ),
        OF_FILES,
    ] = None
    gpus_per_node: LoggedGpusPerNodeOption = None
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="Name of the cluster, if the log has none."),
        OF_FILES,
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help=("When the log begins (ISO 8601 with zone), for stamps without a year or a date."),
        ),
        OF_FILES,
    ] = None
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Table that a CSV or Parquet file holds.",
            autocompletion=stored_table_names,
        ),
        OF_FILES,
    ] = None
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="MAP", help="Its columns, as ours=theirs,ours=theirs."),
        OF_FILES,
    ] = None

    job: Annotated[
        str | None,
        typer.Option("--job", metavar="ID", help="Job id, if the training log has none."),
        OF_FILES,
    ] = None
    run_name: Annotated[
        str | None,
        typer.Option("--run-name", metavar="NAME", help="Training run, if the log names none."),
        OF_FILES,
    ] = None
    series: Annotated[
        str | None,
        typer.Option("--series", metavar="NAME", help="Metric whose points mark the steps."),
        OF_FILES,
    ] = None

    accelerators: Annotated[
        str | None,
        typer.Option(
            "--accelerators",
            metavar="LIST",
            help="Generic resources of Slurm to count as GPUs, comma-separated: npu,dcu.",
        ),
        OF_FILES,
    ] = None

    def read_options(self, taxonomy_file: Path | None = None) -> ReadOptions:
        """The same, checked, as the sources take it.

        Args:
            taxonomy_file: the site's own rows; those of kernel messages are used in reading.

        Raises:
            UsageError: an option or the file cannot be understood.
        """
        from ettr.sources.base import ReadOptions
        from ettr.taxonomy import load_taxonomy

        fields = self.fields
        return ReadOptions(
            timezone=self.timezone,
            cluster=self.cluster,
            fields=tuple(name.strip() for name in fields.split(",")) if fields else None,
            n_nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            column_map=_column_map(self.columns),
            table=self.table,
            start=None if self.start is None else q.moment("--start", self.start),
            job=self.job,
            run=self.run_name,
            series=self.series,
            accelerators=_names(self.accelerators),
            kernel=(load_taxonomy(taxonomy_file).site_kernel or None) if taxonomy_file else None,
        )


def existing_files(files: list[Path]) -> list[Path]:
    """The files, all of them there; `-` is standard input.

    Raises:
        UsageError: some are not, or standard input is named twice; the message names each.
    """
    from ettr.sources.origin import STDIN, is_there

    absent = [str(path) for path in files if not is_there(path)]
    if absent:
        raise UsageError(f"no such file: {', '.join(absent)}")
    if files.count(STDIN) > 1:
        raise UsageError("- is given twice; standard input can be read only once")
    return files


def _names(listed: str | None) -> tuple[str, ...] | None:
    """The names of generic resources.

    Raises:
        UsageError: they are no such names.
    """
    if listed is None:
        return None
    names = tuple(name.strip().removeprefix("gres/") for name in listed.split(","))
    if not all(re.fullmatch(r"[A-Za-z][\w-]*", name) for name in names):
        raise UsageError(
            f"--accelerators {listed!r}: write names as in gres/NAME, comma-separated: npu,dcu"
        )
    return names


def _column_map(columns: str | None) -> dict[str, str] | None:
    if columns is None:
        return None
    pairs = [pair.partition("=") for pair in columns.split(",")]
    wrong = [ours for ours, equals, theirs in pairs if not (ours and equals and theirs)]
    if wrong:
        raise UsageError(f"--columns {columns!r}: {wrong[0]!r} is no pair; write node=host,time=ts")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


# -- log files read into a store, with progress on the terminal; shared by `ingest` and `report`


def ingest_all(
    store: Store,
    files: list[Path],
    options: ReadOptions,
    source: str | None,
    analysis: Analysis | None = None,
    jobs: int | None = 1,
) -> list[Ingested]:
    """Read each file into the store, with a bar on the terminal; notes go to stderr.

    An analysis of the store that is asked more later keeps what the notes take.
    """
    from ettr.analysis import reading

    return reading.ingest_all(store, files, options, source, complain, reading_bar, analysis, jobs)
