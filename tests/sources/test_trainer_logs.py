"""Console logs of Megatron-LM, DeepSpeed and NeMo, and progress.txt: lines written by hand."""

from pathlib import Path

import pytest

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.registry import named, recognise
from ettr.store import open_store
from source_samples import read_all, rows_of

SOURCE = named("trainer-log")
ZURICH = ReadOptions(timezone="Europe/Zurich", job="17")
REST = "| consumed samples: 1024 | elapsed time per iteration (ms): 13911.4 | lm loss: 2.37E+00 |"

MEGATRON = f"""\
[rank0]: > successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration      40
[before the start of training step] datetime: 2026-03-01 09:59:56
 [2026-03-01 10:00:10] iteration       41/  250000 {REST}
 [2026-03-01 10:00:24] iteration       42/  250000 {REST}
  successfully saved checkpoint from iteration      42 to /ckpt [ t 1/1, p 1/1 ]
(min, max) time across ranks (ms):
[after training is done] datetime: 2026-03-01 10:00:40
"""
DEEPSPEED = """\
[2026-03-01 10:00:10,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05]
[2026-03-01 10:00:10,124] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, \
RunningAvgSamplesPerSec=21.4, CurrSamplesPerSec=21.5
[2026-03-01 10:00:20,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=0, lr=[1e-05]
[2026-03-01 10:00:21,123] [INFO] [engine.py:29:commit] [T] Checkpoint global_step20 is ready now!
"""
NEMO = """\
[NeMo I 2026-03-01 10:00:00 nemo_logging:393] Global seed set to 1234
[NeMo I 2026-03-01 10:00:13 nemo_logging:393] Training epoch 0, iteration 0/999 | lr: 1.499e-07 | \
global_batch_size: 512 | global_step: 0 | reduced_train_loss: 11.03
[NeMo I 2026-03-01 10:00:30 saver:9] Global Checkpoint Save : Rank: 0 : Iteration: 1 : \
Start time: 1772355620.500s : Save duration: 9.250s
"""
PROGRESS = (
    "2026-02-24 17:31:25\tJob ID: 198424\t# GPUs: 8\tStarting job\n"
    "2026-02-24 17:35:03\tJob ID: 198424\t# GPUs: 8\tSaving async checkpoint\tIteration: 100\tJob "
    "throughput: 364.8 TFLOP/s/GPU\n"
)


def _rows(tmp_path: Path, text: str, options: ReadOptions = ZURICH) -> list[tuple[object, ...]]:
    path = tmp_path / "slurm-17.out"
    path.write_text(text)
    assert recognise(text.encode(), path.name) is SOURCE
    batches = read_all(SOURCE, path, options)
    assert not rows_of(batches, "rejects")
    return [
        (row["event"], row["step"], f"{row['time']:%H:%M:%S}", row["job_id"])
        for row in rows_of(batches, "progress")
    ]


def test_megatron(tmp_path: Path) -> None:
    assert sorted(_rows(tmp_path, MEGATRON)) == [
        ("end", 42, "09:00:40", "17"),
        ("restore", 40, "08:59:56", "17"),
        ("save", 42, "09:00:24", "17"),
        ("start", 40, "08:59:56", "17"),
        ("step", 41, "09:00:10", "17"),
        ("step", 42, "09:00:24", "17"),
    ]


def test_deepspeed_counts_a_step_once(tmp_path: Path) -> None:
    assert _rows(tmp_path, DEEPSPEED) == [
        ("step", 10, "09:00:10", "17"),
        ("step", 20, "09:00:20", "17"),
        ("save", 20, "09:00:21", "17"),
    ]


def test_nemo_with_stamps(tmp_path: Path) -> None:
    assert _rows(tmp_path, NEMO) == [
        ("step", 1, "09:00:13", "17"),
        ("save", 1, "09:00:29", "17"),
    ]


def test_progress_txt_names_the_job_of_each_line(tmp_path: Path) -> None:
    second = PROGRESS.replace("198424", "198500").replace("17:3", "18:3").replace("100", "200")
    assert _rows(tmp_path, PROGRESS + second) == [
        ("start", None, "16:31:25", "198424"),
        ("start", None, "17:31:25", "198500"),
        ("save", 100, "16:35:03", "198424"),
        ("save", 200, "17:35:03", "198500"),
    ]


def test_an_async_checkpoint_counts_from_when_it_was_whole(tmp_path: Path) -> None:
    whole = (
        "2026-02-24 17:36:00\tJob ID: 198424\t# GPUs: 8\tSaved async checkpoint\tIteration: 100\n"
    )
    torn = PROGRESS.splitlines()[1].replace("17:35", "17:55").replace("100", "200") + "\n"
    assert _rows(tmp_path, PROGRESS + whole + torn) == [
        ("start", None, "16:31:25", "198424"),
        ("save", 100, "16:36:00", "198424"),
    ]


def test_local_stamps_need_a_zone(tmp_path: Path) -> None:
    path = tmp_path / "slurm-17.out"
    path.write_text(MEGATRON)
    with (
        open_store(str(tmp_path / "store"), create=True) as store,
        pytest.raises(UsageError, match="--timezone"),
    ):
        ingest_file(store, path, ReadOptions(job="17"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f" iteration        1/  250000 {REST}\n", "--log-progress"),
        ("Training epoch 0, iteration 0/999 | global_step: 0 | reduced_train_loss: 11\n", "NeMo"),
        (
            "Epoch 0: 1%| | 7/9 [9:07<8:01, 41.3s/it, reduced_train_loss=3.0, global_step=7.0]",
            "NeMo",
        ),
    ],
)
def test_steps_without_times_are_refused_with_the_reason(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        recognise(text.encode(), "train.log")
