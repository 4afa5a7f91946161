"""`python -m reproduction.scar --data DIR --out DIR`: run, resume, summarise."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ettr.errors import EttrError
from reproduction.scar import results
from reproduction.scar.controls import controls
from reproduction.scar.experiments import EXPERIMENTS, Experiment, movielens
from reproduction.scar.overhead import overhead
from reproduction.scar.trials import prepare, settings_record, trial

CONTROLS = {"full": 5, "headline": 5, "shipped": 2, "large": 2}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing and write summary, table and figure; 0 if every control held."""
    asked = _parser().parse_args(arguments)
    chosen = [e for e in EXPERIMENTS if not asked.only or e.name in asked.only]
    if asked.movielens:
        chosen.append(movielens(asked.movielens))
    try:
        if asked.pool:
            from reproduction.scar.seeds import write_pooled

            write_pooled(asked.pool, asked.out)
            return 0
        if asked.bounds:
            from reproduction.scar.bounds import bounds_of, write_bounds

            found = (bounds_of(one.build(asked.data, asked.every), one.settings) for one in chosen)
            write_bounds(found, asked.out / "bounds.csv")
            return 0
        for experiment in chosen:
            if asked.trials:
                _run(experiment, asked)
        if asked.trials and (not asked.only or "gpt" in asked.only):
            from reproduction.scar.gpt_trials import run_gpt

            run_gpt(asked.data, asked.out, 60 * asked.minutes, _say, seed=asked.seed)
        from reproduction.scar.summary import write_summary

        held = write_summary(asked.out)
    except EttrError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print((asked.out / "table.md").read_text(encoding="utf-8"))
    return 0 if held else 1


def _run(experiment: Experiment, asked: argparse.Namespace) -> None:
    """The controls and the trials of one experiment that are not on disk yet."""
    path, count = asked.out / f"{experiment.name}.jsonl", asked.trials
    done = sum(record["kind"] == "trial" for record in results.read(path))
    if done >= count:
        _say(f"{experiment.name}: {done} trials already there")
        return
    begun = time.monotonic()
    workload = experiment.build(asked.data, asked.every)
    settings = replace(experiment.settings, seed=asked.seed)
    if asked.headline:
        settings = replace(settings, grid="headline")
    if asked.shipped:  # a disk is written in every iteration of each clean run
        settings = replace(settings, grid="shipped", streams=min(settings.streams, 24, count))
    prepared = prepare(workload, settings, trials=count)
    head = {
        **settings_record(workload, prepared),
        "ours": experiment.ours.format(
            share="all" if asked.every == 1 else f"1 in {asked.every} of"
        ),
    }
    results.resume(path, head)
    _say(
        f"{experiment.name}: {head['units']} units, κ(x) {head['kappas']}, "
        f"p {head['failure_chance']:.4f}, ready in {time.monotonic() - begun:.0f} s"
    )
    for _number, record in results.missing(
        path,
        "control",
        CONTROLS[settings.grid],
        lambda number: controls(prepared, number),
    ):
        _say(f"{experiment.name}: control at T={record['T']} {'holds' if record['ok'] else record}")
    list(results.missing(path, "overhead", 1, lambda _: overhead(prepared, time.perf_counter)))
    for number, record in results.missing(
        path, "trial", count, lambda number: trial(prepared, number)
    ):
        spent = time.monotonic() - begun
        _say(f"{experiment.name}: trial {number + 1} of {count}, T={record['T']}, {spent:.0f} s")
        if spent > 60 * asked.minutes:
            _say(f"{experiment.name}: stopped after {spent:.0f} s; run again to go on")
            break


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction.scar", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="results; kept and added to")
    parser.add_argument("--trials", type=int, default=100, help="per experiment; 0 summarises only")
    parser.add_argument("--minutes", type=float, default=60, help="at most, per experiment")
    parser.add_argument(
        "--every", type=int, default=1, help="take every n-th document of the two large corpora"
    )
    parser.add_argument("--seed", type=int, default=1, help="of runs, failures and lost sets")
    parser.add_argument(
        "--headline",
        action="store_true",
        help="the arms of the first table only, and the priority of RunningCheckpoint itself",
    )
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="only the priority of RunningCheckpoint itself, next to the replay of it",
    )
    parser.add_argument(
        "--bounds", action="store_true", help="only the bounds of the theory, to bounds.csv"
    )
    parser.add_argument(
        "--pool", type=Path, nargs="+", help="only write a table over the results in these folders"
    )
    parser.add_argument("--only", nargs="*", help="names of experiments")
    parser.add_argument("--movielens", type=Path, help="a MovieLens ratings file of yours")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
