"""Signals of nodes beyond their failures, and repairs after which a node is another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.program import ettr
from cluster_scenarios import fault, small
from ettr.analysis import Analysis
from ettr.lemons.model import EXCLUSIONS, OUTAGES, SAME_S, TICKET_AFTER_S, TICKETS, apart
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario_parts import BurstProcess
from ettr.store import open_store

pytestmark = pytest.mark.slow

HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES|SubmitLine"
)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, NODES, BAD = 28, 24, 7
FAILED_DAYS = (3, 5, 6, 8, 9, 11, 12)
TICKETS_CSV = """\
cluster,host,opened,closed,status
c,n7,2026-03-13T20:00:00Z,2026-03-14T00:00:00Z,replaced
c,n9,2026-03-20T12:00:00Z,,open
c,n9,2026-03-25T12:00:00Z,,open
"""


def _job(number: int, node: int, day: int) -> str:
    fails = node == BAD and day in FAILED_DAYS
    start, hours = FIRST + timedelta(days=day), 12 if fails else 20
    end = start + timedelta(hours=hours)
    times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, start, end))
    state, user = ("NODE_FAIL", "bob") if fails else ("COMPLETED", "ann")
    # bob's job failed on n7 before he excluded it; eve and her second job never ran there
    line = "sbatch run.sh"
    if node == 3 and day == 20:
        user, line = "bob", "sbatch --exclude=n7 run.sh"
    if node == 3 and day in (21, 22):
        user, line = "eve", "sbatch --exclude=n[7,9] run.sh"
    return (
        f"c|{number}|train|{user}|{state}|0:0|{times}|{3600 * hours}|1|n{node}|node=1,gres/gpu=8|"
        f"{line}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs of 24 nodes, in one store; in another with tickets, of which one replaced a lemon."""
    place = tmp_path_factory.mktemp("signals")
    jobs = [(node, day) for day in range(DAYS) for node in range(1, NODES + 1)]
    rows = [_job(number, *job) for number, job in enumerate(jobs, 1)]
    (place / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    (place / "tickets.csv").write_text(TICKETS_CSV, encoding="utf-8")
    for store in ("plain", "mended"):
        done = ettr("ingest", place / store, place / "sacct.psv", "--timezone", "UTC")
        assert done.code == 0, done.err
    columns = "node=host,time=opened,time_end=closed,code=status,check==ticket,severity==ok"
    words = ("--source", "table", "--table", "events", "--columns", columns)
    done = ettr("ingest", place / "mended", place / "tickets.csv", *words)
    assert done.code == 0, done.err
    return place


def _node(report, name: str):
    return next(one for one in report["candidates"] if one["node"] == name)


def test_users_who_exclude_a_node_are_counted_once_and_jobs_each(folder: Path):
    report = ettr("lemons", folder / "plain", "--json").json
    signals = _node(report, "n7")["signals"]
    assert (signals["excluded_by_jobs"], signals["excluded_by_users"]) == (3, 2)
    assert signals["single_node_failures"] == len(FAILED_DAYS)
    assert signals["single_node_attempts"] == DAYS
    assert signals["single_node_failure_rate"] == pytest.approx(len(FAILED_DAYS) / DAYS)
    # no log could show a ticket, an XID or an outage: not 0
    assert (signals["tickets"], signals["xid_episodes"], signals["outages"]) == (None, None, None)
    # of the votes against n7 and n9, bob's follows his failed job
    learned = {one["name"]: one["count"] for one in report["groups"][0]["signals"]}
    assert learned == {EXCLUSIONS: 2}


def test_a_replaced_lemon_is_well_again(folder: Path):
    before = _node(ettr("lemons", folder / "plain", "--json").json, "n7")
    assert before["claimed"]
    report = ettr("lemons", folder / "mended", "--json").json
    assert not any(one["claimed"] for one in report["candidates"])
    assert all("until" not in one["node"] for one in report["candidates"])
    assert any("1 history ends" in note for note in report["notes"])
    # the runtime before the replacement is kept, as that of another node
    [group], [whole] = report["groups"], ettr("lemons", folder / "plain", "--json").json["groups"]
    assert group["nodes"] == NODES + 1
    assert group["node_days"] == pytest.approx(whole["node_days"])
    assert group["failures"] == whole["failures"]


def test_tickets_are_counted_where_any_were_read(folder: Path):
    evidence = ettr("lemons", folder / "mended", "n9", "--json").json
    assert evidence["candidate"]["signals"]["tickets"] == 2
    learned = {one["name"]: one["count"] for one in evidence["group"]["signals"]}
    # the ticket on the node that failed a day before is about that failure
    assert learned[TICKETS] == 2


def test_the_distribution_of_each_signal_is_that_of_all_nodes(folder: Path):
    report = ettr("lemons", folder / "plain", "--json").json
    of = {one["signal"]: one for one in report["distributions"]}
    # no log could show a ticket, an XID or an outage
    assert set(of) == {
        "excluded_by_jobs",
        "single_node_failures",
        "single_node_failure_rate",
    }
    failures = of["single_node_failures"]
    assert (failures["nodes"], failures["values"]) == (NODES, [0.0, float(len(FAILED_DAYS))])
    assert failures["shares"] == pytest.approx([(NODES - 1) / NODES, 1.0])
    # n9 was excluded by both of eve's jobs, n7 by those and by bob's
    assert of["excluded_by_jobs"]["values"] == [0.0, 2.0, 3.0]
    page = ettr("report", folder / "plain", "--json").json
    assert page["lemons"]["distributions"] == report["distributions"]


def test_the_echo_of_a_failure_is_no_further_signal():
    failures_s = [100_000.0]
    near, far = 100_000.0 + SAME_S, 100_000.0 + SAME_S + 1
    assert apart(OUTAGES, [near, far], failures_s) == (far,)
    late = 100_000.0 + TICKET_AFTER_S + 1
    assert apart(TICKETS, [far, late], failures_s) == (late,)
    assert apart(EXCLUSIONS, [near], failures_s) == (near,)


def test_nodes_that_stand_idle_have_outages_too_and_are_no_lemons(tmp_path: Path):
    """Equal nodes; ten small jobs a day leave most of the forty without any, and faults hit all."""
    made = small(
        machines={"nodes": 40},
        period={"days": 120.0},
        arrivals={"jobs_per_day": 10.0},
        faults=(fault("filesystem", 10.0, repair_mean_s=3600.0),),
        bursts=(BurstProcess("filesystem", "cluster", 120.0, 3.0 / 40.0, 600.0),),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )
    with open_store(tmp_path / "site", create=True) as store:
        simulate_into(store, made, 2, "site", "site", tmp_path / "truth")
        analysis = Analysis(store)
        [group] = analysis.lemon_nodes.groups
        [outages] = [one for one in group.signals if one.name == OUTAGES]
        assert outages.count > 50
        assert outages.per_1000_node_days == pytest.approx(
            1000 * outages.count / (group.nodes * 120), rel=0.2
        )
        assert not any(one.claimed for one in analysis.lemon_nodes.candidates)
