"""The ranks of the campaign of flight records: gloo in processes that share one import of torch.

Reads runs as JSON lines (folder, scenario, culprits, step), and prints a line when each is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

RANKS = 4
STEPS = 12
AFTER_S = 1.0
SLOW_S = 3.0
LONGEST_RUN_S = 90.0
AT_ONCE = 4


def train(rank: int, run: dict[str, Any]) -> None:
    """One rank: a few steps in all groups, with the fault at its step."""
    import torch
    import torch.distributed as dist

    from ettr.elastic.flight import FlightWatcher

    folder = Path(run["folder"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=2 * LONGEST_RUN_S),
    )
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tensor = torch.ones(8)
    with FlightWatcher(folder / "records", AFTER_S):
        for step in range(STEPS):
            if step == run["step"] and rank in run["culprits"]:
                fault(run["scenario"])
                if run["scenario"] == "mismatch":
                    dist.broadcast(tensor, 0)
                    continue
            if run["scenario"] != "two groups at once" or step < run["step"]:
                dist.all_reduce(tensor)
            dist.all_reduce(tensor, group=pairs[rank // 2])


def fault(scenario: str) -> None:
    """What happens to the culprit."""
    if scenario in {"hang", "two groups at once"}:
        time.sleep(10 * LONGEST_RUN_S)
    elif scenario == "slow but alive":
        time.sleep(SLOW_S)
    elif scenario in {"SIGSTOP", "SIGKILL"}:
        os.kill(os.getpid(), getattr(signal, scenario))


def forked(work: Any, output: Path) -> int:
    """Start work in a child of its own, whose output goes to a file; returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    with contextlib.suppress(BaseException):
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def settled(folder: Path) -> tuple[tuple[str, int], ...]:
    """The records as they are now."""
    return tuple(sorted((p.name, p.stat().st_mtime_ns) for p in folder.glob("rank_*.json")))


def over(run: dict[str, Any], alive: set[int]) -> bool:
    """Whether every rank that can has written its record of the fault."""
    if not alive:
        return True
    if run["scenario"] in {"slow but alive", "SIGKILL"}:
        return False
    reasons = {}
    for path in (Path(run["folder"]) / "records").glob("rank_*.json"):
        with contextlib.suppress(ValueError, OSError):
            reasons[path.name] = json.loads(path.read_bytes())["ettr"]["reason"]
    silent = len(run["culprits"]) if run["scenario"] == "SIGSTOP" else 0
    return sum(reason in {"stall", "failure"} for reason in reasons.values()) >= RANKS - silent


def start(run: dict[str, Any]) -> dict[str, Any]:
    """Start the ranks of a run."""
    folder = Path(run["folder"])
    (folder / "records").mkdir(parents=True)
    children = {
        forked(lambda rank=rank: train(rank, run), folder / f"output_{rank}")
        for rank in range(RANKS)
    }
    return {
        **run,
        "alive": children,
        "until": time.monotonic() + LONGEST_RUN_S,
        "seen": (),
        "since": time.monotonic(),
    }


def finish(run: dict[str, Any]) -> bool:
    """Whether the run is over; its processes are then gone."""
    for child in list(run["alive"]):
        if os.waitpid(child, os.WNOHANG)[0]:
            run["alive"].discard(child)
    now = settled(Path(run["folder"]) / "records")
    if now != run["seen"]:
        run["seen"], run["since"] = now, time.monotonic()
    late = time.monotonic() > run["until"]
    quiet = time.monotonic() - run["since"] > 2 * AFTER_S
    if not (late or (quiet and over(run, run["alive"])) or not run["alive"]):
        return False
    for child in run["alive"]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return True


def analysed_by_torch(folder: Path) -> None:
    """PyTorch's own analyser on the same records, as the pickles that it reads."""
    import pickle

    from torch.distributed.flight_recorder import fr_trace

    pickles = folder / "pickles"
    pickles.mkdir()
    for path in (folder / "records").glob("rank_*.json"):
        document = json.loads(path.read_bytes())
        document.pop("ettr")
        for entry in document.setdefault("entries", []):
            entry["process_group"] = tuple(entry["process_group"])
            for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] = entry[key] or None
        (pickles / path.stem).write_bytes(pickle.dumps(document))
    fr_trace.main([str(pickles), "-p", "rank_"])


def main() -> None:
    """Read runs from stdin, hold a few of them at once."""
    import torch.distributed  # noqa: F401 - imported once for all children

    waiting = [json.loads(line) for line in sys.stdin]
    running: list[dict[str, Any]] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(start(waiting.pop(0)))
        time.sleep(0.1)
        for run in [one for one in running if finish(one)]:
            running.remove(run)
            folder = Path(run["folder"])
            child = forked(lambda folder=folder: analysed_by_torch(folder), folder / "torch")
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            (folder / "torch_status").write_text(str(status))
            print(folder, flush=True)


if __name__ == "__main__":
    main()
