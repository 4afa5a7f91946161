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


def test_a_driver_that_speaks_is_heard_and_speaks_for_no_other(tmp_path: Path) -> None:
    """No error stands in these logs: a line of the driver shows that one would."""
    (tmp_path / "sacct.psv").write_text(SACCT)
    loaded = {
        "nvidia": "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
        "amd": "[drm] amdgpu kernel modesetting enabled.",
    }
    types = {"h100": {"nvidia"}, "mi300x": {"amd"}, "other": {"nvidia", "amd"}}
    for driver, words in loaded.items():
        line = f"2026-03-01T00:30:00+00:00 n1 kernel: {words}\n"
        (tmp_path / "kern.log").write_text(line + QUIET)
        for gpu_type, drivers in types.items():
            (tmp_path / "nodes.txt").write_text(
                "".join(f"NodeName=n{n} Gres=gpu:{gpu_type}:8 State=IDLE\n" for n in (1, 2))
            )
            store = tmp_path / f"{driver}-{gpu_type}"
            files = (tmp_path / name for name in ("sacct.psv", "kern.log", "nodes.txt"))
            assert ettr("ingest", store, *files, "--timezone", "UTC", "--cluster", "c").code == 0
            found = ettr("failures", store, "--json").json
            assert found["is_lower_bound"] is (driver not in drivers), store.name
            text = " ".join(ettr("explain", store, "2", "--detail").out.split())
            said = "no log of the cluster holds a line of the GPUs' driver" in text
            assert said is (driver not in drivers), store.name
            others = "no line of machine checks, PCIe errors (AER), network cards, filesystems at"
            assert (others in text) is not said
