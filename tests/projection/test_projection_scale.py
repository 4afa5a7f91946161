import math
from dataclasses import replace

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.models.constant import ConstantRate
from ettr.models.data import Counts, Lifetimes
from ettr.models.gamma_mixed import GammaMixed
from ettr.models.log_location_scale import Weibull
from ettr.projection.scale import Scale, Seen, project, renewals

DAY_S = 86400.0


def fleet(failures, node_days, nodes=100):
    counts = np.full(nodes, failures // nodes)
    counts[: failures % nodes] += 1
    return Counts(counts, node_days / nodes)


RSC1 = ConstantRate().fit(fleet(650, 100_000.0))
SEEN = Seen(largest_n_nodes=512)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, "1.8"), (131_072, "0.23")])
def test_rsc1_projections_of_the_paper(gpus, hours):
    """Kokolis et al. (2025): 6.50 per 1,000 node-days gives 1.8 h and 0.23 h."""
    found = project([RSC1], Scale(gpus // 8), SEEN)
    assert f"{found.mttf_h.estimate:.{len(hours.split('.')[1])}f}" == hours
    assert found.mttf_h.low < found.mttf_h.estimate < found.mttf_h.high


def test_closed_form_of_airesim_at_512_nodes():
    """Exponential, 20 minutes of recovery, 512 nodes: 0.99294."""
    one = ConstantRate().fit(fleet(1000, 1_000_000.0))
    found = project([one], Scale(512), SEEN, lambda per_day: 1 / (1 + per_day * 20 / 1440))
    assert found.ettr.estimate == pytest.approx(0.99294, abs=5e-6)
    assert found.ettr.low < found.ettr.estimate < found.ettr.high
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("name", "hazard", "failures"),
    [
        ("Weibull 0.5", lambda t: np.sqrt(t / (50 * DAY_S)), 376),
        ("Weibull 2", lambda t: (t / (100 * DAY_S / math.gamma(1.5))) ** 2, 65),
    ],
)
def test_a_new_fleet_of_256_nodes_over_60_days(name, hazard, failures):
    """Anchor: 376 and 65 failures of nodes that live 100 days on average, repairs renewing."""
    assert 256 * renewals(hazard, 60 * DAY_S) == pytest.approx(failures, rel=0.02), name


def test_a_new_lognormal_fleet_of_256_nodes_over_60_days():
    from scipy.special import log_ndtr

    location = math.log(100 * DAY_S) - 0.5

    def hazard(clock_s):
        with np.errstate(divide="ignore"):
            return -log_ndtr(location - np.log(clock_s))

    assert 256 * renewals(hazard, 60 * DAY_S) == pytest.approx(159, rel=0.02)


def test_renewals_of_a_constant_rate_are_exact():
    assert renewals(lambda t: 0.3 * t, 10.0) == pytest.approx(3.0, rel=1e-5)
    with pytest.raises(UsageError, match="give a positive time"):
        renewals(lambda t: t, 0.0)


def test_beyond_the_largest_job_it_warns():
    found = project([RSC1], Scale(2048), Seen(largest_n_nodes=512))
    assert len(found.warnings) == 1
    assert "2,048 nodes are 4 times the largest job seen (512)" in found.warnings[0].text
    assert found.warnings[0].kind == "extrapolation"
    assert found.meaning.endswith("; this lies beyond what was seen.")


def test_every_reason_to_doubt_is_told():
    few = ConstantRate().fit(fleet(3, 1000.0))
    scale = Scale(1000, gpus_per_node=4, run_days=90, age_days=(0, 900))
    found = project([few], scale, Seen(512, span_days=30, oldest_days=400))
    told = "\n".join(warning.text for warning in found.warnings)
    for part in (
        "largest job seen",
        "Nodes of 4 GPUs were not seen",
        "3 failures are too few",
        "longer than the 30 days",
        "No node older than 400 days",
    ):
        assert part in told
    small = project([RSC1], Scale(2), Seen(512, smallest_n_nodes=16))
    assert "fewer than the smallest job seen (16)" in small.warnings[0].text


def test_a_poor_fit_at_a_scale_that_was_seen_is_no_extrapolation():
    """Half of the nodes never fail, the others ten times each: no constant rate."""
    counts = Counts(np.tile([0, 10], 50), 100.0)
    found = project([ConstantRate().fit(counts)], Scale(64), SEEN)
    assert [warning.kind for warning in found.warnings] == ["poor fit"]
    assert "contradict constant rate (p " in found.warnings[0].text
    assert found.meaning.endswith("; the fit is poor, so the interval may be too narrow.")
    assert "beyond what was seen" not in found.meaning


def test_few_failures_at_a_scale_that_was_seen_are_no_extrapolation():
    found = project([ConstantRate().fit(fleet(3, 1000.0))], Scale(64), SEEN)
    assert [warning.kind for warning in found.warnings] == ["few failures"]
    assert found.meaning.endswith("; it rests on few failures.")


def test_each_kind_of_doubt_stands_in_the_sentence_once():
    found = project([ConstantRate().fit(fleet(3, 1000.0))], Scale(4096, 4), SEEN)
    kinds = [warning.kind for warning in found.warnings]
    assert kinds == ["extrapolation", "extrapolation", "few failures"]
    assert found.meaning.endswith("; this lies beyond what was seen and it rests on few failures.")


def test_other_gpus_per_node_span_both_ways_of_growing():
    found = project([RSC1], Scale(100, gpus_per_node=4), SEEN)
    by_gpu, by_node = found.lines
    assert by_gpu.mttf_h.estimate == pytest.approx(2 * by_node.mttf_h.estimate)
    assert found.mttf_h.low == by_node.mttf_h.low
    assert found.mttf_h.high == by_gpu.mttf_h.high


def test_a_second_model_widens_the_band():
    rng = np.random.default_rng(1)
    counts = Counts(rng.poisson(rng.gamma(0.5, 2.0, 300)), 100.0)
    one, two = ConstantRate().fit(counts), GammaMixed().fit(counts)
    narrow, wide = project([one], Scale(64), SEEN), project([one, two], Scale(64), SEEN)
    assert wide.mttf_h.low < narrow.mttf_h.low
    assert wide.mttf_h.high > narrow.mttf_h.high
    assert wide.parameter_mttf_h == narrow.parameter_mttf_h


def test_age_matters_to_a_model_that_knows_it():
    rng = np.random.default_rng(2)
    fit = Weibull().fit(Lifetimes(100 * DAY_S * rng.weibull(0.5, 2000), np.ones(2000, bool)))
    young = project([fit], Scale(10, age_days=(0, 10)), SEEN)
    old = project([fit], Scale(10, age_days=(300, 310)), SEEN)
    assert young.mttf_h.estimate < 0.3 * old.mttf_h.estimate


def test_no_failure_gives_one_end_only():
    none = ConstantRate().fit(fleet(0, 1000.0))
    found = project([none], Scale(100), SEEN, lambda per_day: 1 / (1 + per_day))
    assert found.mttf_h.estimate is None
    assert found.mttf_h.high == math.inf
    assert found.ettr.high == 1.0
    assert found.ettr.estimate is None
    assert "the mean time to failure is at least" in found.meaning


def test_spares_cover_the_nodes_in_repair():
    scale = Scale(1000, spares=20, repair_days=2.0)
    found = project([RSC1], scale, Seen(1000), lambda per_day: 0.9)
    # 13 nodes would be in repair if nodes failed also while the job waits for one: the chain of
    # 0 to 21 nodes in repair, each returning after 2 days, solved
    chain = np.cumprod(np.concatenate(([1.0], 13.0 / np.arange(1, 22))))
    chain /= chain.sum()
    assert found.spares.in_repair.estimate == pytest.approx(chain @ np.arange(22))
    assert found.spares.full_share.estimate == pytest.approx(1.0 - chain[-1])
    assert found.ettr.estimate == pytest.approx(0.9 * found.spares.full_share.estimate)
    enough = project([RSC1], replace(scale, spares=found.spares.needed_for_99), Seen(1000))
    assert enough.spares.full_share.low >= 0.99


def test_failures_of_a_run_scatter_more_than_their_mean():
    found = project([RSC1], Scale(100, run_days=10), SEEN).failures_in_run
    assert found.estimate == pytest.approx(6.5)
    assert found.low <= 3
    assert found.high >= 10


def test_nothing_fails_in_a_run_while_it_waits():
    """Up, failed, queued and short of a node in turn, played for 400 runs of 50 days."""
    rng = np.random.default_rng(2)
    scale = Scale(1000, spares=2, repair_days=0.5, run_days=50, queue_s=0.1 * 86400)
    failed = 0
    for _ in range(400):
        clock, back = 0.0, []
        while True:
            clock += rng.exponential(1 / 6.5)
            if clock > scale.run_days:
                break
            failed += 1
            back = sorted(moment for moment in [*back, clock + rng.exponential(0.5)])
            back = [moment for moment in back if moment > clock]
            if len(back) > scale.spares:
                clock = back[len(back) - scale.spares - 1]
            clock += scale.queue_s / 86400
    found = project([RSC1], scale, SEEN).failures_in_run
    # repairs go on while the job is queued, which the closed form leaves out
    assert found.estimate == pytest.approx(failed / 400, rel=0.12)
    at_all_times = project([RSC1], Scale(1000, run_days=50), SEEN).failures_in_run
    assert at_all_times.estimate == pytest.approx(6.5 * 50)
    assert found.high < at_all_times.low


@pytest.mark.slow
@pytest.mark.parametrize("expected", [0.5, 3, 10, 50])
def test_bands_of_a_run_hold_what_comes(expected):
    """Past and future of the same length and the same constant rate."""
    rng = np.random.default_rng(3)
    inside = []
    for past, future in rng.poisson(expected, (1500, 2)):
        fit = ConstantRate().fit(Counts([past], [1000.0], unit="fleet"))
        band = project([fit], Scale(100, run_days=10), SEEN).failures_in_run
        inside.append(band.low <= future <= band.high)
    assert np.mean(inside) >= 0.9 - 0.015


def test_every_impossible_number_is_told_at_once():
    with pytest.raises(UsageError) as told:
        project([], Scale(0, spares=-1, repair_days=0.0, age_days=(5, 2)), SEEN)
    for part in (
        "fits: none",
        "n_nodes: 0; give 1 or more",
        "spares: -1",
        "repair_days: 0.0",
        "age_days: (5, 2)",
    ):
        assert part in str(told.value)
