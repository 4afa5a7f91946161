"""A site's catalogue of checks: commands, minutes, and what each covers.

format = "ettr checks 1"

[[check]]
name = "dcgmi diag"
command = "dcgmi diag -r 3"
minutes = 12                     # left out: not known
needs_idle = true
false_alarm_share = 0.002        # of its runs on a sound node
covers = {gpu-memory = 0.8}      # left out: as the logs have it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ettr.errors import UsageError
from ettr.toml_text import tables_of

FORMAT = "ettr checks 1"
_KEYS = ("name", "command", "minutes", "needs_idle", "false_alarm_share", "covers")
_MOST = 1000


@dataclass(frozen=True, slots=True)
class OfferedCheck:
    """A check that can be run. Null is what nobody has said.

    Attributes:
        covers: Probability of finding a defect, by symptom; null for what the logs say.
    """

    name: str
    command: str | None = None
    minutes: float | None = None
    needs_idle: bool | None = None
    false_alarm_share: float | None = None
    covers: Mapping[str, float] | None = None


def read_catalogue(path: Path) -> tuple[OfferedCheck, ...]:
    """The checks of a file.

    Raises:
        UsageError: it cannot be read, or a value cannot be; all problems are listed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); give a TOML file of checks") from None
    tables = tables_of(text, str(path), FORMAT, "checks")
    rows = tables.get("check")
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST:
        raise UsageError(f"{path}: give each check as a table [[check]], {_MOST} at most")
    problems: list[str] = []
    found = [_check(at, row, problems) for at, row in enumerate(rows, 1)]
    names = [one.name for one in found]
    problems += [
        f"{name}: is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise UsageError(f"{path}:" + "".join(f"\n  {one}" for one in problems))
    return tuple(found)


def _check(at: int, row: object, problems: list[str]) -> OfferedCheck:
    values = row if isinstance(row, dict) else {}
    name = values.get("name")
    where = name if isinstance(name, str) and name else f"check {at}"
    if where != name:
        problems.append(f"{where}: name is {name!r:.80}; give a text")
    for key in sorted(values.keys() - set(_KEYS)):
        problems.append(f"{where}: {key:.80} is not a key; known: {', '.join(_KEYS)}")
    minutes = _within(where, values, "minutes", 1e5, problems)
    if minutes == 0:
        problems.append(f"{where}: minutes is 0; leave it out where it is not known")
    false_share = _within(where, values, "false_alarm_share", 1.0, problems)
    command, idle, covers = (values.get(key) for key in ("command", "needs_idle", "covers"))
    if command is not None and not isinstance(command, str):
        problems.append(f"{where}: command is {command!r:.80}; give a text")
    if idle is not None and not isinstance(idle, bool):
        problems.append(f"{where}: needs_idle is {idle!r:.80}; give true or false")
    if covers is not None and not isinstance(covers, dict):
        problems.append(f"{where}: covers is {covers!r:.80}; give {{symptom = share}}")
    covered: Mapping[str, object] = covers if isinstance(covers, dict) else {}
    shares = {
        symptom: _within(f"{where}: covers", covered, symptom, 1.0, problems) or 0.0
        for symptom in covered
    }
    return OfferedCheck(
        str(where),
        command if isinstance(command, str) else None,
        minutes,
        idle if isinstance(idle, bool) else None,
        false_share,
        shares if isinstance(covers, dict) else None,
    )


def _within(
    where: str, values: Mapping[str, object], key: str, most: float, problems: list[str]
) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:  # type: ignore[operator]
        problems.append(f"{where}: {key:.80} is {value!r:.80}; give a number from 0 to {most:g}")
        return None
    return float(value)  # type: ignore[arg-type]


_NUMBERED = re.compile(r"(.*?)(\d{1,15})", re.DOTALL)


def slurm_list(nodes: Iterable[str]) -> str:
    """Names of nodes as Slurm writes them: n[1-3,7],login."""
    found = [(_NUMBERED.fullmatch(name), name) for name in set(nodes)]
    # 007 and 7 are two names, 007 and 012 are of one width
    padded = {(one[1], len(one[2])) for one, _ in found if one and one[2].startswith("0")}
    split = [
        (one[1], len(one[2]) if (one[1], len(one[2])) in padded else 0, int(one[2]), True)
        if one
        else (name, 0, 0, False)
        for one, name in found
    ]
    split.sort()
    parts = []
    for (prefix, width, numbered), group in groupby(split, lambda one: (one[0], one[1], one[3])):
        numbers = [one[2] for one in group]
        if not numbered:
            parts.append(prefix)
            continue
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][1] + 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        texts = [
            f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
            for first, last in runs
        ]
        alone = len(texts) == 1 and "-" not in texts[0]
        parts.append(f"{prefix}{texts[0]}" if alone else f"{prefix}[{','.join(texts)}]")
    return ",".join(parts)
