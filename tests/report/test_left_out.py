"""A dump that was selected by state, or lacks earlier attempts, looks like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ettr
from ettr.metrics.quality import LeftOut
from ettr.selection import Selection

COLUMNS = (
    "JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES|Restarts"
)


def row(job: int, state: str = "COMPLETED", day: int = 1, restarts: str = "") -> str:
    date = f"2026-03-{day:02d}"
    return (
        f"{job}|a|u{job % 7}|c|{state}|0:0|{date}T00:00:00|{date}T01:00:00|{date}T07:00:00|21600|2"
        f"|n[1-2]|gres/gpu=16|{restarts}\n"
    )


def mixed(job: int) -> str:
    return "FAILED" if job % 5 == 0 else "COMPLETED"


@pytest.fixture
def dump(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: str) -> Path:
        path = tmp_path / "sacct.psv"
        path.write_text("\n".join([COLUMNS, ""]) + "".join(rows))
        return path

    return write


def left_out(path: Path, selection: Selection | None = None) -> LeftOut | None:
    with ettr.read(path, timezone="UTC", selection=selection) as fleet:
        return fleet.quality.value.left_out


@pytest.mark.slow
def test_the_page_of_a_dump_of_failed_jobs_says_first_that_runtime_is_missing(
    dump: Callable[..., Path], tmp_path: Path
) -> None:
    failed = [row(job, "FAILED", 1 + job % 28) for job in range(120)]
    with ettr.read(dump(*failed), timezone="UTC") as fleet:
        fleet.write_report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    said = page.index("None of the 120 attempts that ended is COMPLETED")
    assert said < page.index('<section class="answers"')
    assert "every rate and share is too high" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("states", "none_completed", "none_failed"),
    [
        (["FAILED"] * 99, False, False),  # one run that never ended well
        (["FAILED"] * 100, True, False),
        (["FAILED"] * 99 + ["RUNNING"] * 9, False, False),
        (["FAILED"] * 200 + ["COMPLETED"], False, False),
        (["COMPLETED"] * 999, False, False),
        (["COMPLETED"] * 1000, False, True),
        (["COMPLETED"] * 1000 + ["CANCELLED"], False, False),
    ],
)
def test_states_that_none_of_many_jobs_has_are_missing(
    states: list[str], none_completed: bool, none_failed: bool, dump: Callable[..., Path]
) -> None:
    found = left_out(dump(*(row(job, state, restarts="0") for job, state in enumerate(states))))
    assert found is not None
    assert (found.none_completed, found.none_failed) == (none_completed, none_failed)


@pytest.mark.slow
def test_restarts_that_the_dump_lacks_are_missing_attempts(dump: Callable[..., Path]) -> None:
    """Jobs restarted twice each: once with their last attempt alone, once with all three."""
    last = [row(job, mixed(job), day=9, restarts="2") for job in range(20)]
    found = left_out(dump(*last))
    assert found is not None
    assert found.unseen_attempts == 40
    assert "40 attempts more than the logs hold" in found.certain[0]
    earlier = [
        row(job, "NODE_FAIL", day=7 + before, restarts=str(before))
        for job in range(20)
        for before in (0, 1)
    ]
    whole = left_out(dump(*earlier, *last))
    assert whole is not None
    assert whole.certain == ()


@pytest.mark.slow
def test_few_unseen_restarts_are_those_from_before_the_dump(dump: Callable[..., Path]) -> None:
    begun_before = [row(job, day=1, restarts="1") for job in range(4)]
    found = left_out(dump(*begun_before, *(row(job, restarts="0") for job in range(9, 99))))
    assert found is not None
    assert found.unseen_attempts == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "restarts", "doubtful"),
    [
        ([], "", True),
        ([row(5, "COMPLETED", day=20)], "", False),  # job 5 ran twice
        ([], "0", False),  # counted, and none was restarted
    ],
)
def test_a_dump_without_any_second_attempt_may_lack_them(
    more: list[str], restarts: str, doubtful: bool, dump: Callable[..., Path]
) -> None:
    jobs = [row(job, mixed(job), 1 + job % 9, restarts) for job in range(1000)]
    found = left_out(dump(*jobs, *more))
    assert found is not None
    assert (found.doubtful is not None) is doubtful
    assert left_out(dump(*jobs[:999])).never_requeued is False


@pytest.mark.slow
def test_a_selection_of_jobs_is_no_dump_with_parts_missing(dump: Callable[..., Path]) -> None:
    failed = [row(job, "FAILED", 1 + job % 28) for job in range(120)]
    assert left_out(dump(*failed), Selection(user=("u1",))) is None


@pytest.mark.slow
def test_missing_failures_make_rates_lower_bounds(dump: Callable[..., Path]) -> None:
    jobs = dump(*(row(job, "COMPLETED", 1 + job % 28, "3") for job in range(1200)))
    with ettr.read(jobs, timezone="UTC") as fleet:
        assert "The restart counts of jobs show 3,600 attempts more" in str(fleet.failures)
        assert "All of the 1,200 attempts that ended are COMPLETED" in str(fleet.failures)
