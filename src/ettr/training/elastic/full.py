"""Full checkpoints of one step, for rollback: DCP with a checksum for each tensor, no pickle.

Beside the tensors lies each rank's random state, so that a rollback draws what it drew before. Each
checkpoint has a folder of its own, `step-<number>`, that is never written over; one whose saving
was broken off has no metadata and is passed over.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from ettr.training.dcp import METADATA, CheckedReader, CheckedWriter
from ettr.training.extras import read_extra, write_extra
from ettr.training.randomness import rng_state, set_rng_state
from ettr.training.state import local

_KEPT = 2


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Parameters, buffers and moments by name: the live (sharded) tensors, for DCP in place.

    What is not sharded, a step count, is left out where the rank has no element of its parameter:
    such a count stands still, and DCP saves one rank's for all.
    """
    found = {k: v for k, v in get_model_state_dict(model).items() if isinstance(v, Tensor)}
    for fqn, parameter in model.named_parameters():
        held = local(parameter).numel() > 0
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and (held or value.shape == parameter.shape):
                found[f"{fqn}#{name}"] = value
    return found


def full_steps(root: Path) -> list[int]:
    """Steps of the complete checkpoints below a folder, the newest first."""
    if not root.is_dir():
        return []
    return sorted(
        (int(p.parent.name.removeprefix("step-")) for p in root.glob(f"step-*/{METADATA}")),
        reverse=True,
    )


def save_full(root: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save all ranks' state of one step; every rank calls it. The two newest are kept."""
    folder = root / f"step-{step:09d}"
    if dist.get_rank() == 0 and folder.exists():
        shutil.rmtree(folder)  # left by a save that was broken off, or by steps done again
    dist.barrier()
    folder.mkdir(parents=True, exist_ok=True)
    write_extra(_random_state_of(folder, dist.get_rank()), {"rng": rng_state()}, step)
    dcp.state_dict_saver.save(tensors_of(model, optimizer), storage_writer=CheckedWriter(folder))
    if dist.get_rank() == 0:
        for old in full_steps(root)[_KEPT:]:
            shutil.rmtree(root / f"step-{old:09d}", ignore_errors=True)


def load_full(root: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Copy a full checkpoint into the live tensors and set the random states; every rank calls it.

    A rank that the saved job did not have keeps its random state.

    Raises:
        CheckpointError: the rank's random state is damaged.
        Exception: on every rank, where any rank met a damaged item; the state is then half loaded.
    """
    tensors: dict[str, Any] = dict(tensors_of(model, optimizer))
    dcp.state_dict_loader.load(tensors, storage_reader=CheckedReader(root / f"step-{step:09d}"))
    random_state = _random_state_of(root / f"step-{step:09d}", dist.get_rank())
    if random_state.exists():
        set_rng_state(read_extra(random_state).values["rng"])


def _random_state_of(folder: Path, rank: int) -> Path:
    return folder / f"random-{rank:06d}"
