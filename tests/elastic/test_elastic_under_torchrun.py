"""Ranks under torchrun, which restarts them all: what they hold in shared memory outlives it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked_python
from elastic_runs import STEPS, WORKER, kill, train

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def under_torchrun(folder: Path, kills: list[dict]) -> tuple[list[dict], list[str]]:
    """What the ranks of later attempts recovered, and the hashes at the end."""
    (folder / "config.json").write_text(json.dumps({"steps": STEPS, "kills": kills}))
    run = f"{folder.name}-{os.getpid()}"
    command = [sys.executable, forked_python.__file__, "torchrun"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", run]
    command += ["--nproc-per-node", "4", "--max-restarts", "4", str(WORKER)]
    with (folder / "output.txt").open("w") as output:
        agent = subprocess.Popen(
            [*command, str(folder / "config.json")],
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            status = agent.wait(timeout=300)
        finally:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
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


# What torchrun does for a rank in each attempt, and a wrapper (`--no-python`) that is its parent.
LAUNCHER = """
import os, subprocess, sys

print(os.getpid(), flush=True)
for attempt in range(2):
    started = {"TORCHELASTIC_RESTART_COUNT": str(attempt), "RANK": "0", "MASTER_PORT": "29500"}
    for command in (sys.argv[1:], ["sh", "-c", '"$@"; exit $?', "launch.sh", *sys.argv[1:]]):
        subprocess.run(
            command, env={**os.environ, "TORCHELASTIC_RUN_ID": "none", **started}, check=True
        )
"""
ASKS = "from ettr.elastic.torchrun_agent import torchrun_pid as pid; print(pid(), flush=True)"


def test_a_rank_and_a_rank_in_a_wrapper_know_their_torchrun() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LAUNCHER, sys.executable, "-c", ASKS],
        capture_output=True,
        text=True,
        check=True,
    )
    torchrun, *found = printed.stdout.split()
    assert found == [torchrun] * 4
