"""A node of two killed whole, with a warm spare node; ettr's way and torchrun's on one schedule.

Two nodes of three ranks train a small FSDP2 model on one machine, over loopback; a third node
waits. A node is a launcher and everything below it. A draw ends the node that does not hold the
meeting place with SIGKILL, 2 to 6 s after the waiting node had become idle, at a moment that the
seed gives; then another node joins. `back`: seconds from the SIGKILL until every slot has made a
step of the following generation. `lost`: steps that every rank had made and that are made again:
the step under way when the node died, which some ranks have ended, does not count. ettr: `ettr
elastic`, shards in a buddy's memory on the other node. torchrun: a restart of all ranks from
`dcp.async_save` every 10 steps, no option changed; its third agent waits in the rendezvous. When
its agents end instead of going on, all of them are started again at once (`jobs lost`), and the
clock runs on. torchrun has the first kills of the same schedule alone, since each takes so long.
The load is that of the machine's two cores when a row began and when it ended, everything that ran
counted: seconds mean little where it is high, lost steps and lost jobs do not depend on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns import Table

TITLE = "Killed nodes"
SIZE = 20
RANKS, NODES = 3, 2
SEED = 12
KILLS_A_RUN = 10
WORLD = RANKS * NODES
LIMIT_S = 300.0
# what ranks run, and at most how many kills of the schedule
WAYS = {"ettr, spare node": ("elastic", SIZE), "torchrun, restart": ("restart", 2)}

_RANK = Path(__file__).with_name("node_kills_rank.py")
_LOOK_S = 0.05
# A waiting node is warm when its processes have used less than this share of a core for so long.
_IDLE_SHARE, _IDLE_S = 0.2, 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one kill cost.

    Attributes:
        back_s: Until every slot had made a step again.
        lost_steps: Steps that every rank had made, and made again.
        job_lost: Whether the launchers had ended, and were started again.
    """

    back_s: float
    lost_steps: int
    job_lost: bool


def run(size: int) -> Table:
    """`size` kills for ettr, the first few of them for torchrun."""
    rows = []
    for name, (way, most) in WAYS.items():
        before = os.getloadavg()[0]
        n_kills = min(size, most)
        outcomes = []
        for begun in range(0, n_kills, KILLS_A_RUN):
            n_left = min(KILLS_A_RUN, n_kills - begun)
            outcomes += kills(way, n_left, SEED + begun // KILLS_A_RUN)
        back_s = sorted(one.back_s for one in outcomes)
        lost = [one.lost_steps for one in outcomes]
        rows.append(
            (
                name,
                str(len(outcomes)),
                f"{statistics.median(back_s):.1f}",
                f"{back_s[0]:.1f} to {back_s[-1]:.1f}",
                str(sum(lost)),
                f"{statistics.mean(lost):.1f}",
                str(sum(one.job_lost for one in outcomes)),
                f"{before:.0f} to {os.getloadavg()[0]:.0f}",
            )
        )
    headers = (
        "way",
        "kills",
        "back, median s",
        "range s",
        "lost",
        "lost a kill",
        "jobs lost",
        "load",
    )
    return Table(
        headers,
        tuple(rows),
        f"{SEED} for the first {KILLS_A_RUN} kills, {SEED + 1} for the others",
        "0 steps lost from a buddy; 2 s until all are back",
    )


def kills(way: str, size: int, seed: int = SEED) -> list[Outcome]:
    """Run one way through the schedule of a seed.

    Raises:
        RuntimeError: the run ended, or did not go on in time.
    """
    rng = random.Random(seed)  # noqa: S311
    with (
        tempfile.TemporaryDirectory(prefix="ettr-node-kills-") as folder,
        _running(_Run(way, Path(folder))) as job,
    ):
        outcomes = []
        for _ in range(size):
            job.wait_until_warm()
            time.sleep(rng.uniform(2.0, 6.0))
            outcomes.append(job.kill())
            print(f"{way}: {outcomes[-1]}", file=sys.stderr, flush=True)
        return outcomes


@contextlib.contextmanager
def _running(job: _Run) -> Iterator[_Run]:
    try:
        yield job
    finally:
        job.end()


@dataclass(slots=True)
class _Node:
    launcher: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        """Of the launcher and everything below it."""
        found, due = [], [self.launcher.pid]
        while due:
            pid = due.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                due += [int(child) for child in children.split()]
        return found

    def cpu_s(self) -> float:
        """Seconds of a core that its processes have used."""
        ticks = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])  # utime, stime
        return ticks / _TICKS_PER_S

    def kill(self) -> None:
        """End the whole of it; stopped first, so that nothing is started meanwhile."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.launcher.pid, signal.SIGSTOP)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait()


@dataclass(slots=True)
class _Run:
    """The nodes of one run: the first holds the meeting place, the second is killed."""

    way: str
    folder: Path
    port: int = 0
    nodes: list[_Node] = field(default_factory=list)
    n_started: int = 0

    def __post_init__(self) -> None:
        self.begin()
        self._until(self._all_compute)
        self.start()

    def begin(self) -> None:
        """Start the nodes that train, the first of them at a meeting place of its own."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.start()
        self._until(self._is_met)
        self.start()

    def start(self) -> None:
        """Start one more node."""
        number = self.n_started = self.n_started + 1
        rank = [sys.executable, str(_RANK), self.way, str(self.folder)]
        if self.way == "elastic":
            words = ["-c", "from ettr.cli.main import main; main()", "elastic"]
            words += ["--nnodes", str(NODES), "--rdzv", f"127.0.0.1:{self.port}", "-n", str(RANKS)]
            words += ["--spares", "0", "--node-name", f"node{number}", "--", *rank]
        else:
            words = ["-m", "torch.distributed.run", "--nnodes", str(NODES)]
            words += ["--nproc-per-node", str(RANKS), "--max-restarts", "1000"]
            words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}"]
            words += ["--local-addr", "127.0.0.1", *rank[1:]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        with (self.folder / f"node{number}.txt").open("w") as output:
            launcher = subprocess.Popen(
                [sys.executable, *words], env=environment, stdout=output, stderr=output
            )
        self.nodes.append(_Node(launcher))

    def wait_until_warm(self) -> None:
        """Return when all ranks compute and the waiting node has done what it can in advance."""
        self._until(self._all_compute)
        busy_s = used_s = 0.0
        quiet = False
        while not quiet:
            self._until(lambda: len(self._waiting.pids()) >= self._n_warm)
            busy_s, used_s = used_s, self._waiting.cpu_s()
            quiet = used_s - busy_s < _IDLE_SHARE * _IDLE_S
            time.sleep(_IDLE_S)

    def kill(self) -> Outcome:
        """Kill the second node, wait until all compute again, and have another node join."""
        before = self._newest()
        at_s = time.time()
        self.nodes.pop(1).kill()
        job_lost = False
        while not self._goes_on_after(before):
            if self.way != "restart":
                raise RuntimeError("a launcher has ended:\n" + self._printed())
            job_lost = True
            self.end()
            self.begin()
        lines = self._lines()
        after = self._newest()
        steps: dict[int, int] = {}
        for line in lines:
            if line["event"] == "step" and line["number"] == before:
                slot = int(line["slot"])
                steps[slot] = max(int(line["step"]), steps.get(slot, 0))
        reached = min(steps.values())  # a step is made when every rank has made it
        begun = min(o["step"] for o in lines if o["event"] == "begin" and o["number"] == after)
        first_s: dict[int, float] = {}
        for line in lines:
            if line["event"] == "step" and line["number"] == after:
                slot, time_s = int(line["slot"]), float(line["time_s"])
                first_s[slot] = min(time_s, first_s.get(slot, time_s))
        if len(self.nodes) == NODES:
            self.start()
        return Outcome(max(first_s.values()) - at_s, int(max(0, reached - begun)), job_lost)

    def _goes_on_after(self, before: int) -> bool:
        """Wait until all compute in a later generation; False: a launcher has ended first."""
        self._until(
            lambda: (
                (self._newest() != before and self._all_compute())
                or any(node.launcher.poll() is not None for node in self.nodes)
            )
        )
        return self._newest() != before and self._all_compute()

    def end(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.kill()
        self.nodes.clear()

    @property
    def _waiting(self) -> _Node:
        return self.nodes[-1]

    @property
    def _n_warm(self) -> int:
        """Processes of a node that waits: torchrun's agent has no ranks before it takes part."""
        return 1 + (RANKS if self.way == "elastic" else 0)

    def _is_met(self) -> bool:
        """Whether the first node listens at the meeting place."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def _all_compute(self) -> bool:
        return len(self._steps(self._newest())) == WORLD

    def _newest(self) -> int:
        """Number of the newest generation or attempt; 0: none has begun."""
        return max((int(line["number"]) for line in self._lines()), default=0)

    def _steps(self, number: int) -> set[int]:
        """The slots that have made a step of a generation."""
        return {
            int(line["slot"])
            for line in self._lines()
            if line["event"] == "step" and line["number"] == number
        }

    def _lines(self) -> list[dict[str, Any]]:
        texts = [path.read_text() for path in self.folder.glob("steps-*.jsonl")]
        whole = [line for text in texts for line in text.splitlines(keepends=True)]
        return [json.loads(line) for line in whole if line.endswith("\n")]

    def _printed(self) -> str:
        """The end of what each launcher has printed."""
        paths = sorted(self.folder.glob("node*.txt"))
        return "\n".join(path.read_text(errors="replace")[-800:] for path in paths)

    def _until(self, holds: Callable[[], object]) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not holds():
            if time.monotonic() > end_s:
                raise RuntimeError("the run does not go on:\n" + self._printed())
            time.sleep(_LOOK_S)
