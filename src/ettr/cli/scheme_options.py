"""Options of `ettr plan` that tell a job's state and machines, to rank checkpoint schemes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import OptionGroup
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.analysis.planning import RunShape
    from ettr.plan.schemes import JobShape


@dataclass(frozen=True, slots=True)
class SchemeOptions(OptionGroup):
    """A job as checkpoint schemes see it; without --state-bytes none is ranked."""

    state_bytes: Annotated[
        str | None,
        typer.Option("--state-bytes", metavar="SIZE", help="Checkpoint size: ranks the schemes."),
    ] = None
    step: Annotated[
        str | None, typer.Option("--step", metavar="TIME", help="Time of one training step.")
    ] = None
    bandwidth: Annotated[
        str | None,
        typer.Option("--bandwidth", metavar="RATE", help="To durable storage, whole job: 200GB/s."),
    ] = None
    network: Annotated[
        str, typer.Option("--network", metavar="RATE", help="Of one node, to its peers.")
    ] = "50GB/s"
    device: Annotated[
        str, typer.Option("--device", metavar="RATE", help="Of one node, GPUs to memory.")
    ] = "100GB/s"
    host_memory: Annotated[
        str, typer.Option("--host-memory", metavar="SIZE", help="Of a node, for checkpoints.")
    ] = "500GB"
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, help="Data-parallel copies of state.")
    ] = 1
    replace: Annotated[
        str, typer.Option("--replace", metavar="TIME", help="To replace only what failed.")
    ] = "60s"
    durable_every: Annotated[
        str,
        typer.Option(
            "--durable-every", metavar="TIME", help="Between durable copies of two-level schemes."
        ),
    ] = "1h"
    one_writer_share: Annotated[
        float,
        typer.Option(
            "--one-writer-share", metavar="SHARE", help="Of --bandwidth, for one checkpoint alone."
        ),
    ] = 1.0
    embedding_share: Annotated[
        float, typer.Option("--embedding-share", metavar="SHARE", help="Of the state: embeddings.")
    ] = 0.0
    expert_share: Annotated[
        float, typer.Option("--expert-share", metavar="SHARE", help="Of the state: experts.")
    ] = 0.0
    logged_bytes: Annotated[
        str,
        typer.Option(
            "--logged-bytes", metavar="SIZE", help="Sent between pipeline stages in a step."
        ),
    ] = "0B"

    def job(self, shape: RunShape, gpus_per_node: int) -> JobShape | None:
        """The job that schemes are ranked for; None where no state is given.

        Raises:
            UsageError: a part is absent or cannot be understood, or there are parts and no state.
        """
        from ettr.plan.schemes import JobShape

        if self.state_bytes is None:
            if self != SchemeOptions():
                raise UsageError(
                    f"{', '.join(self._changed())}: without --state-bytes no checkpoint scheme is "
                    "ranked; give it, with --step and --bandwidth, or leave these out"
                )
            return None
        if self.step is None or self.bandwidth is None:
            raise UsageError(
                "to rank checkpoint schemes give --state-bytes, --step and --bandwidth together"
            )
        return JobShape(
            state_bytes=q.n_bytes("--state-bytes", self.state_bytes),
            step_s=q.seconds("--step", self.step),
            n_nodes=shape.n_nodes,
            storage_bytes_per_s=q.bytes_per_s("--bandwidth", self.bandwidth),
            network_bytes_per_s=q.bytes_per_s("--network", self.network),
            device_bytes_per_s=q.bytes_per_s("--device", self.device),
            host_bytes=q.n_bytes("--host-memory", self.host_memory),
            restart_s=shape.restart_s,
            replace_s=q.seconds("--replace", self.replace),
            queue_s=shape.queue_s,
            gpus_per_node=gpus_per_node,
            replicas=self.replicas,
            one_writer_share=self.one_writer_share,
            durable_period_s=q.seconds("--durable-every", self.durable_every),
            embedding_share=self.embedding_share,
            expert_share=self.expert_share,
            logged_bytes_per_step=q.n_bytes("--logged-bytes", self.logged_bytes),
        )

    def _changed(self) -> list[str]:
        """Names of the options that are not as they are left alone."""
        usual = SchemeOptions()
        return [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        ]
