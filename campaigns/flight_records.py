"""Flight records of real runs with gloo, four ranks: is the planted rank the one that is named?

Each run trains a dozen steps in three groups under `FlightWatcher` (a stall is a second) and
meets its fault at a random step on a random rank; two at once in `two groups at once`. Right: the
verdict has the culprits that were planted and no other, and the right name for what happened.
`torchfrtrace` is PyTorch's own analyser on the same records: whether it ended with an error, and
otherwise whether its output names the planted ranks as missing or mismatched.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from campaigns import Table
from ettr.errors import EttrError
from ettr.flight import judge, read_folder

TITLE = "Flight records of ranks that hang, stop, die or are slow"
SIZE = 17
SCENARIOS = {
    "hang": {"missing"},
    "mismatch": {"mismatch"},
    "SIGSTOP": {"no record"},
    "SIGKILL": {"no record"},
    "slow but alive": {"late"},
    "two groups at once": {"missing"},
}
SEED = 14


def run(size: int) -> Table:
    """Verdicts on `size` runs of each scenario."""
    rng = random.Random(SEED)  # noqa: S311
    with tempfile.TemporaryDirectory() as place:
        runs = [
            _planned(scenario, Path(place) / f"{number}-{scenario.replace(' ', '-')}", rng)
            for scenario in SCENARIOS
            for number in range(size)
        ]
        _train(runs)
        rows = tuple(
            _row(name, [one for one in runs if one["scenario"] == name]) for name in SCENARIOS
        )
    total = tuple(str(sum(int(row[i]) for row in rows)) for i in (1, 2))
    return Table(
        ("scenario", "runs", "right", "other verdicts", "torchfrtrace: error", "names the ranks"),
        (*rows, ("all", *total, "", "", "")),
        f"[{SEED}] over all runs",
        "the right rank in every run, and no other",
    )


def _planned(scenario: str, folder: Path, rng: random.Random) -> dict[str, Any]:
    both = scenario == "two groups at once"
    culprits = [rng.randrange(2), 2 + rng.randrange(2)] if both else [rng.randrange(4)]
    step = rng.randrange(3, 10)
    return {"folder": str(folder), "scenario": scenario, "culprits": culprits, "step": step}


def _train(runs: list[dict[str, Any]]) -> None:
    subprocess.run(
        [sys.executable, "-m", "campaigns.flight_records_ranks"],
        input="".join(f"{json.dumps(one)}\n" for one in runs),
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )


def _row(scenario: str, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    others: Counter[str] = Counter()
    right = errors = named = 0
    for one in runs:
        folder = Path(one["folder"])
        verdict, culprits = _verdict(folder / "records")
        if verdict in SCENARIOS[scenario] and culprits == one["culprits"]:
            right += 1
        else:
            others[f"{verdict} {culprits} for {one['culprits']}"] += 1
        if (folder / "torch_status").read_text() != "0":
            errors += 1
        elif _named((folder / "torch").read_text()) == set(one["culprits"]):
            named += 1
    wrong = "; ".join(f"{text} ({count})" for text, count in others.items())
    return (scenario, str(len(runs)), str(right), wrong, str(errors), str(named))


def _verdict(records: Path) -> tuple[str, list[int]]:
    try:
        verdict = judge(read_folder(records))
    except EttrError as error:
        return f"error: {str(error)[:60]}", []
    return str(verdict.verdict), [one.rank for one in verdict.culprits]


def _named(output: str) -> set[int]:
    """Ranks that torchfrtrace says are missing or do not match."""
    lists = re.findall(r"(?:missing|mismatch|culprit)[^\n{\[]*[{\[]([\d, ]+)[}\]]", output, re.I)
    return {int(rank) for one in lists for rank in one.split(",") if rank.strip()}
