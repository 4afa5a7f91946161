"""Training scripts of each adapter under ckpt-chaos, a crash tester of other authors (PyPI).

ckpt-chaos runs a script once and records where it makes, renames or removes a file in its folder.
Then it runs the script again for each of these events: it kills the process before the event, or
leaves the file torn, starts the same command again and compares the file of the trained parameters,
byte for byte. The scripts are those of the adapters' tests, 12 steps with a round every 3.

    ckpt-chaos run --step-regex 'goes on after step (\\d+)' \\
        --result-file '{out}/final.safetensors' -- \\
        python tests/adapters/framework_scripts.py plain --steps 12 --every 3 --out '{out}'

Lost work counts as a failure: the tool cannot say which step a checkpoint of one file holds, so the
progress record says it. A round is handed over only once the one before it is durable, so a resume
must be from the last recorded save but one, or later. The tool sees no kill while bytes are written
into a file that exists; for those there is the campaign of damaged checkpoints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from campaigns import Table

TITLE = "A crash tester of others on every adapter"
SIZE = 40
"""At most so many crash points a script; none of them has more."""
SCRIPT = Path(__file__).resolve().parents[1] / "tests" / "adapters" / "framework_scripts.py"
ROWS = ("plain", "torchtitan", "hugging-face", "lightning", "lightning-plain-loader")
N_STEPS, EVERY = 12, 3
PASS, LOST_WORK, NOT_REACHED = "PASS", "LOST_WORK", "not reached"
CONTROL = "no crash"


@dataclass(frozen=True)
class CrashPoint:
    """What became of one crash point, by the tool and by the progress record."""

    label: str
    verdict: str
    resumed_step: int | None
    steps_to_resume_from: int

    @property
    def ends_as(self) -> str:
        """The tool's verdict; or that work was lost, of which it knows nothing here."""
        lost = self.resumed_step is None or self.resumed_step < self.steps_to_resume_from
        return LOST_WORK if self.verdict == PASS and lost else self.verdict


def step_due(progress: Sequence[str]) -> int:
    """The step from which a killed run must resume at least, by its record and its successor's."""
    saved, starts = [0, 0], 0
    for line in progress:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # torn by the kill
        starts += event["event"] == "start"
        if starts > 1:
            return int(saved[-2])
        if event["event"] == "save":
            saved.append(event["step"])
    return 0  # it was killed before it had a record


def run_tool(name: str, most_points: int, work: Path) -> list[CrashPoint]:
    """Run ckpt-chaos on the script of that name.

    Raises:
        RuntimeError: the tool could not run the script.
    """
    tool = [sys.executable, "-m", "ckpt_chaos", "run", "--work", str(work)]
    tool += ["--step-regex", r"goes on after step (\d+)", "--max-points", str(most_points)]
    tool += ["--jobs", "2", "--timeout", "600"]
    tool += ["--result-file", "{out}/final.safetensors", "--", sys.executable, str(SCRIPT), name]
    tool += ["--steps", str(N_STEPS), "--every", str(EVERY), "--out", "{out}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(tool, env=environment, capture_output=True, text=True, check=False)
    print(name, done.stdout, done.stderr, sep="\n", file=sys.stderr, flush=True)
    points = read_results(work)
    if not points:
        raise RuntimeError(f"ckpt-chaos {name}: {(done.stdout + done.stderr)[-2000:]}")
    return points


def read_results(work: Path) -> list[CrashPoint]:
    """The crash points of a finished run of the tool, with its verdicts."""
    from ckpt_chaos.runner import rejudge

    results = [(json.loads(path.read_text()), path) for path in work.glob("pt_*/result.json")]
    results.sort(key=lambda one: int(one[0]["order"]))  # the tool's own order
    points = []
    for row, (record, path) in zip(rejudge(work), results, strict=True):
        control = record["label"].startswith(CONTROL)
        verdict = row.verdict
        if not control and not record["crashed"]:
            verdict = NOT_REACHED
        progress = path.parent / "out" / "progress.jsonl"
        due = 0
        if not control and progress.exists():
            due = step_due(progress.read_text(errors="replace").splitlines())
        step = 0 if control else record["outcome"]["resumed_from_step"]
        points.append(CrashPoint(record["label"], verdict, step, due))
    return points


def cells(name: str, points: Sequence[CrashPoint]) -> tuple[str, ...]:
    """A row of the table."""
    crashed = [point for point in points if not point.label.startswith(CONTROL)]
    counts = Counter(point.ends_as for point in crashed)
    control = next((point.verdict for point in points if point.label.startswith(CONTROL)), "-")
    others = ", ".join(
        f"{verdict} {n}"
        for verdict, n in sorted(counts.items())
        if verdict not in (PASS, LOST_WORK)
    )
    passed = f"{counts[PASS]} of {len(crashed)}"
    return name, passed, str(counts[LOST_WORK]), others or "none", control


def run(size: int) -> Table:
    """Up to `size` crash points of each script."""
    with tempfile.TemporaryDirectory(prefix="ettr-ckpt-chaos-") as place:
        rows = [cells(name, run_tool(name, size, Path(place) / name)) for name in ROWS]
    tool = version("ckpt-chaos")
    return Table(
        ("script", "PASS", "lost work", "other verdicts", "without a crash"),
        tuple(rows),
        f"none, every file event is a crash point (ckpt-chaos {tool})",
        "all PASS, no work lost",
    )
