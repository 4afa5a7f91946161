"""A store joined with models, projection and plan, on a cluster whose truth is known."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.comparing import compare_fleets
from ettr.analysis.fleet_evidence import (
    evidence_to_plan_with,
    fleet_evidence,
    periods,
    typed_evidence,
)
from ettr.analysis.own_failures import measured_rate
from ettr.analysis.projecting import project_store
from ettr.errors import UsageError
from ettr.plan.outlook import plan_run
from ettr.plan.run import RunShape
from ettr.report.section import section_text
from ettr.report.sections.compare import compare_section
from ettr.report.sections.plan import plan_section
from ettr.report.sections.projection import planning_section, projection_section
from ettr.store import open_store
from synthetic.cluster import ORIGIN, ClusterPlan, SyntheticCluster, build_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return build_cluster(ClusterPlan(days=40.0), seed=5)


@pytest.fixture(scope="module")
def place(cluster: SyntheticCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("planning") / "store"
    with open_store(where, create=True) as store, store.ingestion("f1") as ingestion:
        for name, rows in cluster.tables.items():
            if name in {"nodes", "attempts", "allocations", "node_states", "events", "progress"}:
                ingestion.write(name, rows)
        ingestion.commit(
            {
                "file_id": "f1",
                "name": "synthetic",
                "source": "synthetic",
                "size_bytes": 0,
                "rows_read": 1,
                "rows_rejected": 0,
                "rows_skipped": 0,
                "timezone": "UTC",
                "options": "{}",
                "notes": None,
                "ingested": 1,
            }
        )
    return where


@pytest.fixture(scope="module")
def analysis(place: Path) -> Iterator[Analysis]:
    with open_store(place) as store:
        yield Analysis(store)


def told(*args: str) -> dict[str, Any]:
    done = ettr(*args, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def test_large_jobs_are_the_record(analysis: Analysis, cluster: SyntheticCluster) -> None:
    record = evidence_to_plan_with(analysis, "synth")
    assert record.counts.total == sum(cluster.truth.failures_large.values())
    assert record.counts.node_days == pytest.approx(cluster.truth.node_s_large / 86400, rel=1e-9)
    assert record.by_symptom == {k: n for k, n in cluster.truth.failures_large.items() if n}
    assert record.largest_n_nodes == 32
    assert record.gpus_per_node == 8


def test_all_jobs_are_the_record_where_asked(analysis: Analysis, cluster: SyntheticCluster) -> None:
    record = fleet_evidence(analysis, "synth")
    assert record.counts.total == analysis.rates.all_jobs.failures
    assert record.counts.node_days == pytest.approx(cluster.truth.node_s_all / 86400, rel=1e-9)


def test_planted_rate_is_in_the_band_of_the_plan(place: Path) -> None:
    planted = sum(ClusterPlan().rate_per_node_day.values())
    found = told("plan", str(place), "--gpus", "4096")
    rate = found["rate"]["per_node_day"]
    assert rate["low"] < planted < rate["high"]
    assert found["mttf_h"]["low"] < 24 / (512 * planted) < found["mttf_h"]["high"]
    assert found["ettr"]["low"] <= found["ettr"]["estimate"] <= found["ettr"]["high"]


def test_projection_holds_the_planted_mttf(place: Path) -> None:
    planted = sum(ClusterPlan().rate_per_node_day.values())
    found = told("project", str(place), "--nodes", "64,2048", "--spares", "8", "--repair", "6h")
    for point, nodes in zip(found["points"], (64, 2048), strict=True):
        mttf = point["projection"]["mttf_h"]
        assert mttf["low"] < 24 / (nodes * planted) < mttf["high"]
        assert point["projection"]["spares"]["needed_for_99"] >= 1
    beyond = [
        warning["text"]
        for warning in found["points"][1]["projection"]["warnings"]
        if warning["kind"] == "extrapolation"
    ]
    assert "times the largest job seen" in beyond[0]


def test_without_scales_the_next_powers_of_two(analysis: Analysis) -> None:
    found = project_store(analysis, "synth")
    assert found is not None
    assert [point.size for point in found.points] == [256, 512, 1024, 2048, 4096, 8192]
    ettrs = [p.projection.ettr.estimate for p in found.points if p.projection.ettr]
    assert ettrs == sorted(ettrs, reverse=True)
    # the first scale is the largest job seen: only what lies beyond it extrapolates
    says = [point.projection.meaning for point in found.points]
    assert ["beyond what was seen" in one for one in says] == [False] + 5 * [True]
    text = " ".join(section_text(projection_section(found)).split())
    assert says[0] in text
    assert says[-1] in text
    # ETTR by scale is shown at the published rate too
    assert [len(figure.traces) for figure in projection_section(found).figures] == [1, 2]


def test_advice_for_the_runs_seen(analysis: Analysis) -> None:
    found = analysis.checkpoint_advice
    assert found is not None
    for one in found.sizes:
        assert one.ettr_at_best >= one.ettr_at_hourly
    assert "the best interval for a run on" in planning_section(found).lead


def test_both_periods_keep_every_node_day(analysis: Analysis) -> None:
    whole = fleet_evidence(analysis, "synth")
    cut = ORIGIN + timedelta(days=15)
    late, early = periods(analysis, "synth", cut, cut)
    assert early.counts.total + late.counts.total == whole.counts.total
    together = early.counts.node_days + late.counts.node_days
    assert together == pytest.approx(whole.counts.node_days, rel=1e-9)


def test_a_fleet_equals_itself(analysis: Analysis) -> None:
    record = fleet_evidence(analysis, "one")
    other = fleet_evidence(analysis, "other")
    found = compare_fleets([record, other], 0.9)
    assert found.pairs[0].ratio.ratio == pytest.approx(1.0)
    assert found.pairs[0].ratio.low < 1 < found.pairs[0].ratio.high
    assert "By symptom: one over other" in section_text(compare_section(found))


def test_compare_by_time_and_partition(place: Path) -> None:
    by_time = told("compare", str(place), "--before", "2025-03-20T00:00:00Z")
    assert "after" in by_time["pairs"][0]["a"]
    parts = told("compare", str(place), "--partition", "train", "--all-jobs")
    assert [fleet["name"] for fleet in parts["fleets"]] == ["train", "all others"]


def test_typed_fleets() -> None:
    """Given both counts the first is binomial: SciPy's exact interval of its share, as odds."""
    pair = told("compare", "old=30/5000", "new=12/6000")["pairs"][0]["independent"]
    share = binomtest(30, 42).proportion_ci(0.9, "exact")
    assert pair["ratio"] == pytest.approx(3.0)
    assert pair["low"] == pytest.approx(share.low / (1 - share.low) * 1.2, rel=1e-6)
    assert pair["high"] == pytest.approx(share.high / (1 - share.high) * 1.2, rel=1e-6)
    assert pair["p_value"] < 0.01


def test_funnel_over_typed_fleets() -> None:
    found = told("compare", "a=30/5000", "b=12/6000", "c=31/5000", "d=33/5100")
    places = {point["name"]: point["place"] for point in found["funnel"]["points"]}
    assert places["b"].startswith("below")
    assert places["a"] == "inside"


def test_llama_3_at_twice_the_size() -> None:
    """419 failures in 2,048 x 54 node-days: the MTTF halves where the nodes double."""
    found = told(
        "project",
        "--failures",
        "419",
        "--node-days",
        "110592",
        "--seen-gpus",
        "16384",
        "--gpus",
        "16384,32768",
    )
    here, there = (point["projection"] for point in found["points"])
    assert here["mttf_h"]["estimate"] == pytest.approx(54 * 24 / 419)
    assert there["mttf_h"]["estimate"] == pytest.approx(here["mttf_h"]["estimate"] / 2)
    assert not any("largest job seen" in one["text"] for one in here["warnings"])
    assert any("2 times the largest job seen" in one["text"] for one in there["warnings"])


def test_other_gpus_per_node_widen_the_band() -> None:
    seen = (
        "--failures",
        "419",
        "--node-days",
        "110592",
        "--seen-gpus",
        "16384",
        "--seen-gpus-per-node",
        "8",
    )
    found = told("project", *seen, "--gpus", "16384", "--gpus-per-node", "4")
    made = found["points"][0]["projection"]
    assert made["mttf_h"]["low"] < made["parameter_mttf_h"]["low"]
    assert any("Nodes of 4 GPUs were not seen" in one["text"] for one in made["warnings"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("project", "--gpus", "64"), "give a STORE, or --failures K with --node-days T"),
        (("project", "--failures", "1", "--node-days", "9", "--gpus", "x"), "not a whole number"),
        (("project", "--failures", "1", "--node-days", "9", "--gpus", "8", "--nodes", "1"), "both"),
        (
            ("project", "--failures", "1", "--node-days", "9", "--gpus", "8", "--days", "-1"),
            "--days -1: give a positive",
        ),
        (("compare", "a=1/10"), "one fleet alone cannot be compared"),
        (("compare", "1/10", "1/10"), "two fleets have the same name"),
        (("compare", "a=1.5/10", "b=1/10"), "a whole number"),
        (("compare", "a=1/10", "b=1/0"), r"above 0"),
        (("compare", "a=1/10", "b=1/9", "--partition", "x"), "give exactly one STORE"),
        (("compare", "a=1/10", "--partition", "x", "--cluster", "y"), "these split the store"),
    ],
)
def test_wrong_use(args: tuple[str, ...], says: str) -> None:
    done = ettr(*args)
    assert done.code == 2
    assert re.search(says, done.err)


def test_unknown_partitions_and_empty_periods(place: Path, analysis: Analysis) -> None:
    with pytest.raises(UsageError, match=r"no job has run.*its partitions"):
        fleet_evidence(analysis, "x", partition=("nowhere",))
    with pytest.raises(UsageError, match="choose a moment within the logs"):
        periods(analysis, "x", ORIGIN - timedelta(days=9), ORIGIN - timedelta(days=9))


def test_plan_of_a_quiet_fleet_names_the_bound() -> None:
    rate = measured_rate(typed_evidence("quiet", 0, 900.0), 0.9)
    made = plan_run(RunShape(64), rate)
    assert made.ettr.estimate is None
    assert "as nothing failed yet" in plan_section(made).lead
