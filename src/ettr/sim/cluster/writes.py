"""Checkpoints that hold up a job as they are written: its time as work and as writes.

After its restart an attempt works for an interval, writes, works for the next, and so on; a
checkpoint counts once it is written. A job writes none as it comes to its end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.scenario_parts import Checkpoints

_MOST_WRITES = 10**13
"""Their time is a whole number of 64 bits; such a job runs into any time limit."""


def n_writes(rules: Checkpoints, saved_s: int, work_s: int) -> int:
    """Checkpoints that an attempt writes from what it keeps to the end of its work."""
    if not rules.write_s:
        return 0
    return max(0, (work_s - 1) // rules.interval_s - saved_s // rules.interval_s)


def work_and_writes_s(rules: Checkpoints, moved_s: int) -> tuple[int, int]:
    """Of the time after a restart, what was work and what was written."""
    if not rules.write_s:
        return moved_s, 0
    cycles, rest_s = divmod(moved_s, rules.interval_s + rules.write_s)
    work_s = cycles * rules.interval_s + min(rest_s, rules.interval_s)
    return work_s, moved_s - work_s


def kept_s(rules: Checkpoints, saved_s: int, moved_s: int) -> int:
    """Work of an attempt that was interrupted so long after its restart, and that is written."""
    if rules.write_s:
        return moved_s // (rules.interval_s + rules.write_s) * rules.interval_s
    reached_s = (saved_s + moved_s) // rules.interval_s * rules.interval_s
    return max(0, reached_s - saved_s)


def lengths_with_writes_s(
    rules: Checkpoints, work_s: NDArray[np.int64], is_whole: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Lengths of jobs that nothing interrupts, the time of their writes added.

    Args:
        rules: Of the checkpoints.
        work_s: Work of each, shape (jobs,).
        is_whole: Whether each has whole nodes; others write none.
    """
    if not rules.write_s:
        return work_s
    writes = np.where(is_whole, np.maximum(0, (work_s - 1) // rules.interval_s), 0)
    lengths_s: NDArray[np.int64] = work_s + np.minimum(writes, _MOST_WRITES) * rules.write_s
    return lengths_s
