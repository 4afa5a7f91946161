"""Plans of input pipelines: slots, caches, workers, buffers, and what binds them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.input_buffers import run
from cli.program import ettr
from ettr.errors import SourceError
from ettr.progress.stages import InputHost, InputStage, StageTable, read_stages, write_stages
from ettr.projection.input_plan import (
    InputLimits,
    InputPlan,
    plan_input,
    stall_of_workers,
)

HOST = InputHost("threads", engine_s=0.15e-3, cores=2.0, cores_got=2.0)


def stage(name: str, cpu_ms: float, wall_ms: float, **more: object) -> InputStage:
    wall_s = wall_ms / 1e3
    return replace(InputStage("r", name, 200, cpu_ms / 1e3, wall_s, wall_s, wall_s, wall_s), **more)


FETCH = stage("fetch", 0.03, 20.0, gil_share=0.5)
DECODE = stage("decode", 0.8, 0.8, gil_share=0.1)
NORMALISE = stage("normalise", 0.2, 0.2, gil_share=0.2)


def slots_of(plan: InputPlan) -> dict[str, int]:
    return {one.stage: one.slots for one in plan.stages}


def test_a_fetch_that_waits_gets_slots_and_not_cores() -> None:
    """By hand: 2 cores over .03 + .8 + .2 + 3 x .15 ms are 1,351 items/s, of which 27.03 fetch."""
    plan = plan_input(StageTable((FETCH, DECODE, NORMALISE), HOST))
    assert plan.binding == "cores"
    assert plan.bound_rate == pytest.approx(2 / 1.48e-3)
    assert slots_of(plan) == {"fetch": 28, "decode": 2, "normalise": 1}
    assert plan.cpu_s_per_item == pytest.approx(1.48e-3)
    (core,) = plan.worth
    # with 3 cores Python's lock binds: 1 / (.015 + .08 + .04 + .45 ms)
    assert core.gain_rate == pytest.approx(min(3 / 1.48e-3, 1 / 0.585e-3) - 2 / 1.48e-3)
    assert core.dual_rate == pytest.approx(1 / 1.48e-3)


def test_a_program_over_cpu_time_alone_loses_the_fetch() -> None:
    table = StageTable((FETCH, DECODE, NORMALISE), HOST)
    plumber = slots_of(plan_input(table, InputLimits(latency=False)))
    # one slot fetches 1 / 20 ms = 50 items/s
    assert plumber["fetch"] == 1
    assert (plan_input(table).rate.estimate or 0) > 3 * 50


def test_a_wanted_rate_takes_the_fewest_slots_that_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "stages.jsonl"
    write_stages(path, (FETCH, DECODE, NORMALISE), replace(HOST, rate=50.0))
    plan = plan_input(read_stages(path), InputLimits(rate=300.0))
    # 300/s over .9 of the model: 334 x 20 ms are 6.7 slots
    assert slots_of(plan) == {"fetch": 7, "decode": 1, "normalise": 1}
    assert plan.stall_now == pytest.approx(1 - 50 / 300)
    done = ettr("input", "plan", path, "--rate", "300", "--json")
    assert done.code == 0
    assert [one["slots"] for one in done.json["stages"]] == [7, 1, 1]
    refused = ettr("input", "plan", path, "--rate", "5000")
    assert refused.code == 1
    assert "no plan reaches 5000 items/s" in refused.err


def test_a_cache_stands_before_randomness_and_only_where_it_helps() -> None:
    read = stage("read", 0.05, 2.0, read_bytes=1e6, out_bytes=1e6, gil_share=0.0)
    decode = stage("decode", 4.0, 4.0, out_bytes=3e6, gil_share=0.0)
    augment = stage("augment", 1.0, 1.0, out_bytes=3e6, random=True, gil_share=0.0)
    host = InputHost("threads", 1e-5, 4.0, 4.0, memory_bytes=1e10)
    table = StageTable((read, decode, augment), host)
    slow_disk = InputLimits(bandwidth_bytes=1e8, dataset_items=3_000)
    assert plan_input(table, slow_disk).cache_after == "decode"
    # 30,000 images: raw they fit (30 of 40 GB), decoded they do not
    large = replace(slow_disk, dataset_items=30_000, memory_bytes=4e10)
    assert plan_input(table, large).cache_after == "read"
    assert plan_input(table, replace(large, memory_bytes=1e10)).cache_after is None
    # nothing before the augmentation binds: no cache
    only = StageTable(
        (replace(read, read_bytes=0.0, cpu_s=0.0), augment), replace(host, engine_s=0)
    )
    assert plan_input(only, InputLimits(dataset_items=3_000)).cache_after is None


def test_of_several_forms_of_images_the_first_that_reaches_the_rate_is_taken() -> None:
    """As measured of progressive images: at 100 MB/s scan 5 wins, at 800 MB/s it loses."""
    read = stage("read", 0.05, 1.0, read_bytes=1e5, gil_share=0.0)
    decode = stage("decode", 1.36, 1.36, gil_share=0.0)
    stages = (
        replace(read, form="plain"),
        replace(read, form="scan 5", read_bytes=0.375e5),
        replace(decode, form="plain"),
        stage("decode", 1.58, 1.58, gil_share=0.0, form="scan 5"),
    )
    table = StageTable(stages, InputHost("threads", 1e-6, 8.0, 8.0))
    slow = plan_input(table, InputLimits(bandwidth_bytes=1e8))
    assert slow.form == "scan 5"
    plain, scan = (one.rate for one in slow.forms)
    assert scan / plain == pytest.approx(1 / 0.375, rel=0.01)
    assert plan_input(table, InputLimits(bandwidth_bytes=8e8)).form == "plain"
    assert plan_input(table, InputLimits(bandwidth_bytes=1e8, rate=500)).form == "plain"


def test_bandwidth_is_worth_what_solving_again_says() -> None:
    read = stage("read", 0.05, 5.0, read_bytes=1e6, gil_share=0.0)
    table = StageTable((read,), InputHost("threads", 1e-5, 64.0, 64.0))
    plan = plan_input(table, InputLimits(bandwidth_bytes=2e8))
    assert plan.binding == "bandwidth"
    assert plan.bound_rate == pytest.approx(200.0)
    (wider,) = [one for one in plan.worth if one.resource.startswith("100 MB/s")]
    assert (wider.gain_rate, wider.dual_rate) == pytest.approx((100.0, 100.0))


def test_stalls_of_a_dataloader_are_those_that_were_measured() -> None:
    """A batch of 300 ms, a step of 87 ms, a hand-over of 5 ms: measured in November 2026."""
    measured = (0.70, 0.44, 0.11, 0.05, 0.06)
    predicted = [stall_of_workers(0.3, 0.005, 0.0875, n) for n in range(1, 6)]
    assert predicted == pytest.approx(measured, abs=0.05)
    worker = stage("worker", 20.0, 300.0)
    table = StageTable((worker,), InputHost("workers", 0.005, 8.0, 8.0))
    plan = plan_input(table, InputLimits(rate=1 / 0.0875))
    # the smallest number whose measured stall is below .08
    assert plan.workers == 4
    assert any("num_workers=4" in one for one in plan.says)


def test_nothing_to_be_gained_is_said() -> None:
    table = StageTable((DECODE,), replace(HOST, cores_got=1.0, rate=1 / 0.95e-3))
    assert any("Nothing can be gained" in one for one in plan_input(table).says)


def test_planned_buffers_reach_the_bound_in_virtual_time() -> None:
    """Three chains of the campaign, on asyncio's own queues."""
    table = run(3, (0.0, 1.0, 2.0))
    for row in table.rows:
        assert row[5] == "1 of 1", row
        assert row[6] == "1 of 1", row


def test_a_torn_line_costs_that_line(tmp_path: Path) -> None:
    path = tmp_path / "stages.jsonl"
    write_stages(path, (FETCH, DECODE, NORMALISE), HOST)
    whole = path.read_text().splitlines()
    bad = {**json.loads(whole[1]), "cpu_s": "much"}
    path.write_text("\n".join([*whole[:3], whole[3][:40], json.dumps(bad)]) + "\n")
    table = read_stages(path)
    assert [one.stage for one in table.stages] == ["fetch", "decode"]
    assert table.host == HOST
    assert len(table.bad_lines) == 2
    assert "line 5: cpu_s: 'much' is not a number" in table.bad_lines[1]
    path.write_text("{}\n")
    with pytest.raises(SourceError, match="no line is a stage"):
        read_stages(path)
