"""Traces of input pipelines: what each stage takes, by sleeps and CPU clocks."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.adapters.input_settings import build_planned, dataloader_options, planned_config
from ettr.adapters.input_trace import is_random, trace_input
from ettr.errors import UsageError
from ettr.progress.stages import InputHost, InputStage, StageTable
from ettr.projection.input_plan import plan_input
from ettr.report.rows import plain_fields


def fetch(_number: int) -> bytes:
    time.sleep(0.005)
    return b"x" * 1000


def count(data: bytes) -> int:
    return sum(range(20_000)) + len(data)


def test_a_chain_has_two_times_for_each_stage() -> None:
    table, notes = trace_input([range(100), fetch, count], batches=20)
    source, slow, busy = table.stages
    assert notes == ()
    assert (source.sequential, slow.visits, slow.out_bytes) == (True, 1.0, 1000.0)
    assert slow.wall_s >= 0.005 > 5 * slow.cpu_s
    assert busy.cpu_s <= busy.wall_s * 1.05
    assert slow.p50_s <= slow.p90_s <= slow.p99_s
    assert not busy.random
    assert is_random(lambda _: time.perf_counter_ns(), 0)


def test_a_stage_that_raises_costs_its_items_and_says_so() -> None:
    def breaks(number: int) -> int:
        if number % 3 == 0:
            raise ValueError(f"no JPEG: shard-{number}.jpg")
        return number

    table, notes = trace_input([range(30), breaks], batches=50, probe=False)
    assert table.stages[1].items == 20
    assert "the source ended after 30 items; 50 were asked for" in notes
    (raised,) = [note for note in notes if "raised" in note]
    assert "stage breaks raised for 10 items" in raised
    assert "item 0: ValueError: no JPEG: shard-0.jpg" in raised
    with pytest.raises(UsageError, match="nothing came out of the pipeline: stage stage1 raised"):
        trace_input([range(3), lambda number: 1 // 0], probe=False)
    with pytest.raises(UsageError, match="no pipeline that can be traced"):
        trace_input(3)
    with pytest.raises(UsageError, match=r"item 2 of the list, 'decode', is no function"):
        trace_input([range(3), count, "decode"])


def test_the_command_writes_stages_that_a_plan_reads(tmp_path: Path) -> None:
    text = "import time\ndef fetch(n):\n    time.sleep(.002)\n    return n\n"
    (tmp_path / "pipes.py").write_text(text + "def chain():\n    return [range(99), fetch]\n")
    words = ("input", "trace", "pipes.py:chain", "-o", "stages.jsonl", "--batches", "10")
    done = ettr(*words, folder=tmp_path)
    assert done.code == 0, done.err
    plan = ettr("input", "plan", "stages.jsonl", "--cores", "2", "--json", folder=tmp_path)
    assert [one["stage"] for one in plan.json["stages"]] == ["source", "fetch"]
    missing = ettr("input", "trace", "nowhere:chain", "-o", "x.jsonl", folder=tmp_path)
    assert missing.code == 2
    assert "no module 'nowhere'" in missing.err


# -- SPDL ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sleep_ms", [(12.0, 2.0), (4.0, 10.0)])
def test_a_plan_for_spdl_beats_five_other_settings(sleep_ms: tuple[float, float]) -> None:
    """Two chains of sleeps, six settings: what sleeps allow bounds each, on any machine."""
    pipeline = pytest.importorskip("spdl.pipeline")

    def sleeping(ms: float, name: str) -> object:
        def sleep(item: int) -> int:
            time.sleep(ms / 1e3)
            return item

        sleep.__name__ = name
        return sleep

    def builder() -> object:
        made = pipeline.PipelineBuilder().add_source(range(70))
        for ms, name in zip(sleep_ms, ("first", "second"), strict=True):
            made = made.pipe(sleeping(ms, name), concurrency=2, name=name)
        return made.add_sink(2)

    table, _ = trace_input(builder(), batches=60, probe=False)
    assert [one.stage for one in table.stages] == ["first", "second"]
    for one, ms in zip(table.stages, sleep_ms, strict=True):
        assert one.wall_s >= ms / 1e3
        assert one.visits == 1.0
    plan = plain_fields(plan_input(table))
    slots = [one["slots"] for one in plan["stages"]]
    bounds = []
    for setting in (slots, [1, 1], [2, 2], [1, 4], [4, 1], [4, 4]):
        stages = [
            {"stage": name, "slots": n}
            for name, n in zip(("first", "second"), setting, strict=True)
        ]
        running = build_planned({"stages": stages, "buffer": 2}, builder())
        begin_s = time.perf_counter()
        with running.auto_stop():
            assert sum(1 for _ in running.get_iterator(timeout=60)) == 70
            took_s = time.perf_counter() - begin_s
        bounds.append(min(1e3 * n / ms for n, ms in zip(setting, sleep_ms, strict=True)))
        assert took_s >= 70 / bounds[-1]  # no machine runs faster than its sleeps
    assert bounds[0] == max(bounds)
    with pytest.raises(UsageError, match="third: in the plan, and no stage of this pipeline"):
        planned_config({"stages": [{"stage": "third", "slots": 1}]}, builder())


def test_the_cpu_of_a_busy_chain_is_that_of_the_process() -> None:
    """Each item counts once, with what the engine takes of it, whatever runs side by side."""
    pipeline = pytest.importorskip("spdl.pipeline")
    data = bytes(2_000_000)

    def digest(_item: int) -> bytes:
        return hashlib.sha256(data).digest()

    def builder(items: int) -> object:
        made = pipeline.PipelineBuilder().add_source(range(items))
        return made.pipe(digest, concurrency=2).pipe(count, concurrency=1).add_sink(2)

    # by the clock of the same process over the same items: what a neighbour slows, it slows in both
    begin_s = time.process_time()
    table, _ = trace_input(builder(300), batches=300, probe=False)
    measured_s = (time.process_time() - begin_s) / 300
    stages_s = sum(one.cpu_s for one in table.stages)
    predicted_s = plan_input(table).cpu_s_per_item
    assert stages_s < predicted_s < 1.3 * measured_s
    assert predicted_s > 0.2 * measured_s  # tracing itself runs what it times more than once


# -- torch's DataLoader ----------------------------------------------------------------------------


@pytest.mark.torch
def test_a_dataloader_is_traced_as_a_whole_worker() -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(_Sleeps(), batch_size=4)
    table, notes = trace_input(loader, batches=12)
    (worker,) = table.stages
    assert notes == ("the loader ended after 10 batches; 12 were asked for",)
    assert worker.wall_s >= 4 * 0.002
    assert table.host.engine == "workers"
    assert table.host.engine_s > 0
    plan = plain_fields(plan_input(table))
    options = dataloader_options(plan)
    assert options["num_workers"] == plan["workers"] >= 1
    again = data.DataLoader(_Sleeps(), batch_size=4, **options | {"num_workers": 1})
    assert sum(len(batch) for batch in again) == 40
    with pytest.raises(UsageError, match="not for a DataLoader"):
        dataloader_options(json.loads('{"engine": "threads", "workers": null}'))
    assert StageTable((_stage(),), InputHost("threads")).host.engine == "threads"


@pytest.mark.torch
def test_a_dataset_that_raises_costs_its_batch_and_says_so() -> None:
    data = pytest.importorskip("torch.utils.data")
    table, notes = trace_input(data.DataLoader(_Breaks(), batch_size=4), batches=10)
    assert table.stages[0].items == 9
    (raised,) = notes
    assert "stage worker raised for 1 item, left out: item 1: KeyError: 'seven'" in raised
    assert table.host.engine_s > 0


class _Sleeps:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> int:
        time.sleep(0.002)
        return place


class _Breaks(_Sleeps):
    def __getitem__(self, place: int) -> int:
        if place == 7:
            raise KeyError("seven")
        return super().__getitem__(place)


def _stage() -> InputStage:
    return InputStage("r", "s", 1, 0.0, 0.0, 0.0, 0.0, 0.0)
