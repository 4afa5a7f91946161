"""Values of the exact form at full precision, worked with 50 digits, for every port of it."""

from decimal import Decimal, getcontext

import pytest

from ettr.plan.intervals import exact_interval_s
from ettr.plan.renewal import long_run_ettr

# failures_per_s, interval_s, write_s, restart_s, queue_s, ETTR, best interval in seconds
VECTORS = [
    (1e-4, 600.0, 30.0, 300.0, 60.0, 0.8900856318010704, 754.7271083433416),
    (1e-6, 3600.0, 300.0, 300.0, 0.0, 0.9210017511020723, 24295.30701148397),
    (1.2e-3, 420.0, 5.0, 300.0, 30.0, 0.5101677388090238, 87.984636013745),
    (5e-3, 1200.0, 60.0, 600.0, 600.0, 0.00013738863462332818, 117.77737722708473),
]


@pytest.mark.parametrize("vector", VECTORS)
def test_vector(vector: tuple[float, ...]) -> None:
    rate, interval_s, write_s, restart_s, queue_s, ettr, best_s = vector
    assert long_run_ettr(*vector[:5]) == pytest.approx(ettr, rel=1e-14)
    assert exact_interval_s(write_s, 1 / rate) == pytest.approx(best_s, rel=1e-12)
    getcontext().prec = 50
    lam, dt, w, u0, q = (
        Decimal(value) for value in (rate, interval_s, write_s, restart_s, queue_s)
    )
    exact = lam * dt * (-lam * u0).exp() / ((1 + lam * q) * ((lam * (dt + w)).exp() - 1))
    assert float(exact) == pytest.approx(ettr, rel=1e-13)
    # the optimum solves (1 - x) e^(x + h) = 1
    x = lam * Decimal(best_s)
    assert float((1 - x) * (x + lam * w).exp()) == pytest.approx(1.0, abs=1e-11)
