"""Over several schedules: means with intervals, medians over kills, and what a plan predicts."""

import itertools
import math
import statistics
from dataclasses import dataclass

from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun
from ettr.units import SECONDS_PER_DAY
from kills.launch import WORLD
from kills.measure import TIMES

PERCENTILE = 0.9


@dataclass(frozen=True, slots=True)
class Row:
    """One way over all its schedules.

    ettr: one for each schedule; empty without an undisturbed run. predicted: by `ettr.plan` from
    this way's own measured costs and the rate of the kills. times: name -> (median, 90th
    percentile) in seconds.
    """

    way: str
    seeds: int
    kills: int
    kept_share: float | None
    ettr: tuple[float, ...]
    predicted: float | None
    lost_per_kill: float | None
    step_s: float
    last_loss: float
    times: dict[str, tuple[float, float]]

    @property
    def mean(self) -> float | None:
        """Mean ETTR."""
        return statistics.fmean(self.ettr) if self.ettr else None

    @property
    def half(self) -> float | None:
        """Half the 95 % t interval of the mean over schedules; None from fewer than two."""
        return t_half(self.ettr)


def t_half(values: tuple[float, ...] | list[float], level: float = 0.95) -> float | None:
    """Half the width of Student's interval of a mean."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    quantile = float(t.ppf(0.5 + level / 2, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def ettr_of(one: dict, base_s: float) -> float:
    """Steps kept at the end, times the undisturbed step, over the time of the run."""
    return one["kept_steps"] * base_s / one["wall_s"]


def paired(
    results: dict[str, list[dict]], base_s: float
) -> dict[tuple[str, str], tuple[float, float | None]]:
    """ETTR of one way less that of another: mean over the schedules that both met, half interval.

    Both met the same kills at the same instants, so schedules with more of them than others do not
    widen the interval of the difference.
    """
    ettr = {way: {o["seed"]: ettr_of(o, base_s) for o in of_way} for way, of_way in results.items()}
    found = {}
    for (one, of_one), (other, of_other) in itertools.permutations(ettr.items(), 2):
        both = sorted(of_one.keys() & of_other.keys())
        if both:
            less = [of_one[seed] - of_other[seed] for seed in both]
            found[one, other] = statistics.fmean(less), t_half(less)
    return found


def paired_table(results: dict[str, list[dict]], base_s: float) -> str:
    """The differences as Markdown: the way of the row less that of the column."""
    differences = paired(results, base_s)
    ways = list(results)
    out = [f"| less: | {' | '.join(ways[1:])} |", "|---" * len(ways) + "|"]
    for at, one in enumerate(ways[:-1]):
        cells = [
            _difference(differences.get((one, other))) if number > at else ""
            for number, other in enumerate(ways)
        ]
        out.append(f"| {one} | {' | '.join(cells[1:])} |")
    return "\n".join(out)


def _difference(found: tuple[float, float | None] | None) -> str:
    if found is None:
        return "-"
    mean, half = found
    return f"{mean:+.2f}" + ("" if half is None else f" ± {half:.2f}")


def summarise(
    way: str, results: list[dict], *, base_s: float | None, mttf_s: float, interval_steps: int
) -> Row:
    """One way's row.

    Args:
        base_s: the undisturbed step; None: not measured.
        mttf_s: mean distance of the kills.
        interval_steps: steps between the states to which this way goes back.
    """
    kills = [kill for one in results for kill in one["kills"]]
    clean = [kill for kill in kills if not kill["overlaps"]]
    times = {}
    for name in TIMES:
        values = sorted(kill[name] for kill in clean if name in kill)
        if values:
            times[name] = (statistics.median(values), percentile(values, PERCENTILE))
    kept = [kill["kept_pids"] for kill in clean if "kept_pids" in kill]
    step_s = statistics.fmean(one["step_s"] for one in results)
    return Row(
        way=way,
        seeds=len(results),
        kills=len(kills),
        kept_share=sum(kept) / (len(kept) * (WORLD - 1)) if kept else None,
        ettr=() if base_s is None else tuple(ettr_of(one, base_s) for one in results),
        predicted=None
        if base_s is None
        else predicted(
            clean,
            kills=len(kills),
            step_s=step_s,
            base_s=base_s,
            mttf_s=mttf_s,
            interval_steps=interval_steps,
        ),
        lost_per_kill=sum(o["lost_steps"] for o in results) / len(kills) if kills else None,
        step_s=step_s,
        last_loss=statistics.fmean(one["last_loss"] for one in results),
        times=times,
    )


def predicted(
    clean: list[dict],
    *,
    kills: int,
    step_s: float,
    base_s: float,
    mttf_s: float,
    interval_steps: int,
) -> float | None:
    """ETTR of the exact renewal form with the measured costs; None where no kill's were.

    write_s: what a step takes beyond the undisturbed one, over an interval. restart_s: mean time
    from the kill to the agreed state.
    """
    if not kills:
        return min(1.0, base_s / step_s)
    restored = [kill["restore_s"] for kill in clean if "restore_s" in kill]
    if not restored:
        return None
    run = PlannedRun(
        failures_per_node_day=SECONDS_PER_DAY / mttf_s,
        n_nodes=1,
        interval_s=interval_steps * base_s,
        write_s=interval_steps * max(0.0, step_s - base_s),
        restart_s=statistics.fmean(restored),
    )
    return exact_ettr(run)


def percentile(ordered: list[float], share: float) -> float:
    """A percentile of ascending values, between the two nearest."""
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


COLUMNS = ("kills", "pid kept", "ETTR", "predicted", "lost/kill", "step", "loss")


def table(rows: list[Row]) -> str:
    """All rows as Markdown: what was gained, then what each kill took."""
    out = [f"| way | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        interval = "" if row.half is None else f" ± {row.half:.2f}"
        kept = "-" if row.kept_share is None else f"{row.kept_share:.0%}"
        ettr = "-" if row.mean is None else f"{row.mean:.2f}{interval}"
        plan = "-" if row.predicted is None else f"{row.predicted:.2f}"
        lost = "-" if row.lost_per_kill is None else f"{row.lost_per_kill:.1f}"
        out.append(
            f"| {row.way} | {row.kills} | {kept} | {ettr} | {plan} "
            f"| {lost} | {1000 * row.step_s:.0f} ms | {row.last_loss:.2f} |"
        )
    names = [name for name in TIMES if any(name in row.times for row in rows)]
    out += ["", f"| way | {' | '.join(n.removesuffix('_s').replace('_', ', ') for n in names)} |"]
    out.append("|---" * (len(names) + 1) + "|")
    for row in rows:
        if row.times:
            cells = [_spread(row.times.get(name)) for name in names]
            out.append(f"| {row.way} | {' | '.join(cells)} |")
    return "\n".join(out)


def _spread(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.2f} ({pair[1]:.2f})"
