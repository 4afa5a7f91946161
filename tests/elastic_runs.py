"""Runs of real ranks (elastic/elastic_worker.py) for the tests that kill them."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from forked_python import forked_workers

WORKER = Path(__file__).parent / "elastic" / "elastic_worker.py"
STEPS = 20


@dataclass
class Outcome:
    folder: Path
    report: object
    recovered: list[dict]
    steps: list[dict]
    final: list[str]

    def generation(self, number: int) -> list[dict]:
        found = [r for r in self.recovered if r["generation"] == number]
        return sorted(found, key=lambda r: r["slot"])


def train(folder: Path, *, ranks: int = 4, **config) -> Outcome:
    from ettr.elastic import SupervisorOptions, supervise

    options = SupervisorOptions(
        spares=config.pop("spares", 1), heartbeat_timeout_s=config.pop("heartbeat_s", 120.0)
    )
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"steps": STEPS} | config))
    with forked_workers():
        report = supervise(
            [sys.executable, str(WORKER), str(folder / "config.json")],
            ranks,
            options=options,
            environment={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    lines = [
        json.loads(line)
        for path in folder.glob("log-*.jsonl")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")  # a rank may have been killed while it wrote its last one
    ]
    assert report.finished, report.reason
    return Outcome(
        folder,
        report,
        [one for one in lines if one["event"] == "recovered"],
        sorted((o for o in lines if o["event"] == "step"), key=lambda o: o["time_s"]),
        [json.loads((folder / f"final-{slot}.json").read_text())["hash"] for slot in range(ranks)],
    )


def kill(slot: int, step: int, where: str, **more) -> dict:
    return {"slot": slot, "step": step, "where": where, **more}


def survivors_keep_their_pid(outcome: Outcome) -> None:
    for number in range(2, outcome.report.generations + 1):
        before = {r["slot"]: r["pid"] for r in outcome.generation(number - 1)}
        for rank in outcome.generation(number):
            kept = rank["pid"] == before[rank["slot"]]
            assert kept == (rank["slot"] not in rank["lost_slots"]), rank
