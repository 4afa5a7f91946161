"""`ettr measure-recovery`: what a stale shard costs a model of the user's."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli.output import complain, say
from ettr.cli.printing import Printing
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.checkpoint.recovery_cost import Build


def measure_recovery(
    builder: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION",
            help="Function without arguments that returns the state (as for "
            "RunningCheckpoint) and a function from a step's number to its loss.",
        ),
    ],
    root: Annotated[Path, typer.Argument(help="Empty folder for the experiment's checkpoints.")],
    steps: Annotated[int, typer.Option(help="Steps of the undisturbed run.")],
    failures: Annotated[int, typer.Option(help="Number of steps at which to try a loss.")] = 5,
    ranks: Annotated[
        int, typer.Option(help="Number of ranks; a partial recovery restores the part of one.")
    ] = 4,
    policy: Annotated[str, typer.Option(help="Policy of the running checkpoint.")] = "priority",
    fraction: Annotated[float, typer.Option(help="Share of the blocks that one round saves.")] = 1
    / 8,
    every_steps: Annotated[int, typer.Option(help="Steps from one round to the next.")] = 10,
    window: Annotated[int, typer.Option(help="Steps over which to average a loss.")] = 10,
    seed: Annotated[
        int, typer.Option(help="Random seed of the steps at which a loss is tried.")
    ] = 0,
    *,
    printing: Printing,
) -> None:
    """Measure what a partial recovery costs your model: two values of `RecoveryPolicy`.

    It also prints times and rates of saves and restores as options of `ettr plan`. It runs your
    function's code, and trains failures · (ranks + 2) / 2 times as long as one undisturbed run.
    """
    build: Build = user_function(builder)
    from ettr.checkpoint import RecoveryExperiment
    from ettr.checkpoint import measure_recovery as measure

    experiment = RecoveryExperiment(
        steps=steps,
        failures=failures,
        ranks=ranks,
        policy=policy,
        fraction=fraction,
        every_steps=every_steps,
        window=window,
        seed=seed,
    )
    costs = measure(build, experiment, root, progress=complain)
    if not printing.summary(
        {
            **costs.policy_values,
            "partial": asdict(costs.partial),
            "composite": asdict(costs.composite),
            "mean_age_steps": costs.mean_age_steps,
            "noise_steps": costs.noise_steps,
            "failure_steps": list(costs.failure_steps),
            "plan": asdict(costs.terms),
        }
    ):
        say(str(costs))


def user_function(builder: str) -> Any:
    """The function of the user's file, `FILE:FUNCTION`.

    Raises:
        UsageError: there is no such file or function.
    """
    name, _, function = builder.rpartition(":")
    path = Path(name)
    if not name or not path.is_file():
        raise UsageError(f"{builder}: give FILE:FUNCTION, such as train.py:build; no file {name!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    build = getattr(module, function, None)
    if not callable(build):
        raise UsageError(f"{path}: has no function {function!r}")
    return build
