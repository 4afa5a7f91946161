"""What the benchmarks of the storage side conclude from what they measured."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before, threads = set(sys.modules), torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)  # the benchmarks take one
    for name in set(sys.modules) - before:
        if name.startswith("training_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("n", "ranks"),
    # the ranks of the tables for the sign test at 95 %, such as Dixon and Massey's
    [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (12, (3, 10)), (20, (6, 15)), (25, (8, 18))],
)
def test_the_interval_of_a_median_is_that_of_the_sign_test(benchmark, n: int, ranks):
    stall = benchmark("training_stall")
    assert stall.median_interval([float(n - at) for at in range(n)]) == ranks


def runs(priority: list[float], round_robin: list[float]):
    return [
        {"priority": (p,), "round-robin": (r,), "random": (10.0 * r,)}
        for p, r in zip(priority, round_robin, strict=True)
    ]


@pytest.mark.parametrize(
    ("priority", "held"),
    [
        ([0.8, 0.81, 0.79], True),
        ([1.2, 1.21, 1.19], False),
        ([0.8, 1.4, 0.2], False),  # below 1 on average, which three such seeds do not show
        ([0.8], False),  # nor does one seed
    ],
)
def test_priority_has_to_be_below_round_robin_beyond_chance(benchmark, priority, held: bool):
    perturbation = benchmark("training_perturbation")
    case = perturbation.CASES[0]
    found = perturbation.verdicts(case, runs(priority, [1.0] * len(priority)))
    assert found[0][0] is held
    assert "priority / round-robin" in found[0][1]


@pytest.mark.parametrize(("ratio", "status"), [(0.5, 0), (1.5, 1)])
def test_the_benchmark_of_policies_fails_where_priority_does_not_win(
    benchmark, ratio: float, status: int, monkeypatch: pytest.MonkeyPatch
):
    perturbation = benchmark("training_perturbation")
    measured = runs([ratio, 1.01 * ratio], [1.0, 1.0])
    monkeypatch.setattr(perturbation, "table", lambda *_: measured)
    monkeypatch.setattr(sys, "argv", ["training_perturbation.py"])
    assert perturbation.main() == status
