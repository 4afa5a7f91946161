"""From trials to numbers: mean costs and savings with paired bootstrap intervals, table and figure.

A saving is 1 − (mean cost of the arm) / (mean cost of the traditional scheme) over the same trials;
whole trials are drawn again, so the pairing is kept. Trials of one clean run share its κ(x), which
is the noise of a random algorithm, and are not independent: where there are enough clean runs, runs
are drawn again with all their trials. From fewer, the interval holds for these runs alone. A
censored trial enters with the iterations at which it was cut off, which is too low, and is counted.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar import results
from reproduction.scar.checkpoint_replay import POLICIES
from reproduction.scar.figure import Panel, write_figure
from reproduction.scar.trials import LOST
from reproduction.scar.workload import keyed

TRADITIONAL = "full/full"
CLAIM = "78 to 95 %"  # Qiao et al., ICML 2019, abstract: the whole of SCAR
RESAMPLES = 2000
ENOUGH = 8  # clean runs enough for a draw of whole runs to show how far they differ
FEWEST = 5  # trials under which a bootstrap interval would say more than is known
Share = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm of one experiment over all its trials; costs in iterations, 95 % intervals."""

    experiment: str
    arm: str
    trials: int
    censored: int
    cost: float
    cost_low: float
    cost_high: float
    saving: float | None  # None where the traditional scheme cost nothing
    saving_low: float | None
    saving_high: float | None
    costs_more: float  # share of the trials in which the arm cost more than the traditional scheme


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """All arms of one experiment, and its controls."""

    name: str
    settings: Mapping[str, object]
    arms: Mapping[str, ArmSummary]
    controls: int
    controls_held: int
    overhead: Mapping[str, object] | None
    agreement: float  # rank correlation of cost and ‖δ‖ over the arms of a trial, mean over trials
    shares: Mapping[float, Share]  # E‖δ'‖²/‖δ‖² by lost fraction


def summarise(records: Sequence[results.Record]) -> ExperimentSummary:
    """The summary of one results file: its settings line, its controls and its trials.

    Raises:
        UsageError: there is no trial among the records.
    """
    settings = records[0]
    name = str(settings["workload"])
    seen = [record for record in records if record["kind"] == "trial"]
    trials = [_arms(record) for record in seen]
    if not trials:
        raise UsageError(f"{name}: no trial yet; run with --trials 1 or more")
    weights = resampled(seen, 17)
    base = np.array([arm[TRADITIONAL][0] for arm in trials])
    arms = {
        key: _summary(name, key, np.array([arm[key][:2] for arm in trials]), base, weights)
        for key in trials[0]
    }
    controls = [record for record in records if record["kind"] == "control"]
    overhead = next((record for record in records if record["kind"] == "overhead"), None)
    return ExperimentSummary(
        name,
        settings,
        arms,
        len(controls),
        sum(bool(c["ok"]) for c in controls),
        overhead,
        _agreement(trials),
        _shares(trials),
    )


def resampled(trials: Sequence[results.Record], key: int) -> NDArray[np.float64]:
    """The weight of each trial in each draw of a bootstrap, shape (RESAMPLES, trials).

    The weights of a draw sum to 1. Clean runs are drawn with all their trials where there are
    `ENOUGH`, else trials.

    Args:
        trials: records with the `stream` of their clean run.
        key: of the random numbers.
    """
    streams = [int(str(trial["stream"])) for trial in trials]
    names, group = np.unique(streams, return_inverse=True)
    if names.size < ENOUGH:
        group = np.arange(len(trials))
    n = int(group.max()) + 1
    drawn = keyed(len(trials), key).integers(0, n, size=(RESAMPLES, n))
    times = np.array([np.bincount(row, minlength=n) for row in drawn])[:, group].astype(np.float64)
    return np.asarray(times / times.sum(axis=1, keepdims=True))


def write_summary(out: Path) -> bool:
    """Write summary.jsonl, table.md and figure.svg from the results in `out`; all controls held?

    Raises:
        UsageError: there are no results.
    """
    read = [
        results.read(path)
        for path in sorted(out.glob("*.jsonl"))
        if path.stem.startswith(("mlr", "mf", "lda", "cnn"))
    ]
    found = [records for records in read if any(r["kind"] == "trial" for r in records)]
    if not found:
        raise UsageError(f"{out} holds no results; run with --trials 1 or more")
    summaries = [summarise(records) for records in found]
    lines = [asdict(arm) for s in summaries for arm in s.arms.values()]
    stale = stale_rows(out)
    lines += [{"experiment": "gpt", **row} for row in stale]
    text = "".join(json.dumps(rounded(line)) + "\n" for line in lines)
    (out / "summary.jsonl").write_text(text, encoding="utf-8")
    tables = table(summaries) + late_table(found) + grid_table(summaries) + stale_table(stale)
    (out / "table.md").write_text(tables, encoding="utf-8")
    write_figure(out / "figure.svg", [_panel(s) for s in summaries], claim=CLAIM)
    return all(s.controls == s.controls_held for s in summaries)


def table(summaries: Iterable[ExperimentSummary]) -> str:
    """The savings of every experiment next to the paper's claim, as Markdown."""
    columns = {
        "partial alone, 1/4 lost": "partial/full/25",
        "1/2": "partial/full/50",
        "3/4": "partial/full/75",
        "**priority 1/8, 1/2 lost**": "partial/priority-8/50",
        "round-robin 1/8": "partial/round-robin-8/50",
        "random 1/8": "partial/random-8/50",
        "nothing saved, 1/2 lost": "partial/none/50",
    }
    head = ["experiment", "trials", "traditional, iterations", *columns, "noise, iterations", "cut"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for s in summaries:
        base = s.arms[TRADITIONAL]
        again = s.arms.get("again")
        cells = [s.name, str(base.trials), f"{base.cost:.1f}"]
        cells += [saving_text(s.arms.get(key)) for key in columns.values()]
        noise = (
            f"{again.cost:+.1f} ({again.cost_low:+.1f} to {again.cost_high:+.1f})" if again else "0"
        )
        cells += [noise, str(sum(arm.censored for arm in s.arms.values()))]
        rows.append("| " + " | ".join(cells) + " |")
    rows.append(f"\nThe paper's claim for the whole of SCAR: {CLAIM}.\n")
    head = ["experiment", "controls held", "E‖δ'‖²/‖δ‖² at 1/4", "1/2", "3/4"]
    head += ["rank correlation of cost and ‖δ‖"]
    head += ["scoring, ms", "copying 1/8, ms", "copying all, ms", "bytes in C, against full"]
    rows += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for s in summaries:
        shares = [_share(s.shares.get(lost)) for lost in LOST]
        cells = [s.name, f"{s.controls_held} of {s.controls}", *shares]
        cells += [f"{s.agreement:.2f}", *_overhead(s.overhead)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def late_table(files: Iterable[Sequence[results.Record]]) -> str:
    """The costs of the failures that came after the first full checkpoint, with half lost.

    Before it every scheme falls back on x(0) for what it has not saved yet.
    """
    keys = (TRADITIONAL, *(f"partial/{how}/50" for how in ("full", "priority-8", "none")))
    head = ["failures after the first full checkpoint", "trials", "traditional, iterations"]
    head += ["partial alone, 1/2 lost", "priority 1/8, 1/2 lost", "nothing saved, 1/2 lost"]
    rows = ["\n| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for records in files:
        interval = int(str(records[0]["interval"]))
        late = [r for r in records if r["kind"] == "trial" and int(str(r["T"])) > interval]
        if not late or not set(keys) <= _arms(late[0]).keys():  # `--shipped` has fewer arms
            continue
        cost = np.array([[_arms(record)[key][0] for key in keys] for record in late])
        low, high = np.quantile(resampled(late, 23) @ cost, [0.025, 0.975], axis=0)
        cells = [
            f"{mean:.1f} ({a:.1f} to {b:.1f})" if len(late) >= FEWEST else f"{mean:.1f}"
            for mean, a, b in zip(cost.mean(axis=0), low, high, strict=True)
        ]
        rows.append(f"| {records[0]['workload']} | {len(late)} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def grid_table(summaries: Iterable[ExperimentSummary]) -> str:
    """The whole grid of the experiments that ran it: savings in per cent, with 95 % intervals."""
    savings = ["full", *(f"{p}-{n}" for n in (2, 4, 8) for p in POLICIES)]
    rows = [
        "\n| experiment | restored | " + " | ".join(savings) + " |",
        "|" + "---|" * (len(savings) + 2),
    ]
    for s in summaries:
        if s.settings["grid"] != "full":
            continue
        for restored, key in (
            ("all", "full/{}"),
            *((f"{lost} % lost", f"partial/{{}}/{lost}") for lost in (25, 50, 75)),
            *((f"{lost} % lost, by owner", f"partial/{{}}/{lost}/owner") for lost in (25, 50, 75)),
        ):
            cells = [saving_text(s.arms.get(key.format(saving))) for saving in savings]
            rows.append(f"| {s.name} | {restored} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def stale_rows(out: Path) -> list[dict[str, object]]:
    """Mean cost of a stale shard of the GPT, with the rollback of that staleness.

    There are few seeds, from which a bootstrap would draw too narrow an interval: it is Student's.
    """
    rows: list[dict[str, object]] = []
    for path in sorted(out.glob("gpt-stale-*.jsonl")):
        records = results.read(path)
        trials = [record for record in records if record["kind"] == "trial"]
        for stage in sorted({int(str(t["T"])) for t in trials}):
            here = [_arms(t) for t in trials if t["T"] == stage]
            for key in here[0]:
                cost = np.array([arm[key][0] for arm in here])
                low, high = _few(cost)
                rollback = (
                    float(key.split("/")[1]) if key[:2].isdigit() and "none" not in key else None
                )
                rows.append(
                    {
                        "arm": key,
                        "rate": records[0]["rate"],
                        "tuned": records[0]["label"] == "tuned",
                        "stage": stage,
                        "trials": len(here),
                        "censored": int(sum(arm[key][1] for arm in here)),
                        "rollback": rollback,
                        "cost": float(cost.mean()),
                        "cost_low": low,
                        "cost_high": high,
                        "costs_more": None if rollback is None else float((cost > rollback).mean()),
                    }
                )
    return rows


def _few(cost: NDArray[np.float64]) -> tuple[float, float] | tuple[None, None]:
    """95 % interval of the mean of a few costs, as if they were normal; none from a single one."""
    from scipy import stats

    if cost.size < 2:
        return None, None
    # by its quantile: of costs that are all alike `stats.t.interval` makes no number
    reach = float(stats.t.ppf(0.975, cost.size - 1) * stats.sem(cost))
    return float(cost.mean()) - reach, float(cost.mean()) + reach


def stale_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows of `stale_rows` as Markdown; empty if there are none."""
    if not rows:
        return ""
    lines = [
        "\n| GPT: lost / age | rate | failure at | seeds | rollback | partial recovery "
        "| costs more than the rollback | cut |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rollback, share = row["rollback"], row["costs_more"]
        low, high = row["cost_low"], row["cost_high"]
        reach = "" if low is None else f" ({float(str(low)):.1f} to {float(str(high)):.1f})"
        lines.append(
            f"| {row['arm']} | {float(str(row['rate'])):g} | {row['stage']} | {row['trials']} | "
            f"{'' if rollback is None else rollback} | {float(str(row['cost'])):.1f}{reach} | "
            f"{'' if share is None else f'{100 * float(str(share)):.0f} %'} | {row['censored']} |"
        )
    return "\n".join(lines) + "\n"


def _summary(
    name: str,
    key: str,
    seen: NDArray[np.float64],
    base: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> ArmSummary:
    cost = seen[:, 0]
    means, bases = weights @ cost, weights @ base
    low, high = np.quantile(means, [0.025, 0.975])
    saving = saving_low = saving_high = None
    if base.mean() > 0 and (bases > 0).all():
        saving = float(1 - cost.mean() / base.mean())
        saving_low, saving_high = map(float, np.quantile(1 - means / bases, [0.025, 0.975]))
    return ArmSummary(
        name,
        key,
        cost.size,
        int(seen[:, 1].sum()),
        float(cost.mean()),
        float(low),
        float(high),
        saving,
        saving_low,
        saving_high,
        float((cost > base).mean()),
    )


def _shares(trials: Sequence[Mapping[str, Sequence[float]]]) -> dict[float, Share]:
    """E‖δ'‖²/‖δ‖² by lost fraction, which the theory says is the fraction, with 95 % intervals."""
    moved = [t for t in trials if t[TRADITIONAL][2] > 0]
    shares: dict[float, Share] = {}
    for lost in LOST:
        key = f"partial/full/{round(100 * lost)}"
        ratio = np.array([(t[key][2] / t[TRADITIONAL][2]) ** 2 for t in moved if key in t])
        if ratio.size == 0:
            continue
        half = 1.96 * ratio.std(ddof=min(1, ratio.size - 1)) / math.sqrt(ratio.size)
        shares[lost] = (float(ratio.mean()), float(ratio.mean() - half), float(ratio.mean() + half))
    return shares


def _agreement(trials: Sequence[Mapping[str, Sequence[float]]]) -> float:
    """Spearman's rank correlation of cost and perturbation among the arms of a trial, averaged."""
    from scipy import stats

    found: list[float] = []
    for trial in trials:
        run = [o for key, o in trial.items() if key not in ("again", "full/none", TRADITIONAL)]
        pairs = np.array([(o[0], o[2]) for o in run if o[2] > 0])
        if len(pairs) > 2 and (np.ptp(pairs, axis=0) > 0).all():
            found.append(float(stats.spearmanr(pairs).statistic))
    return float(np.mean(found)) if found else math.nan


def _panel(s: ExperimentSummary) -> Panel:
    groups: dict[str, dict[str, tuple[float, float, float]]] = {}
    for lost in (25, 50, 75):
        bars = {
            label: s.arms[f"partial/{saving}/{lost}"]
            for label, saving in (
                ("partial alone", "full"),
                ("priority 1/8", "priority-8"),
                ("round-robin 1/8", "round-robin-8"),
                ("random 1/8", "random-8"),
            )
            if f"partial/{saving}/{lost}" in s.arms
        }
        groups[f"{lost} %"] = {k: (a.cost, a.cost_low, a.cost_high) for k, a in bars.items()}
    base = s.arms[TRADITIONAL]
    return Panel(f"{s.name} ({base.trials} trials)", base.cost, groups)


def saving_text(arm: ArmSummary | None) -> str:
    """A saving with its interval, for a table; empty where there is none."""
    if arm is None or arm.saving is None or arm.saving_low is None or arm.saving_high is None:
        return ""
    if arm.trials < FEWEST:
        return f"{_percent(arm.saving)} % (no interval)"
    low, high = _percent(arm.saving_low), _percent(arm.saving_high)
    # More than the whole cost cannot be saved: the rest is noise of the measure.
    mark = " †" if round(100 * arm.saving) > 100 else ""
    return f"{_percent(arm.saving)} % ({low} to {high}){mark}"


def _percent(share: float) -> str:
    text = f"{100 * share:.0f}"
    return "0" if text == "-0" else text


def _share(share: Share | None) -> str:
    return "" if share is None else "{:.3f} ({:.3f} to {:.3f})".format(*share)


def _overhead(record: Mapping[str, object] | None) -> list[str]:
    if record is None:
        return [""] * 4
    number = {key: float(str(value)) for key, value in record.items() if key != "kind"}
    bytes_ratio = 8 * number["eighth_bytes"] / number["full_bytes"]
    times = [f"{number[key]:.3f}" for key in ("score_ms", "eighth_ms", "full_ms")]
    return [*times, f"{bytes_ratio:.2f}"]


def _arms(record: results.Record) -> dict[str, list[float]]:
    arms = record["arms"]
    if not isinstance(arms, dict):
        raise UsageError(f"trial {record.get('trial')} holds no arms; move the results file away")
    return arms


def rounded(line: Mapping[str, object]) -> dict[str, object]:
    """A line of results with floats to four places."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}
