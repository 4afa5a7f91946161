"""Rates, MTTF, plan and projection are of nodes with GPUs where nodes without ran jobs too.

Planted: 12 nodes of eight GPUs that fail once in 200 node-days, 36 without that fail twelve times
as often.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.program import ettr

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 50
HEAD = (
    "JobID|JobName|User|Cluster|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw"
    "|TimelimitRaw|NNodes|NodeList|AllocTRES\n"
)


def at(second: float) -> str:
    return f"{FIRST + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    folder, rng = tmp_path_factory.mktemp("classes"), Random(9)
    lines, truth = [], {"gpu": 0.0, "cpu": 0.0, "gpu_days": 0.0, "cpu_days": 0.0}
    nodes = [("gpu", f"g{n:02d}") for n in range(12)] + [("cpu", f"c{n:02d}") for n in range(36)]
    for kind, node in nodes:
        for day in range(DAYS):
            failed = rng.random() < (0.005 if kind == "gpu" else 0.06)
            ran_s = rng.randint(3600, 70000) if failed else 80000
            truth[kind] += failed
            truth[f"{kind}_days"] += ran_s / 86400
            begin, end = at(day * 86400 + 600), at(day * 86400 + 600 + ran_s)
            lines.append(
                f"{len(lines) + 1}|j|u{rng.randrange(8)}|c|{kind}"
                f"|{'NODE_FAIL' if failed else 'COMPLETED'}|0:0|{begin}|{begin}|{end}|{ran_s}|2880"
                f"|1|{node}|cpu=64,{'gres/gpu=8,' if kind == 'gpu' else ''}node=1\n"
            )
    (folder / "sacct.psv").write_text(HEAD + "".join(lines))
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store", truth


@pytest.fixture(scope="module")
def report(planted: tuple[Path, dict[str, float]]) -> dict[str, Any]:
    done = ettr("report", planted[0], "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def test_the_headline_rate_is_of_nodes_with_gpus(
    report: dict[str, Any], planted: tuple[Path, dict[str, float]]
) -> None:
    truth = planted[1]
    failures = report["failures"]
    assert failures["of_gpu_nodes"] is True
    assert failures["all_jobs"]["failures"] == truth["gpu"]
    assert failures["all_jobs"]["node_days"] == pytest.approx(truth["gpu_days"])
    by_class = {one["name"]: one for one in failures["by_class"]}
    assert by_class["cpu"]["failures"] == truth["cpu"]
    assert by_class["cpu"]["node_days"] == pytest.approx(truth["cpu_days"])
    assert by_class["gpu"]["failures"] == truth["gpu"]
    mttf = next(one for one in report["summary"] if one["question"].startswith("MTTF"))
    assert "nodes with GPUs" in mttf["question"]
    assert report["mttf"]["size_unit"] == "gpus"
    assert report["mttf"]["gpus_per_node"] == 8


def test_plan_and_projection_agree_on_gpus_a_node_and_on_the_rate(
    planted: tuple[Path, dict[str, float]],
) -> None:
    store, truth = planted
    per_node_day = truth["gpu"] / truth["gpu_days"]
    expected_h = 24 / (128 * per_node_day)
    done = ettr("project", store, "--gpus", "1024", "--json")
    assert done.code == 0, done.err
    (point,) = done.json["points"]
    assert point["projection"]["mttf_h"]["estimate"] == pytest.approx(expected_h, rel=0.35)
    assert "nodes with GPUs" in done.json["jobs"]
    of_partition = ettr("project", store, "--gpus", "1024", "--partition", "gpu", "--json").json
    assert of_partition["points"][0]["projection"] == point["projection"]
    plan = ettr("plan", store, "--gpus", "1024")
    assert plan.code == 0, plan.err
    assert "1,024 GPUs (128 nodes of 8)" in plan.out


def test_nodes_without_gpus_are_asked_for_as_cpu(
    planted: tuple[Path, dict[str, float]],
) -> None:
    store, truth = planted
    done = ettr("failures", store, "--gpu-type", "cpu", "--json")
    assert done.code == 0, done.err
    assert done.json["all_jobs"]["failures"] == truth["cpu"]
    assert done.json["of_gpu_nodes"] is False


def test_cpu_nodes_are_not_selected_where_there_are_none(example_store: Path) -> None:
    """A fleet of GPU nodes alone: a count of 0 would look measured."""
    done = ettr("failures", example_store, "--gpu-type", "cpu", "--detail")
    assert (done.code, "nothing is selected (GPU type cpu)" in done.err) == (1, True)
    # planned (truth.json): the run leaves with 99 where NVLink and InfiniBand fail, and goes on
    said = " ".join(ettr("explain", example_store, "2").out.split())
    assert "probably for nvlink on gpu12, infiniband on gpu03" in said
    assert "lost 2 of 5 attempts to the infrastructure" in said
