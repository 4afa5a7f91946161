"""Which options the first help of a command leaves to `--help-all`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

HELP_ALL = "help_all"
ALL_SHOWN = "ettr.all_options"
"""Key in the context of a command whose help shall show all options."""
_EXPERT = (
    "--taxonomy --believe --window --burst-gap --sticky-gap --log-tolerance --confidence "
    "--above-gpus --fleet-nodes --preemption-window --preemption-tolerance --run-id "
    "--false-discovery --look-back --account --qos --cluster --node --gpu-type --gpus-per-node "
    "--place --source --fields --start --columns --job --run-name --series --accelerators --table "
    "--engine --engine-option --memory-limit"
)
_EXPERT_OF = {
    "report": "--nodes",
    "failures": "--interval --gpu-hour-price",
    "nodes": "--interval --user --partition --gpu-hour-price",
    "runs": "--interval --restart --write",
    "goodput": "--interval",
    "checks": "--incident --while-idle --symptom --horizon --user --partition",
    "lemons": "--anonymise --fit-days --score-days --drain-days",
    "plan": "--step --bandwidth --network --device --host-memory --storage-space --replicas "
    "--replace --durable-every --one-writer-share --embedding-share --expert-share "
    "--logged-bytes --failure-shares --assume --within --chance --phases --maintenance "
    "--node-type --explain --gate --doomed --catch --bad-links --routing --link-goodput "
    "--exposed-share --law --bursts --detection --repair-law "
    "--node-age --seed --precision --versus --partition --user",
    "project": "--seen-gpus-per-node --ages --clock --repair-law --user",
    "compare": "--user",
    "timeline": "--most-jobs --most-nodes --user",
    "export": "--restart --write --user",
    "watch": "--interval --slo --watched --step",
    "gate query": "--edits --batch --seed --run --step",
}
_DAILY_OF = {
    "nodes": "--place",
    "export": "--table",
    "plan": "--gpus-per-node",
    "project": "--gpus-per-node",
    "compare": "--cluster",
    "ingest": "--cluster --gpus-per-node",
    "collect": "--cluster",
}


def is_expert(command: str, flag: str) -> bool:
    """Whether only `--help-all` shows an option of a command."""
    if flag in _DAILY_OF.get(command, "").split():
        return False
    return flag in _EXPERT.split() or flag in _EXPERT_OF.get(command, "").split()


def with_help_all(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option that shows those which its first help leaves out."""
    parameters = [*inspect.signature(command).parameters.values()]

    def asked(help_all: bool = False, **given: Any) -> None:
        command(**given)

    added = inspect.Parameter(
        HELP_ALL, inspect.Parameter.KEYWORD_ONLY, annotation=_SHOWS_ALL, default=False
    )
    parameters.append(added)
    asked.__name__, asked.__doc__ = command.__name__, command.__doc__
    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {one.name: one.annotation for one in parameters}
    return asked


def _show_all(context: typer.Context, asked: bool) -> None:
    """Print the help with all options, and end."""
    if asked and not context.resilient_parsing:
        context.meta[ALL_SHOWN] = True
        typer.echo(context.get_help())
        raise typer.Exit


_SHOWS_ALL = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options."),
]
