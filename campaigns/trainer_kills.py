"""Training loops as people have them, killed at random moments, and whether they end alike.

The loops are the blocks of the page "Ten lines for your loop" as they are printed, with the real
packages: a loop of one's own with AdamW, schedule-free AdamW, 8-bit AdamW of torchao and LoRA of
PEFT, accelerate, the Trainer of transformers, Lightning, a pipeline of four stages on two ranks,
and torchtitan's Trainer. Each makes 400 steps and saves every 10, torchtitan 100 and every 3. A
process is killed by SIGKILL once it has made a number of steps that is drawn, up to a tenth of
them, and some hundredths of a second later; one time in five at a moment of its first second, while
it starts or restores. Then the same command is started again. A job left alone is what each is
compared with, every loss bit for bit. A job is lost if it does not end with exit status 0 and its
last step.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns import Table

TITLE = "Trainers under kills"
SIZE = 10
SEED, STEPS, JOB_S = 5200, 400, 300.0
TITAN, TITAN_STEPS, TITAN_EVERY_STEPS = "torchtitan", 100, 3


@dataclass(frozen=True)
class Row:
    """What became of one loop under kills.

    Attributes:
        resumed: starts that went on from a checkpoint after step 0.
        again: steps made again; skipped: those that no process made.
        other: losses that differ in any bit.
    """

    loop: str
    kills: int
    resumed: int
    again: int
    other: int
    skipped: int
    lost: bool


class Forked:
    """A fork of a process that has torchtitan, with what is used here of a `Process`."""

    def __init__(self, folder: Path, seed: int) -> None:
        from forked_python import fork_server

        code = (
            "from pathlib import Path; from adapters import titan_script; "
            f"titan_script.main(Path({str(folder)!r}), {TITAN_STEPS}, 0, "
            f"interval={TITAN_EVERY_STEPS}, seed={seed})"
        )
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        server = fork_server("adapters.titan_script")
        self._process = server.start([sys.executable, "-c", code], environment)
        self.pid, self.kill = self._process.pid, self._process.kill

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for its end, so long at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    @property
    def exitcode(self) -> int | None:
        """Its exit status; None: it runs."""
        return self._process.poll()


class Job:
    """One run of a loop in a folder, started again after each kill."""

    def __init__(self, loop: str, folder: Path) -> None:
        self.loop, self.folder, self._starts = loop, folder, 0
        self.world = 2 if loop == "pipeline" else 1
        self.steps = TITAN_STEPS if loop == TITAN else STEPS

    def losses(self) -> list[str]:
        """Of all processes in the order in which they were made."""
        with suppress(FileNotFoundError):
            text = (self.folder / "losses.txt").read_text()
            return [
                line.rstrip("\n") for line in text.splitlines(keepends=True) if line[-1] == "\n"
            ]
        return []

    def start(self) -> list[Any]:
        """Its ranks, each a process of its own with another seed than before.

        A job that was killed before its first step begins again, and keeps its seed.
        """
        from adapters import page_loops
        from adapters.test_adapters import PRELOADED

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._starts += 1
        seed = self._starts if self.losses() else 1
        if self.loop == TITAN:
            return [Forked(self.folder, seed)]
        for met in self.folder.glob("store-*"):  # where killed ranks had met
            met.unlink()
        ranks = []
        for rank in range(self.world):
            words = [self.loop, "--out", str(self.folder), "--steps", str(STEPS)]
            words += ["--seed", str(seed), "--rank", str(rank), "--world", str(self.world)]
            ranks.append(context.Process(target=page_loops.main, args=(words,)))
            ranks[-1].start()
        return ranks


def row(loop: str, kills: int, seed: int) -> Row:
    """One loop, killed so many times, next to a job that is left alone."""
    rng = random.Random(seed)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="ettr-trainers-") as place:
        alone = Job(loop, Path(place) / "alone")
        if _ended(alone.start()) != 0:
            raise RuntimeError(f"{loop}: the job that was left alone did not end")
        expected = alone.losses()
        job = Job(loop, Path(place) / "killed")
        segments, made = [], 0
        for number in range(kills + 1):
            ranks = job.start()
            if number < kills:
                _kill(job, ranks, made, rng)
            status = _ended(ranks)
            segments.append(job.losses()[made:])
            made += len(segments[-1])
        return _row(loop, kills, segments, expected, lost=status != 0)


def _kill(job: Job, ranks: list[Any], made: int, rng: random.Random) -> None:
    until_s = time.monotonic() + JOB_S
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0.0, 1.0))
    else:
        target = made + rng.randint(1, job.steps // 10)
        while len(job.losses()) < target and time.monotonic() < until_s:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.03))
    hit = rng.randrange(len(ranks))
    for rank in ranks[hit:] + ranks[:hit]:  # the others of a pipeline wait for the one that died
        if rank.is_alive():
            os.kill(rank.pid, signal.SIGKILL)


def _ended(ranks: list[Any]) -> int:
    for rank in ranks:
        rank.join(JOB_S)
        if rank.is_alive():
            rank.kill()
            rank.join()
    return max((abs(rank.exitcode) for rank in ranks), default=0)


def _row(
    loop: str, kills: int, segments: list[list[str]], expected: list[str], *, lost: bool
) -> Row:
    number_of = {loss: step for step, loss in enumerate(expected)}
    reached = again = other = skipped = resumed = 0
    for segment in segments:
        if not segment:
            continue  # killed before its first step
        first = number_of.get(segment[0], reached)
        resumed += first > 0
        skipped += max(0, first - reached)
        again += max(0, reached - first)
        other += sum(one != two for one, two in zip(segment, expected[first:], strict=False))
        reached = max(reached, first + len(segment))
    return Row(loop, kills, resumed, again, other, skipped, lost or reached != len(expected))


def run(size: int) -> Table:
    """`size` kills of each loop whose package is installed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from importlib.util import find_spec

    from adapters import page_loops

    rows = []
    needed_by = {loop: needed for loop, (_, _, needed) in page_loops.LOOPS.items()}
    for number, (loop, needed) in enumerate({**needed_by, TITAN: (TITAN,)}.items()):
        if all(find_spec(name) for name in needed):
            rows.append(row(loop, size, SEED + number))
            print(rows[-1], file=sys.stderr, flush=True)
    return Table(
        (
            "loop",
            "kills",
            "starts that went on",
            "steps made again",
            "steps left out",
            "other losses",
            "jobs lost",
        ),
        tuple(
            (
                one.loop,
                *map(str, (one.kills, one.resumed, one.again, one.skipped, one.other)),
                str(int(one.lost)),
            )
            for one in rows
        ),
        f"{SEED} and on, one a row",
        "0 jobs lost, 0 other losses, 0 steps left out",
    )
