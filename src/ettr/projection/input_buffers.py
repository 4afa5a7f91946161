"""Buffers between the stages of an input pipeline, by simulation in virtual time.

A rate from mean times does not see that they vary: a slow item starves the stages behind it and
blocks those before it, unless there are buffers. Here each stage has so many slots, takes the next
item of its buffer and holds a slot until the next buffer has room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from ettr.progress.stages import InputStage

Floats = npt.NDArray[np.float64]

BUFFER_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# so much of the bound is enough; a larger buffer is memory for little
ENOUGH = 0.97
_ITEMS = 6_000
_WARM_UP = 0.1
# standard normal quantiles of 1 %, 10 %, 50 %, 90 % and 99 %
_SCORES = (-2.3263, -1.2816, 0.0, 1.2816, 2.3263)
_MOST_SCORE = 4.0


@dataclass(frozen=True, slots=True)
class BufferedRate:
    """The least buffer that is enough, and the part of the bound which it reaches."""

    buffer: int
    share: float


def drawn_times(stage: InputStage, count: int, rng: np.random.Generator) -> Floats:
    """Times of a stage with its mean, and with quantiles in the ratios of its p50, p90 and p99.

    Between the quantiles, and beyond them, log times are linear in the normal score.
    """
    if stage.p50_s <= 0 or stage.wall_s <= 0:
        return np.full(count, stage.wall_s)
    p50, p90 = math.log(stage.p50_s), math.log(max(stage.p90_s, stage.p50_s))
    p99 = math.log(max(stage.p99_s, stage.p90_s, stage.p50_s))
    knots = (2 * p50 - p99, 2 * p50 - p90, p50, p90, p99)
    scores = np.clip(rng.standard_normal(count), -_MOST_SCORE, _MOST_SCORE)
    logs = np.interp(scores, _SCORES, knots)
    steep = (p99 - p90) / (_SCORES[4] - _SCORES[3])
    logs += steep * np.maximum(scores - _SCORES[4], 0.0)
    logs += steep * np.minimum(scores - _SCORES[0], 0.0)
    times: Floats = np.exp(logs)
    scaled: Floats = times * (stage.wall_s / times.mean())
    return scaled


def simulated_rate(times: Sequence[Floats], slots: Sequence[int], buffers: Sequence[int]) -> float:
    """Items a second that leave the last stage, once the pipeline is full.

    Args:
        times: of each stage, those of its items in the order in which it takes them.
        slots: how many items a stage works on at once.
        buffers: items that wait, at most, before each stage; that before the first never runs dry.
    """
    stages = len(times)
    drawn = [iter(one.tolist()) for one in times]
    busy, blocked, waiting = [0] * stages, [0] * stages, [0] * stages
    events: list[tuple[float, int]] = []
    done_s: list[float] = []
    waiting[0] = 1 << 60

    def start(stage: int, now_s: float) -> bool:
        count = min(slots[stage] - busy[stage] - blocked[stage], waiting[stage])
        for started in range(count):
            took_s = next(drawn[stage], None)
            if took_s is None:
                waiting[stage] = 0
                return started > 0
            heappush(events, (now_s + took_s, stage))
            busy[stage] += 1
            waiting[stage] -= 1
        return count > 0

    def hand_on(stage: int, now_s: float) -> bool:
        if stage == stages - 1:
            moved = blocked[stage]
            done_s.extend([now_s] * moved)
        else:
            moved = min(blocked[stage], max(buffers[stage + 1] - waiting[stage + 1], 0))
            waiting[stage + 1] += moved
        blocked[stage] -= moved
        return moved > 0

    start(0, 0.0)
    while events:
        now_s, at = heappop(events)
        busy[at] -= 1
        blocked[at] += 1
        while at >= 0:
            while hand_on(at, now_s) and at + 1 < stages and start(at + 1, now_s):
                pass
            if not start(at, now_s) and at > 0 and not blocked[at - 1]:
                break
            at -= 1
    first = int(len(done_s) * _WARM_UP)
    # the pipeline drains at the end: its last items leave without others behind them
    last = len(done_s) - first
    if last - first < 2 or done_s[last - 1] <= done_s[first]:
        return math.inf
    return (last - 1 - first) / (done_s[last - 1] - done_s[first])


def planned_buffer(
    stages: Sequence[InputStage],
    slots: Sequence[int],
    rng: np.random.Generator,
    *,
    most: int = BUFFER_SIZES[-1],
    items: int = _ITEMS,
) -> BufferedRate:
    """The least buffer before each stage with which the bound is reached but for a little.

    The bound is that of the slowest stage by its mean time. A stage that runs several times for
    each item that leaves is taken with all of those as one.
    """
    walls = [stage.wall_s * stage.visits / n for stage, n in zip(stages, slots, strict=True)]
    if len(stages) < 2 or max(walls) <= 0:
        return BufferedRate(1, 1.0)
    times = [_visited(stage, items, rng) for stage in stages]
    # the bound of the very times that are drawn: their mean differs a little from the stage's
    bound = min(
        n / float(one.mean()) for one, n in zip(times, slots, strict=True) if float(one.mean()) > 0
    )
    best = BufferedRate(1, 0.0)
    for buffer in BUFFER_SIZES:
        if buffer > most and best.share > 0:
            break
        share = min(simulated_rate(times, slots, [buffer] * len(stages)) / bound, 1.0)
        if share > best.share + 0.005 or best.share == 0:
            best = BufferedRate(buffer, share)
        if share >= ENOUGH:
            break
    return best


def _visited(stage: InputStage, items: int, rng: np.random.Generator) -> Floats:
    visits = max(round(stage.visits), 1)
    if visits == 1:
        return drawn_times(stage, items, rng) * stage.visits
    drawn = drawn_times(stage, items * min(visits, 32), rng).reshape(items, -1)
    whole: Floats = drawn.mean(axis=1) * stage.visits
    return whole
