"""What was going on when a dump was made began long before: the period is not that long."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import ettr
from ettr.metrics.quality import EarlyStart
from ettr.selection import Selection
from report.test_dump_window import jobs as dump_in_the_middle

JOBS = "JobID|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
STATES = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason\n"


def job(number: int, start: str, submit: str | None = None) -> str:
    return (
        f"{number}|u|c|COMPLETED|0:0|{submit or start}|{start}|{start[:11]}23:00:00|3600|1"
        f"|n{number % 5}|gres/gpu=8\n"
    )


MONTH = [job(day, f"2026-03-{day:02d}T22:00:00") for day in range(1, 31)]


def early_start(
    folder: Path, jobs: list[str], states: str = "", since: datetime | None = None
) -> EarlyStart | None:
    (folder / "sacct.psv").write_text(JOBS + "".join(jobs))
    (folder / "events.psv").write_text(STATES + states)
    logs = [folder / name for name in (["sacct.psv", "events.psv"] if states else ["sacct.psv"])]
    with ettr.read(*logs, timezone="UTC", selection=Selection(since=since)) as fleet:
        return fleet.quality.value.early_start


DOWN_FOR_A_YEAR = "c|n1|2025-03-01T22:00:00|{end}|DOWN*|Not responding\n"
SHORT = "c|n2|2026-03-05T00:00:00|2026-03-05T02:00:00|DOWN*|Not responding\n"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["2026-03-09T00:00:00", "Unknown"])
def test_a_node_that_was_down_long_before_stretches_the_period(end: str, tmp_path: Path) -> None:
    found = early_start(tmp_path, MONTH, DOWN_FOR_A_YEAR.format(end=end) + SHORT)
    assert found is not None
    assert found.what == "a node's state"
    assert "at 2025-03-01T22:00:00Z, 365.0 days before" in found.sentence
    assert "--since 2026-03-01T22:00:00Z" in found.sentence
    since = datetime(2026, 3, 1, 22, tzinfo=UTC)
    assert early_start(tmp_path, MONTH, DOWN_FOR_A_YEAR.format(end=end), since) is None


@pytest.mark.slow
def test_a_job_that_waited_for_long_stretches_it_too(tmp_path: Path) -> None:
    held = job(900, "2026-03-02T00:00:00", submit="2026-01-01T00:00:00")
    found = early_start(tmp_path, [*MONTH, held])
    assert found is not None
    assert (found.what, found.known_from.isoformat()) == (
        "a job's submission",
        "2026-03-01T22:00:00+00:00",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "states",
    [
        SHORT,
        # events of a year, of which the first ended a year before the jobs
        DOWN_FOR_A_YEAR.format(end="2025-03-02T00:00:00") + SHORT,
        # a day before the jobs
        "c|n2|2026-03-01T00:00:00|2026-03-05T02:00:00|DOWN*|Not responding\n",
    ],
)
def test_logs_that_reach_back_are_as_long_as_they_are(states: str, tmp_path: Path) -> None:
    assert early_start(tmp_path, MONTH, states) is None


@pytest.mark.slow
def test_the_page_says_so_first(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(JOBS + "".join(MONTH))
    (tmp_path / "events.psv").write_text(STATES + DOWN_FOR_A_YEAR.format(end="Unknown"))
    with ettr.read(tmp_path / "sacct.psv", tmp_path / "events.psv", timezone="UTC") as fleet:
        fleet.write_report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    said = page.index("The period begins with a node")
    assert said < page.index('<section class="answers"')


@pytest.mark.slow
def test_a_cluster_whose_log_reaches_back_is_known_from_its_own_start(tmp_path: Path) -> None:
    """The dump of the other begins in the middle of its jobs."""
    (tmp_path / "a.psv").write_text(dump_in_the_middle(1, runs_before_days=60.0)[0])
    earlier = [
        job(day, f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}T22:00:00").replace("|c|", "|other|")
        for day in range(60)
    ]
    (tmp_path / "b.psv").write_text(JOBS + "".join(earlier))
    with ettr.read(tmp_path / "a.psv", tmp_path / "b.psv", timezone="UTC") as fleet:
        quality = fleet.quality.value
    assert [one.cluster for one in quality.windows] == ["c"]
    assert quality.early_start is None
