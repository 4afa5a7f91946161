"""Steps of a training run from a log that was not made for it: when each was reached, no more.

A point of a metric says that its step was done by then. It does not say how long the step took,
what was saved, or when the run began; so rows carry no duration (unless the log has one), and
`ettr.progress.split` gives the productive time as a band.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from ettr.errors import UsageError
from ettr.progress.events import MAX_STEP
from ettr.sources.base import ReadOptions
from ettr.sources.limits import LONGEST_S
from ettr.sources.lines import BadRecordError, chunks
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch, clean

TABLE = "progress"
# the options of `ettr ingest` that every log of a training run takes
RUN_OPTIONS = ("--job", "--run-name", "--cluster")

# what torchtitan logs of the time since the record before: the share, and the mean of a batch
LOADING_SHARE, LOADING_S = "time_metrics/data_loading(%)", "time_metrics/data_loading(s)"
_HOSTS_WAIT = '{"cause":"data","part":"training","bound":"upper"}'

_BACK = (
    "{n} [time|times] the number of the step goes back; [it is|each is] taken for a return to an "
    "earlier checkpoint"
)


class StepRows(LogRows):
    """Collects the steps of one run of one log, each at the first record that names it."""

    def __init__(
        self,
        source: str,
        origin: Origin,
        options: ReadOptions,
        *,
        run: str | None = None,
        job: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Rows of the run, job and cluster that the log names, else those that the user named.

        Raises:
            UsageError: nobody names the run.
        """
        super().__init__(source, origin, options)
        self.run_id = clean(run) or self._run_name()
        self.job_id = clean(job) or clean(options.job)
        self._cluster = clean(cluster)
        # of each rank the step and the time of the last record
        self._last: dict[int, tuple[int, datetime]] = {}
        self._n_steps = self._n_same = 0
        self._counts: Counter[str] = Counter()
        if self.job_id is None:
            self.note(
                "the log names no scheduler job, and --job was not given, so `ettr runs` cannot "
                "join these steps with the accounting; read the log again with --job ID"
            )
        elif options.job and self.job_id != options.job:
            self.note(f"the log names job {self.job_id}; --job {options.job} was not used")

    def _run_name(self) -> str:
        """What the user calls the run, else what the file is called."""
        if name := clean(self.options.run):
            return name
        stem = None if self.origin.is_nameless else clean(Path(str(self.origin)).stem)
        if stem is None:
            raise UsageError(
                f"{self.origin}: names no training run; say which with --run-name NAME"
            )
        self.note(f"the run was named {stem!r} after the file; --run-name gives it another name")
        return stem

    def keep(
        self,
        line: int,
        step: int,
        time: datetime,
        duration_s: float | None = None,
        *,
        rank: int = 0,
        loading: Mapping[str, object] | None = None,
    ) -> None:
        """Keep a step, or fold a record of the step before it.

        Args:
            loading: torchtitan's times of loading, of all steps since the record before.

        Raises:
            BadRecordError: there can be no such step.
        """
        if not 0 <= step <= MAX_STEP:
            raise BadRecordError("bad-number", f"step is {step}")
        if duration_s is not None and not 0 <= duration_s <= LONGEST_S:
            raise BadRecordError("bad-duration", f"duration_s is {duration_s}")
        if rank in self._last and step == self._last[rank][0]:
            # a second metric of the step, or its validation: the step was done before
            self._n_same += 1
            self.count_folded()
        else:
            self._n_steps += 1
            before = self._last.get(rank, (step, time))
            # lines out of order, as several writers leave them, have earlier times too
            self._counts[_BACK] += step < before[0] and time >= before[1]
            self._last[rank] = step, time
            if loading and before[0] < step and (wait_s := _wait_s(loading, before, step, time)):
                # the steps since the record before take what is left
                over = before[1] + timedelta(seconds=wait_s)
                self.add_event("stall", line, step, over, wait_s, rank=rank, detail=_HOSTS_WAIT)
            self.add_event("step", line, step, time, duration_s, rank=rank)

    def add_event(
        self,
        event: str,
        line: int,
        step: int | None,
        time: datetime,
        duration_s: float | None = None,
        *,
        rank: int = 0,
        detail: str | None = None,
    ) -> None:
        """Keep one event of `ettr.progress.events`."""
        self.add(
            TABLE,
            line=line,
            cluster=self._cluster,
            run_id=self.run_id,
            job_id=self.job_id,
            rank=rank,
            time=time,
            event=event,
            step=step,
            duration_s=duration_s,
            detail=detail,
        )

    def last_batch(self) -> Batch:
        """What was collected since the last batch, where no other follows."""
        if self._n_steps == 1 and self._n_same:
            self.note(
                "all records name the same step, as if the metric was logged without its "
                "step; they do not show how the training went on"
            )
        return self.batch()

    def batch(self, **more: pa.Table) -> Batch:
        """What was collected since the last batch."""
        made = super().batch(**more)
        counts = {key: n for key, n in self._counts.items() if n}
        self._counts.clear()
        return replace(made, counted_notes={**made.counted_notes, **counts})


def _wait_s(
    loading: Mapping[str, object], before: tuple[int, datetime], step: int, time: datetime
) -> float | None:
    """What the steps since the record before waited for data; None where that is no number."""
    since_s = (time - before[1]).total_seconds()
    share, mean_s = (_above_0(loading.get(name)) for name in (LOADING_SHARE, LOADING_S))
    mean_all_s = (mean_s or 0.0) * (step - before[0])
    wait_s = mean_all_s if share is None else since_s * share / 100
    return round(min(wait_s, since_s), 6) if wait_s > 0 and since_s > 0 else None


def _above_0(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else -1.0
    except ValueError:
        return None
    return number if 0.0 <= number < math.inf else None


def torn_line(origin: Origin) -> int | None:
    """The number of the last line where it is cut off; of a number nobody sees that it is.

    Raises:
        SourceError: the file is corrupt or truncated.
    """
    n_lines, last = 0, b"\n"
    for chunk in chunks(origin):
        n_lines += chunk.count(b"\n")
        last = chunk[-1:]
    return None if last == b"\n" else n_lines + 1
