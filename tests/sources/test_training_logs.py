"""Metrics of training loops: framing of the binary files, options, ETTR of what was logged."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions
from ettr.sources.registry import named
from source_samples import SAMPLES, counts_of, read_all, rows_of

JOB = ReadOptions(job="17", run="r")
EVENTS = SAMPLES / "tensorboard" / "events.out.tfevents.1772359200.node1.1.0"
T0 = 1772359200  # 2026-03-01T10:00:00Z


def steps(source: str, path: Path, options: ReadOptions = JOB) -> list[int]:
    return [row["step"] for row in rows_of(read_all(named(source), path, options), "progress")]


def event_records() -> list[bytes]:
    """The whole records of the sample, by the lengths in its framing."""
    data, records, at = EVENTS.read_bytes(), [], 0
    while at + 16 + (size := int.from_bytes(data[at : at + 8], "little")) <= len(data):
        records.append(data[at : at + 16 + size])
        at += 16 + size
    return records


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff" * 8,  # a length of 16 EiB
        b"\0" * 5000,
        b"x" * 70_000,
        bytes(range(256)) * 40,
    ],
    ids=["giant", "zeros", "text", "all bytes"],
)
def test_a_damaged_stretch_of_an_event_file_costs_itself_alone(tmp_path: Path, damage: bytes):
    records = event_records()
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.write_bytes(b"".join(records))
    broken.write_bytes(b"".join(records[:5]) + damage + b"".join(records[5:]))
    assert steps("tensorboard", broken) == steps("tensorboard", whole)
    before, after = (counts_of(read_all(named("tensorboard"), p, JOB)) for p in (whole, broken))
    assert after == [before[0] + 1, before[1] + 1, before[2]]


def test_a_length_that_lies_beyond_the_file_is_one_reject(tmp_path: Path):
    path = tmp_path / "events"
    torn = event_records()[-1][:-3]
    path.write_bytes(b"".join(event_records()[:3]) + torn)
    (reject,) = rows_of(read_all(named("tensorboard"), path, JOB), "rejects")
    assert (reject["line"], reject["reason"]) == (4, "torn-record")


def test_a_series_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"no scalar 'loss'.* 'train/loss', 'lr', 'val/loss'"):
        steps("tensorboard", EVENTS, ReadOptions(series="loss"))
    assert steps("tensorboard", EVENTS, ReadOptions(series="val/loss")) == [1]


def wandb_file(path: Path, payloads: list[bytes]) -> None:
    """Records in LevelDB's log format: fragments that do not cross blocks of 32 KiB."""
    out = bytearray(b":W&B\xe1\xbe\x00")
    for payload in payloads:
        first, rest = True, payload
        while first or rest:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += b"\0" * room
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    path.write_bytes(out)


def field(number: int, value: bytes) -> bytes:
    size, length = len(value), b""
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            break
    key = number << 3 | 2
    return bytes([key & 0x7F | 0x80, key >> 7] if key > 0x7F else [key]) + length + value


def history(step: int, time_s: float, **more: str) -> bytes:
    items = {"_step": str(step), "_timestamp": repr(time_s), **more}
    return field(
        2,
        b"".join(
            field(1, field(2, key.encode()) + field(16, text.encode()))
            for key, text in items.items()
        ),
    )


def test_wandb_records_that_cross_blocks_are_put_together(tmp_path: Path):
    path = tmp_path / "run-x.wandb"
    long = '"' + "a" * 100_000 + '"'
    wandb_file(path, [history(n, T0 + n, note=long if n % 2 else "0") for n in range(1, 8)])
    assert steps("wandb", path) == list(range(1, 8))
    data = bytearray(path.read_bytes())
    data[200_000] ^= 1
    path.write_bytes(data)
    batches = read_all(named("wandb"), path, JOB)
    read, rejected, skipped = counts_of(batches)
    assert rejected >= 1
    assert skipped == 0
    assert len(rows_of(batches, "progress")) == read - rejected == 6


def test_a_key_of_wandb_that_is_not_logged_is_refused(tmp_path: Path):
    path = tmp_path / "run-x.wandb"
    wandb_file(path, [history(1, T0)])
    with pytest.raises(UsageError, match=r"--columns iter: .*_step, _timestamp"):
        steps("wandb", path, ReadOptions(column_map={"step": "iter"}))


def test_a_metric_of_the_machine_is_no_count_of_steps(tmp_path: Path):
    path = tmp_path / "mlruns" / "0" / "abc" / "metrics" / "system" / "cpu"
    path.parent.mkdir(parents=True)
    path.write_text(f"{T0}000 2.0 1\n")
    with pytest.raises(SourceError, match="metric of the machine"):
        steps("mlflow", path, ReadOptions(job="17"))


def test_the_run_of_a_metric_is_that_of_its_path(tmp_path: Path):
    path = tmp_path / "mlruns" / "0" / "abc" / "metrics" / "train" / "loss"
    path.parent.mkdir(parents=True)
    path.write_text(f"{T0}000 2.0 1\n{T0 + 1}000 2.0 1\n")
    batches = read_all(named("mlflow"), path, ReadOptions())
    (row,) = rows_of(batches, "progress")
    assert (row["run_id"], row["job_id"]) == ("abc", None)
    notes = " ".join(note for batch in batches for note in batch.notes)
    assert "--job" in notes
    assert "logged without its step" in notes


def test_metrics_of_two_jobs_in_one_file_are_refused(tmp_path: Path):
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(f'{{"step": {n}, "timestamp": {T0 + n}, "job_id": {n}}}\n' for n in (1, 2))
    )
    with pytest.raises(UsageError, match="names the jobs 1 and 2"):
        steps("metrics", path)


def test_metrics_without_a_known_time_name_their_columns(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,loss\n0,1,2.5\n")
    with pytest.raises(UsageError, match=r"time: .*\n.*epoch, step, loss"):
        steps("metrics", path)


def test_the_job_that_the_log_names_wins_and_the_user_hears_of_it(tmp_path: Path):
    path = tmp_path / "m.jsonl"
    path.write_text(f'{{"step": 1, "timestamp": {T0}, "job_id": 4}}\n')
    batches = read_all(named("metrics"), path, JOB)
    assert rows_of(batches, "progress")[0]["job_id"] == "4"
    assert "--job 17 was not used" in " ".join(batches[-1].notes)


@pytest.mark.parametrize(
    ("order", "n_returns"),
    [((1, 2, 3, 4), []), ((2, 1, 4, 3), []), ((1, 2, 3, -2, -3, 4), [1])],
)
def test_lines_out_of_order_are_no_return_to_an_earlier_step(
    tmp_path: Path, order: tuple[int, ...], n_returns: list[int]
):
    """A negative number is that step made again, after all others."""
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(
            f'{{"step": {abs(n)}, "timestamp": {T0 + (n if n > 0 else 10 - n)}}}\n' for n in order
        )
    )
    counts = [batch.counted_notes for batch in read_all(named("metrics"), path, JOB)]
    assert [n for one in counts for note, n in one.items() if "goes back" in note] == n_returns


SACCT = (
    "JobID|Cluster|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "17|c|train|ann|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-03T10:00:00|172800|2|"
    "n[1-2]|gres/gpu=16\n"
)


@pytest.mark.slow
def test_ettr_of_a_run_that_logs_every_hundredth_step_to_mlflow(tmp_path: Path):
    """48 h: start-up of 600 s, then 10 s a step, with a pause of three hours."""
    logged, time, step = [], T0 + 600 + 1000, 100
    while time < T0 + 48 * 3600:
        logged.append(f"{time}000 2.0 {step}\n")
        step, time = step + 100, time + 1000 + (10_800 if step == 5000 else 0)
    metric = tmp_path / "loss"
    metric.write_text("".join(logged))
    sacct = tmp_path / "sacct.psv"
    sacct.write_text(SACCT)
    store = tmp_path / "store"
    done = ettr("ingest", store, sacct, metric, "--timezone", "UTC", "--job", "17")
    assert done.code == 0, done.err
    (run,) = ettr("runs", store, "--json").json["runs"]
    ratio: dict[str, Any] = run["ettr_ratio"]
    truth = len(logged) * 1000 / (48 * 3600)
    assert ratio["estimate"] == pytest.approx(truth, abs=0.001)
    assert ratio["low"] < truth < ratio["high"]
    assert run["basis"] == "progress"
    assert run["split"]["restart_h"] == pytest.approx(600 / 3600)


def test_a_job_in_vain_is_refused(tmp_path: Path):
    sacct = tmp_path / "sacct.psv"
    sacct.write_text(SACCT)
    done = ettr("ingest", tmp_path / "store", sacct, "--timezone", "UTC", "--job", "17")
    assert done.code == 2
    assert "--job: for progress, metrics, torchtitan" in done.err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("metrics.csv", "epoch,step,train_loss,val_loss\n0,49,0.5,\n0,49,,0.4\n", "'step'"),
        (
            "trainer_state.json",
            '{"epoch": 2.0, "log_history": [{"loss": 2.1, "step": 10}]}',
            'report_to="tensorboard"',
        ),
        ("nano.log", "iter 10: loss 4.2, time 250.33ms, mfu 31.20%\n", "but not when"),
        (
            "megatron.log",
            " iteration       10/    5000 | consumed samples:  5120 | lm loss: 6.9E+00 |\n",
            "--tensorboard-dir",
        ),
    ],
)
def test_steps_without_moments_are_refused_with_what_to_read_instead(
    tmp_path: Path, name: str, text: str, says: str
):
    """As Lightning, Hugging Face, nanoGPT and Megatron write them."""
    log = tmp_path / name
    log.write_text(text)
    done = ettr("ingest", tmp_path / "store", log, "--job", "1")
    assert done.code == 1
    assert "a training log without the times of its steps" in done.err
    assert says in done.err


def test_lightnings_rows_of_validation_are_no_steps_of_their_own(tmp_path: Path):
    """The column of steps repeats, and cells of the other metric are empty."""
    log = tmp_path / "metrics.csv"
    log.write_text(
        "epoch,step,time,train_loss,val_loss\n"
        "0,49,1700000049,0.5,\n0,49,1700000052,,0.4\n0,99,1700000099,0.3,\n"
    )
    rows = rows_of(read_all(named("metrics"), log, JOB), "progress")
    assert [row["step"] for row in rows] == [49, 99]


@pytest.mark.parametrize("source", ["wandb", "metrics", "tensorboard"])
def test_what_torchtitan_waited_for_data_keeps_its_cause(tmp_path: Path, source: str):
    """A record each 10 steps and 100 s: 30 % of it loading, in the log's own mean 1.5 s a batch."""
    path = (
        tmp_path / {"wandb": "run-x.wandb", "metrics": "m.jsonl", "tensorboard": "events"}[source]
    )
    times = {"time_metrics/data_loading(s)": 1.5, "time_metrics/data_loading(%)": 30.0}
    records = [(step, T0 + 10.0 * step) for step in (10, 20, 30)]
    if source == "wandb":
        more = {name: str(value) for name, value in times.items()}
        wandb_file(path, [history(step, time_s, **more) for step, time_s in records])
    elif source == "metrics":
        lines = [{"step": step, "timestamp": time_s, **times} for step, time_s in records]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
        summary_pb2 = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
        from tensorboard.summary.writer.record_writer import RecordWriter

        with path.open("wb") as file:
            writer = RecordWriter(file)
            for step, time_s in records:
                for tag, value in {"loss": 1.0, **times}.items():  # each a record of its own
                    summary = summary_pb2.Summary(
                        value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)]
                    )
                    event = event_pb2.Event(wall_time=time_s, step=step, summary=summary)
                    writer.write(event.SerializeToString())
    rows = rows_of(read_all(named(source), path, JOB), "progress")
    assert [row["event"] for row in rows] == ["step", "stall", "step", "stall", "step"]
    waits = [row for row in rows if row["event"] == "stall"]
    assert [row["duration_s"] for row in waits] == [30.0, 30.0]
    assert [row["time"].timestamp() for row in waits] == [T0 + 130.0, T0 + 230.0]
    assert all(json.loads(row["detail"])["cause"] == "data" for row in waits)
