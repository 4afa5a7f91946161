"""One symptom comes in bursts among failures that are independent: its own interval admits it."""

import numpy as np
import pytest

from ettr.analysis.clustering import failures_of_size
from ettr.metrics.rates import part_rate, symptom_rate
from ettr.models.data import Counts
from ettr.models.dispersion import FailureTimeline

DAYS, NODES, NETWORK, OTHER = 120.0, 300, 30, 100
EDGES = np.linspace(0.0, DAYS, int(DAYS * 2) + 1)
NAMES = np.array([f"n{at}" for at in range(NODES)])


def fleet(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], FailureTimeline, Counts]:
    """Bursts of four network failures on any nodes within seven hours, the rest by chance."""
    bursts = rng.uniform(0.0, DAYS, rng.poisson(NETWORK / 4))
    network = np.repeat(bursts, 4) + rng.uniform(0.0, 0.3, 4 * bursts.size)
    network = network[network < DAYS]
    times = np.concatenate([network, rng.uniform(0.0, DAYS, rng.poisson(OTHER))])
    node = rng.integers(0, NODES, times.size)
    symptoms = ["infiniband-link"] * network.size + ["gpu-memory"] * (times.size - network.size)
    columns = {"symptom": symptoms, "cluster": ["c"] * times.size, "node": NAMES[node].tolist()}
    counts = Counts(np.bincount(node, minlength=NODES), np.full(NODES, DAYS), NAMES)
    return (
        {name: np.array(some) for name, some in columns.items()},
        FailureTimeline(times, EDGES, EDGES * NODES),
        counts,
    )


@pytest.mark.slow
def test_a_symptom_that_comes_in_bursts_has_an_interval_that_holds():
    rng = np.random.default_rng(20_261_123)
    node_days = DAYS * NODES
    truth, draws, own_holds, part_holds = 1000.0 * NETWORK / node_days, 200, 0, 0
    for _ in range(draws):
        rows, line, counts = fleet(rng)
        size = failures_of_size(rows, line, counts)
        network = sum(name == "infiniband-link" for name in rows["symptom"].tolist())
        given = (network, node_days, len(rows["symptom"]), 0.9, size.spread.believed)
        own = size.spread_by_symptom.get("infiniband-link")
        rate = symptom_rate(*given, None if own is None else own.believed)
        own_holds += rate.per_1000_node_days.contains(truth)
        part_holds += part_rate(*given).per_1000_node_days.contains(truth)
    assert own_holds >= 0.88 * draws
    assert part_holds < 0.8 * draws  # a share of the bursts of all failures does not show it


def test_the_bursts_of_one_symptom_do_not_widen_another():
    rng = np.random.default_rng(3)
    times_wider = []
    for _ in range(40):
        rows, line, counts = fleet(rng)
        spread = failures_of_size(rows, line, counts).spread_by_symptom["gpu-memory"].believed
        times_wider.append(spread.inflation() ** 0.5)
    assert np.median(times_wider) <= 1.1
