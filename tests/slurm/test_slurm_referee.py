"""A real Slurm with a fast clock as referee of the simulator's scheduler."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_starts_in_order_with_preemption_and_a_dead_node_are_those_of_slurm() -> None:
    from campaigns.slurm_referee import compared, recorded

    real = recorded(30, 3, "in-order")
    found = compared(real, "in-order")
    states = {one.state for one in real.attempts}
    assert {"COMPLETED", "PREEMPTED", "NODE_FAIL"} <= states
    # the campaign has the figures of 200 jobs on a quiet machine
    assert found.in_order >= 0.98 * found.pairs, found
    assert found.same_end >= 0.95 * found.jobs, found
    assert found.same_end_alone >= 0.9 * found.jobs, found
    assert found.in_time >= 0.75 * found.starts, found
