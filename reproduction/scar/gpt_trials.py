"""What a stale shard costs a small GPT: by staleness, share lost, stage, rate and moments.

A rollback of the same staleness costs that many iterations exactly, so each cost is listed with the
number it has to beat. The cases in which partial recovery loses are run on purpose: a shard much
older than the rollback at hand, a rate that was not tuned, late training, most of the model lost,
and moments thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from reproduction.scar import results
from reproduction.scar.adam import FIRST, PARAMETER, SECOND, STEP
from reproduction.scar.gpt import gpt
from reproduction.scar.trials import (
    TRIALS_OF_A_SEED,
    Prepared,
    Settings,
    costs,
    prepare,
    recovered,
    settings_record,
)
from reproduction.scar.workload import State, clean_run, keyed

RATES = (1e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2)
UNTUNED = 1e-3
STALENESS = (10, 50, 100)
LOST = (0.25, 0.5, 0.75)
STAGES = (105, 160)
OLD = 50  # staleness of the arms about moments
SETTINGS = Settings(iterations=192, interval=64, grid="large", streams=5, smooth=8)


def run_gpt(
    folder: Path, out: Path, budget_s: float, say: Callable[[str], None], *, seed: int = 1
) -> None:
    """Tune the rate, then run what is missing of both rates; one record a run and stage.

    Args:
        folder: of the data sets.
        out: results; kept and added to.
        budget_s: no trial begins after this.
        say: called with what has been done.
        seed: of the clean runs and the lost sets; the rate is tuned on the same run for all seeds.
    """
    import time

    begun = time.monotonic()
    settings = replace(SETTINGS, seed=seed)
    best = tuned_rate(folder, out / "gpt-rates.jsonl", say)
    for label, rate in (("tuned", best), ("untuned", UNTUNED)):
        path = out / f"gpt-stale-{label}.jsonl"
        wanted = len(STAGES) * SETTINGS.streams
        if sum(record["kind"] == "trial" for record in results.read(path)) >= wanted:
            continue
        workload = gpt(folder / "tinyshakespeare", rate=rate)
        prepared = prepare(workload, settings)
        results.resume(path, {**settings_record(workload, prepared), "rate": rate, "label": label})
        for number, record in results.missing(
            path, "trial", wanted, partial(stale_trial, prepared)
        ):
            spent = time.monotonic() - begun
            say(f"gpt {label}: trial {number + 1} of {wanted}, T={record['T']}, {spent:.0f} s")
            if spent > budget_s:
                say(f"gpt {label}: stopped after {spent:.0f} s; run again to go on")
                break


def tuned_rate(folder: Path, path: Path, say: Callable[[str], None]) -> float:
    """The rate of RATES with the lowest loss at κ0, each tried once and remembered in `path`."""
    results.resume(path, {"kind": "settings", "rates": list(RATES)})

    def tried(number: int) -> results.Record:
        workload = gpt(folder / "tinyshakespeare", rate=RATES[number])
        run = clean_run(workload, 99, SETTINGS.iterations, SETTINGS.smooth)
        return {"kind": "rate", "trial": number, "loss": float(run.smoothed()[SETTINGS.iterations])}

    for number, record in results.missing(path, "rate", len(RATES), tried):
        say(f"gpt: rate {RATES[number]:g} reaches loss {record['loss']:.4f}")
    losses = {
        int(str(record["trial"])): float(str(record["loss"]))
        for record in results.read(path)
        if record["kind"] == "rate"
    }
    return RATES[min(losses, key=lambda number: losses[number])]


def stale_trial(prepared: Prepared, number: int) -> results.Record:
    """Every arm at one stage of one seed, as one record."""
    stream = number % prepared.settings.streams
    at = STAGES[number // prepared.settings.streams]
    run, offsets = prepared.runs[stream], prepared.workload.offsets
    units = offsets.size - 1
    seeded = number + TRIALS_OF_A_SEED * (prepared.settings.seed - 1)
    order = keyed(seeded, 1021).permutation(units)
    now = run.states[at]
    states: dict[str, State] = {}
    for share in LOST:
        lost = order[: round(share * units)]
        for stale in STALENESS:
            states[f"{round(100 * share)}/{stale}"] = recovered(
                now, run.states[at - stale], offsets, lost
            )
    lost = order[: units // 4]
    old = np.array(run.states[at - OLD])
    old[:, [FIRST, SECOND, STEP]] = 0
    states[f"25/{OLD}/moments zero, step reset"] = recovered(now, old, offsets, lost)
    old = np.array(old)
    old[:, STEP] = now[:, STEP]
    states[f"25/{OLD}/moments zero, step kept"] = recovered(now, old, offsets, lost)
    fresh = np.array(now)
    fresh[:, PARAMETER] = run.states[at - OLD][:, PARAMETER]
    states[f"25/{OLD}/moments fresh"] = recovered(now, fresh, offsets, lost)
    states["25/none"] = recovered(now, run.states[0], offsets, lost)
    found = dict(zip(states, costs(prepared, stream, at, list(states.values())), strict=True))
    found["again"] = costs(prepared, stream, at, [now], draws=10_000 + seeded)[0]
    return {
        "kind": "trial",
        "trial": number,
        "stream": stream,
        "T": at,
        "arms": {
            key: [round(cost, 3), int(censored), 0.0] for key, (cost, censored) in found.items()
        },
    }
