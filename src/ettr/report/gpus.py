"""How a report says that GPUs or runtimes are not known, and how to get them."""

from __future__ import annotations

from typing import Protocol

from ettr.words import by_number

NO_GPUS = "no GPUs are accounted"
SAY_GPUS = "say with --gpus-per-node how many a node has, 0 for none"
ACCOUNT_GPUS = "In Slurm AccountingStorageTRES=gres/gpu accounts them"


class PartlyKnownLoss(Protocol):
    """A loss, and how much of what failed or was preempted it leaves out."""

    @property
    def failures_without_gpus(self) -> int | None:
        """Failures that do not say their GPUs."""

    @property
    def preemptions_without_gpus(self) -> int | None:
        """Preemptions that do not."""

    @property
    def failures_without_runtime(self) -> int | None:
        """Failures that do not say how long they ran."""

    @property
    def preemptions_without_runtime(self) -> int | None:
        """Preemptions that do not."""


def none_says(loss: PartlyKnownLoss) -> str:
    """Why a loss of which nothing is known is not measured, and what to do about it."""
    no_gpus = loss.failures_without_gpus or loss.preemptions_without_gpus
    no_runtime = loss.failures_without_runtime or loss.preemptions_without_runtime
    says = "no job that failed or was preempted says"
    if not no_runtime:
        return f"{says} its GPUs: {SAY_GPUS}"
    return f"{says} its GPUs and how long it ran" if no_gpus else f"{says} how long it ran"


def left_out(loss: PartlyKnownLoss) -> str:
    """That a loss leaves out what does not say how much it lost; empty where all does."""
    sentences = (
        _adds_nothing(loss.failures_without_gpus, loss.preemptions_without_gpus, "a GPU count"),
        _adds_nothing(loss.failures_without_runtime, loss.preemptions_without_runtime, "a runtime"),
    )
    return " ".join(filter(None, sentences))


def _adds_nothing(failures: int | None, preemptions: int | None, what: str) -> str:
    parts = [
        by_number(words, n)
        for words, n in (
            ("{n} [failure|failures]", failures or 0),
            ("{n} [preemption|preemptions]", preemptions or 0),
        )
        if n
    ]
    if not parts:
        return ""
    add = "adds" if (failures or 0) + (preemptions or 0) == 1 else "add"
    return f"{' and '.join(parts)} without {what} {add} nothing to the loss."
