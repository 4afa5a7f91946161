"""Several seeds of one experiment in a table, and one interval over all their clean runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ettr.errors import UsageError
from reproduction.scar import results
from reproduction.scar.summary import ExperimentSummary, rounded, saving_text, summarise

COLUMNS = {
    "partial alone, 1/2 lost": "partial/full/50",
    "priority 1/8": "partial/priority-8/50",
    "**shipped** 1/8": "partial/shipped-8/50",
    "round-robin 1/8": "partial/round-robin-8/50",
    "random 1/8": "partial/random-8/50",
    "all restored, priority 1/8": "full/priority-8",
    "all restored, **shipped** 1/8": "full/shipped-8",
}


def write_pooled(folders: Sequence[Path], out: Path) -> None:
    """Write seeds.md and seeds.jsonl: each folder's seed, and all of them together.

    Clean runs are drawn again with their trials, over all seeds: those of two seeds are as
    independent as those of one.

    Raises:
        UsageError: there are no results, or a seed is there twice.
    """
    of_experiment: dict[str, dict[int, list[results.Record]]] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.jsonl"))):
        records = results.read(path)
        if not any(record.get("kind") == "trial" for record in records):
            continue
        if "label" in records[0]:  # of the GPT, whose trials have other arms
            continue
        seed = int(str(records[0]["seed"]))
        seeds = of_experiment.setdefault(str(records[0]["workload"]), {})
        if seed in seeds:
            raise UsageError(f"{path}: seed {seed} is there twice; give one folder for each seed")
        seeds[seed] = records
    if not of_experiment:
        raise UsageError(f"no results in {', '.join(map(str, folders))}")
    head = ["experiment", "seed", "trials", "traditional, iterations", *COLUMNS]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines: list[dict[str, object]] = []
    for name, seeds in of_experiment.items():
        pooled = [record for _, of_seed in sorted(seeds.items()) for record in of_seed]
        for label, records in (*sorted(seeds.items()), ("all", pooled)):
            summary = summarise(records)
            rows.append(_row(name, str(label), summary))
            lines += [{"seed": label, **asdict(arm)} for arm in summary.arms.values()]
    out.mkdir(parents=True, exist_ok=True)
    (out / "seeds.md").write_text("\n".join(rows) + "\n", encoding="utf-8")
    text = "".join(json.dumps(rounded(line)) + "\n" for line in lines)
    (out / "seeds.jsonl").write_text(text, encoding="utf-8")


def _row(name: str, seed: str, summary: ExperimentSummary) -> str:
    base = summary.arms["full/full"]
    cells = [name, seed, str(base.trials), f"{base.cost:.1f}"]
    cells += [saving_text(summary.arms.get(key)) for key in COLUMNS.values()]
    return "| " + " | ".join(cells) + " |"
