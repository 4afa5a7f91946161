"""How a report says that GPUs are not known, and how to get them."""

from __future__ import annotations

from ettr.words import by_number

NO_GPUS = "no GPUs are accounted"
SAY_GPUS = "say with --gpus-per-node how many a node has, 0 for none"
NONE_SAYS = "no job that failed or was preempted says its GPUs"
ACCOUNT_GPUS = "In Slurm AccountingStorageTRES=gres/gpu accounts them"


def without_gpus(failures: int | None, preemptions: int | None) -> str:
    """That a loss leaves out what does not say its GPUs, in a sentence; empty where all does."""
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
    return f"{' and '.join(parts)} without a GPU count {add} nothing to the loss."
