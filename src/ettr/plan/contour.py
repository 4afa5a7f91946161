"""ETTR of the long run over a grid of two inputs, fast enough to move with a slider."""

from collections.abc import Sequence

from ettr.errors import UsageError
from ettr.plan.intervals import optimal_share
from ettr.plan.renewal import long_run_ettr
from ettr.plan.run import PlannedRun, changed
from ettr.units import SECONDS_PER_DAY

AXES = ("failures_per_node_day", "n_nodes", "interval_s", "write_s", "restart_s", "queue_s")


def contour(
    run: PlannedRun,
    across: str,
    across_values: Sequence[float],
    up: str,
    up_values: Sequence[float],
    *,
    best_interval: bool = False,
) -> tuple[tuple[float, ...], ...]:
    """Exact ETTR of the long run; one row for each of `up_values`, one entry an `across_values`.

    Args:
        run: All that does not vary; `productive_s` is not used.
        across: One of `AXES`.
        across_values: Its values; n_nodes may be fractional here.
        up: Another of `AXES`.
        up_values: Its values.
        best_interval: Take the best interval at every point.

    Raises:
        UsageError: axes that are unknown or the same, or a value that no run can have.
    """
    if across == up or across not in AXES or up not in AXES:
        raise UsageError(f"axes {across!r}, {up!r}: give two different ones of {', '.join(AXES)}")
    if not across_values or not up_values:
        raise UsageError("a grid needs one value or more on each axis; give them")
    for name, values in ((across, across_values), (up, up_values)):
        for extreme in (min(values), max(values)):
            # the ends are checked as any run is, and what lies between them is then sound
            changed(run, name, extreme)
    inputs = {name: float(getattr(run, name)) for name in AXES}
    rows = []
    for y in up_values:
        inputs[up] = y
        row = []
        for x in across_values:
            inputs[across] = x
            rate = inputs["failures_per_node_day"] * inputs["n_nodes"] / SECONDS_PER_DAY
            write_s, interval_s = inputs["write_s"], inputs["interval_s"]
            if best_interval and write_s and rate:
                interval_s = optimal_share(rate * write_s) / rate
            row.append(
                long_run_ettr(rate, interval_s, write_s, inputs["restart_s"], inputs["queue_s"])
            )
        rows.append(tuple(row))
    return tuple(rows)
