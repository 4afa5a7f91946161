"""The order in which the events of a record happened, where the lines are not in order of time.

Lines of a recorder stand in the order in which things happened, whatever the clock said. Files that
were put together in another order, or shuffled, stand in no order, and the clock decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import pairwise

# How rows of one moment follow each other, where the order of the lines says nothing; others, of 0,
# stay as they stand. A job of Google's log starts before its steps; a step with a duration began
# before a start of its moment; nothing follows an end.
_AT_ONE_MOMENT = {
    "job_start_time": -1,
    "start": 1,
    "restart": 1,
    "restore": 2,
    "end": 4,
    "job_end_time": 4,
}
_STEP_WITHOUT_DURATION = 3

# event, step, time and duration in microseconds, as `WallClockSplitter.add` takes them
Row = tuple[str, int, int, int | None]


def in_order(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of one file in the order in which they happened, each once.

    Where the times do not rise, rows that repeat another are left out. Of the order of the lines
    and that of the times the one is taken in which fewer steps go back behind others; the first,
    where both have the same.
    """
    if _rises(rows):
        return rows
    first: dict[tuple[str, int, int], Row] = {}
    for row in rows:
        first.setdefault(row[:3], row)
    once = list(first.values())
    if _rises(once):
        return once
    by_time = sorted(once, key=_time_and_kind)
    return by_time if _steps_back(by_time) < _steps_back(once) else once


def merged(files: Iterable[Sequence[Row]]) -> Sequence[Row]:
    """Rows of several files, each in its order, as one record in order of time.

    A file whose clock was set back goes on from the latest time before that.
    """
    whole = [file for file in files if file]
    if len(whole) == 1:
        return whole[0]
    dated = merge(*(_latest_so_far(file) for file in whole), key=lambda pair: pair[0])
    return [row for _, row in dated]


def _time_and_kind(row: Row) -> tuple[int, int]:
    event, _, time_us, duration_us = row
    if event == "step" and not duration_us:
        return time_us, _STEP_WITHOUT_DURATION
    return time_us, _AT_ONE_MOMENT.get(event.split(" ", 1)[0], 0)


def _rises(rows: Sequence[Row]) -> bool:
    return all(earlier[2] <= later[2] for earlier, later in pairwise(rows))


def _steps_back(rows: Iterable[Row]) -> int:
    """Steps with a number that was reached before."""
    count, reached = 0, -(1 << 64)
    for event, step, *_ in rows:
        if event == "step":
            count += step <= reached
            reached = max(reached, step)
    return count


def _latest_so_far(rows: Iterable[Row]) -> Iterable[tuple[int, Row]]:
    latest_us = -(1 << 64)
    for row in rows:
        latest_us = max(latest_us, row[2])
        yield latest_us, row
