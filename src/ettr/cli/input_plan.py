"""`ettr input plan`: the settings of an input pipeline, and the rate that they reach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ettr.cli.output import complain, say
from ettr.cli.printing import Printing
from ettr.cli.quantities import bytes_per_s, if_given, n_bytes


def input_plan(
    stages: Annotated[Path, typer.Argument(help="Stages, as `ettr input trace` writes them.")],
    rate: Annotated[
        float | None, typer.Option(help="Rate at which the training consumes items, per second.")
    ] = None,
    cores: Annotated[
        float | None, typer.Option(help="Cores for the pipeline; default those of the trace.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory for queues, workers and a cache, such as 64GB.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Bandwidth of the disk or network, such as 200MB/s.")
    ] = None,
    items: Annotated[
        float | None, typer.Option(help="Items in an epoch; a cache would hold all of them.")
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Plan the concurrency, workers, queues and cache of an input pipeline, and predict its rate.

    Exit 1 if no plan reaches --rate.
    """
    from ettr.progress.stages import read_stages
    from ettr.projection.input_plan import InputLimits, plan_input
    from ettr.report.rows import plain_fields

    table = read_stages(stages)
    for line in table.bad_lines:
        complain(f"left out: {line}")
    limits = InputLimits(
        rate=rate,
        cores=cores,
        memory_bytes=if_given(n_bytes, "--memory", memory),
        bandwidth_bytes=if_given(bytes_per_s, "--bandwidth", bandwidth),
        dataset_items=items,
    )
    plan = plan_input(table, limits)
    if not printing.summary(plain_fields(plan)):
        for sentence in plan.says:
            say(sentence)
    if not plan.reaches:
        complain(f"no plan reaches {rate:g} items/s within these limits")
        raise typer.Exit(1)
