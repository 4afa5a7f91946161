"""Options of `ettr plan` about a job's state and machines, to rank checkpoint schemes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.defaults import (
    DEVICE_BYTES_PER_S,
    DURABLE_PERIOD_S,
    HOST_BYTES,
    NETWORK_BYTES_PER_S,
    REPLACE_S,
)
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.plan.assumed import ChosenSchemes, InputKind, InputValue, SchemeInput
    from ettr.plan.run import RunShape
    from ettr.plan.schemes import JobShape


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
