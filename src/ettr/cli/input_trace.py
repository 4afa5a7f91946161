"""`ettr input trace`: the time of each stage of an input pipeline."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ettr.cli.measure_recovery import user_function
from ettr.cli.output import complain, say
from ettr.cli.printing import Printing
from ettr.errors import UsageError


def input_trace(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function without arguments that returns a list (a source and functions), an "
            "SPDL PipelineBuilder or a torch DataLoader; FILE.py:FUNCTION works too.",
        ),
    ],
    stages: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write the stages to, as JSON lines."
        ),
    ],
    batches: Annotated[int, typer.Option(help="Number of items to draw from the pipeline.")] = 200,
    *,
    printing: Printing,
) -> None:
    """Time each stage of an input pipeline, for `ettr input plan`. It runs your code."""
    from dataclasses import asdict

    from ettr.adapters.input_trace import trace_input
    from ettr.progress.stages import write_stages

    try:
        made = _function(pipeline)()
        table, notes = trace_input(made, batches=batches, run=Path(pipeline).stem)
    except ModuleNotFoundError as error:
        raise UsageError(f"{pipeline}: needs {error.name}, which is not installed") from error
    write_stages(stages, table.stages, table.host)
    for note in notes:
        complain(note)
    if printing.summary(
        {"host": asdict(table.host), "stages": [asdict(one) for one in table.stages]}
    ):
        return
    say(f"{stages}: {len(table.stages)} stages. Next: ettr input plan {stages}")
    for one in table.stages:
        say(
            f"  {one.stage}: {one.wall_s * 1e3:.3g} ms per item, {one.cpu_s * 1e3:.3g} ms of CPU,"
            f" {one.gil_share:.0%} of it holding the GIL, {one.visits:g} calls per item delivered"
            + (", random" if one.random else "")
        )


def _function(name: str) -> Any:
    """The function of the user's module or file.

    Raises:
        UsageError: there is no such module, file or function.
    """
    module, _, function = name.rpartition(":")
    if module.endswith(".py") or not module:
        return user_function(name)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  where a module of the user's is looked for
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise UsageError(
            f"{name}: no module {module!r} here; give MODULE:FUNCTION or FILE.py:FUNCTION"
        ) from error
    if not callable(found):
        raise UsageError(f"{module}: has no function {function!r}")
    return found
