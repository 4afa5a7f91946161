"""Ranks under torchrun, which restarts them all: what they hold in shared memory outlives it."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import forked_python
from elastic_runs import STEPS, WORKER, kill, train

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def torchrun(words: list[str], path: Path) -> tuple[int, int]:
    """Exit status and pid of a torchrun that writes to a file; nothing of it is left behind."""
    with path.open("w") as output:
        agent = forked_python.fork_server().start(
            [sys.executable, forked_python.__file__, "torchrun", *words],
            {**os.environ, "OMP_NUM_THREADS": "1"},
            streams=(0, output.fileno(), output.fileno()),
        )
    try:
        return agent.wait(timeout=300), agent.pid
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def under_torchrun(folder: Path, kills: list[dict]) -> tuple[list[dict], list[str]]:
    """What the ranks of later attempts recovered, and the hashes at the end."""
    (folder / "config.json").write_text(json.dumps({"steps": STEPS, "kills": kills}))
    run = f"{folder.name}-{os.getpid()}"
    command = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", run]
    command += ["--nproc-per-node", "4", "--max-restarts", "4", str(WORKER)]
    status = torchrun([*command, str(folder / "config.json")], folder / "output.txt")[0]
    assert status == 0, (folder / "output.txt").read_text()[-2000:]
    recovered = [
        one
        for path in folder.glob("log-*.jsonl")
        for one in map(json.loads, path.read_text().splitlines())
        if one["event"] == "recovered" and one["generation"] > 1
    ]
    assert list(SHARED_MEMORY.glob(f"ettr-{os.getuid()}-{run}-*")) == []
    final = [json.loads((folder / f"final-{slot}.json").read_text())["hash"] for slot in range(4)]
    return recovered, final


def test_shards_outlive_a_restart_and_a_second_kill_during_one(tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "undisturbed", spares=0)
    # Slot 3's file holds what is left of slot 2; in attempt 1 nobody gets as far as to read it.
    kills = [kill(2, 6, "update"), kill(3, 0, "start", **{"from": 2}), kill(0, 13, "compute")]
    recovered, final = under_torchrun(tmp_path, kills)
    lost = {(r["generation"], tuple(r["lost_slots"])) for r in recovered}
    # what became of a rank that should have lived is in what it wrote, and in torchrun's lines
    assert lost == {(3, (2,)), (4, (0,))}, (tmp_path / "output.txt").read_text()
    assert {r["source"] for r in recovered} == {"replica"}
    assert all(r["lost_steps"] <= 1 for r in recovered)
    assert final == undisturbed.final


# Prints its torchrun, with a port that it has chosen itself, and fails in the first attempt.
ASKS = """
import os
os.environ["MASTER_PORT"] = "29999"
from ettr.elastic.rendezvous import torchrun_pid
print("torchrun is", torchrun_pid(), flush=True)
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
"""


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; exit $?', "launch.sh"]])
def test_a_rank_knows_its_torchrun_in_every_attempt(wrapper: list[str], tmp_path: Path) -> None:
    words = ["--standalone", "--no-python", "--max-restarts", "1", *wrapper]
    path = tmp_path / "output.txt"
    status, pid = torchrun([*words, sys.executable, "-c", ASKS], path)
    printed = path.read_text()
    assert status == 0, printed
    said = [line for line in printed.splitlines() if line.startswith("torchrun is")]
    assert said == [f"torchrun is {pid}"] * 2
