"""Each adapter with its real library: killed, started again, and equal to the unbroken run."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

from ettr.progress import goodput_of_file  # noqa: E402

STEPS, DIES_AT, DIES_EARLY_AT = 24, 17, 2
NEEDED = {
    "plain": ("torchdata",),
    "torchtitan": ("torchdata",),
    "hugging-face": ("transformers", "accelerate"),
    "lightning": ("lightning", "torchdata"),
    "lightning-plain-loader": ("lightning", "torchdata"),
}
PRELOADED = [
    "adapters.framework_scripts",
    "torchdata.stateful_dataloader",
    "lightning.pytorch",
    "transformers.trainer",
    "ettr.adapters",
    "ettr.adapters.hugging_face",
    "ettr.adapters.lightning",
    "torch._dynamo",  # at the first step of an optimizer
]


def run(name: str, out: Path, *, die_at: int = 0, seed: int = 0, steps: int = STEPS) -> None:
    """A script of `framework_scripts` in a process of its own, forked from one with its imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    from adapters import framework_scripts

    words = [name, "--out", str(out), "--steps", str(steps)]
    words += ["--die-at", str(die_at), "--seed", str(seed)]
    process = context.Process(target=framework_scripts.main, args=(words,))
    process.start()
    process.join(300)
    assert process.exitcode == (-signal.SIGKILL if die_at else 0)


@pytest.mark.parametrize("name", NEEDED)
def test_a_killed_run_goes_on_and_ends_as_the_unbroken_one(name: str, tmp_path: Path) -> None:
    for module in NEEDED[name]:
        pytest.importorskip(module)
    run(name, tmp_path / "unbroken")
    killed = tmp_path / "killed"
    run(name, killed, die_at=DIES_AT)
    run(name, killed, seed=5)  # the state is the checkpoint's, not the seed's
    began, resumed = map(int, (killed / "started.txt").read_text().split())
    assert began == 0
    assert 0 < resumed <= DIES_AT
    model = (tmp_path / "unbroken" / "final.safetensors").read_bytes()
    assert (killed / "final.safetensors").read_bytes() == model
    split = goodput_of_file(killed / "progress.jsonl")
    assert split.redone_steps == DIES_AT - resumed
    if name in ("hugging-face", "lightning", "lightning-plain-loader"):
        assert split.input_waits > 0  # by themselves, and exact on a CPU
        assert split.input_open_s == 0.0
    run(name, killed, seed=6)  # a run that is over stays as it is
    assert (killed / "started.txt").read_text().split()[2:] in ([], [str(STEPS)])
    assert (killed / "final.safetensors").read_bytes() == model
    early = tmp_path / "early"  # before the first round: it resumes from the state of step 0
    run(name, early, die_at=DIES_EARLY_AT)
    run(name, early, seed=7)
    assert (early / "started.txt").read_text().split() == ["0", "0"]
    assert (early / "final.safetensors").read_bytes() == model


@pytest.mark.parametrize("name", NEEDED)
def test_a_run_that_ended_within_an_epoch_stays_as_it_is(name: str, tmp_path: Path) -> None:
    """Killed after its last step, before it had written its result."""
    for module in NEEDED[name]:
        pytest.importorskip(module)
    run(name, tmp_path, steps=13)
    final = tmp_path / "final.safetensors"
    model = final.read_bytes()
    final.unlink()
    run(name, tmp_path, seed=5, steps=13)
    assert final.read_bytes() == model
