"""Planned buffers of input pipelines against asyncio's own queues, in virtual time.

Chains of 2 to 5 stages with 1 to 8 slots each; times are lognormal with a coefficient of variation
of 0 to 2, the same for a chain's stages or different. The planner sees a stage's mean, p50, p90
and p99 alone. The referee runs the chain as tasks and bounded queues of asyncio on a clock that
jumps. Duals are compared with the rate at 1 % more cores.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from campaigns import Table
from ettr.progress.stages import InputHost, InputStage, StageTable
from ettr.projection.input_plan import BUFFER_SIZES, plan_input, planned_buffer

Floats = npt.NDArray[np.float64]

TITLE = "Buffers and duals of input pipelines"
SIZE = 200
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0)
ITEMS = 6_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Virtual seconds."""
        return self.now_s


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing is awaited but timers."""
        self.loop.now_s += timeout or 0.0
        return super().select(0)


async def _chain(times: Sequence[Floats], slots: Sequence[int], buffer: int) -> list[float]:
    """When each item left the last stage."""
    loop = asyncio.get_running_loop()
    queues = [asyncio.Queue[int](buffer) for _ in times]
    left_s: list[float] = []
    count = len(times[0])

    async def source() -> None:
        for number in range(count):
            await queues[0].put(number)

    async def slot(place: int, drawn: object) -> None:
        while True:
            number = await queues[place].get()
            await asyncio.sleep(next(drawn))  # type: ignore[call-overload]
            if place + 1 < len(queues):
                await queues[place + 1].put(number)
            else:
                left_s.append(loop.time())

    tasks = [asyncio.ensure_future(source())]
    for place, n in enumerate(slots):
        drawn = iter(times[place].tolist())
        tasks += [asyncio.ensure_future(slot(place, drawn)) for _ in range(n)]
    while len(left_s) < count * 0.9:
        await asyncio.sleep(float(times[0].mean()) * 50)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return left_s


def referee_rate(times: Sequence[Floats], slots: Sequence[int], buffer: int) -> float:
    """Items a second of a chain of asyncio's tasks, without its first tenth."""
    loop = VirtualLoop()
    try:
        left_s = loop.run_until_complete(_chain(times, slots, buffer))
    finally:
        loop.close()
    first = len(left_s) // 9
    return (len(left_s) - 1 - first) / (left_s[-1] - left_s[first])


def chain(
    rng: np.random.Generator, spread: float
) -> tuple[list[InputStage], list[Floats], list[int]]:
    """Stages as a trace sees them, their true times, and their slots."""
    count = int(rng.integers(2, 6))
    slots = [int(n) for n in rng.choice([1, 1, 2, 4, 8], size=count)]
    sigma = math.sqrt(math.log1p(spread**2))
    stages, times = [], []
    for place, n in enumerate(slots):
        # near to each other: there the buffers matter most
        mean_s = n * float(rng.uniform(0.8, 1.0)) * 1e-2
        drawn = np.exp(sigma * rng.standard_normal(ITEMS) - sigma**2 / 2)
        drawn *= mean_s / drawn.mean()
        p50, p90, p99 = (mean_s * math.exp(sigma * z - sigma**2 / 2) for z in (0, 1.2816, 2.3263))
        name = f"stage{place}"
        stages.append(InputStage("r", name, ITEMS, 0.0, mean_s, p50, p90, p99, concurrency=n))
        times.append(drawn)
    return stages, times, slots


def dual_ratio(rng: np.random.Generator) -> float | None:
    """The dual of a core over what 1 % more cores win; None where cores do not bind."""
    stages = [
        InputStage(
            "r",
            f"s{place}",
            200,
            cpu,
            cpu + wait,
            cpu + wait,
            cpu + wait,
            cpu + wait,
            gil_share=0.1,
        )
        for place, (cpu, wait) in enumerate(
            zip(rng.uniform(1e-3, 2e-2, 3), rng.choice([0.0, 2e-2], 3), strict=True)
        )
    ]
    cores = float(rng.integers(2, 12))
    table = StageTable(tuple(stages), InputHost("threads", 1.5e-4, cores, cores))
    plan = plan_input(table)
    more = replace(table, host=replace(table.host, cores_got=cores * 1.01))
    gain = plan_input(more).bound_rate - plan.bound_rate
    (dual,) = (one.dual_rate for one in plan.worth if one.resource == "one more core")
    return dual * cores * 0.01 / gain if gain > 1e-9 * plan.bound_rate and dual > 0 else None


def run(size: int, spreads: Sequence[float] = SPREADS) -> Table:
    """`size` chains over all spreads, and as many duals."""
    rows = []
    each = max(size // len(spreads), 1)
    for spread in spreads:
        shares, errors, buffers = [], [], []
        for draw in range(each):
            rng = np.random.default_rng([41, round(10 * spread), draw])
            stages, times, slots = chain(rng, spread)
            planned = planned_buffer(stages, slots, np.random.default_rng(draw))
            bound = min(n / float(one.mean()) for one, n in zip(times, slots, strict=True))
            share = referee_rate(times, slots, planned.buffer) / bound
            shares.append(share)
            errors.append(abs(planned.share / share - 1))
            buffers.append(planned.buffer)
        rows.append(
            (
                f"coefficient of variation {spread:g}",
                str(each),
                f"{np.median(buffers):g} ({min(buffers)} to {max(buffers)} of {BUFFER_SIZES[-1]})",
                f"{np.mean(shares):.3f}",
                f"{min(shares):.3f}",
                f"{sum(one >= 0.95 for one in shares)} of {each}",
                f"{sum(one <= 0.05 for one in errors)} of {each}",
                f"{max(errors):.3f}",
            )
        )
    found = [dual_ratio(np.random.default_rng([410, draw])) for draw in range(size)]
    ratios = [one for one in found if one is not None]
    near = sum(abs(one - 1) <= 0.2 for one in ratios)
    reached = sum(int(row[5].split()[0]) for row in rows)
    close = sum(int(row[6].split()[0]) for row in rows)
    return Table(
        (
            *("chains", "draws", "buffer, median", "share of the bound, mean", "least"),
            *("at least .95", "predicted within 5 %", "largest error"),
        ),
        tuple(rows),
        "[41, 10 x spread, draw]; duals [410, draw]",
        "throughput at least .95 of the bound, prediction within 5 %; duals within 20 %",
        f"{reached} of {each * len(spreads)} chains reach .95, {close} are predicted within 5 %; "
        f"where cores bind, {near} of {len(ratios)} duals are within 20 % of solving again",
    )
