"""`ettr checks` over a store whose failures and checks are worked by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.program import ettr
from ettr.checks.selector import slurm_list
from ettr.sources.node_lists import expand_nodes

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
CHECK = "gpu test"


HEAD = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList|"
    "AllocTRES\n"
)


def at(hours: float, end: str = "Z") -> str:
    return (BEGIN + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S") + end


def job(number: int, node: str, begin_h: float, end_h: float, state: str) -> str:
    begin, took_s = at(begin_h, ""), round((end_h - begin_h) * 3600)
    times = f"{begin}|{begin}|{begin}|{at(end_h, '')}|{took_s}"
    return f"c|{number}|j|u|{state}|0:0|{times}|1|{node}|cpu=64,gres/gpu=8,node=1\n"


def site_of(folder: Path, *jobs: str) -> Path:
    (folder / "sacct.psv").write_text(HEAD + "".join(jobs))
    done = ettr("ingest", folder / "site", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes, ten days; the check runs every 12 h for 6 minutes on n1 to n3, not on n4.

    n1 fails at 100 h, 3 h after an alarm, and at 200 h without one. n2 has an alarm at 50.5 h that
    nothing follows. n3 failed three times before the check came to it at 120 h, never since.
    """
    folder = tmp_path_factory.mktemp("checks")
    jobs = [
        job(1, "n1", 0, 100, "NODE_FAIL"),
        job(2, "n1", 101, 200, "NODE_FAIL"),
        job(3, "n1", 201, 240, "COMPLETED"),
        job(4, "n2", 0, 240, "COMPLETED"),
        *(job(5 + n, "n3", 30 * n, 30 * n + 29, "NODE_FAIL") for n in range(3)),
        job(8, "n3", 91, 240, "COMPLETED"),
        job(9, "n4", 0, 240, "COMPLETED"),
    ]
    store = site_of(folder, *jobs)
    rows = ["time,time_end,node,severity,check"]
    for node, first in (("n1", 0), ("n2", 0), ("n3", 120)):
        rows += [f"{at(h)},{at(h + 0.1)},{node},ok,{CHECK}" for h in range(first, 240, 12)]
    rows += [f"{at(97)},,n1,critical,{CHECK}", f"{at(50.5)},,n2,critical,{CHECK}"]
    (folder / "checks.csv").write_text("\n".join(rows) + "\n")
    words = ("--source", "table", "--table", "events", "--cluster", "c")
    done = ettr("ingest", store, folder / "checks.csv", *words)
    assert done.code == 0, done.err
    return store


def test_coverage_alarms_and_cost_by_hand(site: Path) -> None:
    found = ettr("checks", site, "--json").json
    (check,) = [one for one in found["checks"] if one["name"] == CHECK]
    # 20 + 20 + 10 passes and 2 alarms
    assert check["runs"] == 52
    assert check["minutes_a_run"] == pytest.approx(6.0)
    assert check["node_hours"] == pytest.approx(5.2)
    alarms = check["alarms"]
    assert (alarms["before_failure"], alarms["false_alarms"], alarms["firings"]) == (1, 1, 2)
    (every,) = [one for one in check["coverage"] if one["symptom"] == "any"]
    assert (every["failures"], every["fired_before"], every["missed"]) == (2, 1, 1)
    assert every["lead_h"]["estimate"] == pytest.approx(3.0)


def test_whether_it_helped_is_paired_by_node(site: Path) -> None:
    found = ettr("checks", site, "--helped", CHECK, "--json").json["helped"]
    effect = found["effect"]
    # n1 and n2 had it from the start: n3 alone ran before and after
    assert (effect["nodes"], effect["failures_before"], effect["failures_after"]) == (1, 3, 0)
    assert effect["node_days_before"] == pytest.approx((29 * 3 + 29) / 24)
    assert effect["node_days_after"] == pytest.approx(5.0)
    # none of three after: Clopper and Pearson's end, 5 % for all three before
    share = 1 - 0.05 ** (1 / 3)
    high = share / (1 - share) * effect["node_days_before"] / effect["node_days_after"]
    assert effect["rate_ratio"]["high"] == pytest.approx(high, rel=1e-6)
    assert found["verdict"] == "not decided"
    assert "not decided" in ettr("checks", site, "--helped", CHECK).out


def test_what_nobody_knows_is_said(site: Path, tmp_path: Path) -> None:
    assert "known: gpu test" in ettr("checks", site, "--helped", "other").err
    assert "--helped" in ettr("checks", site, "--symptom", "oom").err
    empty = site_of(tmp_path, job(1, "n1", 0, 9, "COMPLETED"))
    assert "Not measured" in ettr("checks", empty).out


CATALOGUE = """format = "ettr checks 1"
[[check]]
name = "long"
command = "dcgmi diag -r 3"
minutes = 12
needs_idle = true
covers = {unattributed = 0.9}
[[check]]
name = "untimed"
covers = {unattributed = 0.9}
"""


def test_what_to_run_before_a_job_can_be_run(site: Path, tmp_path: Path) -> None:
    (tmp_path / "checks.toml").write_text(CATALOGUE)
    asked = (
        "checks",
        site,
        "--before",
        "3",
        "nodes",
        "24h",
        "--catalogue",
        tmp_path / "checks.toml",
    )
    found = ettr(*asked, "--incident", "20h", "--json").json["advice"]
    (run,) = found["run"]
    assert (run["name"], run["command"], run["minutes"]) == ("long", "dcgmi diag -r 3", 12.0)
    assert run["needs_idle"] is True
    # n3 failed most often, the others are the job's
    assert run["node_list"] == "n[1-2,4]"
    assert found["struck_after"] < found["struck_before"]
    assert found["checks_node_hours"] == pytest.approx(3 * 12 / 60)
    (unknown,) = found["not_run"]
    assert (unknown["name"], unknown["minutes"]) == ("untimed", None)
    assert "not known" in ettr(*asked, "--incident", "20h").out
    assert "Nothing pays" in ettr(*asked, "--incident", "1s").out


def test_a_coverage_that_the_history_contradicts_is_named(tmp_path: Path) -> None:
    store = site_of(tmp_path, *(job(n, "n1", 10 * n, 10 * n + 9, "NODE_FAIL") for n in range(12)))
    rows = ["time,time_end,node,severity,check"]
    rows += [f"{at(h)},{at(h + 0.1)},n1,ok,{CHECK}" for h in range(0, 130, 5)]
    (tmp_path / "checks.csv").write_text("\n".join(rows) + "\n")
    words = ("--source", "table", "--table", "events", "--cluster", "c")
    assert ettr("ingest", store, tmp_path / "checks.csv", *words).code == 0
    asked = ("checks", store, "--before", "1", "node", "9h", "--catalogue", tmp_path / "c.toml")
    for share, agrees in ((0.9, False), (0.05, True)):
        covers = CATALOGUE.replace('"long"', f'"{CHECK}"').replace("0.9", str(share), 1)
        (tmp_path / "c.toml").write_text(covers)
        (check,) = ettr(*asked, "--json").json["checks"]
        assert check["history"]["agrees"] is agrees
        assert check["history"]["expected_missed"] == pytest.approx(12 * (1 - share))
        assert agrees or "DOES NOT HOLD" in ettr(*asked).out


def test_the_belief_falls_with_a_pass_and_with_hours_survived(site: Path, tmp_path: Path) -> None:
    (tmp_path / "checks.toml").write_text(CATALOGUE)
    before = ("checks", site, "--before", "1", "node", "1h", "--node")
    given = ("--catalogue", tmp_path / "checks.toml", "--incident", "20h", "--json")
    struck = {
        node: ettr(*before, node, *given).json["advice"]["struck_before"] for node in ("n2", "n4")
    }
    passed = CATALOGUE.replace('"long"', f'"{CHECK}"')
    (tmp_path / "checks.toml").write_text(passed)
    assert ettr(*before, "n2", *given).json["advice"]["struck_before"] < struck["n2"] * 0.9
    # the check never came to n4
    again = ettr(*before, "n4", *given).json["advice"]["struck_before"]
    assert again == pytest.approx(struck["n4"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[check]]\nname = 'a'\n", "format"),
        ('format = "ettr checks 1"\n', "[[check]]"),
        ('format = "ettr checks 1"\n[[check]]\nname = 3\nminutes = 0\n', "give a text"),
        ('format = "ettr checks 1"\n[[check]]\nname = "a"\nminutes = nan\n', "minutes is nan"),
        ('format = "ettr checks 1"\n[[check]]\nname = "a"\ncovers = {x = 2}\n', "from 0 to 1"),
        ('format = "ettr checks 1"\n[[check]]\nname = "a"\nhours = 2\n', "not a key"),
        ("\x00", "no TOML"),
    ],
)
def test_a_wrong_catalogue_is_refused_by_name(
    site: Path, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "checks.toml").write_text(text)
    words = ("--before", "1", "nodes", "24h", "--catalogue", tmp_path / "checks.toml")
    done = ettr("checks", site, *words)
    assert done.code == 2
    assert says in done.err
    assert "checks.toml" in done.err


def test_wrong_words_are_refused(site: Path) -> None:
    for words in (("512", "gpus", "24h"), ("0", "nodes", "24h"), ("1", "nodes", "0h")):
        done = ettr("checks", site, "--before", *words)
        assert (done.code, "Traceback" in done.err) == (2, False)
    assert "--before" in ettr("checks", site, "--incident", "4h").err
    assert (
        "name 4 that are in service" in ettr("checks", site, "--before", "512", "nodes", "24h").err
    )


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["n", "gpu-a", "r1n"]), st.integers(0, 130), st.integers(0, 3)),
        min_size=1,
    )
)
def test_node_lists_are_read_back(parts: list[tuple[str, int, int]]) -> None:
    names = {f"{prefix}{number:0{width}}" for prefix, number, width in parts}
    assert set(expand_nodes(slurm_list(names))) == names
