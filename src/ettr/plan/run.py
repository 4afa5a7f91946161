"""A run as it is planned: its failures, its intervals and its length, all in seconds."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A training run on nodes in series, each failing at a constant rate.

    Attributes:
        failures_per_node_day: Failures of one node per day of runtime.
        n_nodes: Nodes; the loss of any one interrupts the run.
        interval_s: Productive time between checkpoints.
        write_s: Time for which a checkpoint stops training.
        restart_s: From the start of an attempt until it trains.
        queue_s: Mean wait before the first attempt and after each interruption.
        productive_s: Productive time that the run needs; infinite for the long run.
    """

    failures_per_node_day: float
    n_nodes: int
    interval_s: float
    write_s: float = 0.0
    restart_s: float = 300.0
    queue_s: float = 0.0
    productive_s: float = math.inf

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one or more cannot be; all are listed at once.
        """
        problems = [
            f"{field.name}: {getattr(self, field.name)} is not a number; give one"
            for field in fields(self)
            if math.isnan(getattr(self, field.name))
        ]
        for name in ("failures_per_node_day", "write_s", "restart_s", "queue_s"):
            value = getattr(self, name)
            if value < 0 or math.isinf(value):
                problems.append(f"{name}: {value}; give 0 or more")
        if self.n_nodes < 1:
            problems.append(f"n_nodes: {self.n_nodes}; a run needs 1 node or more")
        if self.interval_s <= 0 or math.isinf(self.interval_s):
            problems.append(f"interval_s: {self.interval_s}; give a positive number of seconds")
        if self.productive_s <= 0:
            problems.append(
                f"productive_s: {self.productive_s}; give a positive number of seconds, "
                "or leave it out for the long run"
            )
        if problems:
            raise UsageError("cannot plan this run:" + "".join(f"\n  {one}" for one in problems))

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
        """λ(u0 + Δt/2): first-order share of time lost; the paper's forms err from 0.4 up."""
        return self.failures_per_s * (self.restart_s + self.interval_s / 2.0)


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


def cautions(run: PlannedRun) -> tuple[str, ...]:
    """What is odd about a run that can be computed all the same, one sentence each."""
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
            f"A restart of {spell(run.restart_s)} is longer than the MTTF of "
            f"{spell(run.mttf_s)}: most restarts fail before the run trains again. "
            "Restart faster, or use fewer nodes."
        )
    if run.lost_share >= 0.4:
        found.append(
            f"λ(u0 + Δt/2) is {run.lost_share:.2f}: from about 0.4 up the paper's forms are "
            "pessimistic; use the exact form."
        )
    return tuple(found)


def spell(duration_s: float) -> str:
    """A duration in the unit that fits it: `4.2 s`, `7 min`, `1.8 h`, `47.7 d`."""
    for unit_s, name in (
        (SECONDS_PER_DAY, "d"),
        (SECONDS_PER_HOUR, "h"),
        (SECONDS_PER_MINUTE, "min"),
    ):
        if duration_s >= unit_s:
            return f"{duration_s / unit_s:.3g} {name}"
    return f"{duration_s:.3g} s"
