"""Paired trials: one failure, every arm of the grid from the same iteration and lost set.

An arm's cost is κ(y) − κ(x): the iterations until the smoothed loss first comes down to a common
threshold, less those of the clean run of the same random stream. A trial starts from x(T), since
before T all arms are the clean run.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar.checkpoint_replay import POLICIES, Checkpointing, saved_at, stored
from reproduction.scar.shipped import shipped_at
from reproduction.scar.workload import (
    CleanRun,
    Ints,
    State,
    Workload,
    clean_run,
    keyed,
    rows_of,
)

LOST = (0.25, 0.5, 0.75)
STREAMS_OF_A_SEED, TRIALS_OF_A_SEED = 1000, 100_000  # further apart than any are used
OWNERS = 8  # ranks that hold the units, in contiguous blocks, for the lost sets by owner


@dataclass(frozen=True, slots=True)
class Settings:
    """What the paper leaves open, chosen here; equal settings give equal trials."""

    iterations: int  # κ0: the threshold is the clean loss there
    interval: int  # C
    grid: str  # "full", "headline", "shipped" or "large"; see `arms`
    streams: int = 1  # clean runs, taken in turn
    smooth: int = 1  # iterations averaged before the loss is compared
    failures: int = 2  # the geometric p is failures / iterations
    cap: int = 5  # a trial is censored at cap · κ0
    seed: int = 1  # of the clean runs, the failures and the lost sets

    @property
    def failure_chance(self) -> float:
        """p of the geometric distribution of T."""
        return self.failures / self.iterations


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to save and to recover, under one lost set."""

    recovery: str  # "full" or "partial"
    saving: Checkpointing
    lost: float = 1.0
    by_owner: bool = False

    @property
    def key(self) -> str:
        """A name such as partial/priority-8/50 or partial/full/50/owner; full/full."""
        if self.recovery == "full":
            return f"full/{self.saving.key}"
        owner = "/owner" if self.by_owner else ""
        return f"partial/{self.saving.key}/{round(100 * self.lost)}{owner}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Clean runs, their κ(x), and the ages of every checkpoint along them."""

    workload: Workload
    settings: Settings
    runs: tuple[CleanRun, ...]
    threshold: float
    kappas: tuple[float, ...]
    ages: tuple[dict[str, NDArray[np.int16]], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one arm of one trial cost, and how large its perturbation was."""

    cost: float
    censored: bool
    perturbation: float


def arms(grid: str) -> list[Arm]:
    """The arms that have to be run; full recovery of a full checkpoint is known without running.

    `large`: half lost, by nothing, full, and two policies at 1/8. `headline`: those of the first
    table, and the priority that is shipped; `shipped`: that one next to its replay. `full`: all
    others.
    """
    nothing, whole = Checkpointing("none"), Checkpointing("full")
    eighths = [Checkpointing(policy, 8) for policy in POLICIES]
    if grid == "large":
        return [Arm("partial", saving, 0.5) for saving in (nothing, whole, *eighths[:2])]
    shipped = Checkpointing("shipped", 8)
    if grid == "shipped":
        return [Arm("partial", saving, 0.5) for saving in (whole, eighths[0], shipped)]
    if grid == "headline":
        return [
            *(Arm("partial", whole, p) for p in LOST),
            *(Arm("partial", saving, 0.5) for saving in (nothing, *eighths, shipped)),
            *(Arm("full", saving) for saving in (eighths[0], shipped)),
        ]
    running = [Checkpointing(policy, parts) for parts in (2, 4, 8) for policy in POLICIES]
    return [
        *(Arm("full", saving) for saving in running),
        *(Arm("partial", saving, p) for saving in (nothing, whole, *running) for p in LOST),
        *(Arm("partial", saving, p, by_owner=True) for saving in (whole, eighths[0]) for p in LOST),
    ]


def prepare(workload: Workload, settings: Settings, *, trials: int | None = None) -> Prepared:
    """The clean runs and all that follows from them.

    Args:
        trials: so many are made; no clean run is written to a disk beyond the last failure of its
            trials. None: any number.

    Raises:
        UsageError: a clean run does not come down to the threshold.
    """
    first = STREAMS_OF_A_SEED * (settings.seed - 1)
    runs = tuple(
        clean_run(workload, first + stream, settings.iterations, settings.smooth)
        for stream in range(settings.streams)
    )
    threshold = float(np.mean([run.smoothed()[settings.iterations] for run in runs]))
    kappas = []
    for run in runs:
        smoothed = run.smoothed()
        below = np.flatnonzero(smoothed <= threshold)
        if below.size == 0 or below[0] < 2:
            raise UsageError(
                f"{workload.name}: the clean run of stream {run.stream} does not cross the loss "
                f"{threshold:g}; choose another κ0 or more smoothing"
            )
        kappas.append(_interpolated(int(below[0]), smoothed, threshold))
    savings = {arm.saving.key: arm.saving for arm in arms(settings.grid)}
    ages: list[dict[str, NDArray[np.int16]]] = []
    for stream, run in enumerate(runs):
        last = None
        if trials is not None:
            numbers = range(stream, trials, settings.streams)
            last = max((_failure(settings, kappas[stream], n)[0] for n in numbers), default=1)
        of_run = {}
        for key, how in savings.items():
            if how.policy == "shipped":
                of_run[key] = shipped_at(workload, run, how, settings.interval, last=last)
            else:
                of_run[key] = saved_at(workload, run, how, settings.interval)
        ages.append(of_run)
    return Prepared(workload, settings, runs, threshold, tuple(kappas), tuple(ages))


def trial(prepared: Prepared, number: int) -> dict[str, object]:
    """One failure under every arm, as a record that can be written as one line of JSON."""
    settings, stream = prepared.settings, number % prepared.settings.streams
    run, kappa = prepared.runs[stream], prepared.kappas[stream]
    at, rng = _failure(settings, kappa, number)
    units = prepared.workload.offsets.size - 1
    order, owners = rng.permutation(units), rng.permutation(min(OWNERS, units))
    now = run.states[at]
    outcomes = {
        "full/full": Outcome(float(at % settings.interval), False, 0.0),
        "full/none": Outcome(float(at), False, 0.0),
    }
    pending: dict[str, State] = {}
    size: dict[str, float] = {}
    whole = stored(run, prepared.ages[stream]["full"][at], prepared.workload.offsets)
    size["full/full"] = _norm(prepared.workload, now, whole)
    for arm in arms(settings.grid):
        saved = stored(run, prepared.ages[stream][arm.saving.key][at], prepared.workload.offsets)
        lost = lost_units(arm, units, order, owners)
        state = recovered(now, saved, prepared.workload.offsets, lost)
        size[arm.key] = _norm(prepared.workload, now, state)
        if size[arm.key] == 0:  # nothing was lost that had moved: the run is the clean one
            outcomes[arm.key] = Outcome(0.0, False, 0.0)
        else:
            pending[arm.key] = state
    for key, (cost, censored) in zip(
        pending, costs(prepared, stream, at, list(pending.values())), strict=True
    ):
        outcomes[key] = Outcome(cost, censored, size[key])
    outcomes["full/full"] = Outcome(outcomes["full/full"].cost, False, size["full/full"])
    if prepared.workload.random:  # the same state under other random numbers: noise of the measure
        again = costs(prepared, stream, at, [now], draws=10_000 + number)[0]
        outcomes["again"] = Outcome(*again, 0.0)
    return {
        "kind": "trial",
        "trial": number,
        "stream": run.stream,
        "T": at,
        "arms": {
            key: [round(o.cost, 4), int(o.censored), float(f"{o.perturbation:.5g}")]
            for key, o in outcomes.items()
        },
    }


def _failure(settings: Settings, kappa: float, number: int) -> tuple[int, np.random.Generator]:
    """T of a trial, and the generator of what else is drawn for it."""
    rng = keyed(number + TRIALS_OF_A_SEED * (settings.seed - 1), 1009)
    last = min(settings.iterations, math.floor(kappa)) - 1
    return failure_iteration(rng, settings.failure_chance, last), rng


def failure_iteration(rng: np.random.Generator, chance: float, last: int) -> int:
    """T from a geometric distribution truncated to 1 … last."""
    whole = -math.expm1(last * math.log1p(-chance))
    u = rng.uniform() * whole
    return min(last, max(1, math.ceil(math.log1p(-u) / math.log1p(-chance))))


def lost_units(arm: Arm, units: int, order: Ints, owners: Ints) -> Ints:
    """The units an arm restores: all, p·n drawn without replacement, or those of p·8 owners.

    Larger lost sets of one trial contain the smaller.
    """
    if arm.recovery == "full":
        return np.arange(units)
    if not arm.by_owner:
        return order[: max(1, round(arm.lost * units))]
    failed = owners[: max(1, round(arm.lost * owners.size))]
    owner = np.arange(units) * owners.size // units
    return np.flatnonzero(np.isin(owner, failed))


def recovered(now: State, saved: State, offsets: Ints, lost: Ints) -> State:
    """The state after recovery: the lost units as saved, all others as they are."""
    state = np.array(now)
    rows = rows_of(offsets, lost)
    state[rows] = saved[rows]
    return state


def costs(
    prepared: Prepared,
    stream: int,
    at: int,
    states: Sequence[State],
    *,
    draws: int | None = None,
) -> list[tuple[float, bool]]:
    """Cost and censoring of each state that a run goes on from at iteration `at`.

    Args:
        prepared: the clean runs.
        stream: which of them.
        at: T.
        states: y(T) per arm.
        draws: stream of the random numbers after T; the clean run's if None.
    """
    run, window = prepared.runs[stream], prepared.settings.smooth
    kappa, threshold = prepared.kappas[stream], prepared.threshold
    cap = prepared.settings.cap * prepared.settings.iterations
    past = list(run.losses[max(0, at - window) : at])
    traces = [list(past) for _ in states]
    found = [(float(cap) - kappa, True)] * len(states)
    current = dict(enumerate(states))
    source = run.stream if draws is None else draws
    for k in range(at, cap):
        if not current:
            break
        following, losses = prepared.workload.advance(list(current.values()), k, source)
        for index, state, loss in zip(list(current), following, losses, strict=True):
            trace = traces[index]
            trace.append(float(loss))
            seen = float(np.mean(trace[-window:]))
            if not seen <= threshold:
                current[index] = state
                continue
            before = float(np.mean(trace[-window - 1 : -1])) if len(trace) > 1 else math.inf
            part = (before - threshold) / (before - seen) if before > threshold else 1.0
            part = part if math.isfinite(part) else 1.0
            found[index] = (k - 1 + part - kappa, False)
            del current[index]
    return found


def settings_record(workload: Workload, prepared: Prepared) -> dict[str, object]:
    """The first line of a results file: what the trials below it were run with."""
    return {
        "kind": "settings",
        "workload": workload.name,
        "units": int(workload.offsets.size - 1),
        "rows": int(workload.offsets[-1]),
        **asdict(prepared.settings),
        "failure_chance": prepared.settings.failure_chance,
        "threshold": prepared.threshold,
        "kappas": [round(k, 4) for k in prepared.kappas],
    }


def _interpolated(index: int, trace: NDArray[np.float64], threshold: float) -> float:
    before, after = float(trace[index - 1]), float(trace[index])
    return index - 1 + (before - threshold) / (before - after)


def _norm(workload: Workload, now: State, state: State) -> float:
    return float(np.linalg.norm(workload.moved(now, state)))
