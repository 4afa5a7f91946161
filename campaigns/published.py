"""Published runs from the inputs that their sources state.

An input that a source does not state is drawn from a range in which published systems lie, and the
band is the lowest to the highest result of the draws and of all corners. "Needs" is the value of
one of those inputs that gives the published figure with the others at the middle of their ranges.
Restarts: under 2 min to 30 min (HyperPod); a swap: 10 s to 40 s (DeadPool); rates per 1,000
node-days: 2.34 (RSC-2) to 16.7 (the worst month of RSC-1). Values of the reliability paper are
compared with its own form, which has no unstated input, and with the exact form. Runs that people
restart have a range of their own, 1 to 8 h, in rows of their own: no other range is wider for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from campaigns import Table
from ettr.plan.intervals import (
    first_form_ettr,
    second_form_ettr,
    with_best_interval,
    young_interval_s,
)
from ettr.plan.renewal import exact_ettr, expected_wallclock_s
from ettr.plan.run import PlannedRun, nodes_of
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import spell

TITLE = "Published runs"
SIZE = 2000
SEED = 11
RATE = (2.34, 16.7)
RESTART = (SECONDS_PER_MINUTE, 30 * SECONDS_PER_MINUTE)
BY_HAND = (SECONDS_PER_HOUR, 8 * SECONDS_PER_HOUR)
WRITE = (1.0, 60.0)
SWAP = (10.0, 40.0)
Inputs = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure that a source prints, and the model of it.

    Attributes:
        source: Who says so.
        figure: What is said, with the inputs stated.
        published: The value printed.
        unstated: Inputs that the source does not state, each with its range.
        model: The value from the inputs; None where no model has it.
        decisive: The unstated input that the published figure is solved for.
        remark: Why there is no model, or what the solved value means.
        at_least: The source says "over".
    """

    source: str
    figure: str
    published: float
    unstated: Mapping[str, tuple[float, float]]
    model: Callable[[Inputs], float] | None
    decisive: str = ""
    remark: str = ""
    at_least: bool = False


def _run(n_gpus: int, per_1000: float, write_s: float, restart_s: float) -> PlannedRun:
    return PlannedRun(
        failures_per_node_day=per_1000 / 1000.0,
        n_nodes=nodes_of(n_gpus),
        interval_s=1.0,
        write_s=write_s,
        restart_s=restart_s,
    )


def _best_ettr(n_gpus: int, per_1000: float, write_s: float, restart_s: float) -> float:
    return exact_ettr(with_best_interval(_run(n_gpus, per_1000, write_s, restart_s)))


def _stalls_only(n_gpus: int, per_1000: float, stall_s: float) -> float:
    """ETTR of a run whose failures stop it for a while and lose no work."""
    return math.exp(-_run(n_gpus, per_1000, 0.0, 0.0).failures_per_s * stall_s)


STEPS, SAVED_EVERY = 3000, 100
SWAPPED_MIN, RESTARTED_MIN, TORCHFT_MIN = 405.0, 818.0, 930.0


def torchpass_step_s(mttf_s: float, swap_s: float) -> float:
    """The step time at which 3,000 steps with swaps, half a step repeated at each, take 405 min."""
    training_s = SWAPPED_MIN * SECONDS_PER_MINUTE * math.exp(-swap_s / mttf_s)
    # a failure repeats half a step on average, to first order
    return training_s / (STEPS + training_s / mttf_s / 2.0)


def _torchpass_restarted_min(at: Inputs) -> float:
    step_s = torchpass_step_s(at["mttf"], at["swap"])
    run = PlannedRun(
        failures_per_node_day=SECONDS_PER_DAY / at["mttf"],
        n_nodes=1,
        interval_s=SAVED_EVERY * step_s,
        write_s=at["write"],
        restart_s=at["restart"],
        productive_s=STEPS * step_s,
    )
    return expected_wallclock_s(run) / SECONDS_PER_MINUTE


MTTF = (45 * SECONDS_PER_MINUTE, 75 * SECONDS_PER_MINUTE)
CLAIMS = (
    Claim(
        "Llama 3 (2407.21783)",
        "16,384 GPUs, 419 unexpected interruptions in 54 days: effective time over 0.90",
        0.90,
        {"write": WRITE, "restart": RESTART},
        lambda at: _best_ettr(16_384, 1000 * 419 / (2048 * 54), at["write"], at["restart"]),
        "restart",
        "or less",
        at_least=True,
    ),
    Claim(
        "ByteRobust",
        "9,600 GPUs over three months: ETTR 0.97",
        0.97,
        {"rate": RATE, "write": (0.1, 10.0), "restart": (10.0, 10 * SECONDS_PER_MINUTE)},
        lambda at: _best_ettr(9_600, at["rate"], at["write"], at["restart"]),
        "restart",
    ),
    Claim(
        "FT-HSDP, before",
        "100,000 GPUs, a stall of 10 min: effective time 0.44",
        0.44,
        {"rate": RATE, "write": WRITE},
        lambda at: _best_ettr(100_000, at["rate"], at["write"], 10 * SECONDS_PER_MINUTE),
        "rate",
    ),
    Claim(
        "FT-HSDP, after",
        "100,000 GPUs, a stall of 3 min, replicas go on: effective time 0.80",
        0.80,
        {"rate": RATE},
        lambda at: _stalls_only(100_000, at["rate"], 3 * SECONDS_PER_MINUTE),
        "rate",
    ),
    Claim(
        "OPT-175B (2205.01068)",
        "992 A100, 105 restarts in 60 days, 35 of them by hand: uptime 0.59",
        0.59,
        {"write": WRITE, "restart": BY_HAND},
        lambda at: _best_ettr(992, 1000 * 105 / (124 * 60), at["write"], at["restart"]),
        "restart",
        "on average, nights included",
    ),
    Claim(
        "HLAT, restarted by itself",
        "256 nodes of Trainium: goodput 0.9881",
        0.9881,
        {"rate": RATE, "write": WRITE, "restart": RESTART},
        lambda at: _best_ettr(256 * 8, at["rate"], at["write"], at["restart"]),
        "rate",
    ),
    Claim(
        "HLAT, restarted by hand",
        "the same: goodput 0.7783",
        0.7783,
        {"rate": RATE, "write": WRITE, "restart": BY_HAND},
        lambda at: _best_ettr(256 * 8, at["rate"], at["write"], at["restart"]),
        "restart",
    ),
    Claim(
        "Nebius",
        "375 nodes, 56.6 h between failures",
        56.6,
        {"rate": RATE},
        lambda at: _run(375 * 8, at["rate"], 0.0, 0.0).mttf_s / SECONDS_PER_HOUR,
        "rate",
        "missing: a rate below those of published systems, 1.13 per 1,000 node-days",
    ),
    Claim(
        "TorchPass, checkpoint restart",
        "64 H200, a failure every 45 to 75 min, a checkpoint every 100 of 3,000 steps: 818 min "
        "(step time from the 405 min of its own swap)",
        RESTARTED_MIN,
        {"mttf": MTTF, "swap": SWAP, "write": WRITE, "restart": RESTART},
        _torchpass_restarted_min,
        "restart",
    ),
    Claim(
        "TorchPass, own swap",
        "the same: 405 min",
        SWAPPED_MIN,
        {},
        None,
        remark="missing: the step time, which this figure is used for ("
        + " to ".join(
            f"{torchpass_step_s(mttf_s, swap_s):.2f} s"
            for mttf_s, swap_s in ((MTTF[0], SWAP[1]), (MTTF[1], SWAP[0]))
        )
        + ")",
    ),
    Claim(
        "TorchPass, torchft",
        "the same: 930 min",
        TORCHFT_MIN,
        {},
        None,
        remark="missing: the number of replica groups, and how long a lost one stays away",
    ),
)


def band(claim: Claim, draws: int) -> tuple[float, float] | None:
    """Lowest and highest result over the unstated inputs; None without a model."""
    if claim.model is None:
        return None
    rng = np.random.default_rng(SEED)
    names = tuple(claim.unstated)
    corners = itertools.product(*(claim.unstated[name] for name in names))
    logs = [np.log(claim.unstated[name]) for name in names]
    drawn = (tuple(np.exp(rng.uniform(low, high)) for low, high in logs) for _ in range(draws))
    results = [
        claim.model(dict(zip(names, values, strict=True)))
        for values in itertools.chain(corners, drawn)
    ]
    return min(results), max(results)


def needed(claim: Claim) -> float | None:
    """The decisive input at which the model gives the published figure; None where none does."""
    if claim.model is None:
        return None
    middle = {name: math.sqrt(low * high) for name, (low, high) in claim.unstated.items()}
    model = claim.model

    def misses(value: float) -> float:
        return model({**middle, claim.decisive: value}) - claim.published

    low, high = claim.unstated[claim.decisive]
    # with the others at the middle it may lie beyond its own range
    low, high = low / 2.0, high * 2.0
    if misses(low) * misses(high) > 0:
        return None
    rising = misses(high) > 0
    for _ in range(60):
        mid = math.sqrt(low * high)
        low, high = (low, mid) if (misses(mid) > 0) == rising else (mid, high)
    return low


_UNITS = {"rate": "{:.2g} failures per 1,000 node-days"}


def _spelled(name: str, value: float) -> str:
    return _UNITS[name].format(value) if name in _UNITS else spell(value)


def _row(claim: Claim, draws: int) -> tuple[str, ...]:
    ends = band(claim, draws)
    if ends is None:
        return claim.source, claim.figure, "", "", claim.remark
    low, high = ends
    inside = low <= claim.published <= high or (claim.at_least and high >= claim.published)
    value = needed(claim)
    need = "" if value is None else f"{claim.decisive} {_spelled(claim.decisive, value)}"
    unstated = ", ".join(
        f"{name} {_spelled(name, ends[0])} to {_spelled(name, ends[1])}"
        for name, ends in claim.unstated.items()
    )
    digits = 0 if high > 10 else 2
    return (
        claim.source,
        claim.figure,
        unstated,
        f"{low:.{digits}f} to {high:.{digits}f}",
        f"{'inside' if inside else 'OUTSIDE'}; needs {need} {claim.remark}".strip(),
    )


@dataclass(frozen=True, slots=True)
class PaperValue:
    """A value that Kokolis et al. print, from their own form and from the exact one."""

    case: str
    published: str
    form: float
    exact: float


def paper_values() -> Iterator[PaperValue]:
    """The values of the reliability paper that follow from a constant rate."""
    minute = SECONDS_PER_MINUTE
    for case, published, n_gpus, rate, interval_min, restart_min, queue_min in (
        ("v1: 16,000 GPUs, every 60 min", "0.7", 16_000, 6.5, 60, 5, 0),
        ("v1: 16,000 GPUs, every 5 min", "0.93", 16_000, 6.5, 5, 5, 0),
        ("v1: 8,000 GPUs, every 30 min, queue 1 min", "0.9", 8_000, 6.5, 30, 5, 1),
        ("v1: 2,048 GPUs, every 60 min", "over 0.9", 2_048, 6.5, 60, 5, 0),
        ("v1: 4,096 GPUs, every 60 min", "over 0.9", 4_096, 6.5, 60, 5, 0),
        ("v1: 100,000 GPUs, every 7 min", "0.5", 100_000, 6.5, 7, 5, 0),
        ("v1: 100,000 GPUs, rate of RSC-2, 2 min each", "0.9", 100_000, 2.34, 2, 2, 0),
    ):
        run = PlannedRun(
            failures_per_node_day=rate / 1000.0,
            n_nodes=nodes_of(n_gpus),
            interval_s=interval_min * minute,
            write_s=0.0,
            restart_s=restart_min * minute,
            queue_s=queue_min * minute,
        )
        yield PaperValue(case, published, first_form_ettr(run), exact_ettr(run))
    for case, published, n_gpus, rate, write_s in (
        ("v2: 12,000 GPUs, writes of 10 s", "0.9", 12_000, 6.5, 10.0),
        ("v2: 12,000 GPUs, 1 per 1,000, writes of 5 min", "0.9", 12_000, 1.0, 300.0),
        ("v2: 4,096 GPUs, writes of 5 min", "0.85 to 0.9", 4_096, 6.5, 300.0),
        ("v2: 2,048 GPUs, writes of 5 min", "0.85 to 0.9", 2_048, 6.5, 300.0),
    ):
        trial = _run(n_gpus, rate, write_s, 5 * minute)
        run = PlannedRun(
            failures_per_node_day=trial.failures_per_node_day,
            n_nodes=trial.n_nodes,
            interval_s=young_interval_s(write_s, trial.mttf_s),
            write_s=write_s,
            restart_s=5 * minute,
        )
        yield PaperValue(case, published, second_form_ettr(run), exact_ettr(run))


MTTFS = (
    ("MTTF at 16,384 GPUs", "1.8 h", 16_384, ""),
    ("MTTF at 131,072 GPUs", "0.23 h", 131_072, ""),
    ("MTTF at 1,024 GPUs, seen", "7.9 h", 1_024, "small jobs fail for other reasons too"),
    ("MTTF at 8 GPUs, seen", "47.7 d", 8, "small jobs fail for other reasons too"),
)


def _paper_rows() -> Iterator[tuple[str, ...]]:
    for value in paper_values():
        apart = abs(value.form - value.exact) > 0.025
        yield (
            "Kokolis et al. (2025)",
            f"{value.case}: {value.published}",
            "",
            f"{value.form:.3f} by their form, {value.exact:.3f} exactly",
            "their form; it is first order, and too low where much is lost" if apart else "inside",
        )
    for case, published, n_gpus, remark in MTTFS:
        mttf_s = _run(n_gpus, 6.5, 0.0, 0.0).mttf_s
        verdict = f"OUTSIDE; missing: a rate for its size ({remark})" if remark else "inside"
        hours = f"{mttf_s / SECONDS_PER_HOUR:.3g} h"
        yield ("Kokolis et al. (2025)", f"{case}: {published}", "", hours, verdict)


def run(size: int) -> Table:
    """Every claim with its band over `size` draws, then the reliability paper's 15 values."""
    return Table(
        ("source", "published", "not stated", "band", "verdict"),
        (*(_row(claim, size) for claim in CLAIMS), *_paper_rows()),
        str(SEED),
        "each figure inside the band, or the input named that is missing",
    )
