"""Adjacent periods share no moment: what happens at the end of one is of the next."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.lemon_evidence import lemon_evidence
from ettr.selection import Selection
from ettr.store import open_store

pytestmark = pytest.mark.slow

JOBS = """Cluster|JobID|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
c|1|ann|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-03T00:00:00|172800|1|n1|gres/gpu=8
"""
XID = "{time}+00:00 n1 kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
STATES = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User
c|n1|2026-03-01T06:00:00|2026-03-01T07:00:00|DOWN*|Not responding|slurm(900)
c|n1|2026-03-02T00:00:00|2026-03-02T01:00:00|DOWN*|Not responding|slurm(900)
c|n1|2026-03-02T23:00:00|2026-03-03T00:00:00|DOWN*|Not responding|slurm(900)
"""
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def test_an_event_at_the_end_of_a_period_is_of_the_next_alone(tmp_path: Path) -> None:
    """Three XIDs: at noon of 1 March, at the midnight between the days, at noon of 2 March."""
    times = ("2026-03-01T12:00:00", "2026-03-02T00:00:00", "2026-03-02T12:00:00")
    (tmp_path / "sacct.psv").write_text(JOBS)
    (tmp_path / "kern.log").write_text("".join(XID.format(time=time) for time in times))
    logs = (tmp_path / "sacct.psv", tmp_path / "kern.log")
    done = ettr("ingest", tmp_path / "site", *logs, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    found = []
    with open_store(tmp_path / "site") as store:
        for chosen in (Selection(until=MIDNIGHT), Selection(since=MIDNIGHT), Selection()):
            analysis = Analysis(store, selection=chosen)
            (node,) = analysis.node_records.nodes
            assert node.codes is not None
            seen = sum(one.events for one in lemon_evidence(analysis, "n1", 0.1).checks)
            found.append((sum(code.events for code in node.codes), seen))
    assert found == [(1, 1), (2, 2), (3, 3)]


def test_an_outage_that_begins_at_the_end_of_a_period_is_of_the_next_alone(tmp_path: Path) -> None:
    """An hour on 1 March, one from the midnight on, and one up to the next midnight."""
    (tmp_path / "sacct.psv").write_text(
        JOBS + JOBS.splitlines()[1].replace("c|1|", "c|2|").replace("2026-03-0", "2026-03-1") + "\n"
    )
    (tmp_path / "events.psv").write_text(STATES)
    logs = (tmp_path / "sacct.psv", tmp_path / "events.psv")
    done = ettr("ingest", tmp_path / "site", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    next_midnight = datetime(2026, 3, 3, tzinfo=UTC)
    periods = (None, MIDNIGHT), (MIDNIGHT, next_midnight), (next_midnight, None), (None, None)
    found = []
    with open_store(tmp_path / "site") as store:
        for since, until in periods:
            (node,) = Analysis(store, selection=Selection(since, until)).node_records.nodes
            found.append((node.unplanned_outages, node.unplanned_h))
    assert found == [(1, 1.0), (2, 2.0), (0, 0.0), (3, 3.0)]
