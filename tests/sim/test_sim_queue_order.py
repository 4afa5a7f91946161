"""The order of a simulated queue within one quality of service."""

from __future__ import annotations

from itertools import pairwise

from cluster_scenarios import fault, one_size, played, quiet


def test_whoever_was_submitted_or_requeued_first_starts_first():
    """More jobs than fit, in order, on nodes that fail: requeued jobs go behind who waited."""
    scenario = quiet(
        period={"days": 3.0},
        machines={"nodes": 6},
        jobs=one_size(8, 7200.0),
        arrivals={"jobs_per_day": 90.0, "day_amplitude": 0.0, "weekend_factor": 1.0},
        scheduling={"waiting": "in-order", "pass_interval_s": 0, "requeue_delay_s": 0},
        faults=(fault("gpu-memory", 500.0, node_down_chance=0.9, crash_chance=0.0),),
    )
    rows = played(scenario)[0]["attempts"].to_pylist()
    assert any(row["restarts"] for row in rows), "or nothing was requeued"
    levels: dict[str, list[dict[str, object]]] = {}
    for row in sorted((one for one in rows if one["start"]), key=lambda one: one["submit"]):
        levels.setdefault(row["qos"], []).append(row)
    for attempts in levels.values():
        for before, after in pairwise(attempts):
            assert before["start"] <= after["start"], (before["attempt_id"], after["attempt_id"])
