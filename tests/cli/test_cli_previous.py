"""A period against the one before it: `ettr compare STORE --previous` and the report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.comparing import period_trend
from ettr.errors import UsageError
from ettr.estimates.exact import poisson_interval, sum_interval
from ettr.store import open_store

pytestmark = pytest.mark.slow

ORIGIN = datetime(2026, 3, 1, tzinfo=UTC)
N_NODES, GPUS = 20, 8
HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES"
)


def fleet(folder: Path, n_days: int, fails: Any) -> Path:
    """A store in which each node runs one job a day; it is NODE_FAIL where `fails(day, node)`."""
    lines, number = [HEADER], 0
    for day in range(n_days):
        start = ORIGIN + timedelta(days=day)
        end = start + timedelta(hours=23)
        for node in range(N_NODES):
            number += 1
            state = "NODE_FAIL" if fails(day, node) else "COMPLETED"
            times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, end))
            lines.append(
                f"c|{number}|j|ann|{state}|0:0|{times}|{23 * 3600}|1|n{node:02d}|gres/gpu={GPUS}"
            )
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def better(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 days: 4 failures a day and spread over the nodes, and 1 a day from day 30 on."""

    def fails(day: int, node: int) -> bool:
        return (node - day) % N_NODES < (4 if day < 30 else 1)

    return fleet(tmp_path_factory.mktemp("better"), 60, fails)


def test_the_last_days_stand_against_as_many_before(better: Path):
    found = ettr("compare", better, "--previous", "--json").json
    this, before = found["this"], found["before"]
    # the logs end with the last job, so that the period begins 23 h into the thirtieth day
    assert this["end"] == "2026-04-29T23:00:00Z"
    assert this["start"] == before["end"] == "2026-03-30T23:00:00Z"
    assert before["start"] == "2026-02-28T23:00:00Z"
    # a failure belongs to the period in which it ended: that of day 29 to the later one
    assert (this["failures"], before["failures"]) == (30 + 4, 29 * 4)
    half_an_hour = 0.5 * GPUS
    assert this["lost_gpu_hours"]["estimate"] == pytest.approx(34 * half_an_hour)
    assert before["lost_gpu_hours"]["estimate"] == pytest.approx(29 * 4 * half_an_hour)
    assert this["ran_gpu_hours"] == pytest.approx(30 * N_NODES * 23 * GPUS)
    assert found["direction"] == "better"
    assert "It is getting better" in found["meaning"]


def test_the_most_that_a_failure_loses_is_told_and_moves_with_the_interval(better: Path):
    usual = ettr("compare", better, "--previous", "--detail").out
    assert "at most 30 minutes of it" in " ".join(usual.split())
    words = ("compare", better, "--previous", "--interval", "3h")
    found = ettr(*words, "--json").json
    assert found["cap_min"] == 90.0
    assert found["this"]["lost_gpu_hours"]["estimate"] == pytest.approx(34 * 1.5 * GPUS)
    assert found["before"]["lost_gpu_hours"]["estimate"] == pytest.approx(29 * 4 * 1.5 * GPUS)
    assert "at most 90 minutes of it" in " ".join(ettr(*words, "--detail").out.split())


def test_a_period_that_is_named_stands_against_the_one_of_its_length(better: Path):
    done = ettr(
        *("compare", better, "--previous", "--since", "2026-03-11", "--until", "2026-03-21"),
        *("--json", "--gpu-hour-price", "2EUR"),
    )
    this, before = done.json["this"], done.json["before"]
    assert (before["start"], before["end"]) == ("2026-03-01T00:00:00Z", this["start"])
    assert (this["failures"], before["failures"]) == (40, 40)
    assert done.json["direction"] == "undecided"
    assert this["lost_gpu_hours_cost"]["estimate"] == pytest.approx(2 * 40 * 4)
    (pair,) = done.json["comparison"]["pairs"]
    assert pair["paired"] is not None
    assert pair["believe"] == "paired"


def test_a_failure_that_blames_no_node_counts_with_the_part_of_the_nodes_that_stay(tmp_path: Path):
    """Ten jobs fail on n2 and n3, of which n3 leaves; then three fail on n0."""
    head = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    ran = [(day, at, "COMPLETED", 1, f"n{at}") for day in range(1, 21) for at in (0, 1)]
    ran += [(day, 2, "NODE_FAIL", 2, "n[2-3]") for day in range(1, 11)]
    ran += [(day, 2, "COMPLETED", 1, "n2") for day in range(11, 21)]
    ran += [(day, 3, "NODE_FAIL", 1, "n0") for day in (12, 14, 16)]
    rows = [
        f"{10 * day + at}|a|u|c|{state}|2026-01-{day:02}T00:00:00|2026-01-{day:02}T00:00:00"
        f"|2026-01-{day:02}T12:00:00|43200|{count}|{nodes}|gres/gpu={8 * count}"
        for day, at, state, count, nodes in ran
    ]
    (tmp_path / "sacct.psv").write_text("\n".join([head, *rows]) + "\n")
    done = ettr("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    done = ettr("compare", tmp_path / "store", "--before", "2026-01-11", "--json")
    assert done.code == 0, done.err
    paired = done.json["pairs"][0]["paired"]
    # n2 has half of each of the ten
    assert paired["b"] == {"failures": 5, "node_days": 15.0}
    assert paired["a"] == {"failures": 3, "node_days": 16.5}


def test_where_nothing_was_before_it_says_so_and_gives_no_number(better: Path):
    done = ettr(
        "compare",
        better,
        "--previous",
        "--since",
        "2026-03-01",
        "--until",
        "2026-04-01",
        "--detail",
    )
    assert "No data before 2026-03-01" in done.out
    assert "\nbefore " not in done.out
    found = ettr("compare", better, "--previous", "--since", "2026-03-01", "--json").json
    assert found["before"] is None
    assert found["direction"] is None


def test_a_part_that_the_logs_cover_is_named(better: Path):
    done = ettr(
        "compare",
        better,
        "--previous",
        "--since",
        "2026-03-21",
        "--until",
        "2026-04-20",
        "--detail",
    )
    assert "Of the 30 days of the period before the logs cover 20" in " ".join(done.out.split())


def test_where_no_job_is_as_large_as_is_asked_the_figures_stand_without_a_comparison(better: Path):
    with open_store(better) as store:
        found = period_trend(Analysis(store), above_gpus=64)
    assert found is not None
    assert found.before is not None
    assert (found.this.failures, found.before.failures) == (30 + 4, 29 * 4)
    assert (found.direction, found.comparison) == (None, None)
    assert (
        found.meaning
        == "No job of more than 64 GPUs ran in this period, so there is nothing to compare."
    )


def test_the_option_needs_one_store(better: Path):
    assert ettr("compare", "old=30/5000", "--previous").code == 2
    assert ettr("compare", better, "--previous", "--before", "2026-03-05").code == 2
    assert ettr("compare", "a=3/500", "b=3/400", "--gpu-hour-price", "2EUR").code == 2


def test_the_interval_of_a_sum_is_that_of_its_count_where_all_losses_are_equal():
    low, high = poisson_interval(7, 0.9)
    found = sum_interval([3.0] * 7, confidence=0.9)
    assert (found.estimate, found.low, found.high) == pytest.approx((21.0, 3 * low, 3 * high))
    # one large loss among small ones is known less well, and so is a number in bursts
    uneven = sum_interval([15.0, *[1.0] * 6], confidence=0.9)
    assert uneven.high - uneven.low > found.high - found.low
    bursts = sum_interval([3.0] * 7, dispersion=2.0, confidence=0.9)
    assert bursts.low < found.low
    assert bursts.high > found.high
    assert sum_interval([]).low == 0.0
    with pytest.raises(UsageError):
        sum_interval([1.0], confidence=1.5)


@pytest.fixture(scope="module")
def bursty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 days: every sixth takes eight nodes at once, and the last but one month has one alone."""

    def fails(day: int, node: int) -> bool:
        if 30 <= day < 60:
            return day == 45 and node == 3
        return day % 6 == 0 and (node + 7 * day) % N_NODES < 8

    return fleet(tmp_path_factory.mktemp("bursty"), 90, fails)


def test_a_period_of_few_failures_has_the_spread_of_the_whole_log(bursty: Path):
    found = ettr("compare", bursty, "--previous", "--json").json
    before = found["before"]
    assert before["failures"] < 10
    exact = poisson_interval(before["failures"], 0.9)
    shown = before["per_1000_node_days"]
    per_1000 = before["node_days"] / 1000.0
    assert shown["high"] * per_1000 > 1.5 * exact[1]
    assert found["direction"] == "undecided"
    assert "failed in the period before to know whether failures cluster" in found["meaning"]


def test_the_report_says_why_a_trend_is_undecided(bursty: Path):
    found = ettr("report", bursty, "--json").json
    (line,) = [one for one in found["summary"] if one["question"].startswith("Is it getting")]
    assert line["question"] == "Is it getting better than the period before?"
    assert line["answer"] == "undecided"
    assert "to know whether failures cluster" in line["detail"]
