"""A checkpoint that asks a loader for its state does not change what the loader gives."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11, of torch 2.13
]
torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

from torch.utils.data import DistributedSampler  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler  # noqa: E402

from ettr.checkpoint import RunningCheckpoint, saved_objects  # noqa: E402
from ettr.elastic.running_source import ModelShard  # noqa: E402
from held_value import HeldValue  # noqa: E402

N_ROWS, BATCH = 24, 4
PER_EPOCH = N_ROWS // BATCH
FIRST_EPOCH, N_STEPS, KILLED_AT = 3, 15, 10
SAMPLERS = {"torch": DistributedSampler, "torchdata": StatefulDistributedSampler}


@pytest.fixture(autouse=True)
def nothing_left_to_free() -> None:
    """Workers of a loader are forks.

    A process group that an earlier test left to the garbage collector ends the fork that frees it
    by a segmentation fault: gloo waits for threads that only the first process has.
    """
    gc.collect()


class Run:
    """A loop over epochs as users write it; each epoch has an order of its own."""

    def __init__(self, sampler: str = "torch", workers: int = 0) -> None:
        self.sampler = SAMPLERS[sampler](range(N_ROWS), num_replicas=1, rank=0)
        self.loader = StatefulDataLoader(
            range(N_ROWS), BATCH, sampler=self.sampler, num_workers=workers
        )
        self.epoch = HeldValue(FIRST_EPOCH)
        self.state = {"w": torch.zeros(4), "epoch": self.epoch, "loader": self.loader}

    def batches(self, first: int, last: int, checkpoint=None) -> list[list[int]]:
        """What the steps first + 1 to last are given."""
        given: list[list[int]] = []
        step = first
        while step < last:
            self.sampler.set_epoch(self.epoch.value)
            for batch in self.loader:
                step += 1
                given.append(batch.tolist())
                if checkpoint is not None:
                    checkpoint.step(step)
                    checkpoint.wait()
                if step == last:
                    return given
            self.epoch.value += 1
        return given


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_resumed_epoch_goes_on_in_its_own_order(
    tmp_path: Path, sampler: str, workers: int
) -> None:
    """Asked before `set_epoch`, a loader made its iterator in the order of epoch 0."""
    unbroken = Run(sampler).batches(0, N_STEPS)
    run = Run(sampler, workers)
    with RunningCheckpoint(tmp_path, run.state, policy="full") as checkpoint:
        checkpoint.resume_or_begin()
        given = run.batches(0, KILLED_AT, checkpoint)
    assert given == unbroken[:KILLED_AT]
    run = Run(sampler, workers)
    with RunningCheckpoint(tmp_path, run.state, policy="full") as checkpoint:
        start = checkpoint.resume_or_begin()
        given = run.batches(start.step, N_STEPS, checkpoint)
    assert start.step == KILLED_AT
    assert given == unbroken[KILLED_AT:]


def test_a_resume_that_is_killed_before_its_first_step_costs_nothing(tmp_path: Path) -> None:
    unbroken, run = Run().batches(0, N_STEPS), Run()
    with RunningCheckpoint(tmp_path, run.state, policy="full") as checkpoint:
        checkpoint.resume_or_begin()
        run.batches(0, KILLED_AT, checkpoint)
    for _ in range(2):
        run = Run()
        with RunningCheckpoint(tmp_path, run.state, policy="full") as checkpoint:
            start = checkpoint.resume_or_begin()
    assert run.batches(start.step, N_STEPS) == unbroken[KILLED_AT:]


class Late(HeldValue):
    """An object that has its value only once the loop runs, as a trainer's position."""

    def state_dict(self) -> dict[str, object]:
        return {"value": None}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        self.loaded = state_dict["value"]


def test_after_a_restore_objects_are_saved_as_they_were_restored(tmp_path: Path) -> None:
    saved = {"w": torch.zeros(4), "position": HeldValue(5)}
    with RunningCheckpoint(tmp_path, saved, policy="full") as checkpoint:
        checkpoint.save_all(7)
    late = Late()
    live = {"w": torch.zeros(4), "position": late}
    with RunningCheckpoint(tmp_path, live, policy="full") as checkpoint:
        assert checkpoint.resume_or_begin().step == 7
        assert late.loaded == 5
        held = saved_objects(tmp_path, slot=0)["position"]
        assert (held.step, held.values) == (7, {"value": 5})
        checkpoint.save_all(8)
    assert saved_objects(tmp_path, slot=0)["position"].values == {"value": None}


def test_asking_draws_nothing(tmp_path: Path) -> None:
    """Shuffling loaders, their generators and the process's: as without a checkpoint."""

    def drawn(checkpointed: bool) -> tuple[list[list[int]], list[float]]:
        torch.manual_seed(4)
        model, order = torch.nn.Linear(2, 2), torch.Generator().manual_seed(9)
        shuffled = StatefulDataLoader(range(N_ROWS), BATCH, shuffle=True, generator=order)
        plain = StatefulDataLoader(range(N_ROWS), BATCH, shuffle=True)
        state = {"model": model, "shuffled": shuffled, "plain": plain}
        if checkpointed:
            ModelShard.of(state)
            with RunningCheckpoint(tmp_path, state) as checkpoint:
                checkpoint.resume_or_begin()
        batches = [batch.tolist() for one in (shuffled, plain, shuffled) for batch in one]
        return batches, torch.rand(3).tolist()

    assert drawn(True) == drawn(False)
