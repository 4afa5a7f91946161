"""The policy as it is shipped: a clean run is saved by `RunningCheckpoint` itself, to a disk.

It scores a step before the round, in a thread of its own, by blocks and within a budget of bytes,
and writes slot files. The replay of `checkpoint_replay` scores the very iteration that it saves.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar.checkpoint_replay import Checkpointing, stored
from reproduction.scar.workload import CleanRun, Workload


def can_be_shipped(workload: Workload) -> bool:
    """Whether its units are of one size and of 32-bit floats, as blocks of a tensor are."""
    sizes = np.diff(workload.offsets)
    return workload.start(0).dtype == np.float32 and bool((sizes == sizes[0]).all())


def shipped_at(
    workload: Workload, clean: CleanRun, how: Checkpointing, interval: int
) -> NDArray[np.int16]:
    """As `saved_at`, by `RunningCheckpoint` with its priority; a block is a unit.

    Each iteration waits for the writer, so that no round is skipped. At the end the files are
    restored and compared with the states of the run.

    Raises:
        UsageError: units differ in size or are no floats; or the interval is no multiple of 1/r.
        RuntimeError: a round failed, or what was restored is not what was saved.
    """
    import torch

    from ettr.checkpoint import Budget, RunningCheckpoint, restore

    sizes = np.diff(workload.offsets)
    if interval % how.parts or not can_be_shipped(workload):
        raise UsageError(
            f"{workload.name}: RunningCheckpoint saves units of one size, of 32-bit floats, at an "
            f"interval ({interval}) that is a multiple of 1/r = {how.parts}"
        )
    ages = np.zeros((clean.states.shape[0], sizes.size), dtype=np.int16)
    live = torch.from_numpy(np.array(clean.states[0]))
    with tempfile.TemporaryDirectory() as folder:
        with RunningCheckpoint(
            Path(folder),
            {"state": live},
            policy="priority",
            budget=Budget(fraction=1 / how.parts),
            every_steps=interval // how.parts,
            rows={"state": int(sizes[0])},
        ) as checkpoint:
            checkpoint.save_all(0)
            for at in range(1, ages.shape[0]):
                live.copy_(torch.from_numpy(clean.states[at]))
                report = checkpoint.step(at)
                if report.skipped or report.error is not None:
                    raise RuntimeError(f"iteration {at}: {report.error or 'the round was skipped'}")
                checkpoint.wait()
                in_order = sorted(checkpoint.ages(), key=lambda age: age.offsets)
                ages[at] = [-1 if age.step is None else age.step for age in in_order]
        restored = torch.full_like(live, float("nan"))
        restore(Path(folder), {"state": restored})
    if not np.array_equal(restored.numpy(), stored(clean, ages[-1], workload.offsets)):
        raise RuntimeError(f"{workload.name}: what was restored is not what was saved")
    return ages
