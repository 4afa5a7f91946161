"""ETTR of a planned run as a function of its failure rate, for the bands of a projection."""

from dataclasses import replace

from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun
from ettr.projection.scale import EttrOfRate


def ettr_by_rate(run: PlannedRun) -> EttrOfRate:
    """Exact ETTR of `run` at any number of failures per day of the whole run.

    The checkpoint interval stays as it is: it is chosen once, before the true rate is known, so a
    band at the best interval of each rate would promise too much.

    Args:
        run: The run; its own failure rate is not used.
    """

    def ettr(failures_per_day: float) -> float:
        return exact_ettr(replace(run, failures_per_node_day=failures_per_day / run.n_nodes))

    return ettr
