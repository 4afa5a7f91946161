"""`ettr project` on typed numbers: models that apply, and what it says of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ettr as front_door
from cli.program import ettr

TYPED = (
    "project",
    "--failures",
    "419",
    "--node-days",
    "110592",
    "--seen-gpus",
    "16384",
    "--gpus",
    "16384",
)


def projection(*words: str) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def test_typed_numbers_take_a_constant_rate():
    """Llama 3 405B: 419 failures in 54 days on 16,384 GPUs."""
    named, plain = projection(*TYPED, "--model", "constant"), projection(*TYPED)
    mttfs = [one["points"][0]["projection"]["mttf_h"] for one in (named, plain)]
    assert named["models"] == ["constant rate"]
    assert mttfs[0] == mttfs[1]
    assert mttfs[0]["estimate"] == pytest.approx(54 * 24 / 419)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "gompertz"), "there is no such model; give constant, gamma-mixed, weibull"),
        (("--model", "gamma-mixed"), "there is only one fleet; give a STORE of several nodes"),
        (("--model", "piecewise"), "do not say when nodes failed; give a STORE"),
        (("--model", "weibull", "--ages", "0d,9d"), "do not say when nodes failed; give a STORE"),
        (("--ages", "0d,9d"), "--ages: needs --model weibull or --model lognormal"),
        (("--clock", "use"), "--clock: needs --model weibull or --model lognormal"),
        (("--model", "weibull", "--clock", "wall"), "--clock wall: give use or age"),
        (("--model", "weibull", "--ages", "9d,3d"), "ends before it begins; write it as 0d,90d"),
        (("--model", "weibull", "--ages", "9d"), "give two times, from and to, such as 0d,90d"),
        (("--spares", "4"), "--spares: needs --repair"),
        (("--days", "inf"), "--days inf: give a positive number of days"),
        (("--days", "-1"), "--days -1: give a positive number of days"),
        (("--gpus", "9" * 5000), "is not a whole number above 0"),
        (("--gpus", "00"), "is not a whole number above 0"),
        (("--confidence", "90"), "confidence 90.0 is not between 0 and 1"),
        (("--window", "600"), "--window: needs a STORE"),
        (("--taxonomy", "nowhere.toml"), "--taxonomy: needs a STORE"),
        (("--believe", "astrology"), "--believe: needs a STORE"),
    ],
)
def test_typed_numbers_are_no_reason_to_overlook_a_mistake(words: tuple[str, ...], says: str):
    done = ettr(*TYPED, *words, "--detail")
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_warnings_of_any_scale_are_told_in_whatever_order_the_scales_stand():
    """The largest first, the smallest in the middle: each has a warning of its own."""
    done = ettr(*TYPED[:-2], "--gpus", "131072,64,16384", "--detail")
    text = " ".join(done.out.split())
    assert "16,384 nodes are 8 times the largest job seen (2,048)" in text
    assert "8 nodes are fewer than the smallest job seen (2,048)" in text
    done = ettr(*TYPED[:-2], "--gpus", "32768,65536,131072", "--detail")
    assert " ".join(done.out.split()).count("times the largest job seen") == 1


def test_one_failure_is_told_in_the_singular():
    done = ettr("project", "--failures", "1", "--node-days", "100", "--gpus", "4096", "--detail")
    text = " ".join(done.out.split())
    assert "1 failure is too few to know whether they cluster" in text
    assert "1 failure is too few to decide between models" in text
    assert "1 failures" not in text


RATE = ("project", "--failures-per-1000-node-days")


def test_a_rate_alone_is_a_way_in_and_has_no_interval():
    """2,048 nodes at 6.5 per 1,000 node-days: 1000 / (6.5 * 2048) days between failures."""
    found = projection(*RATE, "6.5", "--gpus", "16384", "--days", "30")
    made = found["points"][0]["projection"]
    assert found["rate"] is None
    mttf_h = 24_000 / 6.5 / 2048
    assert made["mttf_h"]["estimate"] == pytest.approx(mttf_h)
    # the scatter of one run at exactly that rate: Poisson
    expected = 6.5e-3 * 2048 * 30
    in_run = made["failures_in_run"]
    assert in_run["estimate"] == pytest.approx(expected)
    assert expected - 2.2 * expected**0.5 < in_run["low"] < expected < in_run["high"]
    text = " ".join(ettr(*RATE, "6.5", "--gpus", "16384", "--detail").out.split())
    assert "The rate came without its evidence" in text
    assert "[" not in text


def intervals(value: Any) -> list[dict[str, Any]]:
    """Every interval in a document."""
    if isinstance(value, list):
        return [found for one in value for found in intervals(one)]
    if not isinstance(value, dict):
        return []
    return [value] if set(value) == {"estimate", "low", "high"} else intervals([*value.values()])


def test_a_rate_alone_has_no_ends(tmp_path: Path) -> None:
    """An end equal to the estimate would claim a rate that is known exactly."""
    words = (*RATE, "6.5", "--gpus", "16384", "--repair", "1d", "--spares", "4")
    found = intervals(projection(*words))
    # MTTF and ETTR, those of the one line with its rate, and two of the spares
    assert len(found) == 8
    for one in found:
        assert one["estimate"] > 0
        assert (one["low"], one["high"]) == (None, None)
    page = tmp_path / "page.html"
    assert ettr(*words, "--html", page).code == 0
    assert "1.8 h [" not in page.read_text()
    api = front_door.project(failures_per_1000_node_days=6.5, gpus=[16384]).to_dict()
    assert {(one["low"], one["high"]) for one in intervals(api)} == {(None, None)}


def test_ends_that_come_from_the_size_of_the_nodes_stay() -> None:
    """Nodes of 4 GPUs fail as often as those of 8 that were seen, or half as often."""
    words = ("--gpus-per-node", "4", "--seen-gpus", "1024", "--seen-gpus-per-node", "8")
    made = projection(*RATE, "6.5", "--gpus", "1024", *words)["points"][0]["projection"]
    by_node_h = 24_000 / 6.5 / 256
    wanted = {"estimate": 2 * by_node_h, "low": by_node_h, "high": 2 * by_node_h}
    assert made["mttf_h"] == pytest.approx(wanted)
    for one in intervals([made["lines"], made["parameter_mttf_h"]]):
        assert (one["low"], one["high"]) == (None, None)


def test_a_rate_of_0_is_known_and_has_no_ends_either() -> None:
    words = (*RATE, "0", "--gpus", "1024", "--interval", "1h")
    made = projection(*words)["points"][0]["projection"]
    # a write of 5 min after each hour, and nothing fails
    assert made["ettr"] == {"estimate": pytest.approx(12 / 13), "low": None, "high": None}
    text = " ".join(ettr(*words, "--detail").out.split())
    assert "the mean time to failure is ∞, ETTR 0.923." in text


@pytest.mark.slow
def test_a_rate_with_the_ends_of_its_interval_gives_the_ends_of_what_follows():
    found = projection(*RATE, "6.5,6.1,6.9", "--gpus", "16384")
    mttf = found["points"][0]["projection"]["mttf_h"]
    wanted = {"estimate": 6.5, "low": 6.9, "high": 6.1}
    assert mttf == pytest.approx({key: 24_000 / rate / 2048 for key, rate in wanted.items()})
    plan = ettr("plan", *RATE[1:], "6.5,6.1,6.9", "--gpus", "16384", "--json").json
    assert plan["mttf_h"] == pytest.approx(mttf)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("6,5",), "give a rate with a decimal point, such as 6.5"),
        (("6.5,7,8",), "give the rate, a low end below it and a high end above it"),
        (("6.5,6.1,inf",), "with the interval 6.1 to inf are not possible"),
        (("nan",), "are not possible; give 0 or more"),
        (("-1",), "are not possible; give 0 or more"),
        (("6.5", "--confidence", "0.8"), "--confidence: needs"),
        (("6.5", "--model", "constant"), "a rate without its failures fits no model"),
        (("6.5", "--failures", "3"), "more than one failure rate"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(words: tuple[str, ...], says: str):
    done = ettr(*RATE, *words, "--gpus", "16384", "--detail")
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_an_answer_is_written_as_a_page_too(tmp_path: Path):
    page = tmp_path / "new" / "p.html"
    done = ettr(*TYPED, "--html", page)
    assert done.out.rstrip().endswith(f"Page: {page}")
    assert done.out.split("Page:")[0].strip() == ettr(*TYPED).out.strip()
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "MTTF and ETTR by scale" in text
    assert "[a, b] is an interval of 90" in text
    assert ettr(*TYPED, "--html", tmp_path).code == 2


def test_a_fleet_whose_logs_show_no_gpus_is_projected_in_nodes(tmp_path: Path):
    head = "JobID|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    rows = [
        f"{job}|u|c|{'NODE_FAIL' if job % 10 == 0 else 'COMPLETED'}|{day}T00:00:00|{day}T00:00:00|"
        f"{day}T20:00:00|72000|4|n[1-4]|cpu=256,node=4\n"
        for job, day in ((n, f"2026-{1 + n // 28:02}-{1 + n % 28:02}") for n in range(100))
    ]
    (tmp_path / "sacct.psv").write_text(head + "".join(rows))
    store = tmp_path / "store"
    assert ettr("ingest", store, tmp_path / "sacct.psv", "--timezone", "UTC").code == 0
    found = projection("project", store)
    assert (found["unit"], found["points"][0]["size"]) == ("nodes", 4)
    # the published rate is one of nodes, too: 6.50 per 1,000 node-days, whatever is in them
    (as_seen,) = projection("project", store, "--nodes", "64")["points"]
    (of_gpus,) = projection("project", store, "--nodes", "64", "--gpus-per-node", "8")["points"]
    assert as_seen["ettr_at_published"] == of_gpus["ettr_at_published"]
    assert as_seen["projection"]["mttf_h"] == of_gpus["projection"]["mttf_h"]
    assert "GPU" not in ettr("project", store, "--detail").out
    refused = ettr("project", store, "--gpus", "512")
    assert refused.code == 2
    assert "no log shows how many GPUs a node has; give --gpus-per-node" in refused.err
