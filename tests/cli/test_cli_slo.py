"""`ettr slo`: budgets against failures and node-days that are counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis, Assumptions
from ettr.analysis.objectives import objectives_held
from ettr.metrics.objectives import read_objectives
from ettr.store import open_store

HEADER = "JobID|Cluster|User|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES|NodeList"
START = datetime(2026, 1, 1)  # noqa: DTZ001 - as sacct prints it
BUDGETS = """\
timezone = "UTC"
[[slo]]
name = "large"
gpus = 512
interruptions = 1
per-days = 3
[[slo]]
name = "train"
nodes = 8
interruptions = 1
per-days = 1
partition = "train"
[[slo]]
name = "useful"
effective = 0.999
"""


def logs(folder: Path, days: int, fails_on: set[int], until: int | None = None) -> Path:
    """A job a day on 8 nodes of 8 GPUs in `train`, and one in `test` that never fails."""
    lines = [HEADER]
    for day in range(days if until is None else until):
        start = START + timedelta(days=day)
        end = start + timedelta(days=1)
        state = "NODE_FAIL" if day in fails_on else "COMPLETED"
        for job, part, ends in ((day, "train", state), (1000 + day, "test", "COMPLETED")):
            lines.append(
                f"{job}|c|ann|{part}|{ends}|{start.isoformat()}|{start.isoformat()}"
                f"|{end.isoformat()}|86400|8|billing=1,gres/gpu=64,node=8|n[1-8]"
            )
    path = folder / "sacct.psv"
    path.write_text("\n".join(lines) + "\n")
    (folder / "ettr.toml").write_text(BUDGETS)
    done = ettr("ingest", "site", path, "--timezone", "UTC", folder=folder)
    assert done.code == 0, done.err
    return folder


def test_budgets_are_those_of_the_node_days(tmp_path: Path) -> None:
    folder = logs(tmp_path, 60, {58, 59})
    done = ettr("slo", "site", "--json", folder=folder)
    large, train, useful = done.json["objectives"]
    # 30 days of 16 nodes, of which a run of 64 nodes may lose one in three days
    assert large["allowed"] == pytest.approx(30 * 16 / 64 / 3)
    assert large["came"] == 2
    # 30 days of 8 nodes, of which a run of 8 nodes may lose one a day
    assert train["allowed"] == pytest.approx(30.0)
    assert train["verdict"] == "met"
    # a thousandth of 30 days of 128 GPUs; each failure loses half an hour of 64 GPUs
    assert useful["allowed"] == pytest.approx(0.001 * 30 * 24 * 128)
    assert useful["came"] == pytest.approx(2 * 0.5 * 64)
    assert not any(one["is_burning"] for one in done.json["objectives"])
    assert done.json["silent"] == []
    # three weeks without a row of the accounting: absent data is not green
    given = Assumptions(
        now=(START + timedelta(days=80)).replace(tzinfo=UTC),
        objectives=read_objectives(folder / "ettr.toml"),
    )
    with open_store(folder / "site") as opened:
        held = Analysis(opened, given).ask(objectives_held)
    # the last job began on day 59
    assert [(one.table, one.silent_days) for one in held.silent] == [("attempts", 20)]
    assert {one.verdict for one in held.objectives} == {"unknown"}


def test_a_burst_of_failures_raises_an_alert_and_shows_on_the_page(tmp_path: Path) -> None:
    folder = logs(tmp_path, 60, set(range(52, 60)))
    large = ettr("slo", "site", "--json", folder=folder).json["objectives"][0]
    assert large["verdict"] == "missed"
    assert large["is_burning"]
    assert "2026-02-2" <= large["alerts"][-1]["since"] < "2026-03-02"
    assert large["alerts"][-1]["until"] is None
    done = ettr("report", "site", "--output", "page.html", folder=folder)
    assert done.code == 0, done.err
    page = (folder / "page.html").read_text("utf-8")
    assert "Objectives of the site" in page
    assert "a run of 512 GPUs is interrupted at most once in 3 d" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[slo]]\nname = "a"\n', "give effective, or interruptions with per-days and gpus"),
        ('[[slo]]\nname = "a"\neffective = 2\n', "effective is 2; give a number above 0, 1 at"),
        ('[[slo]]\nname = "a"\neffective = 0.9\ngpu = 3\n', "gpu is not a key; known: name"),
        ('[slo]\nname = "a"\n', "give each objective as a table [[slo]]"),
    ],
)
def test_a_wrong_budget_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    folder = logs(tmp_path, 3, set())
    (folder / "budgets.toml").write_text(text)
    done = ettr("slo", "site", "--slo", "budgets.toml", folder=folder)
    assert done.code == 2
    assert says in done.err
