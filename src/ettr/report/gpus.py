"""How a report says that GPUs are not known, and how to get them."""

from __future__ import annotations

NO_GPUS = "no GPUs are accounted"
SAY_GPUS = "say with --gpus-per-node how many a node has, 0 for none"
ACCOUNT_GPUS = "In Slurm AccountingStorageTRES=gres/gpu accounts them"
