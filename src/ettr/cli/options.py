"""Options that several commands share, each with one name and one help text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.errors import UsageError
from ettr.sources.base import ReadOptions

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.metrics.runs import Assumptions as CheckpointAssumptions

WORST_SAVE_SHARE = 5.0 / 120.0

StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="A folder, a file ending in .duckdb, or the URL of an Ibis backend."
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Format of the files; recognised by content if absent."
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="LIST", help="Column names of a dump without a header, comma-separated."
    ),
]
TimezoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone", metavar="ZONE", help="Zone of local times in the logs, such as Europe/Zurich."
    ),
]
NodesOption = Annotated[
    int | None,
    typer.Option("--nodes", metavar="N", min=1, help="Nodes in the fleet, where the log lacks it."),
]
GpusPerNodeOption = Annotated[
    int | None,
    typer.Option("--gpus-per-node", metavar="G", min=0, help="GPUs in a node, likewise."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="The cluster's name, where the log lacks it."),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="TIME",
        help="When the log begins (ISO 8601 with zone), for stamps without year or date.",
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="Table that a CSV or Parquet file holds."),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="MAP", help="Its columns as ours=theirs pairs, comma-separated."
    ),
]
TaxonomyOption = Annotated[
    Path | None,
    typer.Option(
        "--taxonomy", metavar="FILE", help="TOML or CSV file whose rows override the taxonomy's."
    ),
]
BelieveOption = Annotated[
    str | None,
    typer.Option(
        "--believe", metavar="VENDOR", help="Whose verdict on XID codes decides; nvidia if absent."
    ),
]
AboveGpusOption = Annotated[
    int,
    typer.Option("--above-gpus", metavar="N", min=0, help="Large jobs have more GPUs than this."),
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", metavar="SHARE", help="Of the intervals: 0.9 for 90 %.")
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="BEFORE,AFTER",
        help="Seconds before and after a job's end in which an event explains it; 600,300.",
    ),
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        metavar="REGEX",
        help="Jobs whose comment matches are one run for each text of the first group.",
    ),
]
CheckpointOption = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-min", metavar="MINUTES", help="Checkpoint interval of runs that tell none."
    ),
]
RestartOption = Annotated[
    float | None,
    typer.Option("--restart-min", metavar="MINUTES", help="Restart time of runs that tell none."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def read_options(
    *,
    fields: str | None,
    timezone: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    cluster: str | None,
    start: str | None,
    table: str | None,
    columns: str | None,
) -> ReadOptions:
    """What the user said about the files, checked.

    Raises:
        UsageError: an option cannot be understood.
    """
    from datetime import datetime

    begins = None
    if start is not None:
        try:
            begins = datetime.fromisoformat(start)
        except ValueError:
            begins = None
        if begins is None or begins.tzinfo is None:
            raise UsageError(
                f"--start {start!r}: give a time with its zone, such as 2026-03-01T00:00:00Z"
            )
    return ReadOptions(
        timezone=timezone,
        cluster=cluster,
        fields=tuple(name.strip() for name in fields.split(",")) if fields else None,
        n_nodes=nodes,
        gpus_per_node=gpus_per_node,
        column_map=_column_map(columns),
        table=table,
        start=begins,
    )


def _column_map(columns: str | None) -> dict[str, str] | None:
    if columns is None:
        return None
    pairs = [pair.partition("=") for pair in columns.split(",")]
    wrong = [ours for ours, equals, theirs in pairs if not (ours and equals and theirs)]
    if wrong:
        raise UsageError(
            f"--columns {columns!r}: {wrong[0]!r} is no ours=theirs pair; "
            "write --columns node=host,time=ts"
        )
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def existing_files(files: list[Path]) -> list[Path]:
    """The files, all of them there.

    Raises:
        UsageError: some are not; the message names each.
    """
    absent = [str(path) for path in files if not path.exists()]
    if absent:
        raise UsageError(f"no such file: {', '.join(absent)}")
    return files


def assumptions(
    *,
    taxonomy: Path | None = None,
    believe: str | None = None,
    above_gpus: int = 128,
    gpus_per_node: int | None = None,
    confidence: float = 0.9,
    window: str | None = None,
    run_id: str | None = None,
    checkpoint_min: float | None = None,
    restart_min: float | None = None,
) -> Assumptions:
    """What the analysis cannot read from the logs, checked.

    Raises:
        UsageError: an option cannot be understood.
    """
    from ettr.analysis import Assumptions
    from ettr.attribution import Window
    from ettr.estimates import check_confidence
    from ettr.metrics.stitching import RunRule

    check_confidence(confidence)
    return Assumptions(
        taxonomy_file=taxonomy,
        believe=believe,
        window=Window() if window is None else Window(*_two_numbers("--window", window)),
        above_gpus=above_gpus,
        gpus_per_node=gpus_per_node,
        confidence=confidence,
        run_rule=RunRule(comment_pattern=run_id),
        checkpoints=_checkpoints(checkpoint_min, restart_min),
    )


def _checkpoints(interval_min: float | None, restart_min: float | None) -> CheckpointAssumptions:
    """The band of scenarios, narrowed by what the user knows."""
    from ettr.metrics.runs import Assumptions as CheckpointAssumptions

    usual = CheckpointAssumptions()
    known = {
        name: value
        for name, value in (
            ("checkpoint_interval_min", interval_min),
            ("restart_min", restart_min),
        )
        if value is not None
    }
    scenarios = {}
    for name in ("worst", "middle", "best"):
        case = replace(getattr(usual, name), **known)
        # a short interval is not half spent in saving: at most the usual worst share of it
        most_min = case.checkpoint_interval_min * WORST_SAVE_SHARE
        scenarios[name] = replace(case, save_min=min(case.save_min, most_min))
    chosen = CheckpointAssumptions(**scenarios)
    chosen.check()
    return chosen


def _two_numbers(option: str, text: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: give two numbers of seconds, such as 600,300"
        ) from None
    return first, second
