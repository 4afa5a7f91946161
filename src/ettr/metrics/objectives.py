"""Budgets of a site, the tables `[[slo]]` of its file: how often, or how much, may be lost.

[[slo]]
name = "512-GPU runs"
gpus = 512                     # or nodes = 64: the size that the budget is of
interruptions = 1              # at most so many failures of such a run
per-days = 3
partition = ["train"]          # likewise account, user, qos, cluster: a text or a list
above-gpus = 128               # judged by larger jobs alone; by all jobs where left out

[[slo]]
name = "useful hours"
effective = 0.95               # share of the GPU-hours that failures do not take
false-alarms-per-year = 1      # of alerts, where the budget is just met
window-days = 30
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from ettr.errors import UsageError
from ettr.selection import JOB_COLUMNS

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
