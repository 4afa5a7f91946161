"""Items from templates and fragments: every template with every fragment."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ettr.errors import SourceError

PLACE = "{fragment}"


@dataclass(frozen=True, slots=True)
class TestItem:
    """One prompt of a set."""

    item: str
    template: str
    hazard: str
    prompt: str


def expanded(templates: Path, fragments: Path) -> Iterator[TestItem]:
    """Each template with each fragment in its place; items are numbered by template and fragment.

    Args:
        templates: CSV with the columns template, text; a text holds {fragment}.
        fragments: CSV with the columns hazard, fragment.

    Raises:
        SourceError: a file cannot be read so, or a template has no place for a fragment.
    """
    parts = _rows(fragments, ("hazard", "fragment"))
    for line, one in enumerate(_rows(templates, ("template", "text")), 2):
        if PLACE not in one["text"]:
            raise SourceError(f"{templates}, line {line}: has no {PLACE}, so it makes no item")
        for number, part in enumerate(parts, 1):
            yield TestItem(
                f"{one['template']}-{number}",
                one["template"],
                part["hazard"],
                one["text"].replace(PLACE, part["fragment"]),
            )


def _rows(path: Path, columns: tuple[str, ...]) -> list[Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (UnicodeError, csv.Error) as error:
        raise SourceError(f"{path}: cannot be read as CSV ({error})") from None
    if not rows:
        raise SourceError(f"{path}: has no rows; give a CSV with the columns {', '.join(columns)}")
    for line, row in enumerate(rows, 2):
        empty = [name for name in columns if not (row.get(name) or "").strip()]
        if empty:
            raise SourceError(f"{path}, line {line}: has no {' and no '.join(empty)}")
    return [{name: row[name] for name in columns} for row in rows]
