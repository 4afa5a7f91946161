"""`import ettr`: what it loads, what its results hold, and the types that a user's script sees."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import ettr
from cli.program import EVENTS, KERNEL, SACCT, TOTALS, write_logs
from ettr.errors import StoreError, UsageError
from ettr.report.registry import PARTS
from ettr.report.rows import flat_columns, lists_of
from ettr.tables import ATTEMPTS
from synthetic.site import ORIGIN, SitePlan, write_site

ROOT = Path(__file__).resolve().parents[2]
# every result of a fleet, and of each function that takes one
RESULTS: dict[str, Callable[[ettr.Fleet], ettr.Result[Any]]] = {
    **{name: attrgetter(name) for name, part in PARTS.items() if part.in_python},
    "plan_run": lambda fleet: ettr.plan_run(fleet, gpus=1024, target=0.9),
    "project": lambda fleet: ettr.project(fleet, gpus=[1024, 4096]),
    "compare": lambda fleet: ettr.compare(fleet, ("old", 30, 5000.0)),
    "published": lambda fleet: ettr.compare(fleet, published=True),
}
NOT_DRAWN = {"totals", "failure_list", "slo"}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_logs(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def fleet(logs: list[Path]) -> Iterator[ettr.Fleet]:
    with ettr.read(*logs, timezone="UTC", name="small") as opened:
        yield opened


def test_no_front_door_function_has_the_name_of_a_package():
    package = Path(ettr.__file__).parent
    packages = {place.parent.name for place in package.glob("*/__init__.py")}
    functions = set(ettr.__all__) - {"checkpoint", "progress"}
    assert not functions & packages
    assert {"checkpoint", "progress"} <= packages


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plan_runs'"):
        ettr.plan_runs  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_of_the_front_door_can_be_had():
    assert {name for name in ettr.__all__ if getattr(ettr, name) is not None} == set(ettr.__all__)
    assert set(ettr.__all__) <= set(dir(ettr))


def test_a_store_is_opened_and_closed(logs: list[Path], tmp_path: Path):
    with pytest.raises(StoreError, match="no store"):
        ettr.open(tmp_path / "absent")
    with pytest.raises(UsageError, match="no such file"):
        ettr.read(tmp_path / "absent.psv")
    with pytest.raises(UsageError, match="timezone"):
        ettr.read(logs[1])


@pytest.mark.slow
def test_totals_are_those_of_the_logs(fleet: ettr.Fleet):
    (row,) = fleet.totals.to_pyarrow().to_pylist()
    assert row == pytest.approx(TOTALS)


def test_each_function_of_the_front_door_that_gives_a_result_is_tried():
    made = {
        name
        for name in ettr.__all__
        if inspect.isfunction(getattr(ettr, name))
        and "Result[" in str(inspect.get_annotations(getattr(ettr, name))["return"])
    }
    assert made == {"plan_run", "project", "compare"}
    assert len(RESULTS) >= 17 + len(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_each_result_has_rows_text_html_and_the_figures_of_the_report(name: str, fleet: ettr.Fleet):
    result = RESULTS[name](fleet)
    assert isinstance(result, ettr.Result)
    for rows in (None, *result.lists):
        arrow = result.to_pyarrow(rows)
        assert result.to_pandas(rows).shape == (arrow.num_rows, len(arrow.column_names))
        assert result.to_polars(rows).shape == (arrow.num_rows, len(arrow.column_names))
    for slug in result.figures:
        assert result.plot(slug).data
    assert "<script" not in result._repr_html_()
    assert len(result._repr_html_()) > 100
    assert str(result).strip()
    assert isinstance(result.to_dict(), dict)


@pytest.mark.slow
def test_each_result_of_a_fleet_with_failures_is_drawn(tmp_path: Path):
    logs = ("sacct.psv", "events.psv", "kernel.log", "nodes.txt")
    plan = SitePlan(60, 20, failures_per_1000_node_days=40.0, lemons=2, maintenance_day=15)
    write_site(tmp_path, plan, seed=0)
    with ettr.read(
        *(tmp_path / name for name in logs),
        timezone="UTC",
        name="site",
        selection=ettr.Selection(since=ORIGIN + timedelta(days=10)),
    ) as site:
        for name, made in RESULTS.items():
            assert bool(made(site).figures) == (name not in NOT_DRAWN), name
        assert len(site.failure_list.to_pandas()) == site.failures.value.all_jobs.failures
        with pytest.raises(UsageError, match="draws no figure of this result; use to_pandas"):
            site.totals.plot()


@pytest.mark.slow
def test_a_frame_has_the_interval_of_each_number(fleet: ettr.Fleet):
    frame = fleet.failures.to_pandas()
    cause = frame[frame["symptom"] == "gpu-unavailable"].iloc[0]
    assert cause["all_jobs_failures"] == 1
    assert cause["all_jobs_node_days"] == pytest.approx(TOTALS["node_hours"] / 24)
    low, high = (cause[f"all_jobs_per_1000_node_days_{end}"] for end in ("low", "high"))
    assert low < cause["all_jobs_per_1000_node_days"] < high


def test_columns_of_a_result_are_named_once():
    from ettr.analysis.comparing import FleetComparison
    from ettr.metrics.goodput import LostGoodput
    from ettr.metrics.mttf import MttfBySize
    from ettr.metrics.rates import RatesBySymptom
    from ettr.metrics.runs import JobRuns

    for result in (FleetComparison, LostGoodput, MttfBySize, RatesBySymptom, JobRuns):
        for entry in lists_of(result).values():
            names = [column.name for column in flat_columns(entry)]
            assert len(names) == len(set(names))
            assert len(names) >= len(fields(entry))  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_the_logs_do_not_bear_is_null_in_a_frame(tmp_path: Path):
    """Without any state of nodes outages are not measured, and 0 would say there were none."""
    sacct = tmp_path / "sacct.psv"
    sacct.write_text(SACCT)
    with ettr.read(sacct, timezone="UTC") as alone:
        (row,) = alone.nodes.to_pyarrow("").to_pylist()
        assert row["nodes"] == 4
        assert row["unplanned_node_hours"] is None
        summary = alone.table("node_summary").to_pyarrow().to_pylist()
        assert {one["unplanned_outages"] for one in summary} == {None}


@pytest.mark.slow
def test_a_list_or_figure_that_is_not_there_is_named(fleet: ettr.Fleet):
    with pytest.raises(UsageError, match="no list named 'class'; there are: classes, line"):
        fleet.mttf.to_pandas("class")
    with pytest.raises(UsageError, match="no figure named 'pie'; there are: mttf"):
        fleet.mttf.plot("pie")
    with pytest.raises(UsageError, match="no table named 'jobs'; there are: nodes, attempts"):
        fleet.table("jobs")


def test_a_table_has_its_rows_in_the_columns_of_its_schema(fleet: ettr.Fleet):
    attempts = fleet.table("attempts")
    assert attempts.columns == ATTEMPTS.names
    assert (
        len(attempts) == len(list(attempts)) == attempts.to_pyarrow().num_rows == TOTALS["attempts"]
    )
    assert {row["state"] for row in attempts} >= {"COMPLETED", "NODE_FAIL"}
    assert all(row["end"] is None or row["end"].tzinfo for row in attempts.to_rows())
    (outage,) = fleet.table("outages")
    assert (outage["node"], outage["hours"], outage["is_planned"]) == ("n1", 6.0, False)
    nodes = {row["node"]: row for row in fleet.table("node_summary")}
    assert nodes["n1"]["node_days"] == pytest.approx((24 + 12) / 24)
    assert nodes["n1"]["failures"] == 1
    assert sum(row["expected_failures"] for row in nodes.values()) == pytest.approx(1.0)


def test_a_table_printed_is_its_first_rows_and_their_number(fleet: ettr.Fleet):
    shown = repr(fleet.table("attempts")).splitlines()
    assert "attempt_id" in shown[0]
    assert shown[-1] == f"{TOTALS['attempts']} rows"
    assert repr(fleet.table("outages")).endswith("\n1 row")


def test_frames_of_a_table_are_those_of_arrow(fleet: ettr.Fleet):
    nodes = fleet.table("nodes")
    arrow = nodes.to_pyarrow()
    assert list(nodes.to_pandas().columns) == nodes.to_polars().columns == arrow.column_names
    assert len(nodes.to_pandas()) == nodes.to_polars().height == arrow.num_rows


def test_without_pandas_or_polars_a_frame_says_what_there_is(
    fleet: ettr.Fleet, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    for rows in (fleet.table("nodes"), fleet.totals):
        with pytest.raises(UsageError, match=r"pandas is not installed: .*to_pyarrow or to_polars"):
            rows.to_pandas()
        with pytest.raises(UsageError, match=r"polars is not installed: .*to_pandas or to_pyarrow"):
            rows.to_polars()


def test_a_statement_reads_the_facts_that_ettr_sql_lists(fleet: ettr.Fleet):
    ended = fleet.sql("SELECT symptom, sum(n_nodes) AS nodes FROM failures GROUP BY symptom;")
    assert ended.columns == ("symptom", "nodes")
    assert ended.to_rows() == [{"symptom": "gpu-unavailable", "nodes": 1}]
    assert fleet.sql("SELECT state FROM attempts WHERE state = 'SUSPENDED'").to_rows() == []
    assert fleet.totals.to_dict()  # the engine answers the report after a statement
    wrongs = ("SELECT sympton FROM failures", "SELEC 1", "SELECT 1 FROM absent")
    for wrong in (*wrongs, "SELECT CAST(state AS INTEGER) FROM attempts"):
        with pytest.raises(UsageError, match="DuckDB: "):
            fleet.sql(wrong).to_rows()
    with pytest.raises(UsageError, match="give one SELECT statement"):
        fleet.sql("DROP TABLE attempts")


def test_records_that_could_not_be_read_are_warned_of(tmp_path: Path):
    bad = tmp_path / "sacct.psv"
    bad.write_text(SACCT.replace("2026-03-03T04:00:00|7200", "yesterday|7200"))
    with pytest.warns(UserWarning, match=r"1 of 6 records rejected: 1 bad-timestamp"):
        opened = ettr.read(bad, timezone="UTC")
    opened.close()


@pytest.mark.slow
def test_html_of_a_log_is_escaped(tmp_path: Path):
    sacct = tmp_path / "sacct.psv"
    sacct.write_text(SACCT.replace("|tune|", "|<img src=x onerror=alert(1)>|"))
    with ettr.read(sacct, timezone="UTC", name="<b>x</b>") as hostile:
        for html in (hostile.runs._repr_html_(), hostile._repr_html_()):
            assert "<img" not in html
            assert "<b>" not in html


def test_a_plan_is_that_of_the_command():
    """Llama 3: 419 interruptions in 54 days on 2,048 nodes."""
    plan = ettr.plan_run(gpus=16384, failures=419, node_days=2048 * 54)
    assert plan.value.mttf_h.estimate == pytest.approx(54 * 24 / 419)
    assert any("write_s not given" in one for one in plan.value.assumptions)
    assert plan.figures == ("plan",)
    typed = ettr.plan_run(gpus=16384, failures_per_1000_node_days=3.79)
    assert typed.to_dict()["ettr"] == {
        "estimate": pytest.approx(typed.value.ettr.estimate),
        "low": None,
        "high": None,
    }
    with pytest.raises(UsageError, match="no failure rate"):
        ettr.plan_run(gpus=8)
    with pytest.raises(UsageError, match="more than one failure rate"):
        ettr.plan_run(gpus=8, failures=1, node_days=10, failures_per_1000_node_days=6.5)


def test_projection_and_comparison(fleet: ettr.Fleet):
    scales = ettr.project(failures=30, node_days=5000, gpus=[1024, 4096], seen_nodes=64)
    sizes = [row["size"] for row in scales.to_pyarrow().to_pylist()]
    assert sizes == [1024, 4096]
    compared = ettr.compare(fleet, ("old", 30, 5000))
    assert [row["name"] for row in compared.to_pyarrow().to_pylist()] == ["small", "old"]
    assert compared.value.pairs[0].ratio.p_value < 0.1  # 1 in 3 node-days against 30 in 5,000


@pytest.mark.slow
def test_a_price_puts_the_same_money_as_the_command_next_to_gpu_hours(logs: list[Path]):
    with ettr.read(*logs, timezone="UTC", gpu_hour_price="2.50USD") as priced:
        document = priced.goodput.to_dict()
        assert document["first_order_gpu_hours_cost"] == 2.5 * document["first_order_gpu_hours"]
        frame = priced.goodput.to_pandas()
        assert list(frame["gpu_hours_cost"]) == [2.5 * hours for hours in frame["gpu_hours"]]
        assert set(frame["currency"]) == {"USD"}
        assert "USD" in str(priced.goodput)
    plan = ettr.plan_run(
        failures_per_1000_node_days=(6.5, 6.1, 6.9), gpus=1024, gpu_hour_price="2.50USD"
    )
    cost = plan.value.answers.cost
    assert cost is not None
    assert cost.money(4.0) == 10.0
    assert plan.value.mttf_h.low < plan.value.mttf_h.high
    for wrong in ("2.5", "2,50EUR", -1):
        with pytest.raises(UsageError, match=r"such as 2\.50USD"):
            ettr.read(*logs, timezone="UTC", gpu_hour_price=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"gpu_hour_price '2\.5XYZ': XYZ is no currency"):
        ettr.plan_run(gpus=8, failures_per_1000_node_days=6.5, gpu_hour_price="2.5XYZ")


def test_a_rate_is_projected_with_the_interval_that_came_with_it():
    scales = ettr.project(failures_per_1000_node_days=(6.5, 6.1, 6.9), gpus=[16384], seen_nodes=2)
    mttf_h = scales.value.points[0].projection.mttf_h
    assert mttf_h.low == pytest.approx(24_000 / 6.9 / 2048)
    assert scales.value.rate is None


def test_the_sample_logs_are_what_the_tests_take_them_for():
    assert KERNEL.count("Xid") == 1
    assert EVENTS.count("DOWN") == 1


SCRIPT = """\
import ettr

with ettr.open("site") as fleet:
    rates = fleet.failures
    for cause in rates.value.by_symptom:
        rate = cause.all_jobs.per_1000_node_days
        print(cause.symptom, cause.all_jobs.failures, rate.low, rate.high)
    frame = rates.to_pandas()
    polars = fleet.mttf.to_polars("line")
    arrow = fleet.runs.to_pyarrow()
    print(len(frame), polars.height, arrow.num_rows)
    rates.plot().write_html("failures.html")
    failures = fleet.table("failures")
    ended = fleet.sql("SELECT symptom, count(*) AS n FROM failures GROUP BY symptom")
    print(len(ended.to_pandas()), len(failures), [row["symptom"] for row in ended])
    plan = ettr.plan_run(fleet, gpus=1024, target=0.9)
    print(plan.value.ettr.estimate, plan.value.mttf_h.low)
    for need in plan.value.requirements:
        print(need.name)
    scales = ettr.project(fleet, gpus=[1024, 4096])
    for point in scales.value.points:
        print(point.size, point.projection.mttf_h.estimate)
    compared = ettr.compare(fleet, ("old", 30, 5000.0))
    print(compared.value.pairs[0].ratio.p_value)
    recorder = ettr.progress.ProgressRecorder("progress.jsonl", run="gpt-7b")
    recorder.close()
    fleet.write_report("report.html")
reveal_type(rates)
reveal_type(frame)
reveal_type(polars)
reveal_type(failures)
reveal_type(plan.value.ettr.estimate)
reveal_type(ettr.checkpoint.RunningCheckpoint)
"""


# what a script's types cannot come from, and what would take most of the seconds: whatever is not
# followed is Any, so that a leak is found all the more; a stub has the one class of torch
UNFOLLOWED = """
[[tool.mypy.overrides]]
module = ["IPython.*", "PIL.*", "hypothesis.*", "matplotlib.*", "pydantic.*", "rich.*", "torch.*"]
follow_imports = "skip"

[[tool.mypy.overrides]]
module = ["scipy.*"]
follow_imports = "skip"
follow_imports_for_stubs = true

[[tool.mypy.overrides]]
module = ["ettr.*"]
follow_imports = "silent"
"""
REST = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"
STUBS = {"__init__.pyi": REST, "nn/__init__.pyi": f"{REST}class Module: ...\n"}


@pytest.mark.slow
def test_no_any_reaches_a_users_script(tmp_path: Path):
    script, settings = tmp_path / "script.py", tmp_path / "pyproject.toml"
    names = [name for name, part in PARTS.items() if part.in_python]
    assert len(names) >= 17
    each = "".join(f"reveal_type(fleet.{name})\n" for name in names)
    script.write_text(f"# mypy: disallow-any-expr\n{SCRIPT}{each}")
    settings.write_text((ROOT / "pyproject.toml").read_text("utf-8") + UNFOLLOWED)
    for name, text in STUBS.items():
        stub = tmp_path / "stubs" / "torch" / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(text)
    # next to what `make lint` keeps, which is of other options
    options = ["--config-file", settings, "--cache-dir", ROOT / ".mypy_cache" / "script"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, script],
        env={**os.environ, "MYPYPATH": str(tmp_path / "stubs")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert done.returncode == 0, done.stdout
    assert len(revealed) == SCRIPT.count("reveal_type") + len(names)
    assert not any("Any" in line for line in revealed), revealed


def test_a_fleet_stands_next_to_published_ones():
    made = ettr.compare(("ours", 30, 5000.0), published=True)
    frame = made.to_pandas()
    assert {"RSC-1", "RSC-2"} <= set(frame["name"])
    assert made.value.per_1000_node_days.estimate == pytest.approx(6.0)
    with pytest.raises(UsageError, match="give exactly one"):
        ettr.compare(("a", 30, 5000.0), ("b", 10, 5000.0), published=True)
