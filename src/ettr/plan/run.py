"""A run: its shape, its failure rate and its checkpoint interval, all times in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from ettr.defaults import GPUS_PER_NODE, RESTART_S, WRITE_S
from ettr.errors import UsageError
from ettr.estimates.interval import Interval
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell


@dataclass(frozen=True, slots=True)
class RunShape:
    """A training run before its failure rate is known: its size, and how long its parts take.

    The one declaration of these inputs and of their defaults; `PlannedRun` and
    `ettr.plan.schemes.JobShape` extend it.

    Attributes:
        n_nodes: Nodes in series: the loss of any one interrupts the run.
    """

    n_nodes: int
    gpus_per_node: int = GPUS_PER_NODE
    write_s: float = WRITE_S
    restart_s: float = RESTART_S
    queue_s: float = 0.0
    productive_s: float = math.inf

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: one or more cannot be; all are listed at once."""
        problems = [*not_numbers(self), *self.problems()]
        if problems:
            raise UsageError("cannot plan this run:" + "".join(f"\n  {one}" for one in problems))

    def problems(self) -> Iterator[str]:
        """Values that cannot be, a sentence each; classes that extend this one add their own."""
        yield from below_zero(self, ("write_s", "restart_s", "queue_s"))
        if self.n_nodes < 1:
            yield f"n_nodes: {self.n_nodes}; a run needs 1 node or more"
        if self.gpus_per_node < 1:
            yield f"gpus_per_node: {self.gpus_per_node}; a node has 1 GPU or more"
        if self.productive_s <= 0:
            yield (
                f"productive_s: {self.productive_s}; give a positive number of seconds, "
                "or leave it out for the long run"
            )

    def shape_values(self) -> dict[str, Any]:
        """The fields of a `RunShape` by name, for a class that extends it."""
        return {field.name: getattr(self, field.name) for field in fields(RunShape)}

    def at(self, failures_per_node_day: float, interval_s: float) -> PlannedRun:
        """The run at a failure rate and a checkpoint interval."""
        return PlannedRun(
            **self.shape_values(),
            failures_per_node_day=failures_per_node_day,
            interval_s=interval_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun(RunShape):
    """A run shape whose nodes fail at a constant rate and which saves at one interval."""

    failures_per_node_day: float
    interval_s: float

    def problems(self) -> Iterator[str]:
        """Values that cannot be, a sentence each."""
        yield from below_zero(self, ("failures_per_node_day",))
        yield from RunShape.problems(self)
        if self.interval_s <= 0 or math.isinf(self.interval_s):
            yield f"interval_s: {self.interval_s}; give a positive number of seconds"

    @property
    def failures_per_s(self) -> float:
        """Failures of the whole run per second of runtime: n_nodes times the rate of one."""
        return self.n_nodes * self.failures_per_node_day / SECONDS_PER_DAY

    @property
    def mttf_s(self) -> float:
        """Mean time to failure of the run, in seconds; infinite where nothing fails.

        **Source**: Kokolis et al. (HPCA 2025): MTTF = 1 / (N_nodes r_f).
        """
        return 1.0 / self.failures_per_s if self.failures_per_s else math.inf

    @property
    def lost_share(self) -> float:
        """λ(u0 + Δt/2): first-order share of time lost; the paper's forms need a small one."""
        return self.failures_per_s * (self.restart_s + self.interval_s / 2.0)


def not_numbers(shape: RunShape) -> Iterator[str]:
    """A sentence for each field that is not a number."""
    for field in fields(shape):
        if math.isnan(getattr(shape, field.name)):
            yield f"{field.name}: nan is not a number; give one"


def below_zero(shape: RunShape, names: Iterable[str]) -> Iterator[str]:
    """A sentence for each of the fields that is below 0, or infinite."""
    for name in names:
        value: float = getattr(shape, name)
        if value < 0 or math.isinf(value):
            yield f"{name}: {value}; give 0 or more"


def changed(run: PlannedRun, name: str, value: float) -> PlannedRun:
    """`run` with another value of one input.

    Raises:
        UsageError: no such input, or a value that it cannot have.
    """
    names = [field.name for field in fields(run)]
    if name not in names:
        raise UsageError(f"{name!r} is no input of a run; give one of {', '.join(names)}")
    to: dict[str, Any] = {name: value}
    return replace(run, **to)


def nodes_of(n_gpus: int, gpus_per_node: int = GPUS_PER_NODE) -> int:
    """Nodes that hold `n_gpus` GPUs, the last one maybe in part.

    Raises:
        UsageError: no GPU, or none in a node.
    """
    if n_gpus < 1 or gpus_per_node < 1:
        raise UsageError(f"{n_gpus} GPUs, {gpus_per_node} to a node: give 1 or more of each")
    return math.ceil(n_gpus / gpus_per_node)


def run_nodes(n_gpus: int | None, n_nodes: int | None, gpus_per_node: int) -> int:
    """Nodes of a run whose size is given in GPUs, in nodes, or in both.

    Raises:
        UsageError: neither is given, or the two disagree.
    """
    if n_gpus is None:
        if n_nodes is None:
            raise UsageError("how large is the run? give --gpus N or --nodes N")
        return n_nodes
    held = nodes_of(n_gpus, gpus_per_node)
    if n_nodes not in (None, held):
        raise UsageError(
            f"--gpus {n_gpus} and --nodes {n_nodes} disagree at {gpus_per_node} GPUs a node; give "
            "one of them, or --gpus-per-node"
        )
    return held


def cautions(run: PlannedRun) -> tuple[str, ...]:
    """Warnings about a run that can be computed all the same, one sentence each."""
    found = []
    if run.interval_s > run.mttf_s:
        found.append(
            f"The checkpoint interval of {spell(run.interval_s)} is longer than the MTTF of "
            f"{spell(run.mttf_s)}: most intervals are lost before they are saved. "
            f"Shorten the interval below {spell(run.mttf_s)}"
            + (
                "."
                if run.write_s
                else "; with checkpoints that cost nothing, the shorter the better."
            )
        )
    if run.restart_s > run.mttf_s:
        found.append(
            f"A restart of {spell(run.restart_s)} is longer than the MTTF of {spell(run.mttf_s)}: "
            "most restarts fail before the run trains again. Restart faster, or use fewer nodes."
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run simulated with failures that are not independent at a constant rate.

    Attributes:
        mean_s: Wall-clock of the run, mean; None for the long run.
        long_run: Whether `ettr` and `exact_ettr` are of the long run, or of a run whose nodes are
            of a given age, over its length.
        failures_per_node_day: Failures over the node-days in use; None where not counted.
        short_of_nodes: Share of the wall-clock without enough nodes; None without repairs.
    """

    law: str
    why: str
    ettr: float
    ettr_error: float
    exact_ettr: float
    best_interval_s: float
    best_ettr: float
    mean_s: float | None
    quantiles: tuple[tuple[float, float], ...]
    draws: int
    seed: int
    engine: str = "blocks of the store's own failures, replayed"
    failures: str = "the store's own failures"
    long_run: bool = True
    ettr_at_rate_ends: Interval | None = None
    failures_per_node_day: float | None = None
    short_of_nodes: float | None = None
    detecting: float | None = None
    precise: bool = True

    def run_ettr(self, productive_s: float) -> float:
        """ETTR of the run, at its mean length; of the long run where it has no end."""
        return self.ettr if self.mean_s is None else productive_s / self.mean_s

    @property
    def off_by(self) -> float:
        """Exact form less simulation."""
        return self.exact_ettr - self.ettr

    @property
    def sentence(self) -> str:
        """By how much the exact form errs, in words."""
        error = 2.0 * self.ettr_error
        off = (
            f"which is {abs(self.off_by):.3f} too {'high' if self.off_by > 0 else 'low'}"
            if abs(self.off_by) > error
            else "which agrees within that"
        )
        lead = f"{self.why} " if self.why else ""
        run = "long-run ETTR" if self.long_run else "ETTR"
        return (
            f"{lead}The exact form assumes independent failures at a constant rate: with "
            f"{self.failures} the {run} is {self.ettr:.3f} ± {significant(error, 1)} (simulated, "
            f"two standard errors), the exact form says {self.exact_ettr:.3f}, {off}. Of the "
            f"intervals tried {spell(self.best_interval_s)} is the best, with {self.best_ettr:.3f}."
        )
