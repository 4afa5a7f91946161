"""Jobs that accounting never ended stretch every denominator: the report says so at the top."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import ettr

HEAD = (
    "JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes"
    "|NodeList|AllocTRES\n"
)
# of a month in which n1 and n2 were busy: 60 node-days
MONTH = "".join(
    f"{day}|a|u|c|COMPLETED|0:0|2026-03-{day:02d}T00:00:00|2026-03-{day:02d}T00:00:00"
    f"|2026-03-{day:02d}T23:59:59|86399|2880|2|n[1-2]|gres/gpu=16\n"
    for day in range(1, 31)
)
NODES = "".join(
    f"NodeName={name} CPUTot=64 RealMemory=1000\n   Gres=gpu:h100:8\n   State=ALLOCATED\n\n"
    for name in ("n1", "n2")
)


def open_job(elapsed_s: int, limit_min: str, node: str = "n1", gpus: int = 8) -> str:
    return (
        f"900|lost|u|c|RUNNING|0:0|2026-01-01T00:00:00|2026-01-01T00:00:00|Unknown|{elapsed_s}"
        f"|{limit_min}|1|{node}|gres/gpu={gpus}\n"
    )


@pytest.mark.parametrize(
    ("row", "is_runaway"),
    [
        (open_job(89 * 86400, "2880"), True),  # two days of 89 are allowed
        (open_job(89 * 86400, "UNLIMITED"), True),  # n1 has 8 GPUs, and others held them
        (open_job(89 * 86400, "UNLIMITED", node="n3"), False),  # nobody else was there
    ],
)
def test_a_job_without_an_end_that_is_over_makes_rates_a_lower_bound(
    row: str, is_runaway: bool, tmp_path: Path
) -> None:
    (tmp_path / "sacct.psv").write_text(HEAD + MONTH + row)
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "n1.log").write_text("2026-03-01T00:00:00+00:00 n1 kernel: usb 1-1: new device\n")
    logs = [tmp_path / name for name in ("sacct.psv", "nodes.txt", "n1.log")]
    done = ettr("report", *logs, "--timezone", "UTC", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    runaways = document["quality"]["runaways"]
    assert document["failures"]["is_lower_bound"] is is_runaway
    if is_runaway:
        assert (runaways["attempts"], runaways["longest"]) == (1, "900")
        assert runaways["node_days"] == pytest.approx(89.0)
    else:
        assert runaways is None
