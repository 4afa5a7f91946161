"""Periods and filters: hours cut at the ends, failures where they ended, an empty answer is one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cli.program import ettr
from ettr.selection import Back, Selection

pytestmark = pytest.mark.slow

NOON = ("--since", "2026-03-02T12:00", "--until", "2026-03-03")


def shown(*words: str | Path) -> Any:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    return done.json


def test_hours_are_cut_and_a_failure_belongs_to_the_period_in_which_it_ended(site: Path):
    """Job 2 fails at noon of 2 March, and runs again from one till eleven."""
    found = shown("failures", site, *NOON)
    assert [row["job_id"] for row in found["rows"]] == ["2"]
    assert found["all_jobs"]["node_days"] == pytest.approx(10 / 24, rel=1e-12)
    before = shown("failures", site, "--until", "2026-03-02T12:00")
    assert before["rows"] == []
    assert before["all_jobs"]["node_days"] == pytest.approx((48 + 12) / 24, rel=1e-12)
    # all that it lost is counted with it
    assert shown("goodput", site, *NOON)["first_order_gpu_hours"] == pytest.approx(0.5 * 8)
    assert shown("goodput", site, "--until", "2026-03-02T12:00")["first_order_gpu_hours"] == 0


@pytest.mark.parametrize(
    "since", ["2026-03-02T12:00", "2026-03-02 12:00Z", "2026-03-02T14:00+02:00"]
)
def test_a_time_without_an_offset_is_utc(site: Path, since: str):
    found = shown("status", site, "--since", since)
    assert found["selection"]["since"] == "2026-03-02T12:00:00Z"
    assert {row["state"]: row["attempts"] for row in found["states"]} == {
        "NODE_FAIL": 1,
        "COMPLETED": 1,
        "FAILED": 1,
        "PREEMPTED": 1,
    }


def test_a_filter_never_changes_a_verdict(site: Path):
    """The kernel's line that explains job 2 lies before the period."""
    (whole,) = shown("failures", site)["rows"]
    assert whole["symptom"] == "gpu-unavailable"
    for words in (NOON, ("--user", "bob"), ("--node", "n1"), ("--cluster", "c")):
        assert shown("failures", site, *words)["rows"] == [whole], words


@pytest.mark.parametrize(
    ("words", "gpu_hours"),
    [
        (("--user", "ann"), 24 * 16),
        (("--user", "ann", "--user", "eve"), 24 * 16 + 3 * 8),
        (("--node", "n1"), 24 * 8 + 12 * 8),
        (("--node", "n1", "--user", "ann"), 24 * 8),
        (("--cluster", "c"), 24 * 16 + 25 * 8),
    ],
)
def test_hours_are_those_of_the_selection(site: Path, words: tuple[str, ...], gpu_hours: float):
    found = shown("status", site, *words)
    held = sum(state["gpu_hours"] for state in found["states"])
    assert held == pytest.approx(gpu_hours, rel=1e-12)
    assert not found["selection"]["is_everything"]


def test_an_empty_selection_is_an_answer(site: Path, tmp_path: Path):
    done = ettr("failures", site, "--since", "2030-01-01", "--detail")
    assert done.code == 1  # nobody reads the note of a cron job
    lines = " ".join(done.out.split())
    assert "Selected: from 2030-01-01 UTC. * The logs hold nothing from that time." in lines
    assert "0 infrastructure failures in 0 node-days of runtime: – per 1,000 node-days" in lines
    page = tmp_path / "empty.html"
    assert ettr("report", site, "--user", "nobody", "-o", page).code == 1
    text = page.read_text()
    assert "The logs name no user nobody; they name ann, bob, eve." in text


@pytest.mark.parametrize(
    "words",
    [
        ("--partition", "trian"),
        ("--node", "x*"),
        ("--user", "ann", "--partition", "none"),
        ("--until", "2020-01-01"),
    ],
)
def test_a_selection_that_matches_nothing_ends_with_status_1(site: Path, words: tuple[str, ...]):
    for form in ((), ("--json",), ("--csv",)):
        assert ettr("status", site, *words, *form).code == 1


def test_a_period_counted_back_from_the_end_of_the_logs(site: Path):
    """They end on 3 March; the answer prints the dates."""
    whole = shown("report", site)["period"]
    end = datetime.fromisoformat(whole["end"])
    found = ettr("status", site, "--since", "12h", "--json").json["selection"]
    assert datetime.fromisoformat(found["since"]) == end - timedelta(hours=12)
    day = ettr("status", site, "--since", "yesterday", "--until", "yesterday", "--json").json
    today = end.replace(hour=0, minute=0, second=0, microsecond=0)
    ends = [datetime.fromisoformat(day["selection"][name]) for name in ("since", "until")]
    assert ends == [today - timedelta(days=1), today]
    assert (
        f"from {today - timedelta(days=1):%Y-%m-%d} UTC"
        in ettr("status", site, "--since", "yesterday", "--detail").out
    )


def test_yesterday_is_a_day_of_the_stores_zone():
    end = datetime(2026, 3, 3, 2, tzinfo=UTC)  # still 2 March in New York
    chosen = Selection(since_back=Back(days=1), until_back=Back(days=1))
    found = chosen.counted_from(end, ZoneInfo("America/New_York"))
    assert (found.since, found.until) == (
        datetime(2026, 3, 1, 5, tzinfo=UTC),
        datetime(2026, 3, 2, 5, tzinfo=UTC),
    )


@pytest.mark.parametrize("name", ["n[1-1]", "n1*", "n[1,9]"])
def test_lists_and_patterns_of_nodes(site: Path, name: str):
    assert (
        shown("status", site, "--node", name)["states"]
        == (shown("status", site, "--node", "n1")["states"])
    ), name


def test_what_is_not_selected_is_not_mentioned(site: Path):
    assert "Selected" not in ettr("failures", site, "--detail").out
    assert shown("failures", site)["selection"]["is_everything"]


@pytest.mark.parametrize("command", ["plan", "project"])
def test_plans_and_projections_rest_on_the_selected_rate(site: Path, command: str):
    words = (command, site, "--gpus", "64", "--until", "2026-03-02T12:00")
    found = shown(*words)
    assert found["selection"]["until"] == "2026-03-02T12:00:00Z"
    assert "Selected: until before 2026-03-02 12:00:00 UTC." in ettr(*words).out
    rate = found["rate"]["evidence"] if command == "plan" else found["points"][0]
    if command == "plan":
        assert (rate["failures"], rate["node_days"]) == (0, pytest.approx(60 / 24))
    refused = ettr(command, "--failures", "3", "--node-days", "900", "--gpus", "64", "--user", "x")
    assert refused.code == 2
    assert "--user: needs a STORE" in refused.err


def test_compare_takes_the_same_forms_of_time(site: Path):
    found = shown(
        "compare", site, "--before", "2026-03-02", "--all-jobs", "--user", "bob", "--user", "ann"
    )
    assert [fleet["node_days"] for fleet in found["fleets"]] == [
        pytest.approx(22 / 24),
        pytest.approx(2.0),
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("--since", "lately"),
            "--since 'lately': give a date or a time, such as 2026-03-01",
        ),
        (("--since", "2026-03-02", "--until", "2026-03-01"), "holds no time"),
        (("--until", "0001-01-01"), "is not in 1980 to 2200"),
    ],
)
def test_a_period_that_cannot_be_is_refused(site: Path, words: tuple[str, ...], says: str):
    done = ettr("status", site, *words)
    assert done.code == 2
    assert says in done.err


def test_of_log_files_cluster_names_the_rows_that_name_none(logs: list[Path], tmp_path: Path):
    bare = tmp_path / "sacct.psv"
    lines = logs[1].read_text().splitlines()
    bare.write_text("\n".join(line.partition("|")[2] for line in lines) + "\n")
    words = ("report", bare, "--timezone", "UTC", "--cluster", "atlas")
    found = shown(*words)
    assert found["clusters"] == ["atlas"]
    assert found["selection"]["is_everything"]
    assert shown(*words, "--user", "ann")["totals"]["attempts"] == 1
    twice = ettr(*words, "--cluster", "other")
    assert twice.code == 2
    assert "log files take one name" in twice.err


def test_the_period_of_the_report_is_that_of_the_selection(site: Path):
    document = shown("report", site, *NOON)
    assert document["totals"]["gpu_hours"] == pytest.approx(10 * 8, rel=1e-12)
    period = document["period"]
    begin, end = (datetime.fromisoformat(period[name]) for name in ("start", "end"))
    assert (end - begin).total_seconds() == 12 * 3600


def test_failures_are_listed_with_what_they_cost_and_the_lines_behind_their_cause(site: Path):
    listed = shown("failures", site, "--list", *NOON)
    (one,) = listed["failures"]
    assert {name: one[name] for name in ("time", "job_id", "user", "nodes", "node", "symptom")} == {
        "time": "2026-03-02T12:00:00Z",
        "job_id": "2",
        "user": "bob",
        "nodes": "n1",
        "node": "n1",
        "symptom": "gpu-unavailable",
    }
    assert one["lost_gpu_hours"] == pytest.approx(0.5 * 8)
    assert (one["file"], one["line"]) == ("sacct.psv", 3)
    places = {(line["file"], line["line"]) for line in one["evidence"]}
    assert ("kernel.log", 1) in places
    text = ettr("failures", site, "--list", "--detail").out
    assert "kernel.log:1 xid 79" in " ".join(text.split())
    assert shown("failures", site, "--list", "--user", "eve")["failures"] == []
    assert "No failures." in ettr("failures", site, "--list", "--user", "eve", "--detail").out


def test_what_a_listed_failure_loses_moves_with_the_interval(site: Path):
    """Job 2 ran for 12 hours on 8 GPUs: half of 10 minutes of it are lost, or of 2 days all."""
    words = ("failures", site, "--list", *NOON, "--interval")
    short, long = shown(*words, "10min"), shown(*words, "2d")
    assert (short["cap_min"], long["cap_min"]) == (5.0, 24 * 60.0)
    assert short["failures"][0]["lost_gpu_hours"] == pytest.approx(8 * 5 / 60)
    assert long["failures"][0]["lost_gpu_hours"] == pytest.approx(8 * 12)
    assert "at most 5 minutes of it" in " ".join(ettr(*words, "10min", "--detail").out.split())


def test_failures_of_users_are_those_without_a_fault_of_a_node(site: Path):
    """Job 4 of eve fails with exit code 1 after an hour on a node of 8 GPUs; job 2 was a node's."""
    found = shown("user-failures", site)
    assert (found["attempts"], found["gpu_hours"]) == (1, pytest.approx(8.0))
    names = {key: [group["name"] for group in found[key]] for key in found if key.startswith("by_")}
    assert names == {
        "by_state": ["FAILED"],
        "by_user": ["eve"],
        "by_account": [None],
        "by_exit": ["exit code 1"],
        "by_node": ["n4"],
    }
    text = " ".join(ettr("user-failures", site, "--detail").out.split())
    assert "1 attempt failed without a failure of the infrastructure in the logs." in text
    assert "They held 8 GPU-hours" in text
    assert "Most are of user eve: 1 of 1." in text
    assert shown("user-failures", site, "--user", "ann")["attempts"] == 0
