"""What a simulation with a fleet's own failure law says of a run, next to the exact form."""

from dataclasses import dataclass

from ettr.estimates.interval import Interval
from ettr.plan.run import spell


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run simulated with failures that are not independent at a constant rate.

    Attributes:
        law: The failure law, in words, with what it assumes.
        why: Why the exact form does not hold.
        ettr: Mean over the draws, of the long run.
        ettr_error: Standard error of that mean.
        exact_ettr: By the exact form at the same rate and interval, of the long run.
        best_interval_s: Of the intervals tried, the one with the highest simulated ETTR.
        best_ettr: There.
        mean_s: Wall-clock of the run, mean; None for the long run.
        quantiles: Pairs of a probability and the wall-clock within which the run ends with it;
            empty for the long run.
        draws: Runs simulated.
        seed: Of the generator.
        engine: What answered.
        failures: The failures simulated, for a sentence: "with ...".
        long_run: Whether `ettr` and `exact_ettr` are of the long run, or of a run whose nodes are
            of a given age, over its length.
        ettr_at_rate_ends: ETTR simulated at the ends of the failure rate; None where it has none.
        failures_per_node_day: Failures over the node-days in use; None where not counted.
        short_of_nodes: Share of the wall-clock without enough nodes; None without repairs.
        detecting: Share of the wall-clock before failures are noticed; None where not counted.
        precise: Whether the precision asked for was reached.
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
        """ETTR of the run, at its mean length; of the long run where it has no end.

        Args:
            productive_s: Work of the run; not used for the long run.
        """
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
            f"{self.failures} the {run} is {self.ettr:.3f} ± {error:.1g} (simulated, two standard "
            f"errors), the exact form says {self.exact_ettr:.3f}, {off}. Of the intervals tried "
            f"{spell(self.best_interval_s)} is the best, with {self.best_ettr:.3f}."
        )
