"""Options of the planning commands: where a failure rate comes from, and how long things take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import OptionGroup
from ettr.cli.quantities import MOST_GPUS_PER_NODE
from ettr.defaults import GPUS_PER_NODE, RESTART_S, WRITE_S
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.estimates.exact import FailureRate
    from ettr.plan.outlook import PlanningRate
    from ettr.plan.run import RunShape

StoreOrNothing = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="Store that gives the failure rate; or type a rate."),
]
GpusPerNodeOption = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node", metavar="G", min=1, max=MOST_GPUS_PER_NODE, help="GPUs per node."
    ),
]


@dataclass(frozen=True, slots=True)
class TypedCounts(OptionGroup):
    """A failure rate as failures over node-days, which gives it an interval."""

    failures: Annotated[
        int | None,
        typer.Option("--failures", metavar="K", help="Number of failures seen, with --node-days."),
    ] = None
    node_days: Annotated[
        float | None,
        typer.Option("--node-days", metavar="T", help="Exposure in which they occurred."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether either was typed."""
        return self.failures is not None or self.node_days is not None

    def rate(self) -> FailureRate:
        """Failures and node-days.

        Raises:
            UsageError: one is absent, or they cannot be.
        """
        from ettr.estimates.exact import FailureRate

        if self.failures is None or self.node_days is None:
            raise UsageError("--failures and --node-days go together; give both")
        if self.failures < 0 or not 0 < self.node_days < math.inf:
            raise UsageError(
                f"{self.failures} failures in {self.node_days:g} node-days; give 0 or more "
                "failures and more than 0 node-days"
            )
        return FailureRate(self.failures, self.node_days)


@dataclass(frozen=True, slots=True)
class TypedRate(TypedCounts):
    """A failure rate typed in: with its evidence, or alone."""

    per_1000_node_days: Annotated[
        str | None,
        typer.Option(
            "--failures-per-1000-node-days",
            metavar="R",
            help="Failure rate of a node; with its interval as R,LOW,HIGH.",
        ),
    ] = None

    @property
    def has_interval(self) -> bool:
        """Whether what was typed gives the rate an interval."""
        return self.given or "," in (self.per_1000_node_days or "")

    def planning_rate(self, confidence: float) -> PlanningRate:
        """The rate that was typed, either way.

        Args:
            confidence: of its interval.

        Raises:
            UsageError: it cannot be understood, or cannot be.
        """
        from ettr.plan.outlook import counted_rate, typed_rate

        if self.per_1000_node_days is None:
            counted = self.rate()
            return counted_rate(counted, counted.interval(confidence), confidence)
        rate, *ends = q.rate_with_ends("--failures-per-1000-node-days", self.per_1000_node_days)
        return typed_rate(rate, (ends[0], ends[1]) if ends else None, confidence)


@dataclass(frozen=True, slots=True)
class RunSize(OptionGroup):
    """How large the run is."""

    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=1, help="Number of GPUs of the run.")
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, help="Number of nodes of the run."),
    ] = None
    gpus_per_node: GpusPerNodeOption = None

    def assumed(self, seen_gpus_per_node: int | None) -> tuple[str, ...]:
        """What was not typed and is therefore assumed, a sentence each."""
        if self.gpus_per_node and seen_gpus_per_node not in (None, self.gpus_per_node):
            return (_node_rate_of_another(seen_gpus_per_node or 0, self.gpus_per_node),)
        if self.gpus is None or self.gpus_per_node or seen_gpus_per_node:
            return ()
        return (f"Without --gpus-per-node a node has {GPUS_PER_NODE} GPUs.",)


def _node_rate_of_another(seen: int, planned: int) -> str:
    factor = planned / seen
    times = {0.5: "halve it", 2.0: "double it"}.get(factor, f"take it {factor:.3g} times")
    return (
        f"The failure rate is that of nodes of {counted(seen, 'GPU')} and is taken as it is for "
        f"nodes of {planned:,}: if failures go with GPUs rather than with nodes, {times} with "
        "--failures-per-1000-node-days."
    )


@dataclass(frozen=True, slots=True)
class RunTimes(OptionGroup):
    """How long the parts of a run take."""

    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="TIME", help="Checkpoint interval; default the best."),
    ] = None
    write: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="TIME",
            help=f"How long a checkpoint stops the training; default {q.typed_time(WRITE_S)}.",
        ),
    ] = None
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="TIME",
            help="Time from the start of an attempt until it trains; default "
            f"{q.typed_time(RESTART_S)}.",
        ),
    ] = None
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="TIME", help="Mean wait, at first and after a failure."),
    ] = None

    def shape(self, n_nodes: int) -> RunShape:
        """A long run of that size with these times.

        Raises:
            UsageError: a time cannot be understood.
        """
        from ettr.plan.run import RunShape

        typed = {
            "write_s": q.if_typed(q.seconds, "--write", self.write),
            "restart_s": q.if_typed(q.seconds, "--restart", self.restart),
            "queue_s": q.if_typed(q.seconds, "--queue", self.queue),
        }
        known: dict[str, Any] = {name: at for name, at in typed.items() if at is not None}
        return replace(RunShape(n_nodes), **known)

    def interval_s(self) -> float | None:
        """Between checkpoints, in seconds; None for the best.

        Raises:
            UsageError: it cannot be understood.
        """
        return q.if_typed(q.seconds, "--interval", self.interval)

    def assumed(self, *, write_known: bool = False) -> tuple[str, ...]:
        """What was not typed and is therefore assumed, a sentence each.

        Args:
            write_known: The write follows from other inputs.
        """
        from ettr.words import spell

        return tuple(
            f"{option} not given: {spell(assumed_s)}, as Kokolis et al. (HPCA 2025) assume."
            for option, known, assumed_s in (
                ("--write", write_known or self.write is not None, WRITE_S),
                ("--restart", self.restart is not None, RESTART_S),
            )
            if not known
        )
