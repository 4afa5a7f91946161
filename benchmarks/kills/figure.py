"""The figures: loss against time and step, with the undisturbed run; ETTR, with the plan's."""

import math
from pathlib import Path

from drawing import saved
from kills.driver import Kill
from kills.summary import Row

Curve = list[tuple[int, float, float, int]]
SMOOTH = 9  # steps of a running mean
POINTS = 240


def loss_curves(
    path: Path, curves: dict[str, Curve], colours: dict[str, str], kills: list[Kill]
) -> None:
    """Loss of every way against seconds and against steps; kills as ticks below the first."""
    with saved(path, 1, 2, figsize=(10, 4.2), sharey=True) as (left, right):
        for way, rows in curves.items():
            for part_number, part in enumerate(_generations(rows)):
                smooth = _smooth(part)
                style = {"color": colours[way], "lw": 1.2}
                style["label"] = way if part_number == 0 else None
                left.plot([row[1] for row in smooth], [row[2] for row in smooth], **style)
                right.plot([row[0] for row in smooth], [row[2] for row in smooth], **style)
        bottom = left.get_ylim()[0]
        left.plot([kill.at_s for kill in kills], [bottom] * len(kills), "k|", ms=14, clip_on=False)
        left.set(xlabel="seconds (ticks: kills)", ylabel="loss, nats per character")
        right.set(xlabel="training step")
        right.legend(fontsize=8)
        for axes in (left, right):
            axes.grid(alpha=0.3)


def ettr_bars(path: Path, rows: list[Row], colours: dict[str, str]) -> None:
    """Measured ETTR with its interval, and the plan's prediction as a mark."""
    with saved(path, figsize=(7.5, 0.42 * len(rows) + 1.2)) as axes:
        for at, row in enumerate(reversed(rows)):
            axes.barh(at, row.mean, xerr=row.half, color=colours[row.way], alpha=0.7, capsize=3)
            axes.plot(list(row.ettr), [at] * row.seeds, "k.", ms=3)
            label = "predicted by ettr.plan" if at == 0 else None
            predicted = math.nan if row.predicted is None else row.predicted
            axes.plot(predicted, at, "D", mfc="white", mec="black", ms=6, label=label)
        axes.set_yticks(range(len(rows)), [row.way for row in reversed(rows)])
        axes.set(xlabel="ETTR (dots: schedules; bars: mean, 95 % interval)", xlim=(0, 1.1))
        axes.legend(loc="lower right", fontsize=8)
        axes.grid(alpha=0.3, axis="x")


def _generations(rows: Curve) -> list[Curve]:
    """The curve cut where the run went back."""
    parts: list[Curve] = []
    for row in rows:
        if parts and row[0] > parts[-1][-1][0]:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _smooth(rows: Curve) -> Curve:
    """A running mean over the steps before, at most `POINTS` of it."""
    out = []
    for at, row in enumerate(rows):
        window = rows[max(0, at - SMOOTH + 1) : at + 1]
        out.append((row[0], row[1], sum(one[2] for one in window) / len(window), row[3]))
    return out[:: max(1, len(out) // POINTS)] if len(out) > POINTS else out
