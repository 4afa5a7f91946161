"""Real ranks, really killed: what each way of going on costs, on one Poisson schedule of kills.

Four ranks (gloo, FSDP2, AdamW, a tiny model) do the same steps on the same data, undisturbed and
under the same kills, drawn from a seed: exponential distances in steps, any rank, in computing,
within optimizer.step, or within a save. Ways: a buddy's memory, the running checkpoint (partial),
rollback with live survivors, stock torchrun with DCP and a full restart, stock torchrun with parked
shards. Anchors: survivors that find out within 26 to 60 ms and go on after 0.44 s with a warm spare
(idle machine); a restart of every rank pays at least the import of torch, 1.2 s and more.

Times are from the kill: until the survivors' collective failed (median of ranks), until the new
group had formed, until its state was agreed, and until the first step after it was done. ETTR is
steps times the undisturbed median step over the wall clock from the first step's beginning (about 1
undisturbed).
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORKER = Path(__file__).resolve().parents[1] / "tests" / "training" / "elastic_worker.py"
WORLD = 4
PARTIAL = {
    "buddy": False,
    "running": True,
    "running_options": {"policy": "round-robin"},
    "allowed": ["partial", "rollback"],
}
WAYS = {
    "undisturbed": ("supervisor", {}),
    "buddy's memory": ("supervisor", {}),
    "partial recovery": ("supervisor", PARTIAL),
    "rollback, survivors live": ("supervisor", {"buddy": False}),
    "torchrun + DCP, full restart": ("torchrun", {"buddy": False, "parks": False}),
    "torchrun + parked shards": ("torchrun", {}),
}


def schedule(seed: int, steps: int, every: float) -> list[dict[str, object]]:
    """Kills at exponential distances, each at a step of its own."""
    rng = random.Random(seed)
    found: list[dict[str, object]] = []
    at = 2.0
    while (at := at + max(1.0, rng.expovariate(1 / every))) < steps - 1:
        where = rng.choice(["compute", "update", "save"])
        found.append({"slot": rng.randrange(WORLD), "step": int(at), "where": where})
    return found


def run(folder: Path, launcher: str, config: dict[str, object], limit_s: float) -> bool:
    """Run the ranks to their end; whether they came to it."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    command = [sys.executable, str(WORKER), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if launcher == "supervisor":
        code = (
            "import sys; from ettr.training.elastic.supervisor import supervise; "
            f"sys.exit(not supervise(sys.argv[1:], {WORLD}).finished)"
        )
        command = [sys.executable, "-c", code, *command]
    else:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", str(WORLD), "--max-restarts", "20", "--monitor-interval"]
        command = [*torchrun, "0.1", *command[1:]]
    with (folder / "output.txt").open("w") as output:
        ranks = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return ranks.wait(timeout=limit_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if ranks.poll() is None:
                os.killpg(ranks.pid, 9)
                ranks.wait()


def lines_of(folder: Path) -> list[dict[str, object]]:
    """What the ranks wrote down."""
    texts = [path.read_text().splitlines() for path in folder.glob("log-*.jsonl")]
    return [json.loads(line) for text in texts for line in text]


def measure(folder: Path, steps: int, step_s: float | None) -> dict[str, object]:
    """One row of the table."""
    lines = lines_of(folder)
    done = [one for one in lines if one["event"] == "step"]
    recovered = [one for one in lines if one["event"] == "recovered"]
    notes = [json.loads(path.read_text()) for path in sorted(folder.glob("died-*"))]
    times: dict[str, list[float]] = {"detect": [], "regroup": [], "restore": [], "first": []}
    lost = kept = chances = 0
    for note in sorted(notes, key=lambda one: one["time_s"]):
        after = [one for one in recovered if one["formed_s"] > note["time_s"]]
        if not after:
            continue
        number = min(one["generation"] for one in after)
        ranks = [one for one in after if one["generation"] == number]
        failed = [one["failed_s"] for one in ranks if one["failed_s"]]
        if failed:
            times["detect"].append(statistics.median(failed) - note["time_s"])
        formed = max(one["formed_s"] for one in ranks)
        restored = max(one["restored_s"] for one in ranks)
        first = [one["time_s"] for one in done if one["generation"] == number]
        times["regroup"].append(formed - note["time_s"])
        times["restore"].append(restored - note["time_s"])
        if first:
            times["first"].append(min(first) - note["time_s"])
        # Counted from what was done, since a job that was started anew cannot know it.
        reached = max((d["step"] for d in done if d["time_s"] < formed), default=0)
        lost += max(0, reached - ranks[0]["step"])
        before = {r["slot"]: r["pid"] for r in recovered if r["generation"] == number - 1}
        chances += WORLD - 1
        kept += sum(before.get(one["slot"]) == one["pid"] for one in ranks)
    begin = min(one["restored_s"] for one in recovered)
    end = max(one["time_s"] for one in done)
    mine = sorted(one["time_s"] for one in done if one["slot"] == 0)
    typical = statistics.median(b - a for a, b in itertools.pairwise(mine))
    last = [one["loss"] for one in done if one["step"] > steps - 5]
    return {
        "kills": len(notes),
        "kept": f"{kept}/{chances}" if chances else "-",
        **{name: statistics.median(values) if values else None for name, values in times.items()},
        "lost": lost,
        "loss": statistics.fmean(last),
        "step_s": typical,
        "ettr": steps * (step_s or typical) / (end - begin),
    }


def show(value: object) -> str:
    """A cell."""
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> int:
    """Run every way and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=float, default=20.0, help="mean steps between two kills")
    parser.add_argument("--full-every", type=int, default=10, help="steps between full checkpoints")
    parser.add_argument("--step-s", type=float, default=0.2, help="a pause in each step")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=900.0, help="for each way")
    parser.add_argument("--only", help="part of a way's name; the undisturbed run is always made")
    given = parser.parse_args()
    # so that the ranks, which have a session of their own, are ended with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kills = schedule(given.seed, given.steps, given.every)
    print("kills:", ", ".join(f"slot {k['slot']} step {k['step']} ({k['where']})" for k in kills))
    columns = ("kills", "kept", "detect", "regroup", "restore", "first", "lost", "loss", "ettr")
    print(f"{'way':<30}" + "".join(f"{name:>9}" for name in columns), flush=True)
    step_s: float | None = None
    failed = 0
    for way, (launcher, more) in WAYS.items():
        if given.only and given.only not in way and way != "undisturbed":
            continue
        folder = Path(tempfile.mkdtemp(prefix="ettr-kills-"))
        config = {"steps": given.steps, "step_s": given.step_s, **more}
        config |= {"kills": [] if way == "undisturbed" else kills}
        config |= {"full_every": given.full_every if way != "undisturbed" else 0}
        try:
            if not run(folder, launcher, config, given.limit_s):
                failed += 1
                tail = (folder / "output.txt").read_text().splitlines()[-3:]
                print(f"{way:<30}did not come to its end: {' | '.join(tail)[:300]}", flush=True)
                continue
            row = measure(folder, given.steps, step_s)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if step_s is None:
            step_s = float(str(row["step_s"]))
        print(f"{way:<30}" + "".join(f"{show(row[name]):>9}" for name in columns), flush=True)
    print(
        "kept: survivors' processes that lived on. Where a way saves no blocks, a kill within a "
        "save falls right after the update. torchft is not among the rows: it keeps whole "
        "replicas (several times the compute), so it has no sharded rank to lose."
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
