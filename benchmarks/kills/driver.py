"""Start the ranks of one way, kill them on a schedule of wall-clock instants, end them.

The schedule is a Poisson process in time, drawn from a seed: the same instants and the same slots
for every way. A kill strikes whatever the rank is doing then, also while it recovers from the kill
before; one that is due while its slot has no process waits until there is one.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kills.launch import WORLD
from kills.notes import phase_of

LOOK_S = 0.005
START_LIMIT_S = 300.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where ranks under torchrun save shards


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that is due: seconds after the ranks were ready, and the slot that it strikes."""

    at_s: float
    slot: int


@dataclass(frozen=True, slots=True)
class Ran:
    """When the ranks were ready and ended (Unix seconds), and the kills that were carried out."""

    began_s: float
    ended_s: float
    kills: list[dict]


def schedule(seed: int, *, horizon_s: float, mttf_s: float) -> list[Kill]:
    """Kills of a Poisson process with rate 1/mttf_s within the horizon, each at any slot."""
    rng = random.Random(seed)
    found = []
    at_s = rng.expovariate(1 / mttf_s)
    while at_s < horizon_s:
        found.append(Kill(at_s, rng.randrange(WORLD)))
        at_s += rng.expovariate(1 / mttf_s)
    return found


def command_of(launcher: str, config: Path) -> list[str]:
    """The command that starts all ranks."""
    rank = ["-m", "kills.rank", str(config)]
    if launcher == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", str(WORLD), "--max-restarts", "1000"]
        return [*torchrun, "--monitor-interval", "0.1", *rank]
    return [sys.executable, "-m", "kills.launch", sys.executable, *rank]


def run(
    folder: Path, launcher: str, config: dict[str, object], kills: list[Kill], horizon_s: float
) -> Ran:
    """Run one way for the horizon.

    Raises:
        RuntimeError: the ranks did not become ready, or ended before the horizon.
    """
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    here = str(Path(__file__).resolve().parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with contextlib.suppress(OSError, IndexError):
        autogroup = Path("/proc/self/autogroup").read_text()  # `/autogroup-12 nice 0`
        environment["KILLS_AUTOGROUP"] = autogroup.split()[-1]
    with (folder / "output.txt").open("w") as output:
        parent = subprocess.Popen(
            command_of(launcher, path), env=environment, stdout=output, stderr=output
        )
    try:
        _wait_for(lambda: all((folder / f"ready-{s}").exists() for s in range(WORLD)), parent)
        began_s = time.time()
        done = []
        for kill in kills:
            _sleep_until(began_s + kill.at_s)
            _alive(parent)
            struck = _strike(folder, kill, began_s + horizon_s)
            if struck is not None:
                done.append({**struck, "due_s": began_s + kill.at_s})
        _sleep_until(began_s + horizon_s)
        _alive(parent)
        return Ran(began_s, time.time(), done)
    except RuntimeError as error:
        tail = (folder / "output.txt").read_text()[-1500:]
        raise RuntimeError(f"{error}\n{tail}") from error
    finally:
        end(parent)


def end(parent: subprocess.Popen[bytes]) -> None:
    """End a parent and everything below it, and remove what torchrun's ranks have saved."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(parent.pid, signal.SIGSTOP)  # it starts no further rank while they are counted
    pids = [parent.pid, *descendants(parent.pid)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    parent.wait()
    for left in SHARED_MEMORY.glob(f"ettr-{os.getuid()}-*-{parent.pid}"):
        shutil.rmtree(left, ignore_errors=True)


def descendants(pid: int) -> Iterator[int]:
    """Processes below one, parents before their children."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = parents.get(pid, [])
    while waiting:
        child = waiting.pop(0)
        waiting += parents.get(child, [])
        yield child


def _strike(folder: Path, kill: Kill, until_s: float) -> dict | None:
    """Kill the process that holds a slot, once there is one; None: there was none in time."""
    place = folder / f"rank-{kill.slot}"
    while time.time() < until_s:
        pid = int(place.read_text())
        if _lives(pid) and _is_rank(pid):
            os.kill(pid, signal.SIGKILL)
            struck_s = time.time()
            doing = phase_of(folder, pid)
            return {"time_s": struck_s, "slot": kill.slot, "pid": pid, "while": doing}
        time.sleep(LOOK_S)
    return None


def _is_rank(pid: int) -> bool:
    """Whether it is a rank's: the number of one that is gone may be another process's by now."""
    try:
        return b"kills.rank" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _alive(parent: subprocess.Popen[bytes]) -> None:
    if parent.poll() is not None:
        raise RuntimeError(f"the ranks ended by themselves, with status {parent.returncode}")


def _wait_for(what: Callable[[], bool], parent: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not what():
        _alive(parent)
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the ranks were not ready after {START_LIMIT_S:g} s")
        time.sleep(LOOK_S)


def _sleep_until(time_s: float) -> None:
    time.sleep(max(0.0, time_s - time.time()))
