"""Each adapter with its real library: killed, started again, and equal to the unbroken run.

So are the blocks of the page "Ten lines for your loop" as printed, and transformers.Trainer on
another number of ranks. All are forks of one process that has imported the libraries.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
import socket
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

from adapters import hugging_face_rank, page_loops  # noqa: E402
from ettr.progress import goodput_of_file  # noqa: E402

STEPS, DIES_AT, DIES_EARLY_AT = 24, 17, 2
NEEDED = {
    "plain": ("torchdata",),
    "torchtitan": ("torchdata",),
    "hugging-face": ("transformers", "accelerate"),
    "lightning": ("lightning", "torchdata"),
    "lightning-plain-loader": ("lightning", "torchdata"),
}
LOOP_DIES_AT = 37
PRELOADED = [
    "adapters.hugging_face_rank",
    "adapters.page_loops",
    "adapters.framework_scripts",
    "torchdata.stateful_dataloader",
    "lightning.pytorch",
    "transformers.trainer",
    "ettr.adapters",
    "ettr.adapters.hugging_face",
    "ettr.adapters.lightning",
    "torch._dynamo",  # at the first step of an optimizer
]


def _lacks(*modules: str) -> bool:
    return any(importlib.util.find_spec(name) is None for name in modules)


needs_loader = pytest.mark.skipif(_lacks("torchdata"), reason="needs torchdata")
needs_trainer = pytest.mark.skipif(
    _lacks("transformers", "accelerate"), reason="needs transformers and accelerate"
)


def forks() -> ForkServerContext:
    """Processes that are forked from one with all imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def run(name: str, out: Path, *, die_at: int = 0, seed: int = 0, steps: int = STEPS) -> None:
    """A script of `framework_scripts` in a process of its own."""
    from adapters import framework_scripts

    words = [name, "--out", str(out), "--steps", str(steps)]
    words += ["--die-at", str(die_at), "--seed", str(seed)]
    process = forks().Process(target=framework_scripts.main, args=(words,))
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


def run_loop(loop: str, out: Path, *, die_at: int = 0, seed: int = 0) -> None:
    """All ranks of a loop of the page "Ten lines for your loop"."""
    world = 2 if loop == "pipeline" else 1
    processes = []
    for rank in range(world):
        words = [loop, "--out", str(out), "--seed", str(seed), "--rank", str(rank)]
        words += ["--world", str(world), "--die-at", str(die_at)]
        processes.append(forks().Process(target=page_loops.main, args=(words,)))
        processes[-1].start()
    last = processes.pop()
    last.join(300)
    assert last.exitcode == (-signal.SIGKILL if die_at else 0)
    for other in processes:
        if die_at:
            other.kill()
        other.join(60)


@needs_loader
@pytest.mark.parametrize("loop", page_loops.LOOPS)
def test_a_block_of_the_page_goes_on_with_the_losses_of_the_unbroken_run(
    loop: str, tmp_path: Path
) -> None:
    for module in page_loops.LOOPS[loop][2]:
        pytest.importorskip(module)
    run_loop(loop, tmp_path / "unbroken")
    expected = (tmp_path / "unbroken" / "losses.txt").read_text().split()
    assert len(set(expected)) == page_loops.STEPS
    killed = tmp_path / "killed"
    run_loop(loop, killed, die_at=LOOP_DIES_AT)
    run_loop(loop, killed, seed=5)  # the state is the checkpoint's, not the seed's
    found = (killed / "losses.txt").read_text().split()
    assert found[:LOOP_DIES_AT] == expected[:LOOP_DIES_AT]
    goes_on_after = page_loops.STEPS - (len(found) - LOOP_DIES_AT)
    assert 0 < goes_on_after < LOOP_DIES_AT, "it went on from a step between"
    assert found[LOOP_DIES_AT:] == expected[goes_on_after:]
    assert goodput_of_file(killed / "progress.jsonl").redone_steps > 0


def run_ranks(out: Path, world: int, die_at: int = 0, rows: int = hugging_face_rank.BATCH) -> None:
    out.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        forks().Process(
            target=hugging_face_rank.one_rank,
            args=(out, rank, world, port, die_at, rows),
            daemon=True,
        )
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    for rank in reversed(ranks):
        rank.join(120)
        if die_at:
            for other in ranks:
                other.kill()  # they wait for the one that died
        else:
            assert rank.exitcode == 0


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one rank that nothing interrupts."""
    place = tmp_path_factory.mktemp("unbroken")
    run_ranks(place, 1)
    return place


@needs_trainer
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_the_weights_are_those_of_the_unbroken_run(
    unbroken: Path, tmp_path: Path, before: int, after: int
) -> None:
    run_ranks(tmp_path, before, die_at=hugging_face_rank.DIES_AT)
    run_ranks(tmp_path, after)
    expected, found = (torch.load(place / "final.pt") for place in (unbroken, tmp_path))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@needs_trainer
def test_steps_of_other_sizes_are_refused_by_name(tmp_path: Path) -> None:
    """As by another number of ranks with the same batches: the Trainer would take other rows."""
    run_ranks(tmp_path, 1, die_at=hugging_face_rank.DIES_AT)
    run_ranks(tmp_path, 1, rows=2 * hugging_face_rank.BATCH)
