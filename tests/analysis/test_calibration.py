"""A scenario fitted to a store, and judged by days that were held back."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cluster_scenarios import fault, one_size, played, quiet, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.back_test import (
    PlacedQuantity,
    _warm_up_days,
    back_test,
    judged,
    offered_load,
    overlap_note,
    quantities_of,
    warm_up_days,
)
from ettr.analysis.calibration.fit import (
    SiteFit,
    _arrivals,
    _law,
    _machines,
    _resubmissions,
    fit_jobs,
    fit_site,
    lengths_of,
)
from ettr.analysis.calibration.fit_faults import _repair
from ettr.analysis.calibration.record import (
    Attempts,
    Fitted,
    Machine,
    ScenarioMaker,
    SiteRecord,
    simulated_record,
    site_record,
)
from ettr.cli.main import build_app
from ettr.errors import UsageError
from ettr.facts.stored import stored_rows
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import (
    EVIDENCE,
    ClusterScenario,
    Validation,
    owners_of,
    parts_of,
    scenario_of,
    text_of,
    with_validation,
)
from ettr.sim.cluster.scenario_parts import JobClass
from ettr.sim.cluster.standing import drawn_scenario, standing_of, values_digest
from ettr.sim.cluster.whatif import sensitivity, what_if
from ettr.sim.cluster.workload import Replay, ReplayedJob
from ettr.store import open_store
from ettr.tables import NODES
from fact_tables import put

SPLIT = datetime(2026, 1, 29, tzinfo=UTC)  # after 24 of 32 days
END = datetime(2026, 2, 6, tzinfo=UTC)
REPAIR_S, SIGMA = 14_400.0, 0.8


def site() -> ClusterScenario:
    """32 days of 40 nodes that fail a lot; its queue has room, so that it soon is as ever."""
    return small(
        period={"days": 32.0},
        arrivals={"jobs_per_day": 50.0},
        jobs=(JobClass(8, 0.7, 20_000.0, 0.0, "exponential"), JobClass(32, 0.3, 30_000.0, 0.7)),
        faults=tuple(
            fault(symptom, 30.0, repair_mean_s=REPAIR_S, repair_sigma=SIGMA, node_down_chance=0.0)
            for symptom in ("main-memory", "infiniband")
        ),
        bursts=(),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    with open_store(folder / "site", create=True) as opened:
        simulate_into(opened, site(), 3, "site", "site", folder / "truth")
    return folder / "site"


@pytest.fixture(scope="module")
def fitted(store: Path) -> SiteFit:
    with open_store(store) as opened:
        return fit_site(Analysis(opened), "site", SPLIT)


@pytest.fixture(scope="module")
def reality(store: Path) -> SiteRecord:
    with open_store(store) as opened:
        return site_record(Analysis(opened))


def within(fit: SiteFit, key: str, truth: float) -> bool:
    low, high = fit.scenario.intervals[key]
    return low <= truth <= high


@pytest.mark.slow
def test_a_fit_finds_what_was_planted(fitted: SiteFit):
    made = fitted.scenario
    assert (made.machines.nodes, made.machines.gpus_per_node) == (40, 8)
    assert (made.machines.nodes_per_rack, made.machines.racks_per_pod) == (2, 10)
    assert [job.gpus for job in made.jobs] == [8, 32]
    assert [job.law for job in made.jobs] == ["exponential", "lognormal"]
    truths = {
        "arrivals.jobs_per_day": 50.0,
        "arrivals.day_amplitude": 0.3,
        "arrivals.weekend_factor": 0.7,
        "jobs[1].share": 0.7,
        "jobs[1].mean_s": 20_000.0,
        "jobs[2].mean_s": 30_000.0,
        "jobs[2].sigma": 0.7,
        "outcomes.failed_share": 0.25,
        "outcomes.cancelled_share": 0.03,
        "faults[1].per_1000_node_days": 30.0,
        "faults[2].per_1000_node_days": 30.0,
        "faults[1].repair_mean_s": REPAIR_S,
        "faults[2].repair_mean_s": REPAIR_S,
        "faults[1].repair_sigma": SIGMA,
        "faults[2].repair_sigma": SIGMA,
    }
    missed = [key for key, truth in truths.items() if not within(fitted, key, truth)]
    # each interval misses in one of ten: more than 5 of 15 happen in 2 of 1,000
    assert len(missed) <= 5, missed
    for key, truth in truths.items():
        low, high = fitted.scenario.intervals[key]
        assert low / 2 <= truth <= 2 * high, key


@pytest.mark.slow
@pytest.mark.usefixtures("monkeypatch")  # other nodes than the store has: no held answers
@pytest.mark.parametrize(
    ("smaller", "per_node", "gpu_type", "says"),
    [
        (
            10,
            8,
            "H100",
            "nodes of 8 GPUs have 320, and those of the logs 280: the scenario has more",
        ),
        (
            30,
            4,
            "A100",
            "nodes of 4 GPUs have 160, and those of the logs 200: the scenario has fewer",
        ),
        (0, 8, "H100", ""),
    ],
)
def test_nodes_that_differ_make_another_total_of_gpus_and_the_fit_says_so(
    store: Path,
    smaller: int,
    per_node: int,
    gpu_type: str,
    says: str,
):
    """So many of the 40 nodes have 4 GPUs and the others 8."""
    with open_store(store) as opened:
        analysis = Analysis(opened)
        nodes = sorted(stored_rows(analysis.facts, "nodes").to_pylist(), key=itemgetter("node"))
        for place, node in enumerate(nodes):
            node["n_gpus"], node["gpu_type"] = (4, "A100") if place < smaller else (8, "H100")
        put(analysis.facts, "nodes", pa.Table.from_pylist(nodes, NODES.arrow_schema))
        maker = ScenarioMaker(small(), "site")
        _machines(maker, analysis, site_record(analysis).machine)
    made = maker.scenario("site-fit").machines
    assert (made.nodes, made.gpus_per_node, made.gpu_type) == (40, per_node, gpu_type)
    totals = [one for one in maker.notes if "those of the logs" in one]
    assert [one.startswith(f"40 {says}") for one in totals] == [True] * bool(says)


@pytest.mark.slow
def test_what_logs_cannot_bear_is_assumed_and_listed(fitted: SiteFit):
    assert fitted.scenario.sources["checkpoints.interval_s"].startswith("assumed, as in rsc-1-like")
    assert any(one.startswith("checkpoints.interval_s") for one in fitted.not_fitted)
    assert "# Not fitted: checkpoints.interval_s" in fitted.text
    assert not any(one.startswith("arrivals.jobs_per_day") for one in fitted.not_fitted)
    assert scenario_of(fitted.text) == fitted.scenario


@pytest.mark.slow
def test_a_priority_of_a_class_of_jobs_is_neither_fitted_nor_assumed(fitted: SiteFit):
    assert not any(key.endswith("].priority") for key in fitted.scenario.sources)
    assert "\npriority = " not in fitted.text


@pytest.mark.slow
def test_what_came_later_does_not_reach_the_fit(store: Path, fitted: SiteFit, tmp_path: Path):
    """The same site that stopped logging at the end of the fitted part gives the same rates."""
    shorter = replace(site(), period=replace(site().period, days=24.0))
    with open_store(tmp_path / "short", create=True) as opened:
        simulate_into(opened, shorter, 3, "short", "short", tmp_path / "truth")
    with open_store(tmp_path / "short") as opened:
        short = fit_site(Analysis(opened), "site", SPLIT)
    a, b = short.scenario, fitted.scenario
    assert a.arrivals == b.arrivals
    for one, other in zip(a.jobs, b.jobs, strict=True):
        assert one.mean_s == pytest.approx(other.mean_s, rel=0.01)
    for rate, other_rate in zip(a.faults, b.faults, strict=True):
        assert rate.per_1000_node_days == pytest.approx(other_rate.per_1000_node_days, rel=0.05)
        assert rate.repair_mean_s == pytest.approx(other_rate.repair_mean_s, rel=0.05)


@pytest.mark.slow
def test_a_simulation_counts_as_the_analysis_counts(store: Path, reality: SiteRecord):
    """The shortcut of the replicas and the whole analysis say the same of one cluster."""
    tables, run = played(site(), 3)
    short = simulated_record(tables, run.truth(), Machine(40, 8, "GPUs"))
    begin_s, end_s = SPLIT.timestamp(), END.timestamp()
    real, quick = (quantities_of(one, begin_s, end_s) for one in (reality, short))
    assert real.keys() == quick.keys()
    for name, one in real.items():
        assert (one.value is None) == (quick[name].value is None), name
        if one.value is not None:
            assert quick[name].value == pytest.approx(one.value, rel=0.06, abs=1e-9), name
    with open_store(store) as opened:
        count = len(Analysis(opened).facts.rows("failures"))
    assert int(short.attempts.failed.sum()) == pytest.approx(count, rel=0.03)


@pytest.mark.slow
def test_quantities_of_a_cluster_that_can_be_counted_by_hand(reality: SiteRecord):
    """Four jobs of one node of two, a day; one failed; one outage of 6 hours."""
    tables, run = played(small(period={"days": 1.0}, arrivals={"jobs_per_day": 0.0}, bursts=()))
    empty = simulated_record(tables, run.truth(), Machine(40, 8, "GPUs"))
    begin_s = run.log.at(0).timestamp()
    found = quantities_of(empty, begin_s, begin_s + 86400)
    assert found["jobs submitted"].value == 0
    assert found["utilisation"].value == 0
    assert found["failure rate"].value is None, "nothing ran: a rate is not measured"
    assert found["share FAILED"].value is None
    assert found["wait of 1 node, median"].value is None


def nearly_idle(scenario: ClusterScenario) -> ClusterScenario:
    """The same with hardly a job and no fault, which takes no time to simulate."""
    arrivals = replace(scenario.arrivals, jobs_per_day=2.0)
    return replace(scenario, arrivals=arrivals, faults=(), bursts=(), intervals={})


@pytest.mark.slow
def test_the_right_scenario_passes_and_one_that_fails_thrice_as_often_does_not(
    fitted: SiteFit, reality: SiteRecord
):
    def tested(scenario: ClusterScenario, replicas: int):
        return back_test(scenario, reality, "site", SPLIT, END, replicas=replicas)

    right = tested(fitted.scenario, 12)
    assert right.verdict == "passed", right.validation.failed
    assert {"failure rate", "utilisation", "jobs submitted"} <= {*right.validation.passed}
    faults = tuple(
        replace(one, per_1000_node_days=4 * one.per_1000_node_days)
        for one in fitted.scenario.faults
    )
    wrong = tested(replace(fitted.scenario, faults=faults), 8)
    assert wrong.verdict == "failed"
    assert {"failure rate", "outages per node"} & {*wrong.validation.failed}


@pytest.mark.slow
def test_two_workers_say_what_one_does(fitted: SiteFit, reality: SiteRecord):
    made = nearly_idle(fitted.scenario)
    one, two = (
        back_test(made, reality, "site", SPLIT, END, replicas=8, workers=workers)
        for workers in (1, 2)
    )
    counts = {quantity.name: quantity for quantity in one.quantities}["jobs submitted"]
    assert counts.low < counts.predicted < counts.high, "replicas differ"
    assert one == two


@pytest.mark.slow
def test_the_offered_load_is_what_jobs_ask_for(reality: SiteRecord):
    """50 jobs of (.7 x 8 GPUs x 20,000 s + .3 x 32 x 30,000 s) in 320 GPU-days; few large ones."""
    assert offered_load(site()) == pytest.approx(50 * 400_000 / (320 * 86_400))
    full = replace(nearly_idle(site()), jobs=one_size(320, 0.95 * 43_200.0))
    begin = END - timedelta(days=1)
    found = back_test(full, reality, "site", begin, END, replicas=8)
    assert any("95 % of the GPU time" in one for one in found.notes)


@pytest.mark.slow
def test_a_scenario_is_not_judged_by_the_days_to_which_it_was_fitted(
    fitted: SiteFit, reality: SiteRecord
):
    """Fitted until SPLIT: days from then on judge it, and earlier ones do not."""
    made = fitted.scenario
    assert overlap_note(made, "site", SPLIT, END) == ""
    assert overlap_note(site(), "site", SPLIT - timedelta(days=1), END) == "", "nothing is fitted"
    for origin in ("simulated site", "site"):
        sources = {
            key: one.replace("fitted to simulated site: ", f"fitted to {origin}: ")
            for key, one in made.sources.items()
        }
        again = replace(made, sources=sources)
        with pytest.raises(UsageError, match=r"2026-01-05 until 2026-01-29 by its .period.*"
                           r"from 2026-01-28 on are held back.*--hold-back DAYS"):  # fmt: skip
            back_test(again, reality, "site", SPLIT - timedelta(days=1), END)


@pytest.mark.slow
def test_a_fit_to_the_same_days_of_another_store_says_that_it_may_be_no_test(fitted: SiteFit):
    made = fitted.scenario
    note = overlap_note(made, "copy", SPLIT - timedelta(days=1), END)
    assert "fitted to simulated site, 2026-01-05 until 2026-01-29" in note
    assert note.endswith("if both are logs of one cluster, this is no test.")
    assert overlap_note(made, "copy", SPLIT, END) == ""
    # a name that another one begins with is another name
    assert overlap_note(made, "sit", SPLIT - timedelta(days=1), END) != ""


@pytest.mark.slow
def test_a_back_test_has_the_note_on_days_that_overlap(fitted: SiteFit, reality: SiteRecord):
    begin = SPLIT - timedelta(days=1)
    found = back_test(nearly_idle(fitted.scenario), reality, "copy", begin, END, replicas=8)
    assert found.notes[0] == overlap_note(fitted.scenario, "copy", begin, END)


def test_holm_corrects_for_the_number_of_quantities():
    """Holm's own steps: 3 x .01, 2 x .02 and .5; at .05 the first two fail."""
    placed = [
        PlacedQuantity(str(p), "", 1.0, 1.0, 0.0, 2.0, 1.0, 9, p, None, "passed")
        for p in (0.5, 0.01, 0.02)
    ]
    unknown = PlacedQuantity("none", "", None, 1.0, 0, 2, None, 9, None, None, "not measured")
    found = judged([*placed, unknown], 0.05)
    assert [one.p_adjusted for one in found] == pytest.approx([0.5, 0.03, 0.04, None])
    assert [one.verdict for one in found] == ["passed", "failed", "failed", "not measured"]


def test_drawn_values_have_their_intervals():
    made = replace(
        small(), intervals={"arrivals.jobs_per_day": (300.0, 432.0), "lemons.share": (0.02, 0.12)}
    )
    drawn = [drawn_scenario(made, 1, k) for k in range(400)]
    jobs = np.array([one.arrivals.jobs_per_day for one in drawn])
    # 90 % lie within: 24 of 400 more or less are four standard errors
    assert abs(int(((jobs > 300) & (jobs < 432)).sum()) - 360) <= 24
    assert math.exp(np.log(jobs).mean()) == pytest.approx(360, rel=0.03)
    assert all(0 < one.lemons.share < 1 for one in drawn)
    assert drawn[0].jobs == made.jobs
    assert drawn_scenario(made, 1, 7) == drawn[7]


@pytest.mark.slow
def test_a_value_of_which_no_event_was_seen_is_drawn_up_to_its_high_end():
    """No event in T node-days: the rate is exponential with mean 1/T; no one of n: Beta(1, n)."""
    none_in_days, none_of, all_of = 500.0, 20, 30
    ends = {
        "faults[1].per_1000_node_days": (0.0, 1000.0 * -math.log(0.05) / none_in_days),
        "outcomes.out_of_memory_share": (0.0, 1.0 - 0.05 ** (1 / none_of)),
        "checkpoints.resubmit_chance": (0.05 ** (1 / all_of), 1.0),
    }
    made = small(
        faults=(fault("infiniband", 0.0),),
        bursts=(),
        outcomes={"out_of_memory_share": 0.0},
        checkpoints={"resubmit_chance": 1.0},
    )
    drawn = [drawn_scenario(replace(made, intervals=ends), 1, k) for k in range(1000)]
    rate = np.array([one.faults[0].per_1000_node_days for one in drawn])
    memory = np.array([one.outcomes.out_of_memory_share for one in drawn])
    again = np.array([one.checkpoints.resubmit_chance for one in drawn])
    # four standard errors of a mean of 1,000 exponential numbers are an eighth of it
    assert rate.mean() == pytest.approx(1000.0 / none_in_days, rel=0.125)
    assert memory.mean() == pytest.approx(1 / (none_of + 1), rel=0.125)
    assert 1 - again.mean() == pytest.approx(1 / (all_of + 1), rel=0.125)
    assert rate.min() > 0
    # 50 of 1,000 lie beyond the 95 % points, 28 more or less
    for beyond in (rate > 1000.0 * 3.0 / none_in_days, memory > 1.0 - 0.05 ** (1 / none_of)):
        assert abs(int(beyond.sum()) - 50) <= 28
    certain = replace(made, intervals={"faults[1].per_1000_node_days": (0.0, 0.0)})
    assert drawn_scenario(certain, 1, 1) == replace(certain, validation=None)


def test_shares_that_are_drawn_to_more_than_1_together_are_scaled_to_it():
    """Faults that stop a node or end its jobs, always; shares of ends that leave hardly any."""
    made = small(
        faults=(fault("infiniband", 3.0, node_down_chance=0.5, crash_chance=0.5),),
        bursts=(),
        outcomes={"failed_share": 0.5, "cancelled_share": 0.48, "out_of_memory_share": 0.01},
        arrivals={"day_amplitude": 0.9},
    )
    ends = {
        "faults[1].node_down_chance": (0.3, 0.7),
        "outcomes.failed_share": (0.4, 0.6),
        "arrivals.day_amplitude": (0.7, 0.98),
    }
    drawn = [drawn_scenario(replace(made, intervals=ends), 1, k) for k in range(300)]
    down = np.array([one.faults[0].node_down_chance for one in drawn])
    both = down + np.array([one.faults[0].crash_chance for one in drawn])
    assert both.max() == pytest.approx(1.0)
    # a half of them is drawn below 0.5, and what it leaves is not filled
    assert abs(int((down < 0.5).sum()) - 150) <= 35
    assert both.min() < 0.9
    assert max(one.arrivals.day_amplitude for one in drawn) < 1


def verdict(made: ClusterScenario, failed: tuple[str, ...] = ()) -> Validation:
    return Validation(
        "site", "2026-01-29", "2026-02-06", 30, 1, 0.05, ("failure rate",), failed,
        ("utilisation",), values_digest(made),
    )  # fmt: skip


def test_a_verdict_does_not_lapse_by_a_field_that_a_file_may_leave_out():
    """The digest is of what the file says, whatever else a version of ettr knows."""
    made = small()
    said = [
        f"{where}.{one.name}={getattr(part, one.name)!r}"
        for where, part in parts_of(made)
        if where != "period"
        for one in fields(part)
        if getattr(part, one.name) != one.default
    ]
    assert "jobs.requeued_share=0.0" not in said
    assert values_digest(made) == hashlib.sha256("\n".join(said).encode()).hexdigest()
    other = replace(made, jobs=(replace(made.jobs[0], requeued_share=0.1), *made.jobs[1:]))
    assert values_digest(other) != values_digest(made)


@pytest.mark.slow
def test_a_verdict_lapses_with_the_intervals_from_which_the_back_test_drew(fitted: SiteFit):
    """Narrower or wider, or none: another prediction, which nobody has compared."""
    made = replace(fitted.scenario, validation=verdict(fitted.scenario))
    assert standing_of(made).verdict == "passed"
    key = "arrivals.jobs_per_day"
    low, high = made.intervals[key]
    for ends in ((low / 2, high), (low, high * 2)):
        other = replace(made, intervals={**made.intervals, key: ends})
        assert standing_of(other).verdict == "not validated"
        assert "or their intervals are not those" in standing_of(other).sentence
    assert standing_of(replace(made, intervals={})).verdict == "not validated"
    in_another_order = dict(reversed(made.intervals.items()))
    assert standing_of(replace(made, intervals=in_another_order)).verdict == "passed"


def test_with_a_replay_a_failed_verdict_stays_and_a_passed_one_was_judged_without():
    made = small()
    some = Replay(faults=()).what
    passed = standing_of(replace(made, validation=verdict(made)), some)
    assert (passed.verdict, passed.passed) == ("not validated", ())
    assert "passed its back-test with faults that were drawn (site, 2026-01-29" in passed.sentence
    failed = replace(made, validation=verdict(made, ("lost goodput",)))
    assert standing_of(failed, some) == standing_of(failed)
    assert standing_of(failed, some).verdict == "failed"
    for answer in (
        what_if(day_of(failed), ["lemons.share=0"], range(3), replay=JOBS_AGAIN),
        sensitivity(day_of(failed), range(3), patterns=("lemons.share",), replay=JOBS_AGAIN),
    ):
        assert answer.standing.sentence.startswith("FAILED ITS BACK-TEST: small does not predict")


JOBS_AGAIN = Replay(
    jobs=(ReplayedJob("1", "train", 100, 100, 8, 700, 3600, 0, 0, 0, 0),),
    owners=owners_of(small()),
)


def day_of(made: ClusterScenario) -> ClusterScenario:
    return replace(made, period=replace(made.period, days=0.2))


def test_the_verdict_travels_with_the_file_and_lapses_when_values_change():
    made = small()
    assert standing_of(made).verdict == "not validated"
    text = with_validation(text_of(made), verdict(made))
    again = scenario_of(text)
    assert standing_of(again).verdict == "passed"
    assert "utilisation" in standing_of(again).not_validated
    failing = scenario_of(with_validation(text, verdict(made, ("lost goodput",))))
    assert standing_of(failing).verdict == "failed"
    assert "lost goodput" in standing_of(failing).sentence
    changed = scenario_of(text.replace("value = 0.45", "value = 0.44").replace("0.15,", "0.16,"))
    assert changed.jobs != made.jobs
    assert standing_of(changed).verdict == "not validated"
    with pytest.raises(UsageError, match="back-test the scenario again"):
        scenario_of(text.replace("replicas = 30", 'replicas = "many"'))
    with pytest.raises(UsageError, match="low and high"):
        scenario_of(text.replace("{ value = 0.3, ", "{ value = 0.3, low = 0.4, high = 0.5, ", 1))


@pytest.mark.slow
def test_a_verdict_by_a_simulated_store_stays_one_and_older_files_are_read(fitted: SiteFit):
    scenario = fitted.scenario
    was = Validation("site", "2026-01-29", "2026-02-06", 8, 1, 0.05, ("failure rate",), (), (),
                     values_digest(scenario))  # fmt: skip
    of_site = with_validation(fitted.text, was)
    assert "simulated =" not in of_site
    assert "SIMULATED" not in standing_of(scenario_of(of_site)).sentence
    again = scenario_of(with_validation(fitted.text, replace(was, simulated="SIMULATED, so.")))
    sentence = standing_of(again).sentence
    assert sentence == (
        f"Back-tested, except checkpoints (no training recorded them): {scenario.name} predicts "
        "what was held back (site, 2026-01-29 until 2026-02-06, SIMULATED itself). site is not a "
        "real cluster. SIMULATED, so."
    )


def submitted(first_day: datetime, counts: list[int]) -> Attempts:
    """Jobs that were submitted on so many days in succession, evenly over each."""
    begin_s = first_day.timestamp()
    times_s = np.concatenate(
        [begin_s + 86_400.0 * (k + np.arange(n) / n) for k, n in enumerate(counts)]
    )
    n = times_s.size
    kinds = {
        "Texts": np.full(n, "", dtype=object),
        "Floats": np.full(n, math.nan),
        "Flags": np.ones(n, dtype=np.bool_),
    }
    values = {one.name: kinds.get(str(one.type), np.arange(n)) for one in fields(Attempts)}
    none = np.zeros(n, dtype=np.bool_)
    return Attempts(**(values | {"submit_s": times_s, "failed": none, "silent": none}))


@pytest.mark.parametrize(
    ("day", "counts", "weekday_rate", "factor"),
    [
        # from a Saturday on: four of nine days are of weekends, a fifth as busy
        (3, [20, 20, 100, 100, 100, 100, 100, 20, 20], 100.0, 0.2),
        # too few weekends for a factor of their own: the base's, 0.7
        (2, [100, 70, 70], 100.0, 0.7),
        (5, [100, 100, 100, 100], 100.0, 0.7),
    ],
)
def test_the_rate_of_arrivals_is_a_mean_over_whole_weeks(
    day: int, counts: list[int], weekday_rate: float, factor: float
):
    """Whatever the days of the week that are fitted; the scenario's own day has that rate then."""
    begin = datetime(2026, 1, day, tzinfo=UTC)
    attempts = submitted(begin, counts)
    maker = ScenarioMaker(small(), "site")
    begin_s, days = begin.timestamp(), len(counts)
    _arrivals(maker, attempts, attempts.is_first, begin_s, begin_s + 86_400.0 * days)
    made = maker.scenario("site-fit")
    assert made.arrivals.weekend_factor == pytest.approx(factor)
    rate = weekday_rate * (5 + 2 * factor) / 7
    assert made.arrivals.jobs_per_day == pytest.approx(rate)
    low, high = made.intervals["arrivals.jobs_per_day"]
    assert low < rate < high
    assert low + high == pytest.approx(2 * rate)


@pytest.mark.parametrize(("peak", "amplitude"), [(15, 0.5), (0, 0.8), (23, 0.3)])
def test_the_hour_with_most_submissions_is_the_peak(peak: int, amplitude: float):
    """Jobs in each hour as the wave of a scenario expects them, evenly over the hour."""
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    hours = np.arange(24)
    wave = 1.0 + amplitude * np.cos(2.0 * math.pi * (hours - peak) / 24.0)
    counts = np.rint(1000.0 * wave).astype(int)
    assert hours[counts.argmax()] == peak
    times_s = np.concatenate([h + (np.arange(n) + 0.5) / n for h, n in enumerate(counts)]) * 3600.0
    attempts = submitted(begin, [int(counts.sum())])
    attempts = replace(attempts, submit_s=begin.timestamp() + times_s)
    maker = ScenarioMaker(small(), "site")
    begin_s = begin.timestamp()
    _arrivals(maker, attempts, attempts.is_first, begin_s, begin_s + 86_400.0)
    made = maker.scenario("site-fit").arrivals
    off_h = (made.peak_hour - peak + 12.0) % 24.0 - 12.0
    assert off_h == pytest.approx(0.0, abs=0.02)
    assert made.day_amplitude == pytest.approx(amplitude, abs=0.001)


def test_jobs_that_somebody_put_back_are_fitted_for_each_size():
    """A fifth of the jobs of a node; those that the infrastructure ended are its failures."""
    jobs = (JobClass(8, 0.7, 3600.0, 0.5, requeued_share=0.2), JobClass(16, 0.3, 3600.0, 0.5))
    made = quiet(period={"days": 4.0}, jobs=jobs, arrivals={"jobs_per_day": 200.0})
    tables, run = played(made)
    machine = Machine(40, 8, "GPUs")
    attempts = simulated_record(tables, run.truth(), machine).attempts
    begin_s = run.log.at(0).timestamp()

    def fitted_to(which: Attempts) -> ClusterScenario:
        maker = ScenarioMaker(made, "site")
        fit_jobs(maker, which, machine, begin_s, begin_s + 4 * 86_400.0)
        return maker.scenario("site-fit")

    found = fitted_to(attempts)
    one, other = found.jobs
    low, high = found.intervals["jobs[1].requeued_share"]
    # about 560 jobs: three standard errors
    assert one.requeued_share == pytest.approx(0.2, abs=0.05)
    assert 0 < low < one.requeued_share < high
    assert other.requeued_share == 0
    assert "put back" in found.sources["jobs[2].requeued_share"]
    broken = replace(attempts, failed=attempts.state == "REQUEUED")
    assert fitted_to(broken).jobs[0].requeued_share == 0


def crashing(**parts: object) -> ClusterScenario:
    """Jobs of one and of eight nodes, of one length each; owners submit them again."""
    jobs = (JobClass(8, 0.7, 7200.0, 0.0), JobClass(64, 0.3, 20_000.0, 0.0))
    rules = {"interval_s": 600, "restart_s": 300, "resubmit_chance": 1.0, "mean_resubmit_s": 600.0}
    usual: dict[str, object] = {
        "period": {"days": 6.0},
        "jobs": jobs,
        "arrivals": {"jobs_per_day": 50.0},
        "checkpoints": rules,
        "faults": (fault("node-hardware", 400.0, crash_chance=1.0, repair_mean_s=1800.0),),
        "lemons": {"share": 0.0},
    }
    return quiet(**(usual | parts))  # type: ignore[arg-type]


def test_work_that_is_submitted_again_is_one_piece_of_work():
    """Each has the planted length; the shares are those of what was submitted first."""
    made = crashing()
    tables, run = played(made)
    machine = Machine(40, 8, "GPUs")
    attempts = simulated_record(tables, run.truth(), machine).attempts
    begin_s = run.log.at(0).timestamp()
    end_s = begin_s + 6 * 86_400.0
    follows = _resubmissions(attempts, end_s)
    known = np.ones(len(attempts), dtype=np.bool_)
    work_s, ended, last = lengths_of(attempts, follows, made, machine, known, end_s)
    assert int((follows >= 0).sum()) > 50
    names = attempts.name[last].tolist()
    assert len(names) == len(set(names)), "a task is one piece of work"
    for gpus, length_s in ((8, 7200.0), (64, 20_000.0)):
        assert set(work_s[last & ended & (attempts.size == gpus)]) == {length_s}
    maker = ScenarioMaker(made, "site")
    fit_jobs(maker, attempts, machine, begin_s, end_s)
    found = maker.scenario("site-fit")
    first = dict(zip(attempts.name, attempts.size, strict=True))
    sizes = np.array(list(first.values()))
    assert [one.share for one in found.jobs] == [(sizes == 8).mean(), (sizes == 64).mean()]


def test_who_comes_again_is_counted_of_what_ended_in_the_days_that_are_fitted():
    """Half of the jobs come again; what ended outside of two days of eight does not count."""
    made = crashing(
        period={"days": 8.0},
        checkpoints={"resubmit_chance": 0.5, "mean_resubmit_s": 600.0},
        faults=(fault("node-hardware", 800.0, crash_chance=1.0, repair_mean_s=1800.0),),
    )
    tables, run = played(made)
    machine = Machine(40, 8, "GPUs")
    attempts = simulated_record(tables, run.truth(), machine).attempts
    begin_s = run.log.at(0).timestamp() + 3 * 86_400.0
    end_s = begin_s + 2 * 86_400.0

    def fitted_to(which: Attempts) -> ScenarioMaker:
        maker = ScenarioMaker(made, "site")
        fit_jobs(maker, which, machine, begin_s, end_s)
        return maker

    found = fitted_to(attempts).scenario("site-fit")
    low, high = found.intervals["checkpoints.resubmit_chance"]
    assert low < 0.5 < high
    # about 40 jobs: three standard errors
    assert found.checkpoints.resubmit_chance == pytest.approx(0.5, abs=0.24)
    # who comes again after the days, and how long jobs may be then, is not known in them
    later = attempts.submit_s >= end_s
    cut = replace(attempts, name=np.where(later, "another", attempts.name).astype(object),
                  limit_s=np.where(later, 1e6, attempts.limit_s))  # fmt: skip
    assert fitted_to(cut).scenario("site-fit") == found
    # without names nobody is known again, which is no chance of 0
    unnamed = fitted_to(replace(attempts, name=np.full(len(attempts), "", dtype=object)))
    assert any(one.startswith("checkpoints.resubmit_chance") for one in unnamed.not_fitted)


@pytest.mark.slow
def test_a_silent_node_works_no_more_although_its_jobs_run(tmp_path: Path):
    """Until the heartbeat finds it: from the logs as from the truth each job has its length."""
    made = crashing(faults=(fault("node-hardware", 400.0, node_down_chance=1.0, crash_chance=0.0),))
    with open_store(tmp_path / "site", create=True) as opened:
        simulate_into(opened, made, 1, "site", "site", tmp_path / "truth")
        logged = site_record(Analysis(opened))
    tables, run = played(made)
    short = simulated_record(tables, run.truth(), logged.machine)
    n_silent = int((logged.attempts.state == "NODE_FAIL").sum())
    assert n_silent > 50
    end_s = run.log.at(0).timestamp() + 6 * 86_400.0
    for attempts in (logged.attempts, short.attempts):
        assert int(attempts.silent.sum()) == n_silent
        nothing, known = np.full(len(attempts), -1), np.ones(len(attempts), dtype=np.bool_)
        work_s, ended, last = lengths_of(attempts, nothing, made, logged.machine, known, end_s)
        for gpus, length_s in ((8, 7200.0), (64, 20_000.0)):
            assert set(work_s[last & ended & (attempts.size == gpus)]) == {length_s}


def test_a_job_of_another_size_is_another_job():
    """Of the same owner and name, an hour after a crash; and one of the same size goes on."""
    attempts = submitted(datetime(2026, 1, 5, tzinfo=UTC), [3])
    at_s = attempts.submit_s[0] + 3600.0 * np.arange(3)
    crashed = np.array([True, False, False])
    attempts = replace(
        attempts,
        submit_s=at_s,
        end_s=at_s + 1800.0,
        failed=crashed,
        state=np.array(["FAILED", "COMPLETED", "COMPLETED"], dtype=object),
        name=np.array(["train"] * 3, dtype=object),
        size=np.array([16.0, 8.0, 16.0]),
    )
    assert _resubmissions(attempts, at_s[2] + 7200.0).tolist() == [-1, -1, 0]


def test_only_what_the_base_has_is_assumed_as_in_it():
    """Of the entries of a list each value that is no fit, listed once by its name."""
    base = small()
    known, own = (one for one in base.faults if one.symptom in ("infiniband", "nvlink"))
    own = replace(own, severity="low" if own.severity == "high" else "high")
    new = replace(known, symptom=next(one for one in EVIDENCE if one not in str(base.faults)))
    maker = ScenarioMaker(base, "site")
    maker.assumed("faults.law, form of infiniband (a constant rate)")
    named = {"symptom": Fitted(new.symptom, "attribution")}
    maker.entries("faults", [(known, {}), (own, {}), (known, named)])
    maker.entries("bursts", [])
    made = maker.scenario("site-fit")
    as_base = f"assumed, as in {base.name}"
    assert made.sources["faults[1].severity"] == as_base
    assert made.sources["faults[2].severity"] == "assumed"
    assert made.sources["faults[2].repair_mean_s"] == as_base
    assert made.sources["faults[3].severity"] == "assumed", "another symptom of the base has it"
    assert made.faults[2] == new
    assert made.n_assumed == len(made.sources) - 1
    fields_of_faults = [one for one in maker.not_fitted if one.startswith("faults.*.")]
    assert fields_of_faults.count("faults.*.severity") == 1
    assert "faults.*.law" not in fields_of_faults, "the line with the reason says so"
    assert "faults.*.form" not in fields_of_faults


def test_times_of_no_lognormal_law_keep_their_mean_and_median():
    """Half of them minutes, half of them days: a lognormal fit alone would miss both."""
    rng = np.random.default_rng(4)
    short_s, long_s = rng.exponential(600.0, 205), rng.exponential(1e6, 195)
    times_s = np.concatenate([short_s, long_s])
    over = np.ones(times_s.size, dtype=np.bool_)
    repairs, lengths = _repair(times_s, over, "repairs"), _law(times_s, over, "jobs")
    assert repairs is not None
    for mean_s, sigma in (
        (repairs["repair_mean_s"].value, repairs["repair_sigma"].value),
        (lengths["mean_s"].value, lengths["sigma"].value),
    ):
        assert mean_s == pytest.approx(times_s.mean(), rel=0.01)
        # the largest sigma that a scenario takes is 5
        wanted_s = max(np.median(times_s), mean_s * math.exp(-12.5))
        assert mean_s * math.exp(-(sigma**2) / 2) == pytest.approx(wanted_s, rel=0.05)


def ettr_out(*words: str) -> str:
    done = CliRunner().invoke(build_app(words[0]), list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_the_commands_fit_judge_and_say_so_in_every_answer(store: Path, tmp_path: Path):
    out = str(tmp_path / "mine.toml")
    said = ettr_out("simulate", "fit", str(store), "--out", out, "--hold-back", "8")
    assert said.startswith("SIMULATED, no cluster logged this:")
    assert "NOT VALIDATED" in said
    assert "Not fitted: checkpoints.interval_s" in said
    text = Path(out).read_text("utf-8")
    assert 'source = "fitted to simulated site: ' in text
    assert "# site is not a real cluster. SIMULATED" in text
    words = ["--store", str(store), "--hold-back", "8", "--replicas", "8", "--out", out]
    found = json.loads(ettr_out("simulate", "backtest", out, *words, "--json"))
    assert found["selection"]["simulated"].startswith("SIMULATED")
    sentence = found["standing"]["sentence"]
    assert "SIMULATED itself" in sentence
    assert "site is not a real cluster" in sentence
    assert found["held_back_from"] == "2026-01-29"
    assert {one["name"]: one for one in found["quantities"]}["failure rate"]["reality"] > 0
    shown = ettr_out("simulate", "show", out)
    assert found["standing"]["sentence"] in shown
    short = day_of(scenario_of(Path(out).read_text("utf-8")))
    Path(out).write_text(with_validation(text_of(short), short.validation), "utf-8")
    ran = json.loads(ettr_out("simulate", "run", out, "--store", str(tmp_path / "s"), "--json"))
    assert ran["standing"] == found["standing"]
    changed = ["--set", "checkpoints.interval_s=600", "--runs", "3"]
    asked = json.loads(ettr_out("simulate", "whatif", out, *changed, "--json"))
    assert asked["standing"] == found["standing"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fit", "STORE"], "--out SCENARIO.toml"),
        (["fit", "STORE", "--out", "x.toml", "--until", "May"], "2026-01-05"),
        (["fit", "STORE", "--out", "x.toml", "--hold-back", "31"], "are left to fit"),
        (
            ["fit", "STORE", "--out", "x.toml", "--until", "1999-01-01"],
            f"from 2026-01-05 to {END.date()} and the fit would end on 1999-01-01; give 3 days",
        ),
        (["fit", "STORE", "--out", "x.toml", "--hold-back", "1", "--until", "2026-01-09"], "one"),
        (["backtest", "STORE"], "the days to hold back with --hold-back"),
        (["backtest", "STORE", "--hold-back", "0"], "1 day or more"),
        (["run", "small", "--store", "x", "--hold-back", "3"], "no use for it"),
    ],
)
def test_a_message_says_what_to_give(words: list[str], says: str, store: Path, tmp_path: Path):
    given = [str(store) if one == "STORE" else one for one in words]
    given = [str(tmp_path / one) if one == "x.toml" else one for one in given]
    with pytest.raises(UsageError, match=says):
        ettr_out("simulate", *given)


@pytest.mark.slow
def test_a_queue_that_grows_is_warmed_up_for_as_long_as_it_grew(
    fitted: SiteFit, reality: SiteRecord
):
    """Such a queue has no steady state: begun empty shortly before, it would be too short."""
    made, begin_s = fitted.scenario, SPLIT.timestamp()

    def at_load(load: float) -> ClusterScenario:
        jobs_per_day = made.arrivals.jobs_per_day * load / offered_load(made)
        return replace(made, arrivals=replace(made.arrivals, jobs_per_day=jobs_per_day))

    grown_days = int((begin_s - reality.attempts.submit_s.min()) // 86_400)
    assert grown_days > 20
    assert _warm_up_days(at_load(1.1), reality, begin_s) == grown_days
    assert _warm_up_days(at_load(0.5), reality, begin_s) == warm_up_days(at_load(0.5)) < 20


def test_warm_up_and_spans_are_whole_days(fitted: SiteFit, reality: SiteRecord):
    with pytest.raises(UsageError, match="less than a day"):
        back_test(fitted.scenario, reality, "site", END, END + timedelta(hours=3))
    with pytest.raises(UsageError, match="give 8 to"):
        back_test(fitted.scenario, reality, "site", SPLIT, END, replicas=3)


@pytest.mark.slow
def test_a_day_of_a_real_slurm_is_fitted_and_can_be_read_again(tmp_path: Path):
    """The bundled example: most of its faults took no node down, so that no repair is known."""
    logs = sorted((Path(__file__).parents[2] / "examples" / "slurm").iterdir())
    store, scenario = tmp_path / "store", tmp_path / "site.toml"
    for words in (
        ["ingest", store, *logs, "--timezone", "UTC"],
        ["simulate", "fit", store, "--out", scenario],
    ):
        done = CliRunner().invoke(build_app(words[0]), list(map(str, words)))
        assert done.exit_code == 0, done.output
    read = scenario_of(scenario.read_text())
    assert read.faults
    assert all(one.per_1000_node_days > 0 for one in read.faults)
    assert all(math.isfinite(end) for ends in read.intervals.values() for end in ends)


@pytest.mark.slow
def test_jobs_of_a_full_queue_are_counted_in_gpus_though_most_never_started(tmp_path: Path):
    full = quiet(jobs=one_size(16, 9000.0), period={"days": 1.0}, arrivals={"jobs_per_day": 500.0})
    with open_store(tmp_path / "site", create=True) as opened:
        simulate_into(opened, full, 1, text_of(full), "site", tmp_path / "truth")
        record = site_record(Analysis(opened))
    assert np.isnan(record.attempts.start_s).mean() > 0.5
    assert record.machine == Machine(40, 8, "GPUs")
    assert set(record.attempts.size) == {16.0}
