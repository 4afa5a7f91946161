"""Options that several commands share, each with one name and one help text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import OptionGroup
from ettr.cli.inputs import Input, needs
from ettr.cli.limits import LONGEST_MIN, LONGEST_PATTERN, MOST_GPUS_PER_NODE, MOST_NODES, shortened
from ettr.defaults import (
    BURST_GAP_S,
    CONFIDENCE,
    LARGE_JOB_GPUS,
    LOG_TOLERANCE_S,
    PREEMPTION_TOLERANCE_S,
    PREEMPTION_WINDOW_S,
    STICKY_GAP_S,
    WINDOW_AFTER_S,
    WINDOW_BEFORE_S,
)
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.metrics.runs import CheckpointAssumptions
    from ettr.sources.base import ReadOptions

LONGEST_WINDOW_S = 366 * SECONDS_PER_DAY
USUAL_WINDOW = f"{WINDOW_BEFORE_S:g},{WINDOW_AFTER_S:g}"

StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="A folder, a file ending in .duckdb, or postgres://USER@HOST/DB."
    ),
]
LoggedGpusPerNodeOption = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="G",
        min=0,
        max=MOST_GPUS_PER_NODE,
        help="GPUs in a node, where the log lacks it.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@dataclass(frozen=True, slots=True)
class Reading(OptionGroup):
    """Properties of the files to read that the files do not state."""

    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="NAME", help="Format of the files; recognised by content if absent."
        ),
        needs(Input.FILES),
    ] = None
    fields: Annotated[
        str | None,
        typer.Option(
            "--fields",
            metavar="LIST",
            help="Column names of a dump without a header, comma-separated.",
        ),
        needs(Input.FILES),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Zone of local times in the logs, such as Europe/Zurich.",
        ),
        needs(Input.FILES),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            max=MOST_NODES,
            help="Nodes in the fleet, where the log lacks it.",
        ),
        needs(Input.FILES),
    ] = None
    gpus_per_node: LoggedGpusPerNodeOption = None
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="The cluster's name, where the log lacks it."
        ),
        needs(Input.FILES),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="When the log begins (ISO 8601 with zone), for stamps without year or date.",
        ),
        needs(Input.FILES),
    ] = None
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="NAME", help="Table that a CSV or Parquet file holds."),
        needs(Input.FILES),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="MAP", help="Its columns as ours=theirs pairs, comma-separated."
        ),
        needs(Input.FILES),
    ] = None

    def read_options(self) -> ReadOptions:
        """The same, checked, as the sources take it.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.sources.base import ReadOptions

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
        )


@dataclass(frozen=True, slots=True)
class Judging(OptionGroup):
    """The taxonomy that log lines are read with."""

    taxonomy: Annotated[
        Path | None,
        typer.Option(
            "--taxonomy",
            metavar="FILE",
            help="TOML or CSV file whose rows override the taxonomy's.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = None
    believe: Annotated[
        str | None,
        typer.Option(
            "--believe",
            metavar="VENDOR",
            help="Whose verdict on XID codes decides; nvidia if absent.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = None

    def check(self) -> None:
        """Accept a taxonomy file that is there and a vendor that is known.

        Raises:
            UsageError: the file is absent, or the vendor unknown.
        """
        from ettr.taxonomy.catalogue import check_vendor

        if self.taxonomy is not None and not self.taxonomy.is_file():
            raise UsageError(
                f"--taxonomy {self.taxonomy}: no such file; give a TOML or CSV file of your rows"
            )
        if self.believe is not None:
            check_vendor(self.believe)


@dataclass(frozen=True, slots=True)
class Explaining(Judging):
    """The same, and the window in which an event explains an end."""

    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="BEFORE,AFTER",
            help="Time before and after a job's end in which an event explains it, in seconds or "
            f"with units; {USUAL_WINDOW} if absent.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = None
    burst_gap: Annotated[
        str,
        typer.Option(
            "--burst-gap",
            metavar="TIME",
            help="Silence after which the same error on a node begins a new episode.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = q.typed_time(BURST_GAP_S)
    sticky_gap: Annotated[
        str,
        typer.Option(
            "--sticky-gap",
            metavar="TIME",
            help="The same for errors that repeat until somebody acts.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = q.typed_time(STICKY_GAP_S)
    log_tolerance: Annotated[
        str,
        typer.Option(
            "--log-tolerance",
            metavar="TIME",
            help="Farthest from a job's end that a line of the controller's log or a node's state "
            "may say how it ended.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = q.typed_time(LOG_TOLERANCE_S)

    def assumptions(self, gpus_per_node: int | None = None) -> Assumptions:
        """Assumptions that the analysis cannot read from the logs, checked.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.analysis import Assumptions
        from ettr.attribution import FoldingRules, LogMatching, Window

        self.check()
        return Assumptions(
            taxonomy_file=self.taxonomy,
            believe=self.believe,
            window=Window()
            if self.window is None
            else Window(*_two_times("--window", self.window)),
            folding=FoldingRules(
                burst_gap_s=limited_time_s("--burst-gap", self.burst_gap),
                sticky_gap_s=limited_time_s("--sticky-gap", self.sticky_gap),
            ),
            matching=LogMatching(limited_time_s("--log-tolerance", self.log_tolerance)),
            gpus_per_node=gpus_per_node,
        )


@dataclass(frozen=True, slots=True)
class Rating(Explaining):
    """The same, and the failures that count in a rate."""

    above_gpus: Annotated[
        int,
        typer.Option(
            "--above-gpus", metavar="N", min=0, help="Large jobs have more GPUs than this."
        ),
        needs(Input.STORE, Input.FILES),
        needs(Input.LARGE_JOBS),
    ] = LARGE_JOB_GPUS
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            help=f"Of the intervals: {CONFIDENCE:g} for {100 * CONFIDENCE:g} %.",
        ),
        needs(Input.STORE, Input.FILES, Input.COUNTS),
    ] = CONFIDENCE

    fleet_nodes: Annotated[
        int | None,
        typer.Option(
            "--fleet-nodes",
            metavar="N",
            min=1,
            help="Nodes in the fleet, where the logs do not name them all.",
        ),
        needs(Input.STORE, Input.FILES),
    ] = None

    def assumptions(self, gpus_per_node: int | None = None) -> Assumptions:
        """Assumptions that the analysis cannot read from the logs, checked.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.estimates.interval import check_confidence

        check_confidence(self.confidence)
        return replace(
            Explaining.assumptions(self, gpus_per_node),
            above_gpus=self.above_gpus,
            confidence=self.confidence,
            n_nodes=self.fleet_nodes,
        )


@dataclass(frozen=True, slots=True)
class AnalysisOptions(Rating):
    """The same, and assumptions on runs and their checkpoints."""

    run_id: Annotated[
        str | None,
        typer.Option(
            "--run-id",
            metavar="REGEX",
            help="Jobs whose comment matches are one run for each text of the first group.",
        ),
    ] = None
    checkpoint_min: Annotated[
        float | None,
        typer.Option(
            "--checkpoint-min",
            metavar="MINUTES",
            help="Checkpoint interval of runs that report none; failures lose half of it.",
        ),
    ] = None
    restart_min: Annotated[
        float | None,
        typer.Option(
            "--restart-min", metavar="MINUTES", help="Restart time of runs that report none."
        ),
    ] = None
    save_min: Annotated[
        float | None,
        typer.Option(
            "--save-min",
            metavar="MINUTES",
            help="Time a checkpoint stops training, of runs that report none.",
        ),
    ] = None
    preemption_window: Annotated[
        str,
        typer.Option(
            "--preemption-window",
            metavar="TIME",
            help="Longest time from a preemption to the restart that it made room for.",
        ),
    ] = q.typed_time(PREEMPTION_WINDOW_S)
    preemption_tolerance: Annotated[
        str,
        typer.Option(
            "--preemption-tolerance",
            metavar="TIME",
            help="Farthest from a preempted job's end that the controller's line about it may lie.",
        ),
    ] = q.typed_time(PREEMPTION_TOLERANCE_S)

    def assumptions(self, gpus_per_node: int | None = None) -> Assumptions:
        """Assumptions that the analysis cannot read from the logs, checked.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.metrics.preemptions import PreemptionRule
        from ettr.metrics.stitching import RunRule

        made = replace(
            Rating.assumptions(self, gpus_per_node),
            run_rule=RunRule(comment_pattern=_pattern("--run-id", self.run_id)),
            checkpoints=_checkpoints(self.checkpoint_min, self.restart_min, self.save_min),
            preemption=PreemptionRule(
                limited_time_s("--preemption-window", self.preemption_window),
                limited_time_s("--preemption-tolerance", self.preemption_tolerance),
            ),
        )
        if self.checkpoint_min is None:
            return made
        # a failure finds half of the interval unsaved on average
        return replace(made, lost_cap_min=self.checkpoint_min / 2.0)


@dataclass(frozen=True, slots=True)
class MetricOptions(AnalysisOptions):
    """The same, and the size of a node; a metric offers those that it depends on."""

    gpus_per_node: LoggedGpusPerNodeOption = None


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
    """The files, all of them there; `-` is standard input.

    Raises:
        UsageError: some are not, or standard input is named twice; the message names each.
    """
    from ettr.sources.spool import STDIN, is_there

    absent = [str(path) for path in files if not is_there(path)]
    if absent:
        raise UsageError(f"no such file: {', '.join(absent)}")
    if files.count(STDIN) > 1:
        raise UsageError("- is named twice; standard input can be read once")
    return files


def _pattern(option: str, text: str | None) -> str | None:
    """A regular expression that the engine takes as well; its syntax is RE2's.

    Raises:
        UsageError: it does not.
    """
    if text is None:
        return None
    import duckdb

    try:
        if len(text) > LONGEST_PATTERN:
            raise UsageError(f"{option}: give a pattern of {LONGEST_PATTERN} characters at most")
        with duckdb.connect() as duck:
            duck.execute("SELECT regexp_extract('', ?)", [text]).fetchall()
    except duckdb.Error as error:
        raise UsageError(
            f"{option} {shortened(text)!r}: {str(error).splitlines()[0]}; give a regular "
            "expression in the syntax of RE2, which has no back-references"
        ) from error
    return text


def _checkpoints(
    interval_min: float | None, restart_min: float | None, save_min: float | None
) -> CheckpointAssumptions:
    """The band of scenarios, narrowed by what the user knows."""
    from ettr.metrics.runs import CheckpointAssumptions

    q.positive("--checkpoint-min", interval_min, "minutes")
    for option, minutes in (("--restart-min", restart_min), ("--save-min", save_min)):
        if minutes is not None and not 0 <= minutes < math.inf:
            raise UsageError(
                f"{option} {minutes:g}: give a number of minutes, 0 or more, or leave it out"
            )
    for option, minutes in (
        ("--checkpoint-min", interval_min),
        ("--restart-min", restart_min),
        ("--save-min", save_min),
    ):
        if minutes is not None and minutes > LONGEST_MIN:
            raise UsageError(f"{option} {minutes:g}: give {LONGEST_MIN} minutes (a year) at most")
    return CheckpointAssumptions().narrowed(interval_min, restart_min, save_min)


def _two_times(option: str, text: str) -> tuple[float, float]:
    """Two lengths of time in seconds, each a bare number of them or with its unit: `10min,300`."""
    try:
        first, second = (_bare_or_time(option, part) for part in text.split(","))
    except ValueError:
        first = second = math.nan
    # lengths below 0 are refused where a window is made
    if not max(abs(first), abs(second)) <= LONGEST_WINDOW_S or math.isnan(second):
        raise UsageError(
            f"{option} {text!r}: give two numbers of seconds, such as {USUAL_WINDOW}, none above "
            f"{LONGEST_WINDOW_S:.0f}, or two times with their unit, such as 10min,5min"
        )
    return first, second


def limited_time_s(option: str, text: str) -> float:
    """A length of time of up to a year, in seconds.

    Raises:
        UsageError: it is longer, or cannot be understood.
    """
    length_s = q.seconds(option, text)
    if length_s > LONGEST_WINDOW_S:
        raise UsageError(
            f"{option} {text}: give {LONGEST_WINDOW_S / SECONDS_PER_DAY:.0f}d at most, such as 5min"
        )
    return length_s


def _bare_or_time(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return q.seconds(option, text)
        except UsageError as error:
            raise ValueError(text) from error
