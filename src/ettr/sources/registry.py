"""The sources, and how a file finds its own."""

from __future__ import annotations

import importlib
from functools import cache

from ettr.errors import SourceError, UsageError
from ettr.sources.base import Source
from ettr.sources.training.metrics import names_step_alone
from ettr.sources.training.timeless import why_unreadable

# Modules below ettr.sources, each with a SOURCE, in the order in which `ettr sources` lists them.
# A new source is one line here; docs/how-to/add-a-source.md says what else it needs.
MODULES: tuple[str, ...] = (
    "slurm.sacct",
    "slurm.sacct_json",
    "slurm.events",
    "slurm.slurmctld",
    "slurm.inventory",
    "slurm.topology",
    "slurm.jobs",
    "node_health.kernel_xid",
    "node_health.gcm",
    "node_health.nvsentinel",
    "node_health.gpud",
    "node_health.nhc",
    "node_health.nvrx",
    "progress",
    "training.metrics",
    "training.torchtitan",
    "training.tensorboard",
    "training.wandb",
    "training.mlflow",
    "incidents",
    "pbs",
    "lsf",
    "flux",
    "note",
    "traces.infinitehbd",
    "traces.lanl",
    "table",
)

# Below this score a file is not recognised; two sources closer than this to each other are a tie.
LEAST_SCORE = 0.5


@cache
def all_sources() -> dict[str, Source]:
    """Every source by name, in the order in which `ettr sources` lists them."""
    found: dict[str, Source] = {}
    for module_name in MODULES:
        module = importlib.import_module(f"ettr.sources.{module_name}")
        found[module.SOURCE.name] = module.SOURCE
    return found


def named(name: str) -> Source:
    """The source of that name.

    Raises:
        UsageError: there is none; the message lists those that exist.
    """
    sources = all_sources()
    if name not in sources:
        raise UsageError(f"no source named {name!r}; there are: {', '.join(sources)}")
    return sources[name]


def recognise(head: bytes, file_name: str) -> Source:
    """The source whose format the first bytes of a file show.

    Raises:
        SourceError: none fits, or two fit equally well; the message says what to do.
    """
    scores = {s.name: s.matches(head, file_name) for s in all_sources().values()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] < LEAST_SCORE:
        if why := why_unreadable(head, names_step_alone(head)):
            raise SourceError(
                f"{file_name}: a log of training that does not say when its steps were done: {why}"
            )
        raise SourceError(
            f"{file_name}: no known log format; name it with --source (ettr sources lists them), "
            "or say with --table which table a CSV or Parquet file of your own holds"
        )
    ties = [name for name, score in scores.items() if score == scores[best]]
    if len(ties) > 1:
        raise SourceError(
            f"{file_name}: looks like {' and '.join(ties)} alike; choose one with --source"
        )
    return named(best)
