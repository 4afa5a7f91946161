"""Jobs that accounting never ended stretch every denominator: the report says so at the top."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

import ettr

HEAD = (
    "JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes"
    "|NodeList|AllocTRES|Suspended\n"
)
# of a month in which n1 and n2 were busy: 60 node-days
MONTH = "".join(
    f"{day}|a|u|c|COMPLETED|0:0|2026-03-{day:02d}T00:00:00|2026-03-{day:02d}T00:00:00"
    f"|2026-03-{day:02d}T23:59:59|86399|2880|2|n[1-2]|gres/gpu=16|00:00:00\n"
    for day in range(1, 31)
)
# and of the weeks before, so that the dump does not begin in the middle of the open jobs
EARLIER = "".join(
    f"{1000 + day}|a|u|c|COMPLETED|0:0|{at}T00:00:00|{at}T00:00:00|{at}T01:00:00|3600|2880|1|n4"
    "|gres/gpu=8|00:00:00\n"
    for day in range(59)
    for at in [(date(2026, 1, 1) + timedelta(days=day)).isoformat()]
)
NODES = "".join(
    f"NodeName={name} CPUTot=64 RealMemory=1000\n   Gres=gpu:h100:8\n   State=ALLOCATED\n\n"
    for name in ("n1", "n2")
)


def open_job(
    elapsed_s: int,
    limit_min: str,
    node: str = "n1",
    state: str = "RUNNING",
    suspended: str = "00:00:00",
) -> str:
    return (
        f"900|lost|u|c|{state}|0:0|2026-01-01T00:00:00|2026-01-01T00:00:00|Unknown|{elapsed_s}"
        f"|{limit_min}|1|{node}|gres/gpu=8|{suspended}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "is_runaway"),
    [
        (open_job(89 * 86400, "2880"), True),  # two days of 89 are allowed
        (open_job(89 * 86400, "UNLIMITED"), True),  # n1 has 8 GPUs, and others held them
        (open_job(89 * 86400, "UNLIMITED", node="n3"), False),  # nobody else was there
        # suspended for others (PreemptMode=SUSPEND, gang scheduling), jobs keep their GPUs
        (open_job(70 * 86400, "UNLIMITED", state="SUSPENDED"), False),
        (open_job(70 * 86400, "UNLIMITED", suspended="19-00:00:00"), False),
    ],
)
def test_a_job_without_an_end_that_is_over_makes_rates_a_lower_bound(
    row: str, is_runaway: bool, tmp_path: Path
) -> None:
    (tmp_path / "sacct.psv").write_text(HEAD + EARLIER + MONTH + row)
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "n1.log").write_text("2026-03-01T00:00:00+00:00 n1 kernel: usb 1-1: new device\n")
    logs = [tmp_path / name for name in ("sacct.psv", "nodes.txt", "n1.log")]
    with ettr.read(*logs, timezone="UTC") as fleet:
        runaways = fleet.quality.value.runaways
        failures = fleet.failures.to_dict()
    assert failures["is_lower_bound"] is is_runaway
    if is_runaway:
        assert runaways is not None
        assert (runaways.attempts, runaways.longest) == (1, "900")
        assert runaways.node_days == pytest.approx(89.0)
    else:
        assert runaways is None


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "is_runaway"), [("16", True), ("2", False)])
def test_two_jobs_that_hold_whole_nodes_at_once_need_no_inventory(
    gpus: str, is_runaway: bool, tmp_path: Path
) -> None:
    """Jobs of one GPU each may well share a node of which no log says how many it has."""
    jobs = MONTH.replace("gres/gpu=16", f"gres/gpu={gpus}")
    lost = open_job(89 * 86400, "UNLIMITED").replace("gpu=8", f"gpu={int(gpus) // 2}")
    (tmp_path / "sacct.psv").write_text(HEAD + EARLIER + jobs + lost)
    with ettr.read(tmp_path / "sacct.psv", timezone="UTC") as fleet:
        assert (fleet.quality.value.runaways is not None) is is_runaway
