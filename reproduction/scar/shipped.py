"""The policy as it is shipped: a clean run is saved by `RunningCheckpoint` itself, to a disk.

It scores a step before the round, in a thread of its own, by blocks and within a budget of bytes,
and writes slot files. The replay of `checkpoint_replay` scores the very iteration that it saves. A
unit is a block: rows of one tensor where all are of one size, else a parameter of its own, under
Adam with its moments and its step; a document's topics are rows of zeros with a one, so that the
squared distance counts the tokens that have changed; documents of one length share a tensor. Where
units differ in size, an eighth of the bytes is not an eighth of the units, and those that moved
most for their bytes come first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar.adam import FIRST, PARAMETER, SECOND, STEP, Adam
from reproduction.scar.checkpoint_replay import Checkpointing, stored
from reproduction.scar.topics import Topics
from reproduction.scar.workload import CleanRun, State, Workload

if TYPE_CHECKING:
    from torch import Tensor

    from ettr.checkpoint import BlockAge

_WHOLE = 1 << 40  # bytes of a block, for tensors that are one block each


class _Rows:
    """Units of one size: rows of one tensor."""

    def __init__(self, workload: Workload, first: State) -> None:
        import torch

        size = int(workload.offsets[1])
        self._live = torch.from_numpy(np.array(first))
        self.state: dict[str, object] = {"state": self._live}
        self.options: dict[str, object] = {"rows": {"state": size}}

    def put(self, state: State) -> None:
        """Make the live values those of a state."""
        import torch

        self._live.copy_(torch.from_numpy(np.array(state)))

    def get(self) -> State:
        """The live values as a state."""
        return self._live.numpy()

    def ages(self, found: Sequence[BlockAge]) -> NDArray[np.int64]:
        """Step of each unit's newest copy, -1 without any."""
        in_order = sorted(found, key=lambda age: age.offsets)
        return np.array([-1 if age.step is None else age.step for age in in_order])


class _Parts:
    """Each unit a parameter of its own, under Adam or alone."""

    def __init__(self, workload: Workload, first: State) -> None:
        import torch
        from torch import nn

        self._offsets, self._shape = workload.offsets, first.shape
        parts = [nn.Parameter(torch.zeros_like(part)) for part in self._cut(first)]
        self._module = nn.ParameterList(parts)
        self.state = {"model": self._module}
        self.options = {"block_bytes": _WHOLE}
        self._adam = None
        if isinstance(workload, Adam):
            self._adam = torch.optim.Adam(parts, lr=0.0)
            for part in parts:
                part.grad = torch.zeros_like(part)
            self._adam.step()
            self.state["optimizer"] = self._adam
        self.put(first)

    def put(self, state: State) -> None:
        """Make the live values those of a state."""
        import torch

        with torch.no_grad():
            for part, value in zip(self._module, self._cut(state), strict=True):
                part.copy_(value)
        if self._adam is not None:
            for name, column in (("exp_avg", FIRST), ("exp_avg_sq", SECOND)):
                for part, value in zip(self._module, self._cut(state, column), strict=True):
                    self._adam.state[part][name].copy_(value)
            for part, at in zip(self._module, self._offsets[:-1], strict=True):
                self._adam.state[part]["step"].fill_(float(state[at, STEP]))

    def get(self) -> State:
        """The live values as a state."""
        parts = [part.detach().numpy() for part in self._module]
        found = np.empty(self._shape, dtype=np.float32)
        found[:, PARAMETER] = np.concatenate(parts)
        assert self._adam is not None  # noqa: S101 - other units are rows
        held = [self._adam.state[part] for part in self._module]
        for name, column in (("exp_avg", FIRST), ("exp_avg_sq", SECOND)):
            found[:, column] = np.concatenate([one[name].numpy() for one in held])
        steps = [float(one["step"]) for one in held]
        found[:, STEP] = np.repeat(steps, np.diff(self._offsets))
        return found

    def _cut(self, state: State, column: int = PARAMETER) -> list[Tensor]:
        import torch

        return [torch.from_numpy(part) for part in np.split(state[:, column], self._offsets[1:-1])]

    def ages(self, found: Sequence[BlockAge]) -> NDArray[np.int64]:
        """Step of each unit's newest copy, -1 without any."""
        ages = np.empty(len(self._offsets) - 1, dtype=np.int64)
        for age in found:
            ages[int(age.fqn.rpartition(".")[2])] = -1 if age.step is None else age.step
        return ages


class _Documents:
    """Units of several sizes under topics: documents of one length are rows of one tensor."""

    def __init__(self, workload: Topics, first: State) -> None:
        import torch

        lengths = np.diff(workload.offsets)
        self._topics, self._n = workload.topics, lengths.size
        self._units = {f"length{n}": np.flatnonzero(lengths == n) for n in np.unique(lengths)}
        self._tokens = {
            name: workload.offsets[units][:, None] + np.arange(lengths[units[0]])
            for name, units in self._units.items()
        }
        self.state: dict[str, object] = {
            name: torch.zeros(len(tokens), tokens.shape[1] * self._topics)
            for name, tokens in self._tokens.items()
        }
        # a tensor of one document would be cut along its second dimension
        rows = {
            name: 1 if len(tokens) > 1 else tokens.shape[1] * self._topics
            for name, tokens in self._tokens.items()
        }
        self.options: dict[str, object] = {"rows": rows}
        self.put(first)

    def put(self, state: State) -> None:
        """Make the live values those of a state."""
        one_hot = np.eye(self._topics, dtype=np.float32)
        for name, tokens in self._tokens.items():
            live = self._live(name)
            live[:] = one_hot[state[tokens]].reshape(live.shape)

    def get(self) -> State:
        """The live values as a state."""
        found = np.empty(sum(map(np.size, self._tokens.values())), dtype=np.uint8)
        for name, tokens in self._tokens.items():
            found[tokens] = self._live(name).reshape(*tokens.shape, self._topics).argmax(2)
        return found

    def ages(self, found: Sequence[BlockAge]) -> NDArray[np.int64]:
        """Step of each unit's newest copy, -1 without any."""
        ages = np.empty(self._n, dtype=np.int64)
        for age in found:
            ages[self._units[age.fqn][age.offsets[0]]] = -1 if age.step is None else age.step
        return ages

    def _live(self, name: str) -> NDArray[np.float32]:
        live: Tensor = self.state[name]  # type: ignore[assignment]
        return live.numpy()


def _live_of(workload: Workload, first: State) -> _Rows | _Parts | _Documents:
    if isinstance(workload, Topics):
        return _Documents(workload, first)
    if isinstance(workload, Adam):
        return _Parts(workload, first)
    sizes = np.diff(workload.offsets)
    if first.dtype != np.float32 or (sizes != sizes[0]).any():
        raise UsageError(f"{workload.name}: units of one size and of 32-bit floats are saved")
    return _Rows(workload, first)


def shipped_at(
    workload: Workload,
    clean: CleanRun,
    how: Checkpointing,
    interval: int,
    *,
    last: int | None = None,
) -> NDArray[np.int16]:
    """As `saved_at`, by `RunningCheckpoint` with its priority; a block is a unit.

    Each iteration waits for the writer, so that no round is skipped. At the end the files are
    restored and compared with the states of the run.

    Args:
        last: the last iteration that is asked for; None: that of the run.

    Raises:
        UsageError: the interval is no multiple of 1/r.
        RuntimeError: a round failed, or what was restored is not what was saved.
    """
    from ettr.checkpoint import Budget, RunningCheckpoint, restore

    if interval % how.parts:
        raise UsageError(
            f"{workload.name}: an interval ({interval}) that is a multiple of 1/r = {how.parts}"
        )
    ages = np.zeros((clean.states.shape[0], workload.offsets.size - 1), dtype=np.int16)
    live = _live_of(workload, clean.states[0])
    with tempfile.TemporaryDirectory() as folder:
        with RunningCheckpoint(
            Path(folder),
            live.state,
            policy="priority",
            budget=Budget(fraction=1 / how.parts),
            every_steps=interval // how.parts,
            **live.options,  # type: ignore[arg-type]
        ) as checkpoint:
            checkpoint.save_all(0)
            last = ages.shape[0] - 1 if last is None else last
            for at in range(1, last + 1):
                live.put(clean.states[at])
                report = checkpoint.step(at)
                if report.skipped or report.error is not None:
                    raise RuntimeError(f"iteration {at}: {report.error or 'the round was skipped'}")
                checkpoint.wait()
                ages[at] = live.ages(checkpoint.ages())
        restored = _live_of(workload, np.zeros_like(clean.states[0]))
        restore(Path(folder), restored.state)
    if not np.array_equal(restored.get(), stored(clean, ages[last], workload.offsets)):
        raise RuntimeError(f"{workload.name}: what was restored is not what was saved")
    return ages
