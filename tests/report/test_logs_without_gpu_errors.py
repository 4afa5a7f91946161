"""Logs in which no line of a GPU's driver ever stands are no evidence that GPUs are well."""

from __future__ import annotations

from pathlib import Path

from cli.program import ettr

SACCT = """\
JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
1|a|ann|c|COMPLETED|0:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-02T00:00:00|86400|1|n1|gres/gpu=8
2|b|bob|c|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T12:00:00|43200|1|n2|gres/gpu=8
"""
QUIET = "".join(
    f"2026-03-0{day}T01:00:00+00:00 n{node} kernel: audit: all is well\n"
    for day in (1, 2)
    for node in (1, 2)
)
XID = (
    "2026-03-02T02:00:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', "
    "name=<unknown>, GPU has fallen off the bus.\n"
)


def test_failures_are_a_lower_bound_until_a_line_of_a_driver_was_seen(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(SACCT)
    found = {}
    for name, text in (("quiet", QUIET), ("heard", QUIET + XID)):
        (tmp_path / f"{name}.log").write_text(text)
        files = (tmp_path / "sacct.psv", tmp_path / f"{name}.log")
        done = ettr("report", *files, "--timezone", "UTC", "--cluster", "c", "--json")
        assert done.code == 0, done.err
        found[name] = done.json
    assert found["quiet"]["failures"]["is_lower_bound"] is True
    by_code = {one["code"]: one for one in found["quiet"]["findings"]}
    assert by_code["no-gpu-errors"]["rows"] == 1
    assert found["heard"]["failures"]["is_lower_bound"] is False
