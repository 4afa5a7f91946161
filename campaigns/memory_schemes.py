"""Any one of four ranks killed at any moment, under each scheme that guards the shards.

Four ranks (FSDP2, AdamW, gloo, a step of 0.1 s; HSDP of two by two where replicas are the guard)
train under `ettr elastic`. A SIGKILL from outside strikes a rank drawn at random, 3 to 9 steps
after the ranks had gone on from the kill before, and at a moment drawn over one step and a fifth.
At the end parameters, moments and random states are compared with those of an undisturbed run of
the same length, byte for byte.

*Exact* counts the recoveries that took a copy in memory, *back* those in which all went back to a
full checkpoint (every 10 steps). *Memory* is what a rank holds besides its shard, and *shard* the
shard, from the same rank. *Copy* is a plain copy of the shard within the process, *stall* what an
update takes longer for the guard (for the full checkpoint, where one is written). *Restart* is the
time from the kill to the first step that all ranks have made again. The ranks are forks of a
process with torch in memory: no import is in the restart. Every scheme has the full checkpoint
below it, which alone is durable. The parity has all draws of a row, the others two fifths of them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from campaigns import Table

TITLE = "Schemes in memory, killed at any moment"
SIZE = 100
SEED = 500
KILLS_A_RUN = 20
STEPS_A_KILL = 8
N_RANKS = 4
TESTS = Path(__file__).resolve().parents[1] / "tests"
WORKER = TESTS / "elastic" / "elastic_worker.py"
MODEL = {"width": 256, "depth": 5, "step_s": 0.1, "measured": True, "full_every": 10}
FULL, PARITY = "full checkpoint alone", "parity of 4"
SCHEMES: dict[str, dict[str, object]] = {
    PARITY: {"parity": 4},
    "parity of 4, with images": {"parity": 4, "parity_images": True},
    "a buddy's copies": {},
    "replicas, just in time": {"hsdp": [2, 2]},
    FULL: {"buddy": False},
}


@dataclass
class Run:
    """What one run of four ranks did under its kills."""

    same: bool
    killed_s: list[float]
    sources: dict[int, str]
    lost_steps: dict[int, int]
    restarts_s: list[float]
    stalls_s: list[float]
    finals: list[Mapping[str, float]]


@dataclass
class _Killer:
    """Kills ranks of the run that writes its logs into a folder."""

    folder: Path
    n_kills: int
    rng: random.Random
    killed_s: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Kill until there were enough kills, or the run is over."""
        generation = 0
        while len(self.killed_s) < self.n_kills:
            n_steps = self.rng.randint(3, 9)
            pids: dict[int, int] = {}
            while not self.over.is_set():
                lines = lines_of(self.folder)
                newest = max((one["generation"] for one in lines), default=0)
                made = {o["step"] for o in lines if is_step(o) and o["generation"] == newest}
                if newest > generation and len(made) >= n_steps:
                    pids = {o["slot"]: o["pid"] for o in lines if o["event"] == "recovered"}
                    generation = newest
                    break
                time.sleep(0.02)
            if self.over.wait(self.rng.uniform(0.0, 0.12)) or not pids:
                return
            os.kill(pids[self.rng.randrange(N_RANKS)], signal.SIGKILL)
            self.killed_s.append(time.time())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of all logs, in the order of time within each."""
    texts = (path.read_text().rpartition("\n")[0] for path in sorted(folder.glob("log-*.jsonl")))
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted(lines, key=lambda one: one["time_s"] if is_step(one) else one["restored_s"])


def is_step(line: Mapping[str, object]) -> bool:
    """Whether a line of a log is of a step."""
    return line["event"] == "step"


def train(config: Mapping[str, object], steps: int, n_kills: int, seed: int) -> Run:
    """One run; with no kill it is the undisturbed one.

    Raises:
        RuntimeError: the job was lost.
    """
    sys.path.insert(0, str(TESTS))
    from ettr.elastic import SupervisorOptions, supervise
    from forked_python import forked_workers

    with tempfile.TemporaryDirectory(prefix="ettr-schemes-") as place:
        folder = Path(place)
        (folder / "config.json").write_text(json.dumps({**MODEL, **config, "steps": steps}))
        killer = _Killer(folder, n_kills, random.Random(seed))  # noqa: S311
        thread = threading.Thread(target=killer.run)
        with forked_workers():
            thread.start()
            try:
                report = supervise(
                    [sys.executable, str(WORKER), str(folder / "config.json")],
                    N_RANKS,
                    options=SupervisorOptions(spares=1, heartbeat_timeout_s=60.0),
                    environment={**os.environ, "OMP_NUM_THREADS": "1"},
                )
            finally:
                killer.over.set()
                thread.join()
        if not report.finished:
            raise RuntimeError(f"the job was lost: {report.reason}")
        return _read(folder, killer.killed_s)


def _read(folder: Path, killed_s: list[float]) -> Run:
    lines = lines_of(folder)
    again = [one for one in lines if one["event"] == "recovered" and one["generation"] > 1]
    saves = [
        json.loads(line)
        for path in folder.glob("progress-*.jsonl")
        for line in path.read_text().rpartition("\n")[0].splitlines()
    ]
    finals = [json.loads((folder / f"final-{slot}.json").read_text()) for slot in range(N_RANKS)]
    restarts_s = []
    for at_s, next_s in pairwise([*killed_s, float("inf")]):
        first: dict[
            int, float
        ] = {}  # slot -> its first step after this kill in a generation that began after it
        for one in lines:
            if is_step(one) and at_s < one["time_s"] < next_s:
                began = [o["restored_s"] for o in again if o["generation"] == one["generation"]]
                if began and max(began) > at_s:
                    first.setdefault(one["slot"], one["time_s"])
        if len(first) == N_RANKS:
            restarts_s.append(max(first.values()) - at_s)
    return Run(
        same=True,
        killed_s=killed_s,
        sources={one["generation"]: one["source"] for one in again},
        lost_steps={one["generation"]: one["lost_steps"] for one in again},
        restarts_s=restarts_s,
        stalls_s=[one["duration_s"] for one in saves if one["event"] == "save"],
        finals=finals,
    )


def outcome(name: str, size: int, kills_a_run: int = KILLS_A_RUN) -> tuple[str, ...]:
    """The row of a scheme, after `size` kills."""
    config, n_killed, runs = SCHEMES[name], 0, list[Run]()
    steps = STEPS_A_KILL * min(kills_a_run, size) + 10
    undisturbed = [one["hash"] for one in train(config, steps, 0, SEED).finals]
    while n_killed < size:
        n_kills = min(kills_a_run, size - n_killed)
        one = train(config, steps, n_kills, SEED + len(runs))
        one.same = [final["hash"] for final in one.finals] == undisturbed
        n_killed += len(one.killed_s)
        runs.append(one)
        print(name, n_killed, one.same, one.sources, file=sys.stderr, flush=True)
    sources = [source for one in runs for source in one.sources.values()]
    lost = [steps for one in runs for steps in one.lost_steps.values()]
    restarts_s = sorted(value for one in runs for value in one.restarts_s)
    stalls_s = sorted(value for one in runs for value in one.stalls_s)
    # a full checkpoint is one update in ten
    stall_s = stalls_s[int(len(stalls_s) * (0.95 if name == FULL else 0.5))]
    final = runs[-1].finals[0]
    return (
        name,
        str(n_killed),
        f"{sum(one.same for one in runs)} of {len(runs)}",
        str(sources.count("replica")),
        str(len(sources) - sources.count("replica")),
        f"{final['held'] / final['image']:.3f}",
        f"{final['image'] / 1e6:.2f}",
        f"{1e3 * final['copy_s']:.1f}",
        f"{1e3 * stall_s:.1f}",
        f"{sum(lost) / max(1, n_killed):.2f}",
        f"{statistics.median(restarts_s):.2f} ({restarts_s[int(0.9 * len(restarts_s))]:.2f})",
    )


def run(size: int) -> Table:
    """`size` kills for each scheme."""
    before = os.getloadavg()[0]
    rows = [outcome(name, size if name == PARITY else max(1, 2 * size // 5)) for name in SCHEMES]
    return Table(
        (
            "scheme",
            "kills",
            "runs that end bit for bit the same",
            "exact",
            "back",
            "memory, shards",
            "shard, MB",
            "copy, ms",
            "stall, ms",
            "steps lost a kill",
            "restart, s: median (90 %)",
        ),
        tuple(rows),
        f"{SEED} for the first {KILLS_A_RUN} kills of a scheme, one more for each further run",
        "every run ends bit for bit the same; a parity of 4 takes 1.4/3 = 0.467 of a shard at most",
        f"Load average {before:.0f} to {os.getloadavg()[0]:.0f} on two cores.",
    )
