"""Results as JSON lines, one trial a line: a run that was cut off goes on where it stopped."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ettr.errors import UsageError

Record = dict[str, object]


def read(path: Path) -> list[Record]:
    """The whole records of a results file; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        records.append(json.loads(line))
    return records


def resume(path: Path, settings: Record) -> list[Record]:
    """The records already there; starts the file with its settings if it is new.

    Raises:
        UsageError: the file was begun with other settings.
    """
    records = read(path)
    if not records:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
        append(path, settings)
        return [settings]
    begun = records[0]
    other = sorted(
        key for key in {*begun, *settings} if not _same(begun.get(key), settings.get(key))
    )
    if other:
        raise UsageError(
            f"{path} was begun with other settings ({', '.join(other)}); "
            "give another --out, or move the file away"
        )
    _mend(path)
    return records


def append(path: Path, record: Record) -> None:
    """Add one record as one line, on disk when this returns."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(record, separators=(",", ":")) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def missing(
    path: Path, kind: str, count: int, make: Callable[[int], Record]
) -> Iterator[tuple[int, Record]]:
    """Make and append the records of a kind that are not there yet, yielding each."""
    done = {record["trial"] for record in read(path) if record["kind"] == kind}
    for number in range(count):
        if number not in done:
            record = make(number)
            append(path, record)
            yield number, record


def _mend(path: Path) -> None:
    """Cut off a line that was being written when the run was killed."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _same(one: object, other: object) -> bool:
    """Equal, or floats that another machine rounds otherwise."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-3 * max(abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
