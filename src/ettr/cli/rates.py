"""Options of the planning commands: where a failure rate comes from, and how long things take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.cli.quantities import MOST_GPUS_PER_NODE
from ettr.defaults import (
    DEVICE_BYTES_PER_S,
    DURABLE_PERIOD_S,
    GPUS_PER_NODE,
    HOST_BYTES,
    NETWORK_BYTES_PER_S,
    REPLACE_S,
    RESTART_S,
    WRITE_S,
)
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.estimates.exact import FailureRate
    from ettr.plan.assumed import ChosenSchemes, InputKind, InputValue, SchemeInput
    from ettr.plan.outlook import PlanningRate
    from ettr.plan.run import RunShape
    from ettr.plan.schemes import JobShape


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


# -- options of `ettr plan` about a job's state and machines, to rank checkpoint schemes -----------


@dataclass(frozen=True, slots=True)
class SchemeOptions(OptionGroup):
    """A job as checkpoint schemes see it; without --state-bytes none is ranked."""

    state_bytes: Annotated[
        str | None,
        typer.Option("--state-bytes", metavar="SIZE", help="Checkpoint size; ranks the schemes."),
    ] = None
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="TIME", help="Time of one training step."),
        needs(Input.STATE),
    ] = None
    bandwidth: Annotated[
        str | None,
        typer.Option("--bandwidth", metavar="RATE", help="To durable storage, whole job: 200GB/s."),
        needs(Input.STATE),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="RATE",
            help=f"Bandwidth between nodes; default {q.typed_rate(NETWORK_BYTES_PER_S)}.",
        ),
        needs(Input.STATE),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="RATE",
            help="Bandwidth of one node from GPUs to memory; default "
            f"{q.typed_rate(DEVICE_BYTES_PER_S)}.",
        ),
        needs(Input.STATE),
    ] = None
    host_memory: Annotated[
        str | None,
        typer.Option(
            "--host-memory",
            metavar="SIZE",
            help=f"Memory of a node for checkpoints; default {q.typed_size(HOST_BYTES)}.",
        ),
        needs(Input.STATE),
    ] = None
    storage_space: Annotated[
        str | None,
        typer.Option(
            "--storage-space",
            metavar="SIZE",
            help="Durable storage that checkpoints may fill; default unlimited.",
        ),
        needs(Input.STATE),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", min=1, help="Data-parallel copies; default 1."),
        needs(Input.STATE),
    ] = None
    replace: Annotated[
        str | None,
        typer.Option(
            "--replace",
            metavar="TIME",
            help=f"Time to replace only what failed; default {q.typed_time(REPLACE_S)}.",
        ),
        needs(Input.STATE),
    ] = None
    durable_every: Annotated[
        str | None,
        typer.Option(
            "--durable-every",
            metavar="TIME",
            help="Time between durable copies of two-level schemes; default "
            f"{q.typed_time(DURABLE_PERIOD_S)}.",
        ),
        needs(Input.STATE),
    ] = None
    one_writer_share: Annotated[
        float | None,
        typer.Option(
            "--one-writer-share",
            metavar="SHARE",
            help="Share of --bandwidth that one checkpoint alone gets; default 1.",
        ),
        needs(Input.STATE),
    ] = None
    embedding_share: Annotated[
        float | None,
        typer.Option("--embedding-share", metavar="SHARE", help="Embeddings' share of the state."),
        needs(Input.STATE),
    ] = None
    expert_share: Annotated[
        float | None,
        typer.Option("--expert-share", metavar="SHARE", help="Share of the state that is experts."),
        needs(Input.STATE),
    ] = None
    logged_bytes: Annotated[
        str | None,
        typer.Option("--logged-bytes", metavar="SIZE", help="Sent between stages in a step."),
        needs(Input.STATE),
    ] = None
    failure_shares: Annotated[
        str | None,
        typer.Option(
            "--failure-shares",
            metavar="LIST",
            help="What failures take down, as shares: process=0.2,node=0.7,rack=0.05,job=0.05.",
        ),
        needs(Input.STATE, Input.PLANNER_PAGE),
    ] = None

    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="SCHEME.INPUT=VALUE",
            help="Input of a scheme that replaces a published or assumed one: "
            "hot-swap.swap=55s; repeatable.",
        ),
        needs(Input.STATE),
    ] = None

    def chosen(self) -> ChosenSchemes:
        """The schemes, with the inputs typed.

        Raises:
            UsageError: an input is unknown, or has a value that it cannot have.
        """
        from ettr.plan.assumed import with_inputs

        return with_inputs(dict(map(_scheme_input, self.assume or ())))

    def job(self, shape: RunShape) -> JobShape | None:
        """The job that schemes are ranked for; None where no state is given.

        Raises:
            UsageError: a part is absent or cannot be understood.
        """
        from ettr.plan.schemes import JobShape

        if self.state_bytes is None:
            return None
        if self.step is None or self.bandwidth is None:
            needed = {"--step": self.step, "--bandwidth": self.bandwidth}
            missing = [option for option, text in needed.items() if text is None]
            raise UsageError(
                f"{' and '.join(missing)} missing: to rank checkpoint schemes give --state-bytes, "
                "--step and --bandwidth together"
            )
        typed: dict[str, Any] = {
            "state_bytes": q.n_bytes("--state-bytes", self.state_bytes),
            "step_s": q.seconds("--step", self.step),
            "storage_bytes_per_s": q.bytes_per_s("--bandwidth", self.bandwidth),
            "network_bytes_per_s": q.if_typed(q.bytes_per_s, "--network", self.network),
            "device_bytes_per_s": q.if_typed(q.bytes_per_s, "--device", self.device),
            "host_bytes": q.if_typed(q.n_bytes, "--host-memory", self.host_memory),
            "storage_space_bytes": q.if_typed(q.n_bytes, "--storage-space", self.storage_space),
            "replace_s": q.if_typed(q.seconds, "--replace", self.replace),
            "durable_period_s": q.if_typed(q.seconds, "--durable-every", self.durable_every),
            "logged_bytes_per_step": q.if_typed(q.n_bytes, "--logged-bytes", self.logged_bytes),
            "replicas": self.replicas,
            "one_writer_share": self.one_writer_share,
            "embedding_share": self.embedding_share,
            "expert_share": self.expert_share,
        }
        known = {name: value for name, value in typed.items() if value is not None}
        self._check_together(shape)
        return JobShape(**shape.shape_values(), **known)

    def _check_together(self, shape: RunShape) -> None:
        embeddings, experts = self.embedding_share or 0.0, self.expert_share or 0.0
        # shares such as 0.7 and 0.3 need not add up to 1 exactly
        if embeddings + experts > 1.0 + 1e-9:
            raise UsageError(
                f"--embedding-share {embeddings:g} and --expert-share {experts:g} are parts of one "
                f"state and add up to {embeddings + experts:g}; give 1 or less together"
            )
        n_gpus = shape.n_nodes * shape.gpus_per_node
        if self.replicas is not None and self.replicas > n_gpus:
            raise UsageError(
                f"--replicas {self.replicas:,}: a run of {n_gpus:,} GPUs ({shape.n_nodes:,} nodes "
                f"of {shape.gpus_per_node}) holds {n_gpus:,} copies at most, one on each GPU"
            )

    def domain_shares(self) -> dict[str, float] | None:
        """Share of failures by what they take down; None where not given.

        Raises:
            UsageError: it cannot be understood.
        """
        from ettr.plan.schemes import Domain

        if self.failure_shares is None:
            return None
        names = tuple(domain.key for domain in Domain)
        return q.shares("--failure-shares", self.failure_shares, names)


def _scheme_input(text: str) -> tuple[SchemeInput, InputValue]:
    """An input of a scheme and its value, of `hot-swap.swap=55s`.

    Raises:
        UsageError: no scheme has it, or the value cannot be understood.
    """
    from ettr.plan.assumed import inputs_of, kind_of

    known = inputs_of()
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in known:
        raise UsageError(
            f"--assume {text!r}: write SCHEME.INPUT=VALUE, such as hot-swap.swap=55s, with one of "
            f"{', '.join(known)}"
        )
    return known[name], _input_value(name, value, kind_of(known[name]))


def _input_value(name: str, text: str, kind: InputKind) -> InputValue:
    from ettr.plan.assumed import InputKind

    option = f"--assume {name}"
    if kind is InputKind.TIME:
        return q.seconds(option, text)
    try:
        if kind is InputKind.YES_OR_NO:
            return {"yes": True, "no": False}[text]
        return int(text) if kind is InputKind.WHOLE else float(text)
    except (ValueError, KeyError):
        raise UsageError(f"{option}={text}: give {kind}") from None
