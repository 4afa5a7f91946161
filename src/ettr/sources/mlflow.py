"""MLflow's file store: one file for each metric of a run, a line for each point.

A line is `TIMESTAMP VALUE STEP`, the time in milliseconds since 1970; two words more name a data
set. The file lies at mlruns/EXPERIMENT/RUN/metrics/METRIC.

**Source**: mlflow/store/tracking/file_store.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError, first_texts, numbered_texts
from ettr.sources.origin import Origin
from ettr.sources.times import time_in
from ettr.sources.training_steps import RUN_OPTIONS, TABLE, StepRows, torn_line
from ettr.tables.rows import Batch

NAME = "mlflow"

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|nan|-?inf"
_LINE = re.compile(rf"(?P<ms>\d{{12,13}}) (?:{_NUMBER}) (?P<step>-?\d{{1,19}})(?: \S+ \S+)?")
_METRICS, _SYSTEM = "metrics", "system"


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """A step for each step of the metric.

    Raises:
        SourceError: the file is corrupt or truncated, or a metric of the machine, whose steps are
            no steps of the training.
    """
    rows = StepRows(NAME, origin, options, run=None if options.run else _run_of(origin))
    torn = torn_line(origin)

    def keep(number: int, line: str) -> None:
        if not line.strip():
            rows.count_skipped()
            return
        point = None if number == torn else _LINE.fullmatch(line)
        if point is None:
            reason = "torn-line" if number == torn else "bad-line"
            raise BadRecordError(reason, "no whole line of timestamp, value and step")
        rows.keep(number, int(point["step"]), time_in(int(point["ms"]), "timestamp"))

    yield from rows.each(numbered_texts(origin), keep)
    yield rows.last_batch()


def _run_of(origin: Origin) -> str | None:
    """The run of the file's path; None where the path is not one of the store."""
    folders = Path(str(origin)).parts[:-1]
    if origin.is_nameless or _METRICS not in folders:
        return None
    place = len(folders) - 1 - folders[::-1].index(_METRICS)
    if folders[place + 1 : place + 2] == (_SYSTEM,):
        raise SourceError(
            f"{origin}: is a metric of the machine, whose steps are no steps of the training; name "
            "the file of a metric that the training loop logs, such as metrics/loss"
        )
    return folders[place - 1] if place else None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is a file of a metric, by its first lines."""
    whole = head.rpartition(b"\n")[0]
    texts = first_texts(whole, most=20)
    good = sum(_LINE.fullmatch(text.rstrip("\r")) is not None for text in texts)
    return 0.9 if good and 2 * good > len(texts) else 0.0


SOURCE = Source(
    name=NAME,
    title="MLflow file store, one metric",
    tables=(TABLE,),
    matches=matches,
    read=read,
    options=RUN_OPTIONS,
    how_to_get="a file mlruns/EXPERIMENT/RUN/metrics/METRIC of a metric that is logged with a step",
    guide="sources/training-metrics.md",
)
