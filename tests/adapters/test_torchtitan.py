"""torchtitan's own Trainer, with its containers, schedulers and loader: killed, and going on.

What is replaced where there is no GPU is listed in `titan_script`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from forked_python import fork_server
from installed import need

pytestmark = [pytest.mark.torch, pytest.mark.slow]
need("torch", "torchtitan")

STEPS, DIES_AT = 8, 5


def run(out: Path, *, ranks: int = 1, die_at: int = 0, without: str = "") -> str:
    """All ranks to their end; what they said. The last one dies after a step, if any does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = (
        "from pathlib import Path; from adapters import titan_script; "
        f"titan_script.main(Path({str(out)!r}), {STEPS}, {{}}, without={without!r})"
    )
    out.mkdir(parents=True, exist_ok=True)
    processes, written = [], []
    for rank in range(ranks):
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "MASTER_PORT": port,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
        }
        command = [sys.executable, "-c", code.format(die_at if rank == ranks - 1 else 0)]
        written.append(out / f"errors-{rank}.txt")
        with written[-1].open("w") as errors:
            server = fork_server("adapters.titan_script")
            processes.append(server.start(command, environment, streams=(0, 1, errors.fileno())))
    for rank, process in reversed(list(enumerate(processes))):
        if die_at and rank < ranks - 1:
            process.kill()  # it waits for the one that died
        status = process.wait(300)
        if not die_at:
            assert status == 0, written[rank].read_text()[-3000:]
    assert not die_at or processes[-1].returncode == -signal.SIGKILL, written[-1].read_text()
    return "\n".join(path.read_text() for path in written)


def losses(out: Path) -> list[str]:
    return (out / "losses.txt").read_text().splitlines()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_goes_on_with_the_losses_of_the_unbroken_one(
    ranks: int, tmp_path: Path
) -> None:
    """Alone, and under FSDP2 on two ranks, each with its part of the data."""
    run(tmp_path / "unbroken", ranks=ranks)
    expected = losses(tmp_path / "unbroken")
    assert len(expected) == STEPS
    killed = tmp_path / "killed"
    run(killed, ranks=ranks, die_at=DIES_AT)
    fewer = shutil.copytree(killed, tmp_path / "fewer")
    said = run(killed, ranks=ranks)
    step = int(re.findall(r"the run resumes after step (\d+):", said)[0])
    assert step in (0, 3), "the round of step 3 may not have been written yet"
    assert losses(killed) == expected[:DIES_AT] + expected[step:]
    if ranks > 1 and step:
        said = run(fewer, without="dataloader")
        assert f"the run resumes after step {step}:" in said
        assert len(losses(fewer)) == DIES_AT + STEPS - step
        begun, goes_on = (float.fromhex(losses(fewer)[at].split()[1]) for at in (0, DIES_AT))
        assert goes_on < begun, "the first data again, of both ranks and of one, by a trained model"
