"""`ettr project --model`: each model on the command line, on a site whose truth is planted."""

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

NODES = 60
DAYS = 60.0
STEP_DAY = 30.0
BEFORE, AFTER = 0.06, 0.015
ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|"
    "NodeList|AllocTRES|WorkDir"
)


def stamp(day: float) -> str:
    return (ORIGIN + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nodes in use without a pause; their rate falls to a quarter at day 30."""
    rng = np.random.default_rng(12)
    folder = tmp_path_factory.mktemp("stepped")
    lines, job = [HEAD], 0
    for node in range(NODES):
        n_early, n_late = rng.poisson(BEFORE * STEP_DAY), rng.poisson(AFTER * (DAYS - STEP_DAY))
        fails = np.concatenate(
            [rng.uniform(0, STEP_DAY, n_early), rng.uniform(STEP_DAY, DAYS, n_late)]
        )
        cuts = sorted([*((day, True) for day in fails), *((day, False) for day in (20, 40, DAYS))])
        start = 0.0
        for end, failed in cuts:
            job += 1
            state = "NODE_FAIL" if failed else "COMPLETED"
            elapsed = round((end - start) * 86400)
            lines.append(
                f"c|{job}|t|ann|{state}|0:0|{stamp(start)}|{stamp(start)}|{stamp(start)}|"
                f"{stamp(end)}|{elapsed}|1|n{node}|cpu=64,gres/gpu=8,node=1|/w"
            )
            start = end
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def dated(site: Path) -> Path:
    """A copy that is told when each node entered service: 100 days before the logs begin."""
    copy = site.parent / "dated"
    shutil.copytree(site, copy)
    rows = [f"c,n{node},2025-09-23T00:00:00+00:00" for node in range(NODES)]
    csv = site.parent / "nodes.csv"
    csv.write_text("\n".join(["cluster,node,in_service_from", *rows]) + "\n")
    done = ettr("ingest", copy, csv, "--table", "nodes")
    assert done.code == 0, done.err
    return copy


def told(*words: str | Path) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def mttf_of(found: dict[str, Any]) -> dict[str, Any]:
    mttf: dict[str, Any] = found["points"][0]["projection"]["mttf_h"]
    return mttf


def test_since_the_step_the_fleet_is_four_times_as_good(site: Path):
    truth = 24.0 / (64 * AFTER)
    now = mttf_of(told("project", site, "--nodes", "64", "--model", "piecewise"))
    always = mttf_of(told("project", site, "--nodes", "64", "--model", "constant"))
    assert now["low"] < truth < now["high"]
    assert always["high"] < truth, "the mean over both halves is wrong for what is to come"


def test_the_day_of_the_step_is_told(site: Path):
    done = ettr("project", site, "--nodes", "64", "--model", "piecewise", "--detail")
    text = " ".join(done.out.split())
    told_at = re.search(r"piecewise constant: the rate last stepped at ([0-9: -]+) UTC[.]", text)
    assert told_at is not None
    at = datetime.fromisoformat(told_at[1]).replace(tzinfo=UTC)
    assert abs(at - (ORIGIN + timedelta(days=STEP_DAY))) <= timedelta(days=4)
    assert "Only the time since then counts" in text
    assert "The band takes that step as certain." in text


def test_several_models_span_the_band_and_the_first_is_its_middle(site: Path):
    both = told("project", site, "--nodes", "64", "--model", "constant", "--model", "piecewise")
    assert both["models"] == ["constant rate", "piecewise constant"]
    assert both["preferred"] == "constant rate"
    one = mttf_of(told("project", site, "--nodes", "64", "--model", "constant"))
    other = mttf_of(told("project", site, "--nodes", "64", "--model", "piecewise"))
    assert mttf_of(both) == {"estimate": one["estimate"], "low": one["low"], "high": other["high"]}


def test_a_law_of_time_in_use_without_ageing_agrees_with_the_constant_rate(site: Path):
    """The planted rate knows no time since the last failure: only its step does, a little."""
    words = ("project", site, "--nodes", "64", "--model", "weibull", "--ages", "0d,30d")
    found = told(*words)
    assert found["models"] == ["Weibull at 0 to 30 days"]
    constant = mttf_of(told("project", site, "--nodes", "64", "--model", "constant"))
    assert mttf_of(found)["estimate"] == pytest.approx(constant["estimate"], rel=0.25)
    assert any("time in use since its last failure" in note for note in found["notes"])


def test_without_service_dates_a_clock_of_age_says_how_to_give_them(site: Path):
    words = ("--model", "weibull", "--ages", "0d,9d", "--clock", "age")
    done = ettr("project", site, "--nodes", "64", *words)
    assert done.code == 2
    assert "no node of the store has a service date; ingest the table `nodes`" in done.err


def test_with_service_dates_the_fall_of_the_rate_is_one_of_age(dated: Path):
    """All nodes entered service on one day, so that the step is a step at the age of 130 days."""
    words = ("project", dated, "--nodes", "64", "--model", "lognormal", "--clock", "age", "--ages")
    young, old = (mttf_of(told(*words, ages)) for ages in ("100d,110d", "150d,160d"))
    assert young["high"] < old["estimate"]
    assert young["estimate"] < old["low"]
    beyond = told(*words, "150d,300d")["points"][0]["projection"]["warnings"]
    assert any("No node older than 160 days was seen" in one["text"] for one in beyond)


def test_a_law_of_age_asks_for_the_ages(site: Path):
    done = ettr("project", site, "--model", "weibull", "--detail")
    assert done.code == 2
    assert "give --ages FROM,TO, such as 0d,90d" in done.err
