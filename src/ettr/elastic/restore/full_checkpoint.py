"""Full checkpoints of one step, for rollback: DCP with a checksum for each tensor, no pickle.

Each rank's random state is saved with the tensors, so that a rollback draws what it drew before,
and so are its objects and parameter groups.
Each checkpoint has its folder, `step-<number>`; one whose saving was broken off has no metadata and
is skipped. A step that is done again after a rollback is saved into its folder, where the earlier
checkpoint remains until the new one is durable.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ettr.checkpoint import (
    CheckedReader,
    CheckedWriter,
    CheckpointError,
    TrainingState,
    read_values,
    rng_state,
    set_rng_state,
    write_values,
)
from ettr.checkpoint.dcp import METADATA
from ettr.checkpoint.object_selection import GROUPS, choose_objects
from ettr.checkpoint.tensors.objects import encode_objects, unpack_objects
from ettr.checkpoint.tensors.shards import local_tensor
from ettr.elastic.protection import Protection
from ettr.elastic.restore.running_source import ModelShard
from ettr.recovery.restore_costs import Measuring, interval_steps

_N_KEPT = 2


def tensors_of(state: TrainingState) -> dict[str, Tensor]:
    """Parameters, buffers and moments by name: the live (sharded) tensors, for DCP in place.

    What is not sharded, a step count, is left out where the rank has no element of its parameter:
    such a count is never updated, and DCP saves one rank's for all.
    """
    tensors = dict(state.tensors)
    for prefix, model in state.models:
        before = f"{prefix}." if prefix else ""
        for name, value in get_model_state_dict(model).items():
            if isinstance(value, Tensor):
                tensors[f"{before}{name}"] = value
        for fqn, parameter in model.named_parameters():
            held = local_tensor(parameter).numel() > 0
            for name, value in _moments(state, parameter):
                if held or value.shape == parameter.shape:
                    tensors[f"{before}{fqn}#{name}"] = value
    return tensors


def _moments(state: TrainingState, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    for moments in _held(state, parameter):
        for name, value in moments.items():
            if isinstance(value, Tensor):
                yield name, value


def _held(state: TrainingState, parameter: Tensor) -> list[dict[str, Any]]:
    return [part.state.get(parameter, {}) for parts in state.parts for part in parts]


def _numbers(state: TrainingState) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Moments that are Python numbers, such as step counts: name, what holds it, its key there."""
    for prefix, model in state.models:
        for fqn, parameter in model.named_parameters():
            for moments in _held(state, parameter):
                for key, value in moments.items():
                    if isinstance(value, int | float):
                        yield f"{prefix}.{fqn}#{key}", moments, key


def full_steps(root: Path) -> list[int]:
    """Steps of the complete checkpoints below a folder, the newest first."""
    if not root.is_dir():
        return []
    return sorted(
        (int(p.parent.name.removeprefix("step-")) for p in root.glob(f"step-*/{METADATA}")),
        reverse=True,
    )


def save_full(root: Path, step: int, state: TrainingState) -> None:
    """Save all ranks' state of one step; every rank calls it. The two newest are kept."""
    folder = _folder_of(root, step)
    try:
        with _dcp_failures(f"no full checkpoint of step {step}"):
            dcp.state_dict_saver.save(
                tensors_of(state), storage_writer=_Writer(folder, step, state)
            )
    except CheckpointError:
        if dist.get_rank() == 0 and not (folder / METADATA).exists():
            shutil.rmtree(folder, ignore_errors=True)  # a full disk needs the room
        raise
    if dist.get_rank() == 0:
        _tidy(root, folder)


def load_full(root: Path, step: int, state: TrainingState) -> None:
    """Copy a full checkpoint into the live state and set the random states; every rank calls it.

    A rank that the saved job did not have keeps its random state, and takes objects that all ranks
    of that job had in the same state.
    """
    folder = _folder_of(root, step)
    tensors = tensors_of(state)
    with _dcp_failures(f"full checkpoint of step {step}"):
        dcp.state_dict_loader.load(tensors, storage_reader=CheckedReader(folder))
    random_state = _random_state_of(folder, dist.get_rank())
    if random_state.exists():
        set_rng_state(read_values(random_state).values["rng"])
    for path in (random_state, *folder.glob("random-*")):
        if path.exists():
            numbers = read_values(path).values.get("numbers", {})
            for name, held, key in _numbers(state):
                held[key] = numbers.get(name, held[key])
            break
    if state.objects() or state.groups():
        _load_objects(state, folder)


def _load_objects(state: TrainingState, folder: Path) -> None:
    """Hand over the objects of this rank or, if the saved job had no such rank, those of all."""
    own = _random_state_of(folder, dist.get_rank())
    files = [own] if own.exists() else sorted(folder.glob("random-*"))
    records = {
        path.name: unpack_objects(values["objects"])
        for path in files
        if "objects" in (values := read_values(path).values)
    }
    choice = choose_objects(state, records, None)
    if choice.reasons or GROUPS in choice.missing:
        reasons = "; ".join(choice.reasons) or "no parameter groups were saved"
        raise CheckpointError(f"{folder}: {reasons}")
    choice.load(state)


def _tidy(root: Path, newest: Path) -> None:
    """Remove what the newest checkpoint supersedes."""
    own = {_random_state_of(newest, rank) for rank in range(dist.get_world_size())}
    for of_others in set(newest.glob("random-*")) - own:
        of_others.unlink()  # of a larger world that had come as far
    kept = {_folder_of(root, step) for step in full_steps(root)[:_N_KEPT]}
    for folder in root.glob("step-*"):
        # Older ones, and whatever a killed process has left of them; those of later steps, from
        # before a rollback, are overwritten when the run comes to them.
        if folder not in kept and folder.name < newest.name:
            shutil.rmtree(folder, ignore_errors=True)


class _Writer(CheckedWriter):
    """Also writes each rank's random state, so that DCP reports its failure to every rank."""

    def __init__(self, folder: Path, step: int, state: TrainingState) -> None:
        super().__init__(folder)
        self._step, self._state = step, state

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        objects = encode_objects(self._state.objects(), self._state.groups(), self._step)
        values = {"rng": rng_state(), **({"objects": objects} if objects else {})}
        values["numbers"] = {name: held[key] for name, held, key in _numbers(self._state)}
        write_values(_random_state_of(self.path, dist.get_rank()), values, self._step)
        return super().write_data(plan, planner)


@contextmanager
def _dcp_failures(what: str) -> Iterator[None]:
    # DCP's own is not an Exception: a handler of errors would let it end the process.
    try:
        yield
    except CheckpointException as error:
        causes = {rank: failure[0] for rank, failure in error.failures.items()}
        rank, cause = min(causes.items())
        message = f"{what}: rank {rank}: {cause}"
        if all(isinstance(one, CheckpointError | OSError) for one in causes.values()):
            raise CheckpointError(message) from error
        raise RuntimeError(message) from error


def _folder_of(root: Path, step: int) -> Path:
    return root / f"step-{step:09d}"


def _random_state_of(folder: Path, rank: int) -> Path:
    return folder / f"random-{rank:06d}"


# save_if_due <- Generation._guard <- Generation.update <- contextlib <- the script's `with`
_TO_THE_SCRIPT = 5


class FullSchedule:
    """Saves full checkpoints of one generation as they become due; every rank calls it alike."""

    def __init__(self, protection: Protection, slot: int, timings: Measuring, step: int) -> None:
        self._protection, self._slot, self._timings = protection, slot, timings
        # The next multiple, so that a replacement counts from where the others do.
        every = protection.full_every_steps
        self.due_step = (step // every + 1) * every
        self.stalls_s: list[float] = []

    def save_if_due(self, step: int, shard: ModelShard, *, stops: bool = False) -> None:
        """Save all ranks' state if a checkpoint is due; warn where it could not be written."""
        root = self._protection.full
        if root is None or (step < self.due_step and not stops):
            return
        begin_s = time.monotonic()
        try:
            save_full(root, step, shard.state)
            self.stalls_s.append(time.monotonic() - begin_s)
        except CheckpointError as error:
            # A full disk is no reason to end a run that has what it needs to go on.
            if self._slot == 0:
                warnings.warn(
                    f"{error}; earlier ones remain, training goes on", stacklevel=_TO_THE_SCRIPT
                )
        self.due_step = step + self._interval_steps()

    def _interval_steps(self) -> int:
        """Steps to the next full checkpoint; the first rank's measurements decide for all."""
        steps, mttf_s = self._protection.full_every_steps, self._protection.mttf_s
        if mttf_s is None or not self.stalls_s:
            return steps
        run = self._timings.run()
        stall_s = sum(self.stalls_s) / len(self.stalls_s)
        if run.step_s > 0:
            steps = interval_steps(replace(run, save_stall_s=stall_s), mttf_s=mttf_s)
        chosen = torch.tensor([steps], dtype=torch.int64)
        dist.broadcast(chosen, 0)
        return int(chosen)
