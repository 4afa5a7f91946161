"""The rate of an input pipeline, the settings that reach it, and what one more of anything wins.

Every stage has two times: what it takes of a core, and how long a slot of it is taken (a fetch of
20 ms takes .03 ms of a core). Added to them: what the engine takes for itself under Python's global
lock, each stage's share of that lock, the cores that the process really gets, bandwidth, memory,
and that times vary (`ettr.projection.input_plan`). The numbers of slots are whole: HiGHS solves
for them.

Source:
    Kuchnik et al. (2022), Plumber, MLSys: a linear program over CPU time alone, the cache placed
    before randomness. `latency=False` is that program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.progress.stages import InputHost, InputStage, StageTable

# -- buffers between the stages of an input pipeline, by simulation in virtual time ----------------
# A rate from mean times does not see that they vary: a slow item starves the stages behind it and
# blocks those before it, unless there are buffers. Here each stage has so many slots, takes the
# next item of its buffer and holds a slot until the next buffer has room.


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


# -- the rate of an input pipeline, the settings that reach it, and what one more of anything wins


MOST_SLOTS = 256
# SPDL's queues between stages, which it does not let one choose
ENGINE_BUFFER = 2
# measured over model: what slots bind, on SPDL 0.8, over 45 settings; what cores or the lock bind,
# over 12 chains (November 2026)
_SLOT_BOUND = Interval(0.90, 0.83, 0.95)
_CORE_BOUND = Interval(1.0, 0.85, 1.15)
_ENGINE_S = 0.15e-3
# a loader whose stall is below this hides its work; what is left is the hand-over
HIDDEN_STALL = 0.08
_STALL_ERROR = 0.05
_GB, _BANDWIDTH_STEP = 1e9, 1e8
_HANDFUL = 1e-7
_USED_UP = 0.97
WANTED = "wanted rate"


@dataclass(frozen=True, slots=True)
class InputLimits:
    """What a plan may use; None: what the trace found, or without a limit.

    `rate` is how many items a second the training takes: the plan then needs no more than that.
    `dataset_items` are those of an epoch, which a cache would have to hold. `prices` are of a core,
    a GB and 100 MB/s; a plan for a rate is the cheapest.
    """

    rate: float | None = None
    cores: float | None = None
    memory_bytes: float | None = None
    bandwidth_bytes: float | None = None
    dataset_items: float | None = None
    prices: tuple[float, float, float] = (1.0, 0.1, 0.5)
    latency: bool = True
    seed: int = 0

    def check(self) -> None:
        """Accept the limits.

        Raises:
            UsageError: one of them is not above 0.
        """
        for name in ("rate", "cores", "memory_bytes", "bandwidth_bytes", "dataset_items"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name}: {value} was given; give a finite number above 0")


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Settings of one stage; `slots` 0 where the cache holds what it makes."""

    stage: str
    slots: int
    used_share: float


@dataclass(frozen=True, slots=True)
class Constraint:
    """What bounds the rate, and how much of it the plan uses; `unit` is that of the two."""

    name: str
    used: float
    limit: float
    unit: str

    @property
    def share(self) -> float:
        """Of the limit, from 0 to 1."""
        return self.used / self.limit if self.limit > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Worth:
    """What one more of a resource wins, in items a second: by solving again, and by its dual.

    The dual is that of the program without whole numbers at the plan; it holds for a little more.
    """

    resource: str
    gain_rate: float
    dual_rate: float


@dataclass(frozen=True, slots=True)
class FormRate:
    """The rate of the best plan with the data in one form."""

    form: str
    rate: float
    reaches: bool


@dataclass(frozen=True, slots=True)
class InputPlan:
    """Settings of an input pipeline, and the rate that they reach.

    `rate` is the prediction with its interval, `bound_rate` that of the mean times alone, and
    `traced_rate` what was measured at the settings of the trace. `stall_now` and `stall` are the
    shares of the training's time that wait for data at the wanted rate; None where none was given.
    `reaches` says whether the prediction does. `workers` is that of a `DataLoader`; None for
    others. `buffer` is that of the last stage. `form` is the form of the data, of several `forms`.
    """

    engine: str
    stages: tuple[StagePlan, ...]
    cache_after: str | None
    workers: int | None
    buffer: int
    buffer_share: float
    rate: Interval
    bound_rate: float
    traced_rate: float | None
    wanted_rate: float | None
    reaches: bool
    stall_now: float | None
    stall: Interval | None
    cpu_s_per_item: float
    memory_bytes: float
    cost: float
    binding: str
    constraints: tuple[Constraint, ...]
    worth: tuple[Worth, ...]
    says: tuple[str, ...]
    form: str | None = None
    forms: tuple[FormRate, ...] = ()


@dataclass(frozen=True, slots=True)
class _Solved:
    rate: float
    slots: tuple[int, ...]
    cached: int
    memory_bytes: float
    cost: float
    constraints: tuple[Constraint, ...]
    duals: dict[str, float]


def plan_input(table: StageTable, limits: InputLimits | None = None) -> InputPlan:
    """The plan with the highest rate; of those that reach the wanted rate the cheapest.

    Of several forms of the data that reach it the first is taken, as the table lists them.

    Raises:
        UsageError: a limit is not above 0.
    """
    limits = limits or InputLimits()
    limits.check()
    names = list(dict.fromkeys(stage.form for stage in table.stages if stage.form))
    if not names:
        return _plan_of(table.stages, table.host, limits)
    plans = {
        name: _plan_of([one for one in table.stages if one.form in ("", name)], table.host, limits)
        for name in names
    }
    rates = {name: plan.rate.estimate or 0.0 for name, plan in plans.items()}
    reached = [name for name in names if limits.rate is not None and plans[name].reaches]
    name = reached[0] if reached else max(names, key=lambda one: rates[one])
    forms = tuple(FormRate(one, rates[one], plans[one].reaches) for one in names)
    plan = plans[name]
    says = f"Data in the form {name}: " + ", ".join(f"{n} {r:.4g}/s" for n, r in rates.items())
    return replace(plan, form=name, forms=forms, says=(*plan.says, says + "."))


def _plan_of(stages: Sequence[InputStage], traced: InputHost, limits: InputLimits) -> InputPlan:
    host = replace(
        traced,
        cores_got=traced.cores_got if limits.cores is None else limits.cores,
        memory_bytes=limits.memory_bytes or traced.memory_bytes,
    )
    if host.engine == "workers":
        return _workers_plan(stages, host, limits)
    if host.engine == "chain" and host.engine_s <= 0:
        host = replace(host, engine_s=_ENGINE_S)
    return _slots_plan(stages, host, limits)


def _slots_plan(stages: Sequence[InputStage], host: InputHost, limits: InputLimits) -> InputPlan:
    wanted = limits.rate
    aim = None if wanted is None else wanted / (_SLOT_BOUND.estimate or 1.0)
    for _ in range(4):
        best = _best(stages, host, limits, aim)
        live, slots = stages[best.cached :], best.slots[best.cached :]
        binding = _binding(best, reached=aim is not None and best.rate <= aim * (1 + _HANDFUL))
        chosen, share = _buffer(live, slots, host, limits, best.memory_bytes)
        rate = _predicted(best.rate, binding, share, live, limits)
        if aim is None or wanted is None or (rate.estimate or 0.0) >= wanted:
            break
        if best.rate < aim * (1 - _HANDFUL):
            break  # it is the highest rate
        aim *= 1.001 * wanted / (rate.estimate or wanted)
    plan = InputPlan(
        engine=host.engine,
        stages=tuple(
            StagePlan(one.stage, n, 0.0 if not n else best.rate * _slot_s(one) / n)
            for one, n in zip(stages, best.slots, strict=True)
        ),
        cache_after=stages[best.cached - 1].stage if best.cached else None,
        workers=None,
        buffer=chosen,
        buffer_share=share,
        rate=rate,
        bound_rate=best.rate,
        traced_rate=host.rate,
        wanted_rate=wanted,
        reaches=wanted is None or (rate.estimate or 0.0) >= wanted * (1 - _HANDFUL),
        stall_now=None if wanted is None or not host.rate else max(0.0, 1 - host.rate / wanted),
        stall=None if wanted is None else _stall_of(rate, wanted),
        cpu_s_per_item=sum(one.visits * (one.cpu_s + host.engine_s) for one in live),
        memory_bytes=best.memory_bytes,
        cost=best.cost,
        binding=binding,
        constraints=best.constraints,
        worth=tuple(_worth(stages, host, limits)),
        says=(),
    )
    return replace(plan, says=tuple(_sentences(plan)))


def _buffer(
    live: Sequence[InputStage],
    slots: Sequence[int],
    host: InputHost,
    limits: InputLimits,
    memory_bytes: float,
) -> tuple[int, float]:
    """The buffer to choose, and the part of the bound that the engine's own reach."""
    rng = np.random.default_rng(limits.seed)
    held = sum(one.out_bytes for one in live)
    most = BUFFER_SIZES[-1]
    if host.memory_bytes is not None and held > 0:
        most = max(int((host.memory_bytes - memory_bytes) // held), 1)
    chosen = planned_buffer(live, slots, rng, most=most)
    if host.engine != "threads":
        return chosen.buffer, chosen.share
    fixed = planned_buffer(live, slots, np.random.default_rng(limits.seed), most=ENGINE_BUFFER)
    return chosen.buffer, fixed.share


def _binding(best: _Solved, *, reached: bool) -> str:
    """What is used up: a resource; else what was asked for, or slots that cannot be more."""
    resources = [one for one in best.constraints if one.unit != "slots"]
    first = max(resources, key=lambda one: one.share, default=None)
    if first is not None and first.share >= _USED_UP:
        return first.name
    if reached:
        return WANTED
    return max(best.constraints, key=lambda one: one.share).name


def _predicted(
    bound: float,
    binding: str,
    share: float,
    live: Sequence[InputStage],
    limits: InputLimits,
) -> Interval:
    if not limits.latency:
        return Interval(bound, bound, bound)
    is_slots = binding == WANTED or binding.startswith("slots")
    error = _SLOT_BOUND.scaled(share) if is_slots else _CORE_BOUND
    return _widened(error.scaled(bound), _noise(live))


def _best(
    stages: Sequence[InputStage], host: InputHost, limits: InputLimits, aim: float | None = None
) -> _Solved:
    """Over the places of the cache: none, or behind one of the stages before any randomness."""
    solved = [
        found
        for cached in range(_cacheable(stages, limits) + 1)
        if (found := _solve(stages, host, limits, cached, aim)) is not None
    ]
    if not solved:
        raise UsageError(
            "memory: not even one item of each stage fits; give more with --memory, or trace a "
            "pipeline with smaller items"
        )
    if aim is not None and (reached := [one for one in solved if one.rate >= aim * (1 - 1e-6)]):
        return min(reached, key=lambda one: (one.cost, one.cached))
    # a cache that wins less than a hundredth is not worth its memory
    best = max(solved, key=lambda one: one.rate)
    return best if best.rate > solved[0].rate * 1.01 else solved[0]


def _cacheable(stages: Sequence[InputStage], limits: InputLimits) -> int:
    if limits.dataset_items is None:
        return 0
    return next((n for n, stage in enumerate(stages) if stage.random), len(stages))


def _slot_s(stage: InputStage) -> float:
    """How long an item takes a slot of a stage: at least what its core time takes."""
    return stage.visits * max(stage.wall_s, stage.cpu_s)


def _solve(
    stages: Sequence[InputStage],
    host: InputHost,
    limits: InputLimits,
    cached: int,
    aim: float | None,
) -> _Solved | None:
    """The slots of each stage with a cache behind the first `cached`; None: it does not fit.

    Args:
        aim: the rate to reach with the fewest slots; None: the highest.
    """
    cache = 0.0
    if cached:
        last = stages[cached - 1]
        cache = last.out_bytes * last.visits * (limits.dataset_items or 0.0)
    memory = host.memory_bytes
    if memory is not None and cache > memory:
        return None
    live = list(stages[cached:])
    if not live:  # everything is cached: the engine alone is left
        live = [replace(stages[-1], cpu_s=0.0, wall_s=0.0, read_bytes=0.0)]
    engine_s = host.engine_s if limits.latency else 0.0
    cpu = sum(one.visits * (one.cpu_s + engine_s) for one in live)
    lock = sum(one.visits * (one.gil_share * one.cpu_s + engine_s) for one in live)
    read = sum(one.visits * one.read_bytes for one in live)
    # an item in each slot, and those that wait behind it
    held = np.array([0.0, *((1 + ENGINE_BUFFER) * one.out_bytes / _GB for one in live)])
    rows: list[tuple[str, Floats, float, str]] = []
    for place, one in enumerate(live):
        row = np.zeros(len(live) + 1)
        row[0] = _slot_s(one) if limits.latency else one.visits * one.cpu_s
        row[1 + place] = -1.0
        rows.append((f"slots of {one.stage}", row, 0.0, "slots"))
    for name, each, limit, unit in (
        ("cores", cpu, host.cores_got, "cores"),
        ("Python's lock", lock, 1.0 if limits.latency else math.inf, "cores"),
        ("bandwidth", read / _BANDWIDTH_STEP, _hundreds(limits.bandwidth_bytes), "100 MB/s"),
    ):
        if each > 0 and math.isfinite(limit):
            rows.append((name, np.array([each, *np.zeros(len(live))]), limit, unit))
    if memory is not None and held.sum() > 0:
        rows.append(("memory", held, (memory - cache) / _GB, "GB"))
    slots_most = MOST_SLOTS if limits.latency else math.ceil(host.cores_got)
    most = [1.0 if one.sequential else float(slots_most) for one in live]
    # the rate in units of one slot's, so that all numbers are of one size
    scale = 1.0 / max([1e-9, *(float(row[0]) for _, row, *_ in rows)])
    matrix = np.array([row for _, row, *_ in rows])
    matrix[:, 0] *= scale
    limit_of = np.array([limit for *_, limit, _ in rows])
    upper = np.array([1e7 / scale, *most])
    found = _integers(matrix, limit_of, upper)
    if found is not None and aim is not None and found[0] * scale >= aim:
        found = _integers(matrix, limit_of, upper, rate=aim / scale)
    if found is None:
        return None
    rate, slots = float(found[0] * scale), [round(float(n)) for n in found[1:]]
    used = np.maximum(matrix, 0.0) @ np.array([found[0], *slots])
    has = [float(n) for n in slots] + [limit for *_, limit, _ in rows[len(live) :]]
    in_use = float(held[1:] @ np.array(slots)) + cache / _GB
    amounts = (rate * cpu, in_use, rate * read / _BANDWIDTH_STEP)
    return _Solved(
        rate=rate,
        slots=(*[0] * cached, *slots[: len(stages) - cached]),
        cached=cached,
        memory_bytes=in_use * _GB,
        cost=sum(price * one for price, one in zip(limits.prices, amounts, strict=True)),
        constraints=tuple(
            Constraint(name, float(one), limit, unit)
            for (name, _, _, unit), one, limit in zip(rows, used, has, strict=True)
        ),
        duals=_duals(matrix, limit_of, upper, [name for name, *_ in rows], scale),
    )


def _hundreds(bandwidth_bytes: float | None) -> float:
    return math.inf if bandwidth_bytes is None else bandwidth_bytes / _BANDWIDTH_STEP


def _integers(
    matrix: Floats, limit: Floats, upper: Floats, *, rate: float | None = None
) -> Floats | None:
    """The highest rate, or the one given, with the fewest slots."""
    lower, most = np.ones_like(upper), upper.copy()
    lower[0] = 0.0 if rate is None else rate
    most[0] = upper[0] if rate is None else rate
    cost = np.full(len(upper), 1e-6)
    cost[0] = -1.0
    whole = np.ones(len(upper), dtype=np.int64)
    whole[0] = 0
    found = milp(
        cost,
        constraints=LinearConstraint(matrix, -np.inf, limit),
        bounds=Bounds(lower, most),
        integrality=whole,
        options={"mip_rel_gap": 1e-6, "time_limit": 10.0},
    )
    return None if found.x is None else np.asarray(found.x)


def _duals(
    matrix: Floats, limit: Floats, upper: Floats, names: list[str], scale: float
) -> dict[str, float]:
    """What one more unit of each limit is worth in items a second, without whole numbers."""
    cost = np.full(len(upper), 0.0)
    cost[0] = -1.0
    bounds = [(0.0, upper[0]), *((1.0, most) for most in upper[1:])]
    found = linprog(cost, A_ub=matrix, b_ub=limit, bounds=bounds, method="highs")
    if found.x is None:
        return {}
    return {
        name: -float(one) * scale for name, one in zip(names, found.ineqlin.marginals, strict=True)
    }


def _worth(stages: Sequence[InputStage], host: InputHost, limits: InputLimits) -> Iterator[Worth]:
    """Solve again with one more core, GB and 100 MB/s, where it is known how much there is."""
    base = _best(stages, host, limits)
    more = {
        "cores": ("one more core", replace(host, cores_got=host.cores_got + 1), limits),
    }
    if host.memory_bytes is not None:
        bigger = replace(host, memory_bytes=host.memory_bytes + _GB)
        more["memory"] = ("one more GB", bigger, limits)
    if limits.bandwidth_bytes is not None:
        wider = replace(limits, bandwidth_bytes=limits.bandwidth_bytes + _BANDWIDTH_STEP)
        more["bandwidth"] = ("100 MB/s more", host, wider)
    for name, (says, hosts, allowed) in more.items():
        gain = _best(stages, hosts, allowed).rate - base.rate
        yield Worth(says, max(gain, 0.0), base.duals.get(name, 0.0))


def _noise(stages: Sequence[InputStage]) -> float:
    """Relative error of the slowest stage's mean time: its spread over what was traced."""
    spreads = []
    for stage in stages:
        if stage.p50_s > 0 and stage.items > 0:
            sigma = math.log(max(stage.p90_s, stage.p50_s) / stage.p50_s) / 1.2816
            spreads.append(math.sqrt(math.expm1(min(sigma * sigma, 4.0)) / stage.items))
    return 2 * max(spreads, default=0.0)


def _widened(rate: Interval, noise: float) -> Interval:
    return Interval(rate.estimate, rate.low * max(1 - noise, 0.0), rate.high * (1 + noise))


def _stall_of(rate: Interval, wanted: float) -> Interval:
    """Share of the training time that waits, where it wants so many items a second."""
    waits = [max(0.0, 1 - one / wanted) for one in (rate.estimate or 0.0, rate.high, rate.low)]
    return Interval(waits[0], waits[1], waits[2])


# -- torch's DataLoader: one number a batch --------------------------------------------------------


def stall_of_workers(batch_s: float, handing_s: float, step_s: float, workers: int) -> float:
    """Share of the training time that waits for a `DataLoader` of so many workers.

    Args:
        batch_s: wall seconds of a batch in a worker.
        handing_s: seconds in which a batch that is ready is handed over.
        step_s: seconds of a step without waits.
    """
    each_s = max(step_s + handing_s, batch_s / max(workers, 1))
    return 1 - step_s / each_s if each_s > 0 else 0.0


def _workers_plan(stages: Sequence[InputStage], host: InputHost, limits: InputLimits) -> InputPlan:
    batch_s = sum(stage.visits * max(stage.wall_s, stage.cpu_s) for stage in stages)
    cpu_s = sum(stage.visits * stage.cpu_s for stage in stages)
    handing_s, wanted = host.engine_s, limits.rate
    most = MOST_SLOTS
    if host.memory_bytes is not None and host.worker_bytes > 0:
        most = max(min(most, int(host.memory_bytes // host.worker_bytes)), 1)

    def rate_of(workers: int, cores: float) -> float:
        slowest_s = max(batch_s / workers, cpu_s / cores if cores > 0 else 0.0, handing_s, 1e-9)
        return 1 / slowest_s

    def stall_at(workers: int, cores: float) -> float:
        if wanted is None:
            return 0.0
        slow_s = max(batch_s, workers * cpu_s / cores if cores > 0 else 0.0)
        return stall_of_workers(slow_s, handing_s, 1 / wanted, workers)

    def enough(cores: float, at_most: int) -> int:
        numbers = range(1, at_most + 1)
        if wanted is None:
            best = max(rate_of(n, cores) for n in numbers)
            return next(n for n in numbers if rate_of(n, cores) >= best * 0.99)
        least = min(stall_at(n, cores) for n in numbers)
        limit = max(HIDDEN_STALL, least + 0.01)
        return next(n for n in numbers if stall_at(n, cores) < limit)

    cores = host.cores_got
    workers = enough(cores, most)
    bound = rate_of(workers, cores)
    error = _CORE_BOUND if cpu_s / cores > batch_s / workers else _SLOT_BOUND
    rate = _widened(error.scaled(bound), _noise(stages))
    if error is _SLOT_BOUND:  # a batch's time in a worker has the engine in it
        rate = _widened(Interval(bound, 0.95 * bound, 1.05 * bound), _noise(stages))
    predicted = stall_at(workers, cores)
    stall = None
    if wanted is not None:
        low, high = max(predicted - _STALL_ERROR, 0.0), min(predicted + _STALL_ERROR, 1.0)
        stall = Interval(predicted, low, high)
    constraints = (
        Constraint("slots of workers", bound * batch_s, float(workers), "slots"),
        Constraint("cores", bound * cpu_s, cores, "cores"),
        Constraint("hand-over", bound * handing_s, 1.0, "s a batch"),
    )
    gain = rate_of(enough(cores + 1, most), cores + 1) - bound
    is_cores = cpu_s / cores >= batch_s / workers
    dual = (1 / cpu_s) if is_cores and cpu_s > 0 else 0.0
    now = None if wanted is None or not host.rate else max(0.0, 1 - host.rate / wanted)
    plan = InputPlan(
        engine="workers",
        stages=tuple(StagePlan(one.stage, workers, bound * batch_s / workers) for one in stages),
        cache_after=None,
        workers=workers,
        buffer=2,
        buffer_share=1.0,
        rate=rate,
        bound_rate=bound,
        traced_rate=host.rate,
        wanted_rate=wanted,
        reaches=wanted is None or predicted < HIDDEN_STALL,
        stall_now=now,
        stall=stall,
        cpu_s_per_item=cpu_s + handing_s,
        memory_bytes=workers * host.worker_bytes,
        cost=limits.prices[0] * bound * cpu_s
        + limits.prices[1] * workers * host.worker_bytes / _GB,
        binding=max(constraints, key=lambda one: one.share).name,
        constraints=constraints,
        worth=(Worth("one more core", max(gain, 0.0), dual),),
        says=(),
    )
    return replace(plan, says=tuple(_sentences(plan)))


# -- in words --------------------------------------------------------------------------------------


def _sentences(plan: InputPlan) -> Iterator[str]:
    made = plan.rate
    several = plan.binding.startswith(("slots", "cores"))
    binds = f"{plan.binding[0].upper()}{plan.binding[1:]} {'bind' if several else 'binds'} the rate"
    if plan.binding == WANTED:
        binds = "The wanted rate is planned, and nothing else binds"
    yield f"{binds}: {made.estimate:.4g} items/s ({made.low:.4g} to {made.high:.4g})."
    if plan.workers is not None:
        yield f"Give the DataLoader num_workers={plan.workers}."
    else:
        yield "Concurrency: " + ", ".join(
            f"{one.stage} {one.slots}" if one.slots else f"{one.stage} cached"
            for one in plan.stages
        )
    if plan.wanted_rate is not None and plan.stall is not None:
        now = "" if plan.stall_now is None else f", {plan.stall_now:.1%} at the trace's settings"
        yield (
            f"At {plan.wanted_rate:.4g} items/s wanted, {plan.stall.estimate:.1%} of the training "
            f"time waits ({plan.stall.low:.1%} to {plan.stall.high:.1%}){now}: of 1,000 GPU-hours "
            f"{1000 * (plan.stall.estimate or 0.0):.0f}."
        )
    gains = [one for one in plan.worth if one.gain_rate > 0.01 * plan.bound_rate]
    for one in gains:
        yield f"{one.resource} is worth {one.gain_rate:.3g} items/s."
    if not gains and plan.worth:
        yield "More cores, memory or bandwidth gain nothing."
    if plan.traced_rate and (made.estimate or 0.0) <= plan.traced_rate * 1.02:
        yield "Nothing can be gained: the pipeline already runs as fast as it can."
