"""Fair share: Slurm's formulas by hand-made cases, and what they do to a simulated queue."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from cluster_scenarios import fault, one_size, played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import scenario_of, scenario_text, text_of
from ettr.sim.cluster.scenario_parts import AccountShares, FairShare
from ettr.sim.cluster.scheduler import (
    Weights,
    age_factor,
    decayed_gpu_s,
    effective_usage,
    fair_share_factor,
    multifactor_priority,
    size_factor,
)
from ettr.sim.cluster.whatif import changed_scenario

TABLE = """
[fair_share]
source = "assumed"
half_life_s = 604800
calc_interval_s = 300
longest_age_s = 604800
fair_share_weight = 10000
age_weight = 1000
job_size_weight = 0
qos_weight = 2000

[[accounts]]
source = "assumed"
name = "team1"
shares = 3
"""


def test_the_example_of_slurms_manual():
    """Accounts A (40: B 30, C 10) and D (60: E 25, F 35); users 2 and 3 share C.

    Users 1, 2 and 4 have used 0.2, 0.25 and 0.25 of the machine (page classic_fair_share).
    """
    a, d = 0.45, 0.25  # at the top usage is effective
    b = effective_usage(0.2, 30 / 40, a)
    c = effective_usage(0.25, 10 / 40, a)
    e = effective_usage(0.25, 25 / 60, d)
    f = effective_usage(0.0, 35 / 60, d)
    assert (b, c, e, f) == pytest.approx((0.3875, 0.3, 0.25, 0.1458), abs=5e-5)
    user_2, user_3 = (effective_usage(one, 1 / 2, c) for one in (0.25, 0.0))
    assert (user_2, user_3) == pytest.approx((0.275, 0.15))
    factors = [
        fair_share_factor(effective, share)
        for effective, share in ((b, 0.3), (user_2, 0.05), (user_3, 0.05), (e, 0.25), (f, 0.35))
    ]
    expected = (0.408479, 0.022097, 0.125000, 0.5, 0.749154)
    assert factors == pytest.approx(expected, abs=5e-7)


def test_usage_fades_by_its_half_life():
    assert decayed_gpu_s(800.0, 0, 7200, 3600.0) == 200.0
    # 8 GPUs for ever: as much is added as fades
    level = 8 * 3600.0 / math.log(2.0)
    assert decayed_gpu_s(level, 8, 12_345, 3600.0) == pytest.approx(level)
    # for a time that is short against the half-life hardly anything fades
    assert decayed_gpu_s(0.0, 8, 10, 1e9) == pytest.approx(80.0, rel=1e-6)
    # two steps are one
    step = decayed_gpu_s(decayed_gpu_s(50.0, 4, 100, 700.0), 4, 300, 700.0)
    assert step == pytest.approx(decayed_gpu_s(50.0, 4, 400, 700.0))


def test_the_priority_is_the_weighted_sum_of_its_factors_in_whole_numbers():
    """A day of 7 waited; 4 of 16 nodes; second of two levels, 20 of 40; 1000*.5+700/7+80/4+10/2."""
    factors = Weights(0.5, age_factor(86_400, 604_800), size_factor(0.25, 0.25), 0.5)
    assert multifactor_priority(Weights(1000, 700.0, 80, 10), factors) == 625
    assert multifactor_priority(Weights(3, 0, 0, 0), factors) == 1  # cut, not rounded, as in Slurm
    assert age_factor(10 * 604_800, 604_800) == 1.0


def gpu_hours_by_account(rows: list[dict[str, object]]) -> Counter[str]:
    held: Counter[str] = Counter()
    for row in rows:
        held[row["account"]] += (row["elapsed_s"] or 0.0) * row["n_gpus"] / 3600
    return held


@pytest.mark.slow
@pytest.mark.parametrize(("shares", "part"), [((), 1 / 2), ((AccountShares("team2", 3.0),), 3 / 4)])
def test_where_everybody_wants_more_each_gets_his_share(
    shares: tuple[AccountShares, ...], part: float
):
    """4 nodes have room for 576 jobs a day; the first user wants 1,000, the second 500."""
    rules = FairShare(21_600.0, 600, 604_800.0, 1e6, 0.0, 0.0, 0.0)
    values = {
        "period": {"days": 1.0},
        "machines": {"nodes": 4},
        "users": {"users": 2, "accounts": 2},
        "jobs": one_size(8, 600.0),
        "arrivals": {"jobs_per_day": 1500.0, "day_amplitude": 0.0, "weekend_factor": 1.0},
    }
    in_order = gpu_hours_by_account(played(quiet(**values))[0]["attempts"].to_pylist())
    assert in_order["team2"] / in_order.total() == pytest.approx(1 / 3, abs=0.05)
    shared = quiet(**values, fair_share=rules, accounts=shares)
    held = gpu_hours_by_account(played(shared)[0]["attempts"].to_pylist())
    assert held["team2"] / held.total() == pytest.approx(part, abs=0.03)
    assert held.total() == pytest.approx(in_order.total(), rel=0.02)


@pytest.mark.slow
def test_by_the_weight_of_qos_alone_the_queue_goes_by_levels():
    """Every table is the same as without, but for the column `priority`."""
    values = {
        "period": {"days": 3.0},
        "machines": {"nodes": 20},
        "scheduling": {"pass_interval_s": 0},
        "faults": (fault("gpu-memory", 100.0),),
        "bursts": (),
    }
    by_level, _ = played(small(**values))
    rules = FairShare(604_800.0, 300, 604_800.0, 0.0, 0.0, 0.0, 3000.0)
    by_weight, _ = played(small(**values, fair_share=rules))
    columns = ["attempt_id", "state", "start", "end", "node_list"]
    assert by_level["attempts"].select(columns) == by_weight["attempts"].select(columns)
    assert "PREEMPTED" in by_level["attempts"]["state"].to_pylist(), "or levels decided nothing"
    assert set(by_weight["attempts"]["priority"].to_pylist()) <= {999, 1000, 1999, 2000, 3000}


@pytest.mark.slow
def test_fair_share_is_read_written_changed_and_repeats_to_the_byte():
    scenario = scenario_of(scenario_text("small")[0] + TABLE)
    assert scenario.fair_share == FairShare(
        604_800.0, 300, 604_800.0, 10_000.0, 1000.0, 0.0, 2000.0
    )
    again = scenario_of(text_of(scenario))
    assert (again.fair_share, again.accounts) == (scenario.fair_share, scenario.accounts)
    changed = changed_scenario(scenario, "fair_share.half_life_s=x2,accounts.team1.shares=1")
    assert changed.fair_share.half_life_s == 1_209_600.0
    assert changed.accounts == (AccountShares("team1", 1.0),)
    with pytest.raises(UsageError, match=r"no \[fair_share\] to change"):
        changed_scenario(small(), "fair_share.half_life_s=x2")
    scenario = changed_scenario(scenario, "period.days=2")
    (one, run), (same, _) = played(scenario), played(scenario)
    assert one == same
    gpu_hours = [row["gpu_hours"] or 0.0 for row in run.truth()["hours"].to_pylist()]
    assert sum(gpu_hours) == pytest.approx(40 * 8 * 2 * 24, rel=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("half_life_s = 604800", "half_life_s = 0", "fair_share.half_life_s: 0"),
        ("age_weight = 1000", "age_weight = 1e12", "fair_share.age_weight"),
        ("age_weight = 1000", "age_weight = -1", "fair_share.age_weight: -1"),
        ("shares = 3", "shares = 0", "accounts.shares"),
        ("calc_interval_s = 300\n", "", "fair_share: lacks calc_interval_s"),
        (TABLE.split("[[", maxsplit=1)[0], "", "of no use without"),
    ],
)
def test_what_cannot_be_is_refused(old: str, new: str, says: str):
    assert old in TABLE
    with pytest.raises(UsageError, match=says):
        scenario_of(scenario_text("small")[0] + TABLE.replace(old, new))


def test_shares_of_nobody_are_refused():
    scenario = scenario_of(scenario_text("small")[0] + TABLE.replace("team1", "physics"))
    with pytest.raises(UsageError, match="no account is called 'physics'"):
        played(scenario)
