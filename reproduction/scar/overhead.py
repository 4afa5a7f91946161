"""Cost of choosing by priority and of copying: scoring time, copy time, bytes, memory."""

import math
from collections.abc import Callable

import numpy as np

from reproduction.scar.checkpoint_replay import stored
from reproduction.scar.trials import Prepared

PARTS = 8
REPEATS = 7


def overhead(prepared: Prepared, clock: Callable[[], float]) -> dict[str, object]:
    """Medians of scoring and of copying one state in memory, as one record; times in ms.

    score_ms: distances of all units and choice of the largest eighth, done at each partial save.
    eighth_ms: copying the chosen units; full_ms: copying everything, as a full checkpoint does.
    A partial save happens 8 times as often, so C iterations cost 8 · (score_ms + eighth_ms) of work
    against full_ms, and write the same bytes but for rounding up. The cache is one more copy.

    Args:
        prepared: gives a state in mid-run and a checkpoint of it.
        clock: seconds, such as time.perf_counter.
    """
    workload, run = prepared.workload, prepared.runs[0]
    at = prepared.settings.iterations // 2
    now, saved = run.states[at], stored(run, prepared.ages[0]["priority-8"][at], workload.offsets)
    units = workload.offsets.size - 1
    count = math.ceil(units / PARTS)
    lengths = np.diff(workload.offsets)
    times: list[tuple[float, float, float]] = []
    chosen = np.arange(count)
    for _ in range(REPEATS):
        begun = clock()
        chosen = np.argpartition(-workload.moved(now, saved), count - 1)[:count]
        scored = clock()
        mask = np.zeros(units, dtype=bool)
        mask[chosen] = True
        rows = np.repeat(mask, lengths)
        saved[rows] = now[rows]
        copied = clock()
        np.copyto(saved, now)
        times.append((scored - begun, copied - scored, clock() - copied))
    score_s, eighth_s, full_s = np.median(times, axis=0)
    row_bytes = now.nbytes // now.shape[0]
    return {
        "kind": "overhead",
        "trial": 0,
        "score_ms": round(1e3 * float(score_s), 4),
        "eighth_ms": round(1e3 * float(eighth_s), 4),
        "full_ms": round(1e3 * float(full_s), 4),
        "eighth_bytes": int(lengths[chosen].sum()) * row_bytes,
        "full_bytes": int(now.nbytes),
    }
