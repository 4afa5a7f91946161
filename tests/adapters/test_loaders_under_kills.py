"""Loaders, also accelerate's, that draw from random states: a resumed loop gets what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata 0.11, of torch 2.13
]
torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

from torch.utils.data import RandomSampler  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from ettr.adapters import CheckpointedRun  # noqa: E402
from ettr.checkpoint import RandomStates  # noqa: E402
from ettr.errors import UsageError  # noqa: E402

STEPS, EPOCH, BATCH = 16, 5, 4
# Killed there, one after the other: before the first round, within an epoch, at the end of one.
STOPS = (1, 8, 11, STEPS)


class Numbered(torch.utils.data.Dataset):
    """Rows with noise from the random states of the process, as of an augmentation."""

    def __len__(self) -> int:
        return EPOCH * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return index + torch.rand(())


class Stream(torch.utils.data.IterableDataset):
    """The same without end; it knows where it is."""

    at = 0

    def __iter__(self):
        while True:
            self.at += 1
            yield self.at + torch.rand(())

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


LOADERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "stream": (Stream, {}),
    "rows": (Numbered, {}),
    "shuffled": (Numbered, {"shuffle": True}),
}
ACCELERATES = {
    "plain": None,
    "accelerate": {},
    "dispatching": {"dispatch_batches": True},
    "own order of epochs": {"use_seedable_sampler": True, "data_seed": 3},
}


def prepared(
    dataset: Any, accelerate: dict[str, Any] | None, *, loader: Any = None, **options: Any
) -> Any:
    loader = loader or StatefulDataLoader(dataset, BATCH, **options)
    if accelerate is None:
        return loader
    library = pytest.importorskip("accelerate")
    configuration = library.DataLoaderConfiguration(
        **{"use_stateful_dataloader": True} | accelerate
    )
    return library.Accelerator(cpu=True, dataloader_config=configuration).prepare(loader)


def given(root: Path, loader: Any, last: int) -> dict[int, list[float]]:
    """What each step drew: its batch and, as dropout does, a number of its own."""
    weight = torch.nn.Linear(1, 1)
    state = {"model": weight, "loader": loader, "random": RandomStates()}
    run = CheckpointedRun(root, state, run="loop", every_steps=2)
    drawn: dict[int, list[float]] = {}
    batches = None
    steps = run.steps(STEPS)
    for step in steps:
        batches = batches if batches is not None else iter(loader)
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        drawn[step] = [*batch.tolist(), torch.rand(()).item()]
        run.checkpoint.wait()
        if step == last:
            steps.close()  # as a kill: this step is not saved
    return drawn


@pytest.mark.parametrize(
    ("kind", "accelerate", "generator"),
    [
        ("stream", "plain", "none"),
        ("shuffled", "plain", "none"),
        ("shuffled", "plain", "its own"),
        ("stream", "accelerate", "its own"),
        ("rows", "accelerate", "none"),
        ("shuffled", "accelerate", "its own"),
        ("stream", "dispatching", "its own"),
        ("shuffled", "own order of epochs", "none"),
    ],
)
def test_a_resumed_loop_draws_what_the_unbroken_one_does(
    tmp_path: Path, kind: str, accelerate: str, generator: str
) -> None:
    dataset, options = LOADERS[kind]

    def loop(folder: str, last: int, seed: int) -> dict[int, list[float]]:
        torch.manual_seed(seed)
        own = torch.Generator() if "own" in generator else None
        loader = prepared(dataset(), ACCELERATES[accelerate], generator=own, **options)
        torch.manual_seed(seed + 1)
        return given(tmp_path / folder, loader, last)

    unbroken = loop("unbroken", STEPS, 0)
    assert list(unbroken) == list(range(1, STEPS + 1))
    reached = 0
    for number, stop in enumerate(STOPS):
        drawn = loop("killed", stop, 5 * number)
        assert drawn == {step: unbroken[step] for step in drawn}, stop
        assert min(drawn) <= max(1, reached)
        assert max(drawn) == stop
        reached = stop


def test_a_loader_that_accelerate_does_not_keep_is_refused_by_name(tmp_path: Path) -> None:
    loader = prepared(Numbered(), {"use_stateful_dataloader": False})
    with pytest.raises(UsageError, match=r"loader: .*use_stateful_dataloader=True"):
        given(tmp_path, loader, STEPS)


@pytest.mark.parametrize("accelerate", [None, {}])
def test_an_order_that_has_no_state_is_refused_by_name(
    tmp_path: Path, accelerate: dict[str, Any] | None
) -> None:
    """A plain DataLoader that shuffles, through accelerate, and a sampler of torch's."""
    rows, shuffles = Numbered(), {"generator": torch.Generator()}
    if accelerate is None:
        loader = StatefulDataLoader(rows, BATCH, sampler=RandomSampler(rows, **shuffles))
    else:
        plain = torch.utils.data.DataLoader(rows, BATCH, shuffle=True, **shuffles)
        loader = prepared(rows, accelerate, loader=plain)
    with pytest.raises(UsageError, match=r"loader: its RandomSampler has no state"):
        given(tmp_path, loader, STEPS)


def test_a_stream_that_accelerate_dispatches_to_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = prepared(Stream(), {})
    monkeypatch.setattr(loader.state, "num_processes", 2)
    with pytest.raises(UsageError, match=r"loader: .* dispatch_batches=False"):
        given(tmp_path, loader, STEPS)
