"""Options of the planning commands: where a failure rate comes from, and how long things take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import OptionGroup
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis import Assumptions
    from ettr.analysis.fleet_evidence import FleetEvidence
    from ettr.analysis.planning import RunShape

ASSUMED_WRITE = "5min"
ASSUMED_RESTART = "5min"

StoreOrNothing = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="A store whose failure rate to use; or type one."),
]


@dataclass(frozen=True, slots=True)
class TypedCounts(OptionGroup):
    """A failure rate as failures over node-days, which gives it an interval."""

    failures: Annotated[
        int | None,
        typer.Option("--failures", metavar="K", help="Failures seen, with --node-days: a rate."),
    ] = None
    node_days: Annotated[
        float | None,
        typer.Option("--node-days", metavar="T", help="Exposure in which they were seen."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether either was typed."""
        return self.failures is not None or self.node_days is not None

    def record(
        self, seen_nodes: int | None = None, seen_gpus_per_node: float | None = None
    ) -> FleetEvidence:
        """A fleet known by these two numbers.

        Raises:
            UsageError: one is absent, or they cannot be.
        """
        from ettr.analysis.fleet_evidence import typed_evidence

        if self.failures is None or self.node_days is None:
            raise UsageError("--failures and --node-days go together; give both")
        return typed_evidence(
            "the fleet", self.failures, self.node_days, seen_nodes, seen_gpus_per_node
        )


@dataclass(frozen=True, slots=True)
class RunTimes(OptionGroup):
    """How long the parts of a run take."""

    interval: Annotated[
        str | None,
        typer.Option(
            "--interval",
            metavar="TIME",
            help="Between checkpoints, such as 30min; the best if absent.",
        ),
    ] = None
    write: Annotated[
        str | None,
        typer.Option(
            "--write", metavar="TIME", help="Time a checkpoint stops training; 5min if absent."
        ),
    ] = None
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="TIME",
            help="From an attempt's start until it trains; 5min if absent.",
        ),
    ] = None
    queue: Annotated[
        str,
        typer.Option("--queue", metavar="TIME", help="Mean wait at first and after a failure."),
    ] = "0s"

    def shape(self, n_nodes: int, productive_s: float = math.inf) -> RunShape:
        """A run of that size with these times.

        Raises:
            UsageError: a time cannot be understood.
        """
        from ettr.analysis.planning import RunShape

        return RunShape(
            n_nodes,
            None if self.interval is None else q.seconds("--interval", self.interval),
            q.seconds("--write", self.write or ASSUMED_WRITE),
            q.seconds("--restart", self.restart or ASSUMED_RESTART),
            q.seconds("--queue", self.queue),
            productive_s,
        )

    def assumed(self) -> list[str]:
        """What was not typed and is therefore assumed, a sentence each."""
        return [
            f"{option} not given: {assumed}, as Kokolis et al. (HPCA 2025) assume."
            for option, given, assumed in (
                ("--write", self.write, ASSUMED_WRITE),
                ("--restart", self.restart, ASSUMED_RESTART),
            )
            if given is None
        ]


def stored_evidence(store: str, assumptions: Assumptions) -> FleetEvidence:
    """What a store's large jobs have shown, or all of its jobs where none was large."""
    from ettr.analysis import Analysis
    from ettr.analysis.fleet_evidence import evidence_to_plan_with
    from ettr.store import open_store

    with open_store(store) as opened:
        return evidence_to_plan_with(Analysis(opened, assumptions), store)
