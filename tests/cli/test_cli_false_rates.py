"""Where a failure rate stands, it stands without false attributions, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ettr as package
from cli.noisy_site import NoisySite, noisy_site
from cli.program import Done, ettr
from ettr.estimates import Interval
from ettr.report.numbers import between

pytestmark = pytest.mark.slow


def words(done: Done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> NoisySite:
    return noisy_site(tmp_path_factory.mktemp("noisy"))


@pytest.fixture(scope="module")
def rate(noisy: NoisySite) -> Any:
    return ettr("failures", noisy.store, "--json").json["without_false"]["large_jobs"]


def shown(interval: dict[str, float]) -> str:
    return between(Interval(interval["estimate"], interval["low"], interval["high"]))


def test_the_json_has_both_rates_and_the_truth_lies_in_the_corrected_one(
    noisy: NoisySite, rate: Any
):
    failures = ettr("failures", noisy.store, "--json").json
    true_rate = 1000 * noisy.true_failures / noisy.node_days
    left = rate["without_false_per_1000_node_days"]
    assert rate["per_1000_node_days"] == failures["large_jobs"]["per_1000_node_days"]
    assert rate["failures"] > noisy.true_failures + 10
    assert left["low"] < true_rate < left["high"]
    assert not rate["per_1000_node_days"]["low"] < true_rate
    # as wide as the failures that are left make it, and more: the number of false is not known
    assert left["high"] - left["low"] > 0.5 * left["estimate"]
    wrong = ettr("report", noisy.store, "--json").json
    assert wrong["failures"]["without_false"]["large_jobs"] == rate
    assert (
        wrong["attribution"]["false_failures"]["large_jobs"]["expected_false"]
        == (rate["expected_false"])
    )


def test_failures_and_the_report_say_both_in_a_line(noisy: NoisySite, rate: Any, tmp_path: Path):
    line = (
        f"{shown(rate['expected_false'])} of them expected to be false: "
        f"{shown(rate['per_1000_node_days'])} per 1,000 node-days with those, "
        f"{shown(rate['without_false_per_1000_node_days'])} without."
    )
    assert line in words(ettr("failures", noisy.store, "--detail"))
    page = tmp_path / "r.html"
    report = words(ettr("report", "--detail", noisy.store, "-o", page))
    assert line in report
    assert page.read_text("utf-8").count(line) == 2
    # some nodes are silent, so that failures are missed as well: a lower bound it is not
    assert "Failures go uncounted as well" in report
    assert "These are lower bounds" not in report


@pytest.mark.parametrize("command", [("mttf",), ("plan", "--gpus", "1024"), ("project",)])
def test_what_projects_a_rate_says_how_much_of_it_may_be_false(
    noisy: NoisySite, rate: Any, command: tuple[str, ...]
):
    name, *options = command
    text = words(ettr(name, noisy.store, *options, "--detail"))
    assert (
        f"Of the {rate['failures']} failures behind the failure rate some "
        f"{shown(rate['expected_false'])} are expected to be false" in text
    )
    without = shown(rate["without_false_per_1000_node_days"])
    assert f"without them the rate would be {without} per 1,000 node-days" in text
    assert "rate is a lower bound" not in text


def test_json_and_python_have_the_note_as_well(noisy: NoisySite, rate: Any):
    assert ettr("mttf", noisy.store, "--json").json["rate_without_false"] == rate
    notes = ettr("plan", noisy.store, "--gpus", "1024", "--json").json["assumptions"]
    (note,) = (one for one in notes if "expected to be false" in one)
    assert note in ettr("project", noisy.store, "--json").json["notes"]
    with package.open(noisy.store) as fleet:
        assert note in package.plan_run(fleet, gpus=1024).value.assumptions
        assert note in package.project(fleet).value.notes


def test_without_noise_nothing_is_said(tmp_path: Path):
    quiet = noisy_site(tmp_path, noise=0.0)
    assert "expected to be false" not in words(
        ettr("plan", quiet.store, "--gpus", "1024", "--detail")
    )
    assert "of them expected to be false" not in words(ettr("failures", quiet.store, "--detail"))
    assert "is a lower bound" in words(ettr("project", quiet.store, "--detail"))


def test_without_logs_of_nodes_none_was_measured(noisy: NoisySite, tmp_path: Path):
    log = noisy.store.parent / "sacct.psv"
    assert ettr("ingest", tmp_path / "store", log, "--timezone", "UTC").code == 0
    assert ettr("failures", tmp_path / "store", "--json").json["without_false"] is None
    assert ettr("mttf", tmp_path / "store", "--json").json["rate_without_false"] is None
