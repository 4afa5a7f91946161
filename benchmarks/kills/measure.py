"""From what the ranks left behind to one result: ETTR, what each kill cost, and the loss curve.

Times of a kill count from the SIGKILL: `detect_first_s` and `detect_all_s`, until the first and the
last survivor's collective had failed; `regroup_s`, until the new group had formed; `restore_s`,
until its state was agreed; `first_s`, until the first step after it was done. Also
`noticed_s`, until ettr's supervisor had seen the death. Kills of which the later struck before the
step after the earlier are marked (`overlaps`): their times are left out of the medians.

ETTR: steps that were kept, times the step of the undisturbed run, over the wall clock.
"""

import itertools
import statistics
from collections.abc import Iterable

from kills.driver import Ran

TIMES = ("detect_first_s", "detect_all_s", "noticed_s", "regroup_s", "restore_s", "first_s")


def result(ran: Ran, lines: list[dict]) -> dict:
    """One run's result, without the comparison that needs other runs."""
    lines = [line for line in lines if line["time_s"] <= ran.ended_s]
    done = [line for line in lines if line["event"] == "step"]
    kills, kept, lost = _of_ranks(ran, lines, done)
    for earlier, later in itertools.pairwise(kills):
        earlier["overlaps"] |= later["struck_in_recovery"]
    lasted_s = [b["time_s"] - a["time_s"] for a, b in _within_generations(done)]
    return {
        "wall_s": ran.ended_s - ran.began_s,
        "kept_steps": kept,
        "lost_steps": lost,
        "step_s": statistics.fmean(lasted_s),
        "kills": kills,
        "last_loss": last_loss(done),
    }


def curve(ran: Ran, lines: list[dict]) -> list[tuple[int, float, float, int]]:
    """(step, seconds since the beginning, mean loss of the ranks, generation), in time's order."""
    done = [o for o in lines if o["event"] == "step" and o["time_s"] <= ran.ended_s]
    grouped: dict[tuple[int, int], list[dict]] = {}
    for line in done:
        grouped.setdefault((line["generation"], line["step"]), []).append(line)
    rows = [
        (
            step,
            max(line["time_s"] for line in group) - ran.began_s,
            statistics.fmean(line["loss"] for line in group),
            generation,
        )
        for (generation, step), group in grouped.items()
    ]
    return sorted(rows, key=lambda row: row[1])


def last_loss(done: list[dict], steps: int = 10) -> float:
    """Mean loss of the last steps that were reached."""
    newest = max(line["generation"] for line in done)
    mine = [line for line in done if line["generation"] == newest] or done
    end = max(line["step"] for line in mine)
    return statistics.fmean(line["loss"] for line in mine if line["step"] > end - steps)


def _of_ranks(ran: Ran, lines: list[dict], done: list[dict]) -> tuple[list[dict], float, int]:
    recovered = [line for line in lines if line["event"] == "recovered"]
    failures = [line["failed_s"] for line in lines if line["event"] == "failed"]
    failures += [line["failed_s"] for line in recovered]
    rows = []
    clear_s = 0.0
    for kill in ran.kills:
        at_s = kill["time_s"]
        after = [line for line in recovered if line["formed_s"] > at_s]
        row = {"while": kill["while"], "slot": kill["slot"], "at_s": at_s - ran.began_s}
        row["struck_in_recovery"] = row["overlaps"] = at_s < clear_s
        rows.append(row)
        if not after:
            clear_s = ran.ended_s
            continue
        number = min(line["generation"] for line in after)
        group = [line for line in recovered if line["generation"] == number]
        formed_s = max(line["formed_s"] for line in group)
        failed = [f - at_s for f in failures if f is not None and at_s < f < formed_s]
        if failed:
            row |= {"detect_first_s": min(failed), "detect_all_s": max(failed)}
        noticed_s = group[0].get("noticed_s")
        if noticed_s:
            row["noticed_s"] = noticed_s - at_s
        first = [line["time_s"] for line in done if line["generation"] >= number]
        row |= {"regroup_s": formed_s - at_s}
        row["restore_s"] = max(line["time_s"] for line in group) - at_s
        row["source"] = group[0]["source"]
        if first:
            row["first_s"] = min(first) - at_s
        clear_s = min(first, default=ran.ended_s)
        before = {line["slot"]: line["pid"] for line in recovered if line["generation"] < number}
        others = [line for line in group if line["slot"] != kill["slot"]]
        row["kept_pids"] = sum(before.get(line["slot"]) == line["pid"] for line in others)
    starts = _starts(recovered)
    return rows, *_kept_and_lost(ran, done, starts)


def _starts(recovered: Iterable[dict]) -> dict[int, int]:
    """Generation -> the step from which it went on."""
    return {line["generation"]: line["step"] for line in recovered}


def _kept_and_lost(ran: Ran, done: list[dict], starts: dict[int, int]) -> tuple[float, int]:
    """Steps kept since the beginning, and steps done that a later generation went back behind."""
    reached, lost = 0, 0
    for generation in sorted(starts):
        if generation > 1:
            lost += max(0, reached - starts[generation])
            reached = min(reached, starts[generation])
        mine = [line["step"] for line in done if line["generation"] == generation]
        reached = max([reached, *mine])
    at_beginning = max((o["step"] for o in done if o["time_s"] <= ran.began_s), default=0)
    return float(reached - at_beginning), lost


def _within_generations(done: list[dict]) -> Iterable[tuple[dict, dict]]:
    """Steps of one process that followed each other without a failure between them."""
    by_pid: dict[int, list[dict]] = {}
    for line in done:
        by_pid.setdefault(line["pid"], []).append(line)
    for mine in by_pid.values():
        for a, b in itertools.pairwise(mine):
            if a["generation"] == b["generation"] and b["step"] == a["step"] + 1:
                yield a, b
