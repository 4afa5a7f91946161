"""What failed or was preempted without a word on its GPUs lost something, not nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.comparing import previous
from ettr.store import open_store

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HEADER = "Cluster|JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"


def job(
    number: int, state: str, start_h: float, end_h: float, *, node: str, gpus: int | None,
    submit_h: float | None = None,
) -> str:  # fmt: skip
    submit_h = start_h if submit_h is None else submit_h
    submit, start, end = (
        f"{BEGIN + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"
        for hours in (submit_h, start_h, end_h)
    )
    held = "" if gpus is None else f"gres/gpu={gpus}"
    seconds = int(3600 * (end_h - start_h))
    return f"c|{number}|j{number}|ann|{state}|{submit}|{start}|{end}|{seconds}|1|{node}|{held}"


def site(folder: Path, *rows: str) -> Path:
    (folder / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n")
    done = ettr("ingest", folder / "site", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


def logs(failed: int | None, preempted: int | None) -> list[str]:
    """Job 1 fails on n1 after 10 h, and job 2 on n2 has to go when it starts again there."""
    return [
        job(1, "NODE_FAIL", 0, 10, node="n1", gpus=failed),
        job(1, "COMPLETED", 10.02, 20, node="n2", gpus=failed, submit_h=10),
        job(2, "PREEMPTED", 2, 10.01, node="n2", gpus=preempted),
        job(3, "COMPLETED", 0, 20, node="n3", gpus=8),
    ]


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The store of `logs`, read once whoever asks for it."""

    @cache
    def made(failed: int | None, preempted: int | None) -> Path:
        return site(tmp_path_factory.mktemp("loss"), *logs(failed, preempted))

    return made


@pytest.mark.parametrize(
    ("failed", "preempted", "first_h", "second_h", "both_h"),
    [
        (8, 4, 4.0, 2.0, 6.0),  # half an hour each
        (8, None, 4.0, None, 4.0),
        (None, 4, None, 2.0, 2.0),
        (None, None, None, None, None),
        (8, 0, 4.0, 0.0, 4.0),  # it held none, which is known
    ],
)
def test_hours_of_jobs_without_gpus_are_unknown(
    failed: int | None, preempted: int | None, first_h: float | None, second_h: float | None,
    both_h: float | None, store_of: Callable[..., Path],
) -> None:  # fmt: skip
    with open_store(store_of(failed, preempted)) as opened:
        analysis = Analysis(opened)
        found, trend = analysis.goodput, analysis.ask(previous)
    (link,) = found.preemption_links.links
    assert link.n_gpus == preempted
    (cause,), (size,) = found.by_cause, found.by_size
    for one in (found, cause):
        assert (one.first_order_gpu_hours, one.second_order_gpu_hours) == (first_h, second_h)
    assert (cause.gpu_hours, size.gpu_hours) == (both_h, both_h)
    without = (int(failed is None), int(preempted is None))
    assert (found.failures_without_gpus, found.preemptions_without_gpus) == without
    assert trend is not None
    lost_h = trend.this.lost_gpu_hours
    assert (None if lost_h is None else lost_h.estimate) == both_h
    assert (trend.this.failures_without_gpus, trend.this.preemptions_without_gpus) == without


def test_the_report_says_what_adds_nothing(store_of: Callable[..., Path], tmp_path: Path) -> None:
    store = store_of(8, None)
    said = " ".join(ettr("goodput", store, "--detail").out.split())
    assert "1 preemption without a GPU count adds nothing to the loss." in said
    said = " ".join(ettr("report", "--detail", store, "-o", tmp_path / "report.html").out.split())
    assert "a lower bound: 1 preemption without a GPU count adds nothing to the loss" in said


def test_the_report_of_failures_without_gpus_is_not_of_none(
    store_of: Callable[..., Path], tmp_path: Path
) -> None:
    store = store_of(None, None)
    said = " ".join(ettr("goodput", store, "--detail").out.split())
    assert "Not measured: no job that failed or was preempted says its GPUs" in said
    assert "cost nothing of the" not in said
    said = " ".join(ettr("report", "--detail", store, "-o", tmp_path / "report.html").out.split())
    assert "not measured (no job that failed or was preempted says its GPUs" in said, said
    done = ettr("failures", store, "--list", "--json")
    (listed,) = done.json["failures"]
    assert (listed["lost_gpu_hours"], listed["preempted_gpu_hours"]) == (None, None)


@pytest.mark.parametrize(
    ("failed", "preempted", "says"),
    [
        (8, 4, "8 USD lost in the failed jobs, 4 USD in preempted jobs."),
        (8, None, "At 2 USD a GPU-hour: 8 USD lost in the failed jobs."),
        (None, 4, "At 2 USD a GPU-hour: 4 USD in preempted jobs."),
    ],
)
def test_money_of_listed_failures_is_of_known_losses(
    failed: int | None, preempted: int | None, says: str, store_of: Callable[..., Path]
) -> None:
    """Half an hour of 8 GPUs, and of the 4 of the job that had to go, at 2 USD a GPU-hour."""
    store = store_of(failed, preempted)
    done = ettr("failures", store, "--list", "--gpu-hour-price", "2USD", "--detail")
    said = " ".join(done.out.split())
    assert says in said, said
    unsaid = "does not say its GPUs or how long it ran: what it lost is not measured"
    assert ("1 failure " + unsaid in said) == (failed is None)
    assert ("1 preempted job " + unsaid in said) == (preempted is None)


def test_money_of_some_listed_failures_is_a_lower_bound(tmp_path: Path) -> None:
    """Job 4 fails, too, and nobody knows on how many GPUs."""
    store = site(tmp_path, *logs(8, 4), job(4, "NODE_FAIL", 0, 5, node="n4", gpus=None))
    said = " ".join(
        ettr("failures", store, "--list", "--gpu-hour-price", "2USD", "--detail").out.split()
    )
    assert "8 USD lost in the failed jobs, a lower bound, 4 USD in preempted jobs." in said, said
    listed = ettr("failures", store, "--list", "--json").json["failures"]
    assert [one["lost_gpu_hours"] for one in listed] == [None, 4.0]
    assert [one["preemptions_unmeasured"] for one in listed] == [0, 0]
