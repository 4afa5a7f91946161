"""Failures that no log calls one, and ends that look like failures and are an operator's.

One site with a planted truth: a black hole (n07, 60 jobs of ten users), three runs that hang
after an XID 119 and three that do not, a maintenance day that ends twelve jobs at once, and a rack
that an operator moves under three jobs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.program import ettr

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAY_S = 86400
JOBS = (
    "JobID|JobName|User|Cluster|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw"
    "|TimelimitRaw|NNodes|NodeList|AllocTRES\n"
)
STATES = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"


def at(second: float) -> str:
    return f"{FIRST + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


class Site:
    """Lines of the logs."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.states: list[str] = []
        self.kernel: list[tuple[float, str]] = []

    def job(
        self, start_s: float, ran_s: float, nodes: str, n: int, user: str, state: str = "COMPLETED"
    ) -> None:
        code = "1:0" if state == "FAILED" else "0:0"
        begin, end, number = at(start_s), at(start_s + ran_s), len(self.jobs)
        self.jobs.append(
            f"{number + 1}|j{number % 9}|{user}|c|gpu|{state}|{code}|{begin}|{begin}"
            f"|{end}|{ran_s:.0f}|1200|{n}|{nodes}|gres/gpu={8 * n}\n"
        )

    def state(self, from_s: float, to_s: float, node: str, state: str, reason: str, who: str):
        self.states.append(f"c|{node}|{at(from_s)}|{at(to_s)}|{state}|{reason}|{who}\n")

    def line(self, second: float, node: str, text: str) -> None:
        self.kernel.append((second, f"{at(second)}+00:00 {node} kernel: {text}\n"))

    def xid_119(self, second: float, node: str) -> None:
        self.line(
            second,
            node,
            "NVRM: Xid (PCI:0000:1b:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of "
            "waiting for RPC response from GPU3 GSP! Expected function 76",
        )


def planted() -> Site:
    site, rng = Site(), Random(1)
    ordinary = [f"n{place:02d}" for place in range(12)]
    hung = [f"h{place}" for place in range(4)]
    for node in ordinary:
        for day in range(12):
            if (node, day) == ("n07", 6):
                continue
            for hour in (1, 7, 13, 19):
                failed = rng.random() < 0.12
                site.job(
                    day * DAY_S + hour * 3600,
                    rng.randint(3600, 5 * 3600),
                    node,
                    1,
                    f"u{rng.randrange(10)}",
                    "FAILED" if failed else "COMPLETED",
                )
    for place in range(60):
        start_s = 6 * DAY_S + 600 * place
        site.job(start_s, rng.randint(15, 25), "n07", 1, f"u{rng.randrange(10)}", "FAILED")
    for place, state in enumerate(["CANCELLED by 1001", "CANCELLED by 0", "TIMEOUT"]):
        begin_s = 2 * place * DAY_S + 600
        site.job(begin_s, 20 * 3600, "h[0-3]", 4, "big", state)
        site.xid_119(begin_s + 17 * 3600, hung[place])
        out_s = begin_s + 20 * 3600 + 600
        site.state(out_s, out_s + 7200, hung[place], "DRAIN", "GSP timeout", "alice(1000)")
    # no fault, a fault on a node that stayed, a fault and work that was planned
    site.job(6 * DAY_S, 20 * 3600, "h[0-3]", 4, "big", "TIMEOUT")
    site.job(8 * DAY_S, 20 * 3600, "h[0-3]", 4, "big", "CANCELLED by 1001")
    site.xid_119(8 * DAY_S + 3600, "h1")
    site.job(10 * DAY_S, 20 * 3600, "h[0-3]", 4, "big", "CANCELLED by 1001")
    site.xid_119(10 * DAY_S + 3600, "h2")
    site.state(
        10 * DAY_S + 72600, 11 * DAY_S, "h2", "DRAIN", "scheduled maintenance", "alice(1000)"
    )
    for place in range(12):
        site.job(9 * DAY_S + 600, 20000 + place, f"m{place:02d}", 1, f"u{place}", "NODE_FAIL")
        site.state(
            9 * DAY_S + 20600 + place,
            9 * DAY_S + 50000,
            f"m{place:02d}",
            "DOWN",
            "scheduled maintenance: kernel update",
            "alice(1000)",
        )
    for place in range(3):
        site.job(3 * DAY_S + 600, 30000 + place, f"r{place}", 1, f"u{place}", "NODE_FAIL")
        site.state(
            3 * DAY_S + 30600 + place, 4 * DAY_S, f"r{place}", "DOWN", "moving rack", "alice(1000)"
        )
    site.job(4 * DAY_S, 30000, "r5", 1, "u1", "NODE_FAIL")
    site.state(4 * DAY_S + 30000, 5 * DAY_S, "r5", "DOWN*", "Not responding", "slurm(64030)")
    for day in range(12):
        for node in ordinary + hung:
            site.line(day * DAY_S + 3600 * 11, node, "audit: all is well")
    return site


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, site = tmp_path_factory.mktemp("unlogged"), planted()
    (folder / "sacct.psv").write_text(JOBS + "".join(site.jobs))
    (folder / "events.psv").write_text(STATES + "".join(site.states))
    (folder / "kernel.log").write_text("".join(text for _, text in sorted(site.kernel)))
    files = (folder / name for name in ("sacct.psv", "events.psv", "kernel.log"))
    done = ettr("ingest", folder / "store", *files, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.fixture(scope="module")
def report(store: Path) -> dict[str, Any]:
    done = ettr("report", store, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


@pytest.fixture(scope="module")
def by_code(report: dict[str, Any]) -> dict[str, Any]:
    return {one["code"]: one for one in report["findings"]}


def test_a_black_hole_is_a_finding_with_its_users_and_what_happens_elsewhere(
    report: dict[str, Any], by_code: dict[str, Any]
) -> None:
    found = by_code["black-hole"]
    assert found["says"].startswith("60 of 60 attempts that began on n07")
    assert "belonged to 10 users" in found["says"]
    assert found["rows"] == 60
    assert found["effect"]["moves"] == ["failure rate"]
    assert found["effect"]["direction"] == "too low"
    failures = report["failures"]["all_jobs"]["failures"]
    assert found["effect"]["at_most"] == pytest.approx((failures + 60) / failures)
    (hole,) = report["failures"]["black_holes"]
    assert (hole["node"], hole["early"], hole["users"]) == ("n07", 60, 10)
    assert hole["elsewhere"] == 0
    assert 0.05 < hole["failed_elsewhere"] < 0.2


def test_commands_about_one_job_and_one_node_know_the_black_hole(store: Path) -> None:
    listed = ettr("causes", store, "--json").json["listed"]
    job = next(one["job_id"] for one in listed if one["evidence"] == "black-hole")
    first = ettr("explain", store, job).out.splitlines()[0]
    assert "1 attempt was probably ended by n07, as it did the jobs of several users" in first
    assert "no failure of the infrastructure was found" not in first
    assert "probably n07 ended it" in " ".join(ettr("explain", store, job, "--detail").out.split())
    other = next(one["job_id"] for one in listed if one["evidence"] not in ("black-hole", "hung"))
    assert "several users" not in ettr("explain", store, other).out
    ended = "it ended 60 of 60 attempts within 30 s of the start (10 users, from "
    assert f"Not counted as failures: {ended}" in ettr("node", store, "n07").out.splitlines()[0]
    assert "Not counted" not in ettr("node", store, "n06").out
    assert "Careful: Nodes probably ended some of them within seconds of their start: n07 60." in (
        ettr("user-failures", store).out
    )
    assert "1 run probably hung after a fault of it" in ettr("node", store, "h1").out


def test_the_page_for_a_vendor_does_not_clear_a_black_hole(store: Path, tmp_path: Path) -> None:
    said = ettr("lemons", store, "n07", "--output", tmp_path / "n07.html").out.splitlines()[0]
    assert "Not counted as failures: it ended 60 of 60 attempts" in said
    assert "leave it in service" not in said
    assert "Nothing speaks against it" not in said


def test_what_to_do_first_is_the_black_hole(report: dict[str, Any]) -> None:
    assert report["next_steps"][0].startswith("Drain n07 and test it: it ended 60 jobs")


def test_failures_that_no_log_names_make_the_count_a_lower_bound(report: dict[str, Any]) -> None:
    assert report["failures"]["is_lower_bound"] is True


def test_runs_that_hung_are_told_from_those_that_did_not(
    report: dict[str, Any], by_code: dict[str, Any]
) -> None:
    hung = report["failures"]["hung_runs"]
    assert [one["node"] for one in hung] == ["h0", "h1", "h2"]
    assert [one["state"] for one in hung] == ["CANCELLED", "CANCELLED", "TIMEOUT"]
    assert [one["gpu_hours"] for one in hung] == pytest.approx([3 * 32] * 3)
    assert by_code["hangs"]["rows"] == 3
    assert "2 CANCELLED, 1 TIMEOUT" in by_code["hangs"]["says"]


def test_the_history_of_a_run_that_hung_says_after_what(
    store: Path, report: dict[str, Any]
) -> None:
    for hung in report["failures"]["hung_runs"]:
        first = ettr("explain", store, hung["job_id"]).out.splitlines()[0]
        fault = f"gpu-driver on {hung['node']} 3 h before its end"
        assert f"probably hung, after {fault}; it is not counted as a failure." in first
        assert "no failure of the infrastructure was found" not in first
        detail = " ".join(ettr("explain", store, hung["job_id"], "--detail").out.split())
        assert f"probably it hung: {fault}, and the node was then taken out" in detail
        (attempt,) = ettr("explain", store, hung["job_id"], "--json").json["attempts"]
        assert (attempt["verdict"], attempt["hung_s"]) == (None, 3 * 3600)


def test_the_rate_s_high_end_holds_the_runs_that_hung(report: dict[str, Any]) -> None:
    rate = report["failures"]["all_jobs"]
    per_1000 = 1000 / rate["node_days"]
    assert rate["per_1000_node_days"]["estimate"] == pytest.approx(rate["failures"] * per_1000)
    assert rate["per_1000_node_days"]["high"] > (rate["failures"] + 3) * per_1000
    assert rate["per_1000_node_days"]["high"] > rate["exact_per_1000_node_days"]["high"]


def test_a_node_that_a_person_sets_down_is_a_class_of_its_own(
    report: dict[str, Any], by_code: dict[str, Any]
) -> None:
    assert report["failures"]["set_down"] == {
        "by_person": 3,
        "by_unknown": 0,
        "without_fault": 3,
        "reasons": ["moving rack"],
    }
    assert by_code["down-by-hand"]["rows"] == 3
    assert by_code["down-by-hand"]["effect"]["direction"] == "too high"
    assert "moving rack" in by_code["down-by-hand"]["says"]


def test_the_ledger_puts_each_down_to_its_own_cause(store: Path) -> None:
    done = ettr("causes", store, "--json")
    assert done.code == 0, done.err
    rows = done.json["listed"]

    def on(prefix: str) -> list[dict[str, Any]]:
        return [one for one in rows if (one["node"] or "").startswith(prefix)]

    hole = [one for one in rows if one["evidence"] == "black-hole"]
    assert len(hole) == 60
    assert min(one["node_hardware"] for one in hole) > 0.9
    assert {one["node"] for one in hole} == {"n07"}
    operator = [one for one in rows if one["evidence"] == "operator"]
    planned = [one for one in operator if one["operator"] == 1.0]
    assert len(planned) == 12, "the maintenance day is an operator's, however many at once"
    assert [one["operator"] for one in operator if one not in planned] == [0.9] * 3
    hung = [one for one in rows if one["evidence"] == "hung"]
    assert len(hung) == 1, "what its owner or the time limit ended is no interruption"
    assert hung[0]["system_software"] == pytest.approx(0.9)
    assert "2 runs that probably hung" in " ".join(done.json["notes"])
    totals = {one["cause"]: one for one in done.json["totals"]}
    assert totals["shared"]["expected"] < 3
    assert totals["operator"]["share"]["high"] >= 15 / len(rows)
    assert not on("m")
