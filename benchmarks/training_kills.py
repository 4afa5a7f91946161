"""Real ranks, really killed: what each way of going on costs, under Poisson schedules of kills.

Four processes (gloo, FSDP2, AdamW) train a small GPT on the same data for the same time, while
SIGKILLs strike from outside at the same instants: a Poisson process in wall-clock time, one
schedule for each seed. Ways: a buddy's memory, a parity, the running checkpoint (partial), rollback
with live survivors, stock torchrun with shards in shared memory, stock torchrun with async DCP and
a full restart; and the undisturbed run. Anchors: survivors that find out within 26 to 60 ms and go
on after 0.44 s with a warm spare (idle machine); a restart of every rank pays at least the import
of torch, 1.2 s and more.

Each (way, seed) is one line of OUT/results.jsonl, with its loss by step and second in OUT/curves/;
what is there is not run again. With the defaults it takes about half an hour.
"""

import argparse
import csv
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from kills import driver, figure, measure, summary
from kills.notes import lines_of

ALL = ["replica", "partial", "rollback"]
COMMON = {
    "loop": "elastic",
    "rate": 1e-3,
    "buddy": False,
    "parity": 0,
    "running": None,
    "full_every": 0,
    "allowed": ALL,
}


@dataclass(frozen=True)
class Way:
    """How ranks are launched and guarded.

    base: the undisturbed way that its steps are compared with; its own name: it is undisturbed.
    one_step: what is lost at a kill is the step in progress; else all since the last checkpoint.
    """

    launcher: str
    base: str
    colour: str
    more: dict[str, object] = field(default_factory=dict)
    one_step: bool = True


SHARDED = "undisturbed, FSDP2"
WAYS = {
    SHARDED: Way("supervisor", SHARDED, "#222222"),
    "buddy's memory": Way("supervisor", SHARDED, "#1b7837", {"buddy": True, "spill_every": 5}),
    "a parity of 4": Way("supervisor", SHARDED, "#5aae61", {"parity": 4, "spill_every": 5}),
    "partial recovery": Way(
        "supervisor",
        SHARDED,
        "#7fbf7b",
        {
            "running": {"policy": "round-robin", "block_bytes": 1 << 14},
            "allowed": ["partial", "rollback"],
            "spill_every": 5,
        },
    ),
    "rollback, survivors live": Way("supervisor", SHARDED, "#2166ac", {"spill_every": 1}, False),
    "torchrun + parked shards": Way(
        "torchrun", SHARDED, "#e08214", {"buddy": True, "spill_every": 5}
    ),
    "torchrun + DCP, restart": Way(
        "torchrun", SHARDED, "#b2182b", {"loop": "plain", "spill_every": 1}, False
    ),
}


def config_of(way: Way, given: argparse.Namespace) -> dict[str, object]:
    """The configuration of a way's ranks; `spill_every` counts distances of full checkpoints."""
    config = {**COMMON, "pause_s": given.pause_s, **way.more}
    config["full_every"] = int(config.pop("spill_every", 0)) * given.full_every
    return config


def one(name: str, seed: int, given: argparse.Namespace) -> dict:
    """Run one way under one schedule; its line of the results.

    Raises:
        RuntimeError: the ranks did not start, or ended by themselves.
    """
    way = WAYS[name]
    kills = (
        []
        if way.base == name
        else driver.schedule(seed, horizon_s=given.horizon_s, mttf_s=given.mttf_s)
    )
    folder = Path(tempfile.mkdtemp(prefix="ettr-kills-"))
    try:
        ran = driver.run(folder, way.launcher, config_of(way, given), kills, given.horizon_s)
        lines = lines_of(folder)
    finally:
        if given.keep:
            print(f"kept: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    rows = measure.curve(ran, lines)
    path = given.out / "curves" / f"{slug(name)}-{seed}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("step", "seconds", "loss", "generation"))
        writer.writerows((s, f"{t:.3f}", f"{loss:.5f}", g) for s, t, loss, g in rows)
    made = measure.result(ran, lines)
    return {"way": name, "seed": seed, "settings": settings(given), **made}


def slug(name: str) -> str:
    """A way's name as part of a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).split()).lower()


def settings(given: argparse.Namespace) -> dict[str, float]:
    """What must be the same for results to stand in one table."""
    return {name: getattr(given, name) for name in ("horizon_s", "mttf_s", "full_every", "pause_s")}


def results_of(given: argparse.Namespace) -> list[dict]:
    """Results on disk with the settings that were given."""
    path = given.out / "results.jsonl"
    texts = path.read_text().split("\n")[:-1] if path.exists() else []
    return [o for o in map(json.loads, texts) if o["settings"] == settings(given)]


def measure_all(given: argparse.Namespace, names: list[str]) -> int:
    """Run what is not there yet, seed by seed so that a drift of the machine meets every way."""
    there = {(o["way"], o["seed"]) for o in results_of(given)}
    due = [
        (seed, name)
        for seed in range(1, given.seeds + 1)
        for name in names
        if (name, seed) not in there and (seed <= given.undisturbed or WAYS[name].base != name)
    ]
    print(f"{len(due)} runs of {given.horizon_s:g} s and their starts; {len(there)} are there")
    failed = 0
    for number, (seed, name) in enumerate(due, 1):
        begin = time.monotonic()
        try:
            line = one(name, seed, given)
        except RuntimeError as error:
            failed += 1
            print(f"{number}/{len(due)} seed {seed}, {name}: {error}", flush=True)
            continue
        with (given.out / "results.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(
            f"{number}/{len(due)} seed {seed}, {name}: {len(line['kills'])} kills, "
            f"{line['kept_steps']:.0f} steps kept, {line['lost_steps']} lost, "
            f"{1000 * line['step_s']:.0f} ms a step ({time.monotonic() - begin:.0f} s)",
            flush=True,
        )
    return failed


def rows_of(
    found: dict[str, list[dict]], base_s: dict[str, float], given: argparse.Namespace
) -> list[summary.Row]:
    """The table's rows; without the undisturbed run of its layout a way has no ETTR."""
    return [
        summary.summarise(
            name,
            found[name],
            base_s=base_s.get(WAYS[name].base),
            mttf_s=given.mttf_s,
            interval_steps=1 if WAYS[name].one_step else given.full_every,
        )
        for name in found
    ]


def by_way(given: argparse.Namespace, names: list[str]) -> dict[str, list[dict]]:
    """The results of each way that was measured."""
    lines = results_of(given)
    found = {name: [line for line in lines if line["way"] == name] for name in names}
    return {name: of_way for name, of_way in found.items() if of_way}


def undisturbed_steps(found: dict[str, list[dict]]) -> dict[str, float]:
    """Seconds of a step of each layout that was run undisturbed."""
    return {
        name: sum(o["wall_s"] for o in found[name]) / sum(o["kept_steps"] for o in found[name])
        for name in {SHARDED} & found.keys()
    }


def draw(given: argparse.Namespace, rows: list[summary.Row]) -> None:
    """Both figures, as far as matplotlib and the first schedule's curves are there."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no figures: matplotlib is not installed")
        return
    colours = {name: way.colour for name, way in WAYS.items()}
    curves: dict[str, figure.Curve] = {}
    for row in rows:
        path = given.out / "curves" / f"{slug(row.way)}-{given.drawn_seed}.csv"
        if path.exists():
            with path.open() as file:
                lines = list(csv.reader(file))[1:]
            curves[row.way] = [(int(s), float(t), float(v), int(g)) for s, t, v, g in lines]
    kills = driver.schedule(given.drawn_seed, horizon_s=given.horizon_s, mttf_s=given.mttf_s)
    figure.loss_curves(given.out / "killed-ranks-loss.svg", curves, colours, kills)
    figure.ettr_bars(given.out / "killed-ranks-ettr.svg", rows, colours)
    print(f"figures: {given.out}/killed-ranks-*.svg")


def main() -> int:
    """Run every way under every schedule, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="schedules, numbered from 1")
    parser.add_argument("--undisturbed", type=int, default=1, help="undisturbed runs of a layout")
    parser.add_argument("--horizon-s", type=float, default=30.0, help="length of each run")
    parser.add_argument("--mttf-s", type=float, default=12.0, help="mean seconds between two kills")
    parser.add_argument("--full-every", type=int, default=10, help="steps between full checkpoints")
    parser.add_argument("--pause-s", type=float, default=0.08, help="pause in each forward pass")
    parser.add_argument("--only", action="append", help="part of a way's name; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("out/kills"))
    parser.add_argument("--drawn-seed", type=int, default=1, help="schedule of the loss curves")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    given = parser.parse_args()
    # so that the ranks are ended with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given.out.mkdir(parents=True, exist_ok=True)
    names = [n for n in WAYS if not given.only or any(part in n for part in given.only)]
    failed = measure_all(given, names)
    found = by_way(given, names)
    base_s = undisturbed_steps(found)
    rows = rows_of(found, base_s, given)
    print("\n" + summary.table(rows))
    struck_alike = {n: found[n] for n in found if WAYS[n].base == SHARDED and n != SHARDED}
    if SHARDED in base_s and len(struck_alike) > 1:
        print("\nETTR, paired by schedule, the way of the row less that of the column:\n")
        print(summary.paired_table(struck_alike, base_s[SHARDED]))
    within = sum(kill["struck_in_recovery"] for o in results_of(given) for kill in o["kills"])
    phases = [kill["while"] for o in results_of(given) for kill in o["kills"]]
    struck = ", ".join(f"{phases.count(p)} in {p}" for p in sorted(set(phases)))
    print(f"\nkills struck ranks {struck or 'nowhere'}; {within} before the last was got over.")
    if any(row.ettr for row in rows):
        draw(given, [row for row in rows if row.ettr])
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
