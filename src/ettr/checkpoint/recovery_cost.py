"""What a stale shard costs a model of yours: the experiment behind two values of `RecoveryPolicy`.

    def build():                      # a small or a whole model, on any device
        ...
        return state, train_step      # as for RunningCheckpoint; train_step(step) -> loss

    costs = measure_recovery(build, RecoveryExperiment(steps=400), "/local/experiment")
    print(costs)

A clean run trains with a running checkpoint. It is stopped in thought at some steps: there the
state, and the checkpoint as it was, are kept. Then for each of them training goes on from the
state with one rank's part out of the checkpoint (partial recovery), with all of it (composite),
and untouched (the noise). The cost is the steps that it needs beyond the clean run to come down to
the loss at its end; the share is cost over the mean age of the restored blocks.

**Source** of the measure: iteration cost, Qiao, Aragam, Zhang, Xing (2019), "Fault Tolerance in
Iterative-Convergent Machine Learning", ICML. `docs/results/README.md` has it for others.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

from ettr.checkpoint.restoring import restore
from ettr.checkpoint.running_checkpoint import RunningCheckpoint
from ettr.checkpoint.selection import Budget
from ettr.checkpoint.state import as_state
from ettr.checkpoint.tensors.shards import Shard
from ettr.errors import CheckpointError, UsageError, refuse, too_small
from ettr.estimates.interval import Interval

TrainStep = Callable[[int], object]
Build = Callable[[], tuple[Mapping[str, object], TrainStep]]
_CONFIDENCE = 0.95
_FEWEST_FAILURES = 2
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class RecoveryExperiment:
    """How the experiment is run.

    Attributes:
        failures: Steps at which a loss is tried, drawn from the second quarter of the run to its
            third.
        ranks: Parts of equal rows; a partial recovery restores one, and each is tried.
    """

    steps: int
    failures: int = 5
    ranks: int = 4
    policy: str = "priority"
    fraction: float = 1 / 8
    every_steps: int = 10
    window: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: a value is out of range; all problems at once."""
        problems = []
        fewest = 8 * max(self.every_steps, self.window, 1)
        if self.steps < fewest:
            problems.append(
                f"steps: {self.steps} was given; give {fewest} or more: 8 every_steps and windows"
            )
        problems += too_small(self, failures=_FEWEST_FAILURES, ranks=2, every_steps=1, window=1)
        refuse("measure-recovery", problems)

    def failure_steps(self) -> list[int]:
        """The steps at which a loss is tried; fewer where the run is too short for so many."""
        candidates = np.arange(self.steps // 4, 3 * self.steps // 4)
        rng = np.random.default_rng(self.seed)
        n = min(self.failures, len(candidates))
        return sorted(int(step) for step in rng.choice(candidates, n, replace=False))


@dataclass(frozen=True, slots=True)
class CostShare:
    """Steps that a recovery cost, as a share of the mean age of what was restored."""

    share: Interval
    trials: int
    cut: int


@dataclass(frozen=True, slots=True)
class MeasuredTerms:
    """Medians of one process in the units of `ettr plan`; rates carry over to another state."""

    state_bytes: float
    step_s: float
    device_bytes_per_s: float
    storage_bytes_per_s: float
    restore_bytes_per_s: float

    def __str__(self) -> str:
        """As options of `ettr plan`, all ranks' state and storage being those of this process."""
        return (
            f"ettr plan --state-bytes {self.state_bytes / _GIGA:.4g}GB --step {self.step_s:.4g}s "
            f"--device {self.device_bytes_per_s / _GIGA:.4g}GB/s "
            f"--bandwidth {self.storage_bytes_per_s / _GIGA:.4g}GB/s"
        )


@dataclass(slots=True)
class ExperimentTimes:
    """Times of the experiment: of its steps, full saves and restores."""

    state_bytes: float = 0.0
    steps_s: list[float] = field(default_factory=list)
    stalls_s: list[float] = field(default_factory=list)
    durable_s: list[float] = field(default_factory=list)
    restores_s: list[float] = field(default_factory=list)

    def terms(self) -> MeasuredTerms:
        """The medians."""
        of_state = (self.stalls_s, self.durable_s, self.restores_s)
        rates = (self.state_bytes / median(times) for times in of_state)
        return MeasuredTerms(self.state_bytes, median(self.steps_s), *rates)


@dataclass(frozen=True, slots=True)
class RecoveryCosts:
    """The outcome of an experiment."""

    partial: CostShare
    composite: CostShare
    mean_age_steps: float
    noise_steps: float
    failure_steps: tuple[int, ...]
    terms: MeasuredTerms

    @property
    def policy_values(self) -> dict[str, float]:
        """The two values for `RecoveryPolicy`; a cost below 0 is noise, and 0 there."""
        shares = {
            "iteration_cost_share": self.partial.share.estimate,
            "composite_cost_share": self.composite.share.estimate,
        }
        return {name: max(0.0, share or 0.0) for name, share in shares.items()}

    def __str__(self) -> str:
        """For a terminal, with the line for a script."""
        lines = [
            f"{name}: costs {one.share.estimate:.2f} of the age "
            f"(95 %: {one.share.low:.2f} to {one.share.high:.2f}), {one.trials} trials"
            + (f", {one.cut} cut off: at least that" if one.cut else "")
            for name, one in (("partial recovery", self.partial), ("composite", self.composite))
        ]
        lines.append(
            f"mean age {self.mean_age_steps:.1f} steps; nothing lost costs {self.noise_steps:.1f}"
        )
        values = ", ".join(f"{name}={value:.2f}" for name, value in self.policy_values.items())
        share = self.policy_values["iteration_cost_share"]
        plan = f"{self.terms} --assume partial-recovery.iteration-cost-share={share:.2f}"
        return "\n".join([*lines, f"RecoveryPolicy({values})", plan])


def measure_recovery(
    build: Build,
    experiment: RecoveryExperiment,
    root: str | os.PathLike[str],
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> RecoveryCosts:
    """Run the experiment; about failures · (ranks + 2) / 2 times as long as the clean run.

    Args:
        build: makes the state and a function that makes step number `step` and returns its loss.
            The data of a step must follow from its number, or from an object in the state; random
            numbers are repeated only if `RandomStates` is in it.
        root: an empty folder with room for 3 copies of the state for each failure.

    Raises:
        UsageError: the folder is not empty, or a loss is no number.
        CheckpointError: the state cannot be saved, or not restored.
    """
    folder = Path(root)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; give a new folder")
    timed = ExperimentTimes()
    losses = _train_clean(build, experiment, folder, timed)
    state, train_step = _built(build)
    replay = _Replay(experiment, folder, state, train_step, losses, timed)
    trials = []
    for at in experiment.failure_steps():
        trials.append(_try_loss(replay, at))
        progress(f"step {at}: {trials[-1]}")
    return _costs(trials, experiment, timed)


def _built(build: Build) -> tuple[Mapping[str, object], TrainStep]:
    made = build()
    if not (isinstance(made, tuple | list) and len(made) == 2 and callable(made[1])):
        raise UsageError(
            f"build() returned an object of type {type(made).__name__}; return the state and the "
            f"function that makes a step: return state, train_step"
        )
    return made[0], made[1]


def _train_clean(
    build: Build, experiment: RecoveryExperiment, folder: Path, timed: ExperimentTimes
) -> list[float]:
    """The losses of the clean run; the state and the checkpoint at each failure are on disk."""
    state, train_step = _built(build)
    running = folder / "running"
    losses = []
    with RunningCheckpoint(
        running,
        state,
        policy=experiment.policy,
        budget=Budget(fraction=experiment.fraction),
        every_steps=experiment.every_steps,
    ) as checkpoint:
        checkpoint.save_all(0)
        failures = set(experiment.failure_steps())
        for step in range(1, experiment.steps + 1):
            begin_s = time.perf_counter()
            losses.append(_loss(train_step, step))
            timed.steps_s.append(time.perf_counter() - begin_s)
            checkpoint.step(step)
            checkpoint.wait()
            if step in failures:
                shutil.copytree(running, _stale(folder, step))
                with RunningCheckpoint(_live(folder, step), state, policy="full") as live:
                    begin_s = time.perf_counter()
                    report = live.step(step)
                    live.wait()
                    timed.durable_s.append(time.perf_counter() - begin_s)
                    timed.stalls_s.append(report.stall_s)
                    timed.state_bytes = report.staged_bytes
    return losses


@dataclass(frozen=True, slots=True)
class _Replay:
    """A second copy of the run, put back to a failure for each trial."""

    experiment: RecoveryExperiment
    folder: Path
    state: Mapping[str, object]
    train_step: TrainStep
    losses: Sequence[float]
    timed: ExperimentTimes

    def cost(self, at: int) -> tuple[float, bool]:
        """Steps beyond the clean run from the state as it is now; whether it was cut off."""
        window, longest = self.experiment.window, 2 * self.experiment.steps
        clean = list(self.losses)
        threshold = _mean(clean[-window:])
        undisturbed = _crossing(
            clean[:at], lambda step: clean[step - 1], threshold, window, len(clean)
        )
        crossing = _crossing(
            clean[:at], lambda step: _loss(self.train_step, step), threshold, window, longest
        )
        if undisturbed is None:  # its last loss is the threshold
            raise CheckpointError("measure-recovery: the clean run does not reach its own end")
        if crossing is None:
            return longest - undisturbed, True
        return crossing - undisturbed, False


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the recoveries at one failure cost, in steps."""

    age_steps: float
    partial: tuple[float, ...]
    composite: float
    noise: float
    cut_partial: int
    cut_composite: int

    def __str__(self) -> str:
        return (
            f"age {self.age_steps:.1f} steps; cost of a partial recovery "
            f"{_mean(self.partial):.1f}, of the composite {self.composite:.1f}, of losing nothing "
            f"{self.noise:.1f}"
        )


def _try_loss(replay: _Replay, at: int) -> _Trial:
    begin_s = time.perf_counter()
    restore(_live(replay.folder, at), replay.state, slot=0, mode="consistent")
    replay.timed.restores_s.append(time.perf_counter() - begin_s)
    noise, _ = replay.cost(at)
    report = restore(_stale(replay.folder, at), replay.state, slot=0)
    if report.mean_step is None:
        raise CheckpointError(f"{_stale(replay.folder, at)}: holds no block")
    shards = as_state(replay.state).shards()
    stale = [dict(_tensors_of(shard)) for shard in shards]
    composite, cut_composite = replay.cost(at)
    partial, n_cut = [], 0
    for rank in range(replay.experiment.ranks):
        restore(_live(replay.folder, at), replay.state, slot=0, mode="consistent")
        for shard, old in zip(as_state(replay.state).shards(), stale, strict=True):
            _put_rows(shard, old, rank, replay.experiment.ranks)
        cost, cut = replay.cost(at)
        partial.append(cost)
        n_cut += cut
    return _Trial(
        at - report.mean_step, tuple(partial), composite, noise, n_cut, int(cut_composite)
    )


def _tensors_of(shard: Shard) -> Iterator[tuple[str, Tensor]]:
    """Copies of the tensors of a shard: parameter and moments of its shape."""
    for component in shard.spec.components:
        if component.kind == "sliced":
            yield component.name, shard.tensor_value(component.name).detach().clone()


def _put_rows(shard: Shard, old: Mapping[str, Tensor], rank: int, ranks: int) -> None:
    """Put one rank's rows of the old values over the live ones."""
    with torch.no_grad():
        for name, value in old.items():
            live = shard.tensor_value(name)
            if live.dim() == 0:
                if rank == 0:
                    live.copy_(value)
                continue
            n_rows = live.shape[0]
            first, last = (n_rows * r // ranks for r in (rank, rank + 1))
            live[first:last].copy_(value[first:last])


def _costs(
    trials: Sequence[_Trial], experiment: RecoveryExperiment, timed: ExperimentTimes
) -> RecoveryCosts:
    trials = [trial for trial in trials if trial.age_steps > 0]  # the others have nothing to cost
    if len(trials) < _FEWEST_FAILURES:
        raise UsageError(
            "measure-recovery: at nearly every failure the checkpoint was as new as the state; "
            "give a smaller fraction or a larger every_steps"
        )
    ages = [trial.age_steps for trial in trials]
    n_partial, cut_partial = len(trials) * experiment.ranks, sum(t.cut_partial for t in trials)
    cut_composite = sum(t.cut_composite for t in trials)
    return RecoveryCosts(
        _share([_mean(one.partial) for one in trials], ages, n_partial, cut_partial),
        _share([one.composite for one in trials], ages, len(trials), cut_composite),
        _mean(ages),
        _mean([one.noise for one in trials]),
        tuple(experiment.failure_steps()),
        timed.terms(),
    )


def _share(costs: Sequence[float], ages: Sequence[float], trials: int, cut: int) -> CostShare:
    from scipy.stats import t

    shares = np.asarray(costs) / np.asarray(ages)
    spread = float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    reach = float(t.ppf(0.5 + _CONFIDENCE / 2, len(shares) - 1)) * spread
    mean = float(np.mean(shares))
    return CostShare(Interval(mean, mean - reach, mean + reach), trials, cut)


def _loss(train_step: TrainStep, step: int) -> float:
    loss = float(train_step(step))  # type: ignore[arg-type]
    if not math.isfinite(loss):
        raise UsageError(f"train_step({step}) returned {loss}; it returns the loss of the step")
    return loss


def _crossing(
    before: Sequence[float],
    loss_of: Callable[[int], float],
    threshold: float,
    window: int,
    longest: int,
) -> float | None:
    """Interpolate the step at which the mean loss reaches the threshold; None: it does not."""
    losses = list(before[-window:])
    previous = _mean(losses)
    for step in range(len(before) + 1, longest + 1):
        losses = [*losses, loss_of(step)][-window:]
        now = _mean(losses)
        if now <= threshold:
            above = previous > threshold
            return step - 1 + ((previous - threshold) / (previous - now) if above else 1.0)
        previous = now
    return None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _stale(folder: Path, step: int) -> Path:
    return folder / f"stale-{step}"


def _live(folder: Path, step: int) -> Path:
    return folder / f"live-{step}"
