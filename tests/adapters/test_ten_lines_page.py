"""The page "Ten lines for your loop": each block as printed, killed and resumed."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("torchdata")

from adapters import page_loops  # noqa: E402
from adapters.test_adapters import PRELOADED  # noqa: E402
from ettr.progress import goodput_of_file  # noqa: E402

DIES_AT = 37


def run(loop: str, out: Path, *, die_at: int = 0, seed: int = 0) -> None:
    """All ranks of a loop, forked from a process that has imported its packages."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    world = 2 if loop == "pipeline" else 1
    processes = []
    for rank in range(world):
        words = [loop, "--out", str(out), "--seed", str(seed), "--rank", str(rank)]
        words += ["--world", str(world), "--die-at", str(die_at)]
        processes.append(context.Process(target=page_loops.main, args=(words,)))
        processes[-1].start()
    last = processes.pop()
    last.join(300)
    assert last.exitcode == (-signal.SIGKILL if die_at else 0)
    for other in processes:
        if die_at:
            other.kill()
        other.join(60)


@pytest.mark.parametrize("loop", page_loops.LOOPS)
def test_a_block_of_the_page_goes_on_with_the_losses_of_the_unbroken_run(
    loop: str, tmp_path: Path
) -> None:
    for module in page_loops.LOOPS[loop][2]:
        pytest.importorskip(module)
    run(loop, tmp_path / "unbroken")
    expected = (tmp_path / "unbroken" / "losses.txt").read_text().split()
    assert len(set(expected)) == page_loops.STEPS
    killed = tmp_path / "killed"
    run(loop, killed, die_at=DIES_AT)
    run(loop, killed, seed=5)  # the state is the checkpoint's, not the seed's
    found = (killed / "losses.txt").read_text().split()
    assert found[:DIES_AT] == expected[:DIES_AT]
    goes_on_after = page_loops.STEPS - (len(found) - DIES_AT)
    assert 0 < goes_on_after < DIES_AT, "it went on from a step between"
    assert found[DIES_AT:] == expected[goes_on_after:]
    assert goodput_of_file(killed / "progress.jsonl").redone_steps > 0
