"""Options that several commands share, each with one name and one help text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.cli.quantities import LONGEST_PATTERN, MOST_GPUS_PER_NODE, shortened
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
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.attribution import FoldingRules, LogMatching, Window
    from ettr.metrics.run_rules import CheckpointAssumptions, PreemptionRule


# -- options for how far apart in time two things may be and still belong together -----------------


LONGEST_TIME_S = 366 * SECONDS_PER_DAY
USUAL_WINDOW = f"{WINDOW_BEFORE_S:g},{WINDOW_AFTER_S:g}"


OF_LOGS = needs(Input.STORE, Input.FILES)


def _time(flag: str, help_text: str) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, metavar="TIME", help=help_text)
    return option


WINDOW: OptionInfo = typer.Option(
    "--window",
    metavar="BEFORE,AFTER",
    help="How long before and after a job's end an event may be and still explain it, in "
    f"seconds or with units; default {USUAL_WINDOW}.",
)
BURST_GAP = _time(
    "--burst-gap", "Silence after which the same error on a node starts a new episode."
)
STICKY_GAP = _time("--sticky-gap", "The same for errors that repeat until somebody acts.")
LOG_TOLERANCE = _time(
    "--log-tolerance",
    "How far from a job's end a line of the controller's log or a node's state may be "
    "and still say how it ended.",
)
PREEMPTION_WINDOW = _time(
    "--preemption-window",
    "Longest time between a preemption and the restart that it made room for.",
)
PREEMPTION_TOLERANCE = _time(
    "--preemption-tolerance",
    "How far from a preempted job's end the controller's line about it may be.",
)


def window(text: str | None) -> Window:
    """The window in which an event explains an end; the usual one where none was typed.

    Raises:
        UsageError: it cannot be understood, as in the functions below.
    """
    from ettr.attribution import Window

    return Window() if text is None else Window(*_two_times("--window", text))


def folding_rules(burst_gap: str, sticky_gap: str) -> FoldingRules:
    """How long a silence parts two episodes."""
    from ettr.attribution import FoldingRules

    return FoldingRules(
        burst_gap_s=limited_time_s("--burst-gap", burst_gap),
        sticky_gap_s=limited_time_s("--sticky-gap", sticky_gap),
    )


def log_matching(tolerance: str) -> LogMatching:
    """How far from an end a line about it may lie."""
    from ettr.attribution import LogMatching

    return LogMatching(limited_time_s("--log-tolerance", tolerance))


def preemption_rule(longest: str, tolerance: str) -> PreemptionRule:
    """How far a preemption may lie from the restart that it made room for, and from its line."""
    from ettr.metrics.run_rules import PreemptionRule

    return PreemptionRule(
        limited_time_s("--preemption-window", longest),
        limited_time_s("--preemption-tolerance", tolerance),
    )


def checkpoints(
    interval_s: float | None, restart_s: float | None, write_s: float | None
) -> CheckpointAssumptions:
    """The band of scenarios of runs that report no progress, narrowed by what is known.

    Raises:
        UsageError: an interval of 0, or not above the time of a write.
    """
    from ettr.metrics.run_rules import CheckpointAssumptions

    q.positive("--interval", interval_s, "seconds")
    interval_min, restart_min, save_min = (
        None if length_s is None else length_s / SECONDS_PER_MINUTE
        for length_s in (interval_s, restart_s, write_s)
    )
    return CheckpointAssumptions().narrowed(interval_min, restart_min, save_min)


def limited_time_s(option: str, text: str) -> float:
    """A length of time of up to a year, in seconds.

    Raises:
        UsageError: it is longer, or cannot be understood.
    """
    length_s = q.seconds(option, text)
    if length_s > LONGEST_TIME_S:
        raise UsageError(
            f"{option} {text}: give {LONGEST_TIME_S / SECONDS_PER_DAY:.0f}d at most, such as 5min"
        )
    return length_s


def _two_times(option: str, text: str) -> tuple[float, float]:
    """Two lengths of time in seconds, each a bare number of them or with its unit: `10min,300`."""
    try:
        first, second = (_bare_or_time(option, part) for part in text.split(","))
    except ValueError:
        first = second = math.nan
    # lengths below 0 are refused where a window is made
    if not max(abs(first), abs(second)) <= LONGEST_TIME_S or math.isnan(second):
        raise UsageError(
            f"{option} {text!r}: give two numbers of seconds, such as {USUAL_WINDOW}, none above "
            f"{LONGEST_TIME_S:.0f}, or two times with their unit, such as 10min,5min"
        )
    return first, second


def _bare_or_time(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return q.seconds(option, text)
        except UsageError as error:
            raise ValueError(text) from error


# -- options that several commands share, each with one name and one help text ---------------------


StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A folder, s3://BUCKET/PREFIX, a file ending in .duckdb, or postgres://USER@HOST/DB.",
    ),
]
OptionalStoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE",
        help="A folder, s3://BUCKET/PREFIX, a file ending in .duckdb, or postgres://USER@HOST/DB.",
    ),
]
LoggedGpusPerNodeOption = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="G",
        min=0,
        max=MOST_GPUS_PER_NODE,
        help="GPUs per node, if the log does not say.",
    ),
]


@dataclass(frozen=True, slots=True)
class Judging(OptionGroup):
    """The taxonomy that log lines are read with."""

    taxonomy: Annotated[
        Path | None,
        typer.Option("--taxonomy", metavar="FILE", help="TOML or CSV file with rows of your own."),
        OF_LOGS,
    ] = None
    believe: Annotated[
        str | None,
        typer.Option(
            "--believe",
            metavar="VENDOR",
            help="Vendor whose verdict on XID codes decides; default nvidia.",
            autocompletion=vendor_names,
        ),
        OF_LOGS,
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

    window: Annotated[str | None, WINDOW, OF_LOGS] = None
    burst_gap: Annotated[str, BURST_GAP, OF_LOGS] = q.typed_time(BURST_GAP_S)
    sticky_gap: Annotated[str, STICKY_GAP, OF_LOGS] = q.typed_time(STICKY_GAP_S)
    log_tolerance: Annotated[str, LOG_TOLERANCE, OF_LOGS] = q.typed_time(LOG_TOLERANCE_S)

    def assumptions(self, gpus_per_node: int | None = None) -> Assumptions:
        """Assumptions that the analysis cannot read from the logs, checked.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.analysis import Assumptions

        self.check()
        return Assumptions(
            taxonomy_file=self.taxonomy,
            believe=self.believe,
            window=window(self.window),
            folding=folding_rules(self.burst_gap, self.sticky_gap),
            matching=log_matching(self.log_tolerance),
            gpus_per_node=gpus_per_node,
            site_file=self.site_file,
        )


@dataclass(frozen=True, slots=True)
class Rating(Explaining):
    """The same, and the failures that count in a rate."""

    above_gpus: Annotated[
        int,
        typer.Option("--above-gpus", metavar="N", min=0, help="Jobs with more GPUs are large."),
        OF_LOGS,
        needs(Input.LARGE_JOBS),
    ] = LARGE_JOB_GPUS
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            help=f"Confidence of the intervals: {CONFIDENCE:g} means {100 * CONFIDENCE:g} %.",
        ),
        needs(Input.STORE, Input.FILES, Input.COUNTS),
    ] = CONFIDENCE

    fleet_nodes: Annotated[
        int | None,
        typer.Option(
            "--fleet-nodes",
            metavar="N",
            min=1,
            help="Number of nodes in the fleet, if the logs do not name them all.",
        ),
        OF_LOGS,
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
            help="Pattern on job comments; the text of its first group is the id of the run.",
        ),
    ] = None
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval",
            metavar="TIME",
            help="Checkpoint interval of runs that record none; a failure loses half of it.",
        ),
        needs(Input.LIST, Input.PREVIOUS),
    ] = None
    restart: Annotated[
        str | None,
        typer.Option("--restart", metavar="TIME", help="Restart time of runs that record none."),
    ] = None
    write: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="TIME",
            help="How long a checkpoint stops the training, for runs that record none.",
        ),
    ] = None
    slo: Annotated[
        Path | None,
        typer.Option(
            "--slo",
            metavar="FILE",
            help="TOML file with budgets in [[slo]] tables; default those of ettr.toml.",
        ),
        OF_LOGS,
    ] = None
    preemption_window: Annotated[str, PREEMPTION_WINDOW] = q.typed_time(PREEMPTION_WINDOW_S)
    preemption_tolerance: Annotated[str, PREEMPTION_TOLERANCE] = q.typed_time(
        PREEMPTION_TOLERANCE_S
    )

    def assumptions(self, gpus_per_node: int | None = None) -> Assumptions:
        """Assumptions that the analysis cannot read from the logs, checked.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.metrics.objectives import read_objectives
        from ettr.metrics.run_rules import RunRule

        interval_s, restart_s, write_s = (
            q.if_typed(limited_time_s, f"--{name}", getattr(self, name))
            for name in ("interval", "restart", "write")
        )
        made = replace(
            Rating.assumptions(self, gpus_per_node),
            run_rule=RunRule(comment_pattern=_pattern("--run-id", self.run_id)),
            checkpoints=checkpoints(interval_s, restart_s, write_s),
            preemption=preemption_rule(self.preemption_window, self.preemption_tolerance),
            objectives=() if self.slo is None else read_objectives(self.slo),
        )
        if interval_s is None:
            return made
        # a failure finds half of the interval unsaved on average
        return replace(made, lost_cap_min=interval_s / SECONDS_PER_MINUTE / 2.0)


@dataclass(frozen=True, slots=True)
class MetricOptions(AnalysisOptions):
    """The same, and the size of a node; a metric offers those that it depends on."""

    gpus_per_node: LoggedGpusPerNodeOption = None


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


def source_names(incomplete: str) -> list[str]:
    """Names of log formats that begin so."""
    from ettr.sources.registry import all_sources

    return [name for name in all_sources() if name.startswith(incomplete)]


def vendor_names(incomplete: str) -> list[str]:
    """Vendors with verdicts on XID codes that begin so."""
    from ettr.taxonomy.codes import VENDORS

    return [name for name in VENDORS if name.startswith(incomplete)]


def table_names(incomplete: str) -> list[str]:
    """Tables that begin so, stored and derived."""
    from ettr.tables import DERIVED, TABLES

    return [name for name in (*TABLES, *DERIVED) if name.startswith(incomplete)]


def stored_table_names(incomplete: str) -> list[str]:
    """Tables that begin so and can be read from a file."""
    from ettr.tables import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]
