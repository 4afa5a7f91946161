"""`ettr forecast`: failures to come, from logs whose weeks are counted by hand."""

from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr
from shared_data import shared

pytestmark = pytest.mark.slow

HEAD = "JobID|Cluster|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
START = np.datetime64("2026-01-05T00:00:00")
DAY = np.timedelta64(86_400, "s")
WEEKLY = (3, 5, 4, 2, 6, 4, 3, 5, 4, 4, 2, 6, 5, 3, 4, 4, 6, 2, 4, 4)


@pytest.fixture(scope="module")
def twenty_weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each day a job on each of eight nodes for the whole day; so many a week end in NODE_FAIL."""
    lines, job = [HEAD], 0
    for week, failed in enumerate(WEEKLY):
        for slot in range(56):
            day, node = divmod(slot, 8)
            job += 1
            begin = START + (7 * week + day) * DAY
            state = "NODE_FAIL" if slot % 9 == 0 and slot // 9 < failed else "COMPLETED"
            times = f"{begin}|{begin}|{begin + DAY}|86400"
            lines.append(f"{job}|c|train|u|{state}|{times}|1|n{node}|gres/gpu=8")
    folder = tmp_path_factory.mktemp("weeks")
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def test_a_week_ahead_with_the_share_of_past_bands_that_held(twenty_weeks: Path):
    document = ettr("forecast", twenty_weeks, "--json").json
    assert (document["format"], document["of_what"]) == ("ettr-forecast", "failures")
    assert document["events"] == sum(WEEKLY)
    week, month = document["ahead"]
    assert (week["ahead_days"], week["windows"]) == (7.0, 20)
    assert week["node_days"] == pytest.approx(56.0)
    expected = week["failures"]
    assert expected["estimate"] == pytest.approx(np.mean(WEEKLY), rel=0.15)
    assert expected["low"] <= 2
    assert expected["high"] >= 6
    assert (week["backtests"], week["held"]) == (8, 8)
    assert week["held_share"]["low"] == pytest.approx(0.05 ** (1 / 8))  # 8 of 8, exactly
    # five whole windows of four weeks: not enough, and said so
    assert month["windows"] == 5
    assert month["failures"] == {"estimate": None, "low": None, "high": None}
    assert "are unknown: that needs 12 windows" in month["meaning"]


def test_more_nodes_make_more_failures(twenty_weeks: Path):
    one, two = (
        ettr("forecast", twenty_weeks, "--ahead", "7d", "--nodes", n, "--json").json["ahead"][0]
        for n in ("8", "16")
    )
    assert two["failures"]["estimate"] == pytest.approx(2 * one["failures"]["estimate"])


def test_the_text_prints_the_coverage(twenty_weeks: Path):
    out = " ".join(ettr("forecast", twenty_weeks, "--detail").out.split())
    assert "8 of 8 bands of 90% held what came" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ahead", "28d"), "needs 12 windows of that length"),
        (("--ahead", "0s"), "a second or more"),
        (("--ahead", "7"), "give a number with its unit"),
        (("--nodes", "-1"), "give a positive number of nodes"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_a_sentence(
    twenty_weeks: Path, words: tuple[str, ...], says: str
):
    done = ettr("forecast", twenty_weeks, *words)
    assert done.code == 2
    assert says in " ".join(done.err.split())


def test_faults_without_jobs_are_forecast_from_the_time_in_service(tmp_path: Path):
    trace = shared("data/traces/infinitehbd") / "fault_trace.json.zst"
    assert ettr("ingest", tmp_path / "store", trace, "--nodes", 400).code == 0
    # the report prints the interval of independent faults and that over time, and names the wider
    rows = [line.split() for line in ettr("nodes", tmp_path / "store", "--detail").out.splitlines()]
    windows = next(row for row in rows if "windows" in row and "clustered," in row)
    assert windows[-1] == "yes"
    assert 2.8 < float(windows[-3].strip("[,")) < 3.2
    assert 5.4 < float(windows[-2].strip("]")) < 5.9
    assert any(row[:2] == ["independent", "(Poisson)"] for row in rows)
    document = ettr("forecast", tmp_path / "store", "--json").json
    assert (document["of_what"], document["events"]) == ("faults", 584)
    week, month = document["ahead"]
    assert week["node_days"] == pytest.approx(2800.0)
    assert (week["windows"], month["windows"]) == (49, 12)
    assert week["held_share"]["low"] < 0.9 < week["held_share"]["high"]
