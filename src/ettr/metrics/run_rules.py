"""What users choose of runs and of what they lose: assumptions, which need no log."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from ettr.defaults import PREEMPTION_TOLERANCE_S, PREEMPTION_WINDOW_S
from ettr.errors import UsageError
from ettr.selection import JOB_COLUMNS
from ettr.tables import ATTEMPTS

GAP_H = 12.0
LOST_CAP_MIN = 30.0


@dataclass(frozen=True, slots=True)
class RunRule:
    """How attempts become runs.

    `id_column` names a column of `attempts` that holds the user's run id; `comment_pattern` is a
    regular expression whose first group is the run id within the comment.
    """

    gap_h: float = GAP_H
    id_column: str | None = None
    comment_pattern: str | None = None

    def check(self) -> None:
        """Accept the rule.

        Raises:
            UsageError: a negative gap, a column that is not there, a pattern without a group.
        """
        if self.gap_h < 0:
            raise UsageError(f"gap_h {self.gap_h} is negative; give hours, such as 12")
        if self.id_column is not None and self.id_column not in ATTEMPTS.names:
            raise UsageError(
                f"no column {self.id_column!r} in `attempts`; give one of "
                f"{', '.join(ATTEMPTS.names)}"
            )
        if self.comment_pattern is None:
            return
        try:
            groups = re.compile(self.comment_pattern).groups
        except re.error as error:
            raise UsageError(f"comment pattern {self.comment_pattern!r}: {error}") from error
        if not groups:
            raise UsageError(
                f"comment pattern {self.comment_pattern!r} has no group; put the run id in "
                "brackets, as in run=([a-z0-9-]+)"
            )


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """When a preemption counts as caused by a restart; both lengths in seconds.

    Attributes:
        rule_window_s: Longest time from the end of the preempted attempt to the restart.
        log_tolerance_s: Longest time between the end of the preempted attempt and its line in the
            controller's log; a restart may be as much later.
    """

    rule_window_s: float = PREEMPTION_WINDOW_S
    log_tolerance_s: float = PREEMPTION_TOLERANCE_S


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run without progress is assumed to do; `lost_share` of an interval goes at each end.

    An interval here includes the save that ends it.
    """

    checkpoint_interval_min: float
    restart_min: float
    save_min: float
    lost_share: float


@dataclass(frozen=True, slots=True)
class CheckpointAssumptions:
    """A band of scenarios, from the worst to the best, around the one in the middle.

    Source:
        Kokolis et al. (2025), v1: checkpoints every 60 min and restarts of 5 min, half an interval
        lost: the middle one. The others are ours.
    """

    worst: Scenario = Scenario(120.0, 15.0, 5.0, 1.0)
    middle: Scenario = Scenario(60.0, 5.0, 0.0, 0.5)
    best: Scenario = Scenario(10.0, 1.0, 0.0, 0.0)

    def check(self) -> None:
        """Accept the assumptions.

        Raises:
            UsageError: a scenario with an interval that is not above its save, or a negative time.
        """
        for name in ("worst", "middle", "best"):
            case: Scenario = getattr(self, name)
            if (
                case.checkpoint_interval_min <= case.save_min
                or min(case.restart_min, case.save_min) < 0
                or not 0 <= case.lost_share <= 1
            ):
                raise UsageError(
                    f"{name} scenario {case}: give an interval above the save time, times of 0 or "
                    "more, and a lost share between 0 and 1"
                )

    def narrowed(
        self,
        interval_min: float | None = None,
        restart_min: float | None = None,
        save_min: float | None = None,
    ) -> CheckpointAssumptions:
        """The same scenarios with an interval, a restart or a save of known length.

        Where the save is not known, a short interval is not half spent in saving: a save takes no
        larger share of it than in the usual worst case.

        Raises:
            UsageError: as `check` does.
        """
        usual = CheckpointAssumptions().worst
        most = usual.save_min / usual.checkpoint_interval_min

        def known(case: Scenario) -> Scenario:
            interval = case.checkpoint_interval_min if interval_min is None else interval_min
            return replace(
                case,
                checkpoint_interval_min=interval,
                restart_min=case.restart_min if restart_min is None else restart_min,
                save_min=min(case.save_min, most * interval) if save_min is None else save_min,
            )

        made = CheckpointAssumptions(known(self.worst), known(self.middle), known(self.best))
        made.check()
        return made


# -- budgets of a site, the tables `[[slo]]` of its file: how often, or how much, may be lost ------
# [[slo]]
# name = "512-GPU runs"
# gpus = 512                     # or nodes = 64: the size that the budget is of
# interruptions = 1              # at most so many failures of such a run
# per-days = 3
# partition = ["train"]          # likewise account, user, qos, cluster: a text or a list
# above-gpus = 128               # judged by larger jobs alone; by all jobs where left out
#
# [[slo]]
# name = "useful hours"
# effective = 0.95               # share of the GPU-hours that failures do not take
# false-alarms-per-year = 1      # of alerts, where the budget is just met
# window-days = 30


TABLE = "slo"
_MOST = 100
_NUMBERS = {
    "gpus": 1e6,
    "nodes": 1e6,
    "interruptions": 1e6,
    "per-days": 3660.0,
    "effective": 1.0,
    "above-gpus": 1e6,
    "window-days": 3660.0,
    "false-alarms-per-year": 100.0,
}


@dataclass(frozen=True, slots=True)
class Objective:
    """One budget. Either of interruptions, which has `per_days`, or of a share, `effective`.

    Attributes:
        of_jobs: The filters of the jobs that it is about, each a column and its values.
        above_gpus: Jobs of more GPUs alone are evidence; None for all.
        false_alarms_per_year: Alerts that come where the rate is just that of the budget.
    """

    name: str
    gpus: float | None = None
    nodes: float | None = None
    interruptions: float | None = None
    per_days: float | None = None
    effective: float | None = None
    of_jobs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    above_gpus: int | None = None
    window_days: float = 30.0
    false_alarms_per_year: float = 1.0

    @property
    def words(self) -> str:
        """The budget in a sentence."""
        if self.effective is not None:
            return f"at least {100.0 * self.effective:g} % of GPU-hours are effective"
        size = f"{self.gpus:g} GPUs" if self.gpus else f"{self.nodes:g} nodes"
        times = "once" if self.interruptions == 1 else f"{self.interruptions:g} times"
        return f"a run of {size} is interrupted at most {times} in {self.per_days:g} d"


def read_objectives(path: Path) -> tuple[Objective, ...]:
    """The objectives of a file; other tables and settings in it are somebody else's.

    Raises:
        UsageError: it cannot be read, has no `[[slo]]`, or a value cannot be; all are listed.
    """
    try:
        rows = tomllib.loads(path.read_text("utf-8")).get(TABLE)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error}); give a TOML file with [[slo]]"
        ) from None
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST:
        raise UsageError(f"{path}: give each objective as a table [[slo]], {_MOST} at most")
    problems: list[str] = []
    found = [_objective(at, row, problems) for at, row in enumerate(rows, 1)]
    names = [one.name for one in found]
    problems += [f"{n}: is there twice" for n in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise UsageError(f"{path}:" + "".join(f"\n  {one}" for one in problems))
    return tuple(found)


def _objective(at: int, row: object, problems: list[str]) -> Objective:
    values = row if isinstance(row, dict) else {}
    name = values.get("name")
    where = name if isinstance(name, str) and name else f"slo {at}"
    if where != name:
        problems.append(f"{where}: name is {name!r:.80}; give a text")
    known = ("name", *_NUMBERS, *JOB_COLUMNS)
    for key in sorted(values.keys() - set(known)):
        problems.append(f"{where}: {key:.80} is not a key; known: {', '.join(known)}")
    numbers: dict[str, float] = {}
    for key, most in _NUMBERS.items():
        value = values.get(key)
        if value is None:
            continue
        good = isinstance(value, int | float) and not isinstance(value, bool) and value <= most
        if not good or value < 0 or (value == 0 and key != "above-gpus"):
            problems.append(
                f"{where}: {key} is {value!r:.80}; give a number above 0, {most:g} at most"
            )
        else:
            numbers[key] = float(value)
    problems += (f"{where}: {one}" for one in _incomplete(numbers))
    filters: list[tuple[str, tuple[str, ...]]] = []
    for key in JOB_COLUMNS:
        given = values.get(key, [])
        several = [given] if isinstance(given, str) else given
        if not (isinstance(several, list) and all(isinstance(one, str) for one in several)):
            problems.append(f"{where}: {key} is {given!r:.80}; give a text, or a list of texts")
        elif several:
            filters.append((key, tuple(several)))
    above = numbers.get("above-gpus")
    return Objective(
        where,
        gpus=numbers.get("gpus"),
        nodes=numbers.get("nodes"),
        interruptions=numbers.get("interruptions"),
        per_days=numbers.get("per-days"),
        effective=numbers.get("effective"),
        of_jobs=tuple(filters),
        above_gpus=None if above is None else int(above),
        window_days=numbers.get("window-days", 30.0),
        false_alarms_per_year=numbers.get("false-alarms-per-year", 1.0),
    )


def _incomplete(numbers: dict[str, float]) -> list[str]:
    """What a budget lacks, or has too much of."""
    of_interruptions = [k for k in ("gpus", "nodes", "interruptions", "per-days") if k in numbers]
    if "effective" in numbers:
        if of_interruptions:
            return [f"effective goes without {', '.join(of_interruptions)}; make two objectives"]
        return ["effective is 1; give a share below it"] if numbers["effective"] >= 1.0 else []
    if len(of_interruptions) != 3 or ("gpus" in numbers) == ("nodes" in numbers):
        return ["give effective, or interruptions with per-days and gpus (or nodes)"]
    return []
