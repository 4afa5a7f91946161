"""`ettr explain` and `ettr failures` decide alike, whatever the window."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr

SACCT = """JobID|Cluster|JobName|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList
1|c|train|FAILED|2026-01-01T09:59:00|2026-01-01T10:00:00|2026-01-01T12:01:30|7290|1|n1
"""
# a minute before the end, and a minute after it
KERNEL = """\
2026-01-01T12:00:30.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU gone
2026-01-01T12:02:30.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU gone
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("window")
    for name, text in (("sacct.psv", SACCT), ("kern.log", KERNEL)):
        (folder / name).write_text(text)
        done = ettr("ingest", folder / "store", folder / name, "--timezone", "UTC")
        assert done.code == 0, done.err
    return folder / "store"


@pytest.mark.parametrize(
    ("window", "failures", "offsets_s"),
    [
        ("10,10", 0, []),
        ("70,10", 1, [-60.0]),
        ("10,70s", 1, [60.0]),
        ("10min,5min", 1, [-60.0, 60.0]),
    ],
)
def test_both_commands_test_each_event_against_the_window(
    store: Path, window: str, failures: int, offsets_s: list[float]
):
    rates = ettr("failures", store, "--window", window, "--json")
    assert rates.json["all_jobs"]["failures"] == failures
    (attempt,) = ettr("explain", store, "1", "--window", window, "--json").json["attempts"]
    assert (attempt["verdict"] is not None) == bool(failures)
    assert [one["offset_s"] for one in attempt["observed"]] == offsets_s
