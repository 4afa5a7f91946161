"""A dump of the accounting begins in the middle of jobs: what ended before is not in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import ettr
from ettr.analysis import Analysis
from ettr.analysis.calibration.fit import fit_site
from ettr.analysis.comparing import previous
from ettr.errors import UsageError
from ettr.metrics.coverage import DumpWindow
from ettr.models.compare import Direction
from ettr.selection import Selection
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.store import open_store

HEAD = "JobID|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 10
NODES = 40
FAILS = 0.25


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}"


def jobs(
    seed: int,
    *,
    runs_before_days: float,
    mean_days: float = 3.0,
    law: str = "exponential",
    lists: str = "what ran until now",
) -> tuple[str, float]:
    """Nodes that always run a job; the dump of ten days, and the runtime from before it in days."""
    rng = np.random.default_rng(seed)
    rows, before_days = [], 0.0
    last = FIRST + timedelta(days=DAYS)
    for node in range(NODES):
        end = FIRST - timedelta(days=runs_before_days)
        while end < last:
            start = end
            length = (
                rng.exponential(mean_days)
                if law == "exponential"
                else mean_days * np.exp(1.5 * rng.standard_normal() - 1.5**2 / 2)
            )
            end = start + timedelta(days=float(length))
            if end < FIRST:
                continue
            if lists == "what ended" and end >= last:
                continue
            before_days += max(0.0, (FIRST - start) / timedelta(days=1))
            state = "NODE_FAIL" if rng.random() < FAILS else "COMPLETED"
            is_over = end < last or lists == "what ran until the last day"
            until = end if is_over else last
            rows.append(
                f"{len(rows) + 1}|u|c|{state if is_over else 'RUNNING'}|0:0|{text(start)}"
                f"|{text(start)}|{text(end) if is_over else 'Unknown'}"
                f"|{(until - start).total_seconds():.0f}|1|n{node}|gres/gpu=8\n"
            )
    return HEAD + "".join(rows), before_days


def windows(log: str, folder: Path, selection: Selection | None = None) -> tuple[DumpWindow, ...]:
    path = folder / "sacct.psv"
    path.write_text(log)
    with ettr.read(path, timezone="UTC", selection=selection) as fleet:
        return fleet.quality.value.windows


def of_clusters(logs: dict[str, str]) -> str:
    """The dumps of several clusters as one."""
    rows = (log.removeprefix(HEAD).replace("|u|c|", f"|u|{name}|") for name, log in logs.items())
    return HEAD + "".join(rows)


@pytest.mark.slow
def test_runtime_from_before_the_dump_is_found_and_counted(tmp_path: Path) -> None:
    planted = {
        f"{law}{seed}": jobs(seed, runs_before_days=60.0, law=law)
        for law in ("exponential", "lognormal")
        for seed in range(3)
    }
    log = of_clusters({name: one for name, (one, _) in planted.items()})
    by_cluster = {one.cluster: one for one in windows(log, tmp_path)}
    assert by_cluster.keys() == planted.keys()
    for name, found in by_cluster.items():
        before_days = planted[name][1]
        assert found.first_end is not None
        assert timedelta(0) < found.first_end - FIRST < timedelta(hours=12)
        # up to the first end all nodes run, too
        after_days = NODES * ((found.first_end - FIRST) / timedelta(days=1))
        assert found.node_days_before == pytest.approx(before_days + after_days, rel=0.01)
        assert found.share == pytest.approx(
            found.node_days_before / (before_days + NODES * DAYS), rel=0.01
        )
        assert f"--since {found.first_end:%Y-%m-%dT%H:%M:%SZ}" in found.sentence
    last = max(by_cluster.values(), key=lambda one: one.first_end or FIRST)
    since = Selection(since=last.first_end)
    assert windows(log, tmp_path, since) == ()
    alone = Selection(since=by_cluster["exponential0"].first_end, cluster=("exponential0",))
    assert windows(log, tmp_path, alone) == ()


@pytest.mark.slow
def test_a_cluster_that_began_with_its_log_is_no_part_of_one(tmp_path: Path) -> None:
    """All nodes start together: in one of 10,000 such logs the first end may take so long."""
    logs = {}
    for seed in range(4):
        law = ("exponential", "lognormal")[seed % 2]
        logs[f"{law}{seed}"], before_days = jobs(seed, runs_before_days=0.0, law=law)
        assert before_days == 0.0
    assert windows(of_clusters(logs), tmp_path) == ()


@pytest.mark.slow
def test_jobs_of_one_length_all_end_late(tmp_path: Path) -> None:
    """Twenty jobs a day of 23 h: none can have ended before the first day is nearly over."""
    rows = [
        f"{20 * day + node}|u|c|COMPLETED|0:0|{text(at)}|{text(at)}|"
        f"{text(at + timedelta(hours=23))}|{23 * 3600}|1|n{node}|gres/gpu=8\n"
        for day in range(DAYS)
        for node in range(20)
        for at in [FIRST + timedelta(days=day)]
    ]
    assert windows(HEAD + "".join(rows), tmp_path) == ()


@pytest.mark.slow
def test_a_dump_of_weeks_ago_is_one_too(tmp_path: Path) -> None:
    """`--endtime`: jobs that ran then have ended since, and are listed with their real end."""
    log, _ = jobs(1, runs_before_days=60.0, lists="what ran until the last day")
    assert "RUNNING" not in log
    (found,) = windows(log, tmp_path)
    assert found.first_end is not None
    assert found.first_end - FIRST < timedelta(hours=12)


@pytest.mark.slow
def test_a_log_of_ended_jobs_is_not_too_low(tmp_path: Path) -> None:
    """What ran before it has as many node-days as what it lacks at its end, on average."""
    logs = [jobs(seed, runs_before_days=60.0, lists="what ended") for seed in range(20)]
    node_days = [
        sum(float(row.split("|")[8]) / 86400 for row in log.splitlines()[1:]) for log, _ in logs
    ]
    assert np.mean(node_days) == pytest.approx(NODES * DAYS, rel=0.05)
    assert np.mean([before_days for _, before_days in logs]) > 0.2 * NODES * DAYS
    assert windows(logs[0][0], tmp_path) == ()


@pytest.mark.slow
def test_a_selected_cluster_is_not_doubted_for_another(tmp_path: Path) -> None:
    log, _ = jobs(1, runs_before_days=60.0)
    (tmp_path / "b.psv").write_text(jobs(2, runs_before_days=0.0)[0].replace("|u|c|", "|u|b|"))
    (tmp_path / "a.psv").write_text(log)
    for cluster, doubted in (("b", []), ("c", ["c"])):
        chosen = Selection(cluster=(cluster,))
        with ettr.read(
            tmp_path / "a.psv", tmp_path / "b.psv", timezone="UTC", selection=chosen
        ) as fleet:
            assert [one.cluster for one in fleet.quality.value.windows] == doubted


@pytest.mark.slow
def test_the_page_says_so_first_and_rates_are_lower_bounds(tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(jobs(1, runs_before_days=60.0)[0])
    with ettr.read(path, timezone="UTC") as fleet:
        fleet.write_report(tmp_path / "page.html")
        assert fleet.failures.to_dict()["is_lower_bound"]
    page = (tmp_path / "page.html").read_text()
    said = page.index("No attempt of cluster c ended before 2026-03-01T")
    assert said < page.index('<section class="answers"')


@pytest.mark.slow
def test_jobs_that_only_run_hold_no_failures(tmp_path: Path) -> None:
    row = "{0}|u|c|RUNNING|0:0|{1}|{1}|Unknown|86400|1|n{0}|gres/gpu=8\n"
    (found,) = windows(HEAD + row.format(1, text(FIRST)) + row.format(2, text(FIRST)), tmp_path)
    assert found.first_end is None
    assert "cannot show a failure" in found.sentence


@pytest.mark.slow
def test_a_fit_leaves_out_what_lies_before_the_dump(tmp_path: Path) -> None:
    """Forty nodes with a job of three days after the other: 13.3 jobs a day begin."""
    (tmp_path / "sacct.psv").write_text(jobs(3, runs_before_days=60.0)[0])
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, tmp_path / "sacct.psv", ReadOptions(timezone="UTC"))
        found = fit_site(Analysis(store), "site")
    assert found.since == "2026-03-02"
    assert "Fitted from the first whole day" in " ".join(found.notes)
    assert found.scenario.arrivals.jobs_per_day == pytest.approx(NODES / 3.0, rel=0.25)


@pytest.mark.slow
def test_a_fit_until_after_the_logs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(jobs(3, runs_before_days=0.0)[0])
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, tmp_path / "sacct.psv", ReadOptions(timezone="UTC"))
        analysis = Analysis(store)
        with pytest.raises(UsageError, match="--until 2026-04-01: the logs end on 2026-03-1"):
            fit_site(analysis, "site", until=datetime(2026, 4, 1, tzinfo=UTC))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_rate_that_only_the_dump_makes_rise_has_no_direction(seed: int, tmp_path: Path) -> None:
    """Failures at a constant rate; what lies before the dump looks like better days."""
    (tmp_path / "sacct.psv").write_text(jobs(seed, runs_before_days=60.0)[0])
    with open_store(tmp_path / "store", create=True) as store:
        ingest_file(store, tmp_path / "sacct.psv", ReadOptions(timezone="UTC"))
        whole = Analysis(store)
        assert whole.clustering.direction.verdict is Direction.UNDECIDED
        assert "begins in the middle of jobs" in whole.clustering.direction.meaning
        assert whole.ask(previous) is not None
        assert whole.ask(previous).direction in (None, Direction.UNDECIDED)
        (window,) = whole.dump_windows
        known = whole.of(Selection(since=window.first_end))
        assert "begins in the middle" not in known.clustering.direction.meaning
        # a period from after that moment on: the one before it reaches back to before the dump
        assert window.first_end is not None
        later = window.first_end + 0.3 * (whole.logs_period.end - window.first_end)
        last = whole.of(Selection(since=later)).ask(previous)
        assert last is not None
        assert last.direction is Direction.UNDECIDED
        assert "begins in the middle of jobs" in last.meaning
