"""`ettr plan` on numbers of papers, and what it says to wrong ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr
from printed_digits import printed


def report_of(*args: str) -> str:
    done = ettr(*args, "--detail")
    assert done.code == 0, done.err
    return done.out


def plan(*args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report_of("plan", *args, "--json"))
    return found


RSC_1 = ("--failures-per-1000-node-days", "6.5")
SCHEME = ("--state-bytes", "5TB", "--step", "5s")


class TestKokolis:
    """The what-ifs of Kokolis et al. (arXiv 2410.21680), as a user types them."""

    @pytest.mark.parametrize(("gpus", "mttf_h"), [("16384", "1.8"), ("131072", "0.23")])
    def test_mttf_at_scale(self, gpus: str, mttf_h: str) -> None:
        found = plan("--gpus", gpus, "--gpus-per-node", "8", *RSC_1)
        assert found["mttf_h"]["estimate"] == printed(mttf_h)

    def test_mttf_in_words(self) -> None:
        assert "MTTF 1.8 h" in report_of("plan", "--gpus", "16384", "--gpus-per-node", "8", *RSC_1)

    def test_ten_second_writes(self) -> None:
        found = plan("--gpus", "12000", *RSC_1, "--restart", "5min", "--write", "10s")
        young = next(one for one in found["intervals"] if one["rule"].startswith("Young"))
        assert young["interval_s"] / 60 == printed("7.0")
        assert young["paper_ettr"] == printed("0.921")

    @pytest.mark.parametrize(
        ("gpus", "rate", "write", "expected"),
        [
            ("12000", "1", "5min", "0.898"),
            ("12000", "6.5", "5min", "0.740"),
            ("12000", "6.5", "60s", "0.858"),
            ("4096", "6.5", "5min", "0.848"),
            ("2048", "6.5", "5min", "0.893"),
        ],
    )
    def test_at_youngs_interval(self, gpus: str, rate: str, write: str, expected: str) -> None:
        found = plan("--gpus", gpus, "--failures-per-1000-node-days", rate, "--write", write)
        young = next(one for one in found["intervals"] if one["rule"].startswith("Young"))
        assert young["paper_ettr"] == printed(expected)

    @pytest.mark.parametrize(
        ("gpus", "interval", "expected"), [("16000", "60min", "0.684"), ("16000", "5min", "0.932")]
    )
    def test_free_writes(self, gpus: str, interval: str, expected: str) -> None:
        found = plan("--gpus", gpus, *RSC_1, "--interval", interval, "--write", "0")
        assert found["paper_ettr"] == printed(expected)

    def test_the_exact_form_beside_it(self) -> None:
        """Monte Carlo of the reference: 0.722 where the paper's form says 0.684."""
        found = plan("--gpus", "16000", *RSC_1, "--interval", "60min", "--write", "0")
        assert found["ettr"]["estimate"] == pytest.approx(0.722, abs=0.002)


class TestLlama3:
    """Llama 3 405B (arXiv 2407.21783): 419 in 54 days on 16,384 GPUs, "over 90 %"."""

    SEEN = ("--gpus", "16384", "--failures", "419", "--node-days", "110592")

    def test_rate_and_interval(self) -> None:
        rate = plan(*self.SEEN)["rate"]["per_node_day"]
        assert rate["estimate"] * 1000 == printed("3.79")
        assert rate["low"] * 1000 == printed("3.49")
        assert rate["high"] * 1000 == printed("4.11")

    def test_over_90_percent_needs_short_writes(self) -> None:
        assert plan(*self.SEEN, "--write", "10s")["ettr"]["low"] > 0.9
        assert plan(*self.SEEN, "--write", "5min")["ettr"]["high"] < 0.9


def test_a_finite_run_has_quantiles() -> None:
    found = plan("--nodes", "1500", *RSC_1, "--days", "30", "--queue", "2min")
    times = [at_s for _, at_s in found["wallclock"]["quantiles"]]
    assert times == sorted(times)
    assert times[0] > 30 * 86400


def test_the_wall_clock_is_no_surer_than_its_rate() -> None:
    """Llama 3: 419 failures leave the rate open by 9 %, and 54 days of work by far more than the
    scatter of one run at a known rate."""
    found = plan(*TestLlama3.SEEN, "--days", "54", "--write", "10s")
    clock, ettr = found["wallclock"], found["ettr"]
    medians = clock["quantile_bands_s"][1]
    assert [share for share, _ in clock["quantiles"]][1] == 0.5
    assert medians["estimate"] == clock["quantiles"][1][1]
    assert medians["low"] == pytest.approx(clock["productive_s"] / ettr["high"], rel=2e-3)
    assert medians["high"] == pytest.approx(clock["productive_s"] / ettr["low"], rel=2e-3)
    assert clock["mean_band_s"]["low"] < clock["mean_s"] < clock["mean_band_s"]["high"]
    assert "at the ends of the failure rate" in report_of(
        "plan", *TestLlama3.SEEN, "--days", "54", "--write", "10s"
    )


def test_a_typed_rate_has_no_ends() -> None:
    """An end equal to the estimate would claim a rate that is known exactly."""
    given = ("--gpus", "16384", *RSC_1, "--days", "54", *JOB)
    found = plan(*given)
    intervals = [
        found["rate"]["per_node_day"],
        found["mttf_h"],
        found["ettr"],
        found["best_interval_s"],
        *(one["ettr"] for one in found["schemes"] if one["usable"]),
        found["wallclock"]["mean_band_s"],
        *found["wallclock"]["quantile_bands_s"],
    ]
    assert len(intervals) > 8
    for one in intervals:
        assert one["estimate"] > 0
        assert (one["low"], one["high"]) == (None, None)


def test_no_failure_yet_plans_with_the_upper_end() -> None:
    given = ("--gpus", "1024", "--failures", "0", "--node-days", "5000")
    found = plan(*given)
    assert found["mttf_h"]["estimate"] is None
    # the upper end at 90 % after nothing in T: -ln(0.05) / T
    assert found["mttf_h"]["low"] == pytest.approx(24 / (128 * 2.995732 / 5000), rel=1e-5)
    assert found["ettr"]["estimate"] is None
    assert "or more, as nothing failed yet" in report_of("plan", *given)


JOB = ("--state-bytes", "5.6TB", "--step", "10s", "--bandwidth", "200GB/s")


def test_schemes_are_ranked_with_reasons() -> None:
    given = ("--gpus", "16384", "--failures", "419", "--node-days", "110592", *JOB)
    usable = [one for one in plan(*given)["schemes"] if one["usable"]]
    middles = [one["ettr"]["estimate"] for one in usable]
    assert middles == sorted(middles, reverse=True)
    assert all(one["ettr"]["low"] <= one["ettr"]["estimate"] for one in usable)
    assert "cannot be used: " in report_of("plan", *given)


def test_what_takes_the_whole_job_down_needs_durable_storage() -> None:
    given = ("--gpus", "16384", *RSC_1, *JOB, "--failure-shares")
    by_name = [
        {one["name"]: one["ettr"]["estimate"] for one in plan(*given, shares)["schemes"]}
        for shares in ("node=1", "job=1")
    ]
    assert by_name[1]["in-memory copies"] < by_name[0]["in-memory copies"]
    assert by_name[1]["synchronous"] == pytest.approx(by_name[0]["synchronous"], rel=1e-9)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), r"no failure rate: give a STORE, or --failures-per-1000-node-days"),
        ((*RSC_1, "--failures", "3"), r"more than one failure rate"),
        (("--failures", "3", "--gpus", "8"), r"go together"),
        (RSC_1, r"give --gpus N or --nodes N"),
        ((*RSC_1, "--gpus", "64", "--write", "-5s"), r"--write -5s: is negative; give 0"),
        ((*RSC_1, "--gpus", "64", "--write", "5"), r"number with its unit, such as 5min"),
        ((*RSC_1, "--gpus", "64", "--write", "0"), r"no best checkpoint interval.*--interval"),
        ((*RSC_1, "--gpus", "64", "--interval", "0"), r"interval_s: 0.0; give a positive"),
        ((*RSC_1, "--gpus", "64", "--target", "1.2"), r"target ETTR of 1.2 is not possible"),
        ((*RSC_1, "--gpus", "64", "--nodes", "3"), r"disagree at 8 GPUs a node"),
        ((*RSC_1, "--gpus", "64", "--days", "0"), r"give a positive number of days"),
        ((*RSC_1, "--gpus", "64", "--state-bytes", "1TB"), r"--step and --bandwidth missing"),
        (
            (*RSC_1, "--gpus", "64", "--state-bytes", "1TB", "--step", "1s"),
            r"--bandwidth missing: to",
        ),
        (
            (*RSC_1, "--gpus", "64", *JOB, "--failure-shares", "node=0.5"),
            r"the shares sum to 0.5, not 1",
        ),
        ((*RSC_1, "--gpus", "64", *JOB, "--failure-shares", "pod=1"), r"names among process, node"),
        (("--failures-per-1000-node-days", "-1", "--gpus", "64"), r"give 0 or more"),
        (("--failures", "3", "--node-days", "0", "--gpus", "64"), r"more than 0 node-days"),
        ((*RSC_1, "--gpus", "0"), r"--gpus.*greater than or equal to 1"),
        (("--gpu", "64"), r"No such option: --gpu"),
        (
            ("--failures", "3", "--node-days", "9", "--gpus", "64", "--confidence", "2"),
            r"confidence 2.0 is not between",
        ),
        (
            (*RSC_1, "--gpus", "64", *JOB, "--failure-shares", "node=0.5,node=0.5,process=0.5"),
            r"names node twice; name it once",
        ),
        (
            (*RSC_1, "--gpus", "64", "--step", "5s", "--bandwidth", "200GB/s"),
            r"--step, --bandwidth: needs --state-bytes",
        ),
        (
            (*RSC_1, "--gpus", "64", *SCHEME, "--bandwidth", "400Gb/s"),
            r"--bandwidth '400Gb/s': a small b means bits; give bytes.*400Gb/s are 50GB/s",
        ),
        (
            (*RSC_1, "--gpus", "64", *SCHEME, "--bandwidth", "9GB/s", "--host-memory", "5gb"),
            r"--host-memory '5gb': a small b means bits",
        ),
    ],
)
def test_wrong_use_says_what_to_change(args: tuple[str, ...], says: str) -> None:
    done = ettr("plan", *args)
    assert done.code == 2
    assert re.search(says, done.err, re.DOTALL)


def test_an_interval_beyond_the_mttf_is_told() -> None:
    text = report_of("plan", "--gpus", "131072", *RSC_1, "--interval", "2h")
    assert "is longer than the MTTF of" in text
    assert "Shorten the interval" in " ".join(text.split())


def test_a_target_that_nothing_reaches_alone() -> None:
    text = report_of("plan", "--gpus", "131072", *RSC_1, "--interval", "2h", "--target", "0.99")
    assert "not enough alone" in text


def test_planner_page_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "planner.html"
    text = report_of("plan", "--gpus", "16384", *RSC_1, "--html", str(file))
    assert f"Planner page: {file}" in text
    page = file.read_text()
    assert "<script src" not in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert list(tmp_path.iterdir()) == [file]


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = ettr("plan", "--gpus", "64", *RSC_1, "--html", str(tmp_path / "file" / "p.html"))
    assert done.code == 2
    assert "cannot make its folder: " in done.err


def test_the_folder_of_a_page_is_made(tmp_path: Path) -> None:
    done = ettr("plan", "--gpus", "64", *RSC_1, "--html", str(tmp_path / "new" / "p.html"))
    assert done.code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["p.html"]


def test_a_run_that_will_not_end() -> None:
    text = report_of("plan", "--gpus", "131072", *RSC_1, "--interval", "10h", "--days", "30")
    assert "it will not end" in text


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    done = ettr("plan", "--gpus", "64", *RSC_1, "--html", str(tmp_path))
    assert done.code == 2
    assert "is a folder; give a file name" in done.err


class TestOneAnswer:
    """The head of a plan and its tables answer the same question alike."""

    GIVEN = ("--gpus", "16384", *RSC_1, "--restart", "10min")
    STATE = ("--state-bytes", "5.7TB", "--bandwidth", "200GB/s", "--step", "5s")

    def test_the_head_writes_what_the_state_takes(self) -> None:
        found = plan(*self.GIVEN, *self.STATE)
        synchronous = next(one for one in found["schemes"] if one["name"] == "synchronous")
        assert found["ettr"]["estimate"] == pytest.approx(synchronous["ettr"]["estimate"], rel=1e-9)
        assert found["run"]["interval_s"] == pytest.approx(synchronous["interval_s"], rel=1e-3)
        # 5.7 TB at 200 GB/s, and the copy of a node's share at 100 GB/s
        assert found["run"]["write_s"] == pytest.approx(5.7e12 / 200e9 + 5.7e12 / 2048 / 100e9)
        text = " ".join(report_of("plan", *self.GIVEN, *self.STATE).split())
        assert "--write not given: 28.5 s, the copy and the write of 5.7 TB at 200 GB/s" in text
        assert "--write not given: 5 min" not in text

    def test_a_typed_write_stays_and_the_difference_is_named(self) -> None:
        typed = (*self.GIVEN, *self.STATE, "--write", "5min")
        assert plan(*typed)["run"]["write_s"] == 300.0
        assert "leave --write out for one answer" in " ".join(report_of("plan", *typed).split())


@pytest.mark.parametrize("days", ["54", "54d", "1296h"])
def test_a_length_of_time_takes_its_unit_or_is_in_days(days: str) -> None:
    found = plan("--nodes", "100", *RSC_1, "--days", days)
    assert found["wallclock"]["productive_s"] == 54 * 86400


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--expert-share", "0.8", "--embedding-share", "0.9"), "add up to 1.7; give 1 or less"),
        (("--replicas", "65"), "a run of 64 GPUs (8 nodes of 8) holds 64 copies at most"),
        (("--replicas", "64"), ""),
        (("--expert-share", "0.7", "--embedding-share", "0.3"), ""),
    ],
)
def test_options_of_schemes_that_cannot_hold_together(options: tuple[str, ...], says: str) -> None:
    job = ("--state-bytes", "1TB", "--step", "10s", "--bandwidth", "100GB/s")
    rate = ("--failures-per-1000-node-days", "6.5")
    done = ettr("plan", "--gpus", "64", *rate, *job, *options)
    assert done.code == (2 if says else 0), done.err
    assert says in " ".join(done.err.split())


def test_what_was_asked_for_is_answered_without_detail():
    rate = ["--gpus", "16384", "--failures", "419", "--node-days", "110592", "--write", "10s"]
    first = ettr("plan", *rate, "--days", "50d", "--within", "54d", "--repair", "2d").out
    assert "To end within 54 d with 90 % the work needs" in first.splitlines()[0]
    assert "--detail shows" in first
    # lengths without the waits for spare nodes would say that 99 % end in time
    assert "of runs end within" not in first
    assert "of runs end within" in ettr("plan", *rate, "--days", "50d").out
    explained = ettr("plan", *rate, "--explain").out
    assert "MTTF = 1 / λ = 11,1" in explained  # 110,592 × 86,400 s / (419 × 2,048) = 11,135 s
    assert "MTTF = 1 / λ" not in ettr("plan", *rate).out
    priced = ettr("plan", *rate, "--gpu-hour-price", "2.50USD").out
    # 16,384 GPUs for 24 h at 2.50 USD
    assert re.search(r"held +393,216 +983,040", priced)
    assert "393,216" not in ettr("plan", *rate).out
    ranked = ettr(
        "plan", *rate, "--state-bytes", "5.6TB", "--step", "10s", "--bandwidth", "200GB/s"
    ).out
    assert " is first: ETTR 0.9" in ranked.splitlines()[0]


@pytest.mark.parametrize(
    ("option", "typed", "wanted"),
    [
        ("--gpus", "16,384", "a whole number in digits alone, such as 16384"),
        ("--gpus", "16k", "a whole number in digits alone, such as 16384"),
        ("--target", "90%", "a number in digits with a point, such as 0.9"),
        ("--node-days", "110,592", "a number in digits with a point, such as 0.9"),
    ],
)
def test_a_number_that_is_none_is_named_with_what_to_give(option: str, typed: str, wanted: str):
    refused = ettr("plan", option, typed)
    assert refused.code == 2
    assert f"'{option}': '{typed}' was given; give {wanted}" in " ".join(refused.err.split())
