"""A whole training recipe killed at random moments, and whether it ends as if it had not been.

The recipe is `examples/training/recipe.py`: FSDP2 on four ranks, or two by two with tensor
parallelism, torch.compile, bf16, gradient accumulation, clipping, warm-up and cosine, a
StatefulDataLoader, a moving average of the weights; at the end the whole model is gathered. Each
job makes 40 steps and loses a rank five times by SIGKILL. Rank, step and the moment within the step
are drawn; one kill in five comes within a second of the one before, while the ranks still regroup.
One job of each layout is left alone: the others are compared with it, every step's loss and every
byte of the model and its average. A job is lost if it does not end by itself with exit status 0.
`replaced` counts processes; it equals the kills where every survivor kept its own. `went on from`
counts generations by the source of the lost shard, by the report of rank 0; kills that overlap end
in one. Partial recovery is made to be taken at any predicted cost. It and torchrun have a fifth of
the draws.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from campaigns import Table

TITLE = "A training recipe under kills"
THEN = "trainer-kills"  # the loops of the trainers, on a page of their own
SIZE = 25
RECIPE = Path(__file__).resolve().parents[1] / "examples" / "training" / "recipe.py"
ETTR = [sys.executable, "-c", "from ettr.cli.main import main; main()"]
N_RANKS, N_STEPS, KILLS_A_JOB = 4, 40, 5
LAYOUTS = {"FSDP2": 1, "2D": 2}
BUDDY, PARTIAL, TORCHRUN = "a buddy's memory", "partial recovery", "torchrun, shared memory"
ROWS = (("FSDP2", BUDDY, 1), ("2D", BUDDY, 1), ("2D", PARTIAL, 5), ("FSDP2", TORCHRUN, 5))
"""Layout, way, and by how much fewer kills it has."""
JOB_S, LAST, OVERLAPS, SEED = 600.0, 10, 0.2, 4100


@dataclass
class Job:
    """One run of the recipe: what it wrote, and what was done to it."""

    folder: Path
    status: int | None = None
    steps: int = N_STEPS
    kills: int = 0

    def losses(self) -> list[tuple[int, float]]:
        """(step, loss) in the order in which they were made; steps made again are there again."""
        path = self.folder / "losses.jsonl"
        whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
        return [(one["step"], one["loss"]) for one in map(json.loads, whole)]

    def pids(self) -> dict[int, list[int]]:
        """Slot -> its processes, one after the other."""
        text = (self.folder / "output.txt").read_text(errors="replace")
        pids: dict[int, list[int]] = {slot: [] for slot in range(N_RANKS)}
        for slot, pid in re.findall(r"slot (\d+) pid (\d+) goes on", text):
            if int(pid) not in pids[int(slot)]:
                pids[int(slot)].append(int(pid))
        return pids

    def sources(self) -> Counter[str]:
        """Where lost shards came from after the first generation, as rank 0 reported it."""
        text = (self.folder / "output.txt").read_text(errors="replace")
        return Counter(re.findall(r"slot 0 pid \d+ goes on after \d+ \((\w+)\)", text)[1:])

    def n_steps(self) -> int:
        """Steps made so far, those made again included."""
        with suppress(FileNotFoundError):
            return len(self.losses())
        return 0

    def model(self) -> bytes:
        """The file that is left at the end."""
        return (self.folder / "model.safetensors").read_bytes()


@dataclass(frozen=True)
class Row:
    """What became of the jobs of one layout and way.

    Attributes:
        replaced: processes that took a slot after the first.
        other_losses: losses of a step, made again ones included, that differ from the job left
            alone in any bit; other_models: models, or averages, at the end that do.
        sources: how often the group went on from each source.
        largest_difference: of the mean of the last ten losses, relative.
    """

    layout: str
    way: str
    kills: int
    jobs: int
    lost: int
    replaced: int
    redone: int
    other_losses: int
    other_models: int
    sources: Mapping[str, int]
    largest_difference: float

    def cells(self) -> tuple[str, ...]:
        """As the table has it."""
        counts = (self.kills, self.jobs, self.lost, self.replaced, self.redone)
        others = (self.other_losses, self.other_models)
        difference = f"{100 * self.largest_difference:.3g} %"
        sources = ", ".join(f"{source} {n}" for source, n in sorted(self.sources.items()))
        return (self.layout, self.way, sources, *map(str, (*counts, *others)), difference)


def command(layout: str, way: str, job: Job, compiler: str) -> list[str]:
    """How the recipe is started."""
    script = [str(RECIPE), "--out", str(job.folder), "--steps", str(job.steps)]
    script += ["--compiler", compiler, "--tensor-parallel", str(LAYOUTS[layout])]
    if way == TORCHRUN:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(N_RANKS)]
        return [sys.executable, *launch, "--max-restarts", "20", *script]
    if way == PARTIAL:
        script.append("--partial")
    return [*ETTR, "elastic", "-n", str(N_RANKS), "--spares", "1", "--", sys.executable, *script]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job under way; nothing of it is left behind."""
    folder.mkdir(parents=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_job(job: Job, command: list[str], kills: int, rng: random.Random) -> Job:
    """Run the recipe to its end and kill ranks meanwhile."""
    with started(command, job.folder) as process:
        until_s = time.monotonic() + JOB_S
        while job.kills < kills:
            overlaps = job.kills > 0 and rng.random() < OVERLAPS
            if not overlaps:
                further = rng.randint(1, job.steps // (kills + 1))
                target = min(job.n_steps() + further, job.steps - 1)
                while job.n_steps() < target and _goes_on(process, until_s):
                    time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 1.0 if overlaps else 0.3))
            if not _goes_on(process, until_s):
                break
            job.kills += _kill(job.pids()[rng.randrange(N_RANKS)])
        with suppress(subprocess.TimeoutExpired):
            job.status = process.wait(max(1.0, until_s - time.monotonic()))
    return job


def _goes_on(process: subprocess.Popen[bytes], until_s: float) -> bool:
    return process.poll() is None and time.monotonic() < until_s


def _kill(pids: list[int]) -> bool:
    """Kill the last process of a slot; False: it is gone already."""
    try:
        os.kill(pids[-1], signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return False
    return True


def row(
    layout: str,
    way: str,
    size: int,
    *,
    seed: int,
    steps: int = N_STEPS,
    compiler: str = "aot_eager",
) -> Row:
    """`size` kills of one layout, recovered in one way, next to a job that is left alone."""
    rng = random.Random(seed)  # noqa: S311

    def made(name: str, kills: int) -> Job:
        job = Job(Path(place) / name, steps=steps)
        return run_job(job, command(layout, way, job, compiler), kills, rng)

    with tempfile.TemporaryDirectory(prefix="ettr-recipe-") as place:
        alone = made("alone", 0)
        if alone.status != 0:
            raise RuntimeError((alone.folder / "output.txt").read_text(errors="replace")[-3000:])
        jobs: list[Job] = []
        while (left := size - sum(job.kills for job in jobs)) > 0 and len(jobs) < size:
            jobs.append(made(str(len(jobs)), min(left, KILLS_A_JOB)))
            _note(layout, way, jobs[-1], alone)
        return _row(layout, way, jobs, alone)


def _row(layout: str, way: str, jobs: list[Job], alone: Job) -> Row:
    ended = [job for job in jobs if job.status == 0]
    expected = dict(alone.losses())
    losses = [one for job in ended for one in job.losses()]
    model = alone.model()
    off = [_last_mean(job) / _last_mean(alone) - 1.0 for job in ended]
    return Row(
        layout=layout,
        way=way,
        kills=sum(job.kills for job in jobs),
        jobs=len(jobs),
        lost=len(jobs) - len(ended),
        replaced=sum(len(pids) - 1 for job in jobs for pids in job.pids().values()),
        redone=len(losses) - alone.steps * len(ended),
        other_losses=sum(loss != expected[step] for step, loss in losses),
        other_models=sum(job.model() != model for job in ended),
        sources=sum((job.sources() for job in jobs), Counter()),
        largest_difference=max(map(abs, off), default=math.nan),
    )


def _last_mean(job: Job) -> float:
    return fmean(loss for step, loss in dict(job.losses()).items() if step > job.steps - LAST)


def _note(layout: str, way: str, job: Job, alone: Job) -> None:
    """Each job as it ends; the output of one that was lost."""
    same = job.status == 0 and job.model() == alone.model()
    print(layout, way, f"{job.kills=} {job.status=} {same=}", file=sys.stderr, flush=True)
    if job.status != 0:
        print((job.folder / "output.txt").read_text(errors="replace")[-6000:], file=sys.stderr)


def run(size: int) -> Table:
    """`size` kills for each layout and way."""
    rows = [
        row(layout, way, max(1, size // fewer), seed=SEED + i)
        for i, (layout, way, fewer) in enumerate(ROWS)
    ]
    return Table(
        (
            "layout",
            "way back",
            "went on from",
            "kills",
            "jobs",
            "jobs lost",
            "replaced",
            "steps made again",
            "other losses",
            "other models",
            "last ten losses, largest difference",
        ),
        tuple(one.cells() for one in rows),
        f"{SEED} and on, one a row",
        "0 jobs lost; 0 other losses and models but for partial recovery, which is approximate; "
        "replaced equal to the kills but for torchrun, which replaces all",
    )
