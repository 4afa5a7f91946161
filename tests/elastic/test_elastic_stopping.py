"""A run under `ettr elastic` that is asked to end: all ranks save one step, and exit status 75."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

import forked_python
from elastic_runs import WORKER

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

STEPS, RANK_ASKED_AT, HELD_AT = 24, 5, 12


def start(
    folder: Path, *options: str, ranks: int = 2, **config: object
) -> forked_python.ForkedProcess:
    folder.mkdir(exist_ok=True)
    config = {"steps": STEPS, "step_s": 0.02, "full_every": 1000} | config
    (folder / "config.json").write_text(json.dumps(config))
    command = [sys.executable, forked_python.__file__, "ettr", "elastic", "-n", str(ranks)]
    command += ["--spares", "0", *options, "--"]
    command += [sys.executable, str(WORKER), str(folder / "config.json")]
    return forked_python.fork_server().start(command, {"OMP_NUM_THREADS": "1"})


def events(folder: Path, name: str) -> list[dict]:
    lines = [line for p in folder.glob("log-*.jsonl") for line in p.read_text().splitlines()]
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    return [one for one in whole if one["event"] == name]


def wait_for_step(folder: Path, step: int) -> None:
    end_s = time.monotonic() + 200
    while max((one["step"] for one in events(folder, "step")), default=0) < step:
        assert time.monotonic() < end_s
        time.sleep(0.02)


def full_steps(folder: Path) -> list[int]:
    return sorted(int(p.parent.name.split("-")[1]) for p in folder.glob("full/*/checkpoint.json"))


def finals(folder: Path) -> list[str]:
    return [json.loads((folder / f"final-{n}.json").read_text())["hash"] for n in range(2)]


def test_asked_through_a_rank_and_through_the_launcher_it_goes_on_as_if_it_was_not(
    tmp_path: Path,
) -> None:
    assert start(tmp_path / "unbroken").wait(200) == 0
    out = tmp_path / "stopped"
    asks = {"slot": 1, "step": RANK_ASKED_AT, "where": "compute", "signal": signal.SIGTERM}
    assert start(out, kills=[asks]).wait(200) == 75
    assert full_steps(out) == [RANK_ASKED_AT]

    launcher = start(out, kills=[asks], hold=HELD_AT)
    wait_for_step(out, HELD_AT)
    os.kill(launcher.pid, signal.SIGTERM)
    time.sleep(1.0)  # several heartbeats
    (out / "go").touch()
    assert launcher.wait(200) == 75
    assert full_steps(out)[-1] == HELD_AT + 1

    assert start(out).wait(200) == 0
    began = {one["step"] for one in events(out, "recovered")}
    assert began == {0, RANK_ASKED_AT, HELD_AT + 1}
    assert finals(out) == finals(tmp_path / "unbroken")


def test_stop_after_asks_too(tmp_path: Path) -> None:
    assert start(tmp_path, "--stop-after", "0").wait(200) == 75
    (step,) = full_steps(tmp_path)
    assert 1 <= step < STEPS


def test_asked_on_a_node_that_does_not_supervise_the_whole_run_ends(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    places = ["--nnodes", "2", "--rdzv", meeting, "--node-name"]
    nodes = [start(tmp_path, *places, name, ranks=1, hold=HELD_AT) for name in ("first", "second")]
    wait_for_step(tmp_path, HELD_AT)
    os.kill(nodes[1].pid, signal.SIGTERM)
    time.sleep(1.0)  # several heartbeats
    (tmp_path / "go").touch()
    assert [node.wait(200) for node in nodes] == [75, 75]
    assert full_steps(tmp_path) == [HELD_AT + 1]
