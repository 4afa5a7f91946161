"""A node that went down silently has the cause that a person writes later in the same outage."""

from __future__ import annotations

from pathlib import Path

from cli.program import ettr

HEAD = "JobID|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
TIMES = "2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T12:00:00|43200"


def test_later_words_name_the_cause_of_the_outage_that_they_go_on_with(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(
        HEAD + "".join(f"{n}|u|NODE_FAIL|0:0|{TIMES}|1|n{n}|gres/gpu=8\n" for n in (1, 2, 3))
    )
    silent = "DOWN*|Not responding|slurm(64030)"
    (tmp_path / "events.psv").write_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        + "".join(f"c|n{n}|2026-03-01T12:00:10|2026-03-01T13:00:00|{silent}\n" for n in (1, 2, 3))
        + "c|n1|2026-03-01T13:00:00|2026-03-01T18:00:00|DOWN|bad DIMM B2|ann(1001)\n"
        + "c|n2|2026-03-01T13:00:00|2026-03-01T18:00:00|DOWN|firmware update|ann(1001)\n"
        # n3 was back in service before
        + "c|n3|2026-03-01T15:00:00|2026-03-01T18:00:00|DRAIN|bad DIMM B2|ann(1001)\n"
    )
    store, files = tmp_path / "st", (tmp_path / "sacct.psv", tmp_path / "events.psv")
    assert ettr("ingest", store, *files, "--timezone", "UTC", "--cluster", "c").code == 0
    rows = ettr("failures", store, "--json").json["rows"]
    assert {one["node"]: one["symptom"] for one in rows} == {
        "n1": "main-memory",
        "n2": "unattributed",
        "n3": "unattributed",
    }
