"""Planned is planned, broken is broken: what an administrator did to a node fails no job."""

from pathlib import Path

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

JOBS = (
    "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
    "17|a|u|alpha|NODE_FAIL|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T22:00:00|43200|1|n1|"
    "gres/gpu=8\n"
    "18|b|u|alpha|COMPLETED|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-02T10:00:00|86400|1|n2|"
    "gres/gpu=8\n"
)
HEAD = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"


def failures(folder: Path, *states: str) -> int:
    (folder / "jobs.psv").write_text(JOBS)
    (folder / "events.psv").write_text(HEAD + "".join(f"{state}\n" for state in states))
    logs = (folder / "jobs.psv", folder / "events.psv")
    done = ettr("ingest", folder / "store", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    count: int = ettr("failures", folder / "store", "--json").json["all_jobs"]["failures"]
    return count


END, BACK = "2026-11-01T22:00:00", "2026-11-01T23:00:00"


def test_a_node_taken_down_for_maintenance_fails_no_job(tmp_path: Path):
    line = f"alpha|n1|{END}|{BACK}|DOWN|scheduled maintenance: firmware update|root(0)"
    assert failures(tmp_path, line) == 0
    explained = ettr("explain", tmp_path / "store", "17")
    assert explained.code == 0, explained.err
    assert "unattributed" not in explained.out


def test_a_fault_before_the_maintenance_is_a_failure_all_the_same(tmp_path: Path):
    """The GPU fell off the bus, the job ended, and somebody wrote `maintenance` at once."""
    (tmp_path / "kernel.log").write_text(
        "2026-11-01T21:58:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has "
        "fallen off the bus.\n"
    )
    assert failures(tmp_path, f"alpha|n1|{END}|{BACK}|DOWN|maintenance|root(0)") == 0
    assert ettr("ingest", tmp_path / "store", tmp_path / "kernel.log").code == 0
    (row,) = ettr("failures", tmp_path / "store", "--json").json["rows"]
    assert (row["node"], row["symptom"]) == ("n1", "gpu-unavailable")


@pytest.mark.parametrize(
    "lines",
    [
        [f"alpha|n1|{END}|{BACK}|DOWN*|scheduled maintenance: firmware update|root(0)"],
        [
            f"alpha|n1|{END}|2026-11-01T22:02:00|DOWN*|Not responding|slurm(64030)",
            f"alpha|n1|2026-11-01T22:02:00|{BACK}|DOWN|maintenance: GPU swapped|root(0)",
        ],
        [
            f"alpha|n1|{END}|2026-11-01T22:01:00|DOWN|investigating|root(0)",
            f"alpha|n1|2026-11-01T22:01:00|{BACK}|DOWN|scheduled reboot|root(0)",
        ],
        [f"alpha|n1|{END}|{BACK}|DOWN|GPU ECC error, reboot|root(0)"],
        ["alpha|n1|2026-11-01T12:00:00|2026-11-01T12:30:00|DOWN|scheduled maintenance|root(0)"],
        [f"alpha|n2|{END}|{BACK}|DOWN|scheduled maintenance|root(0)"],
    ],
    ids=[
        *("went silent", "reason written later", "first another reason", "a fault named"),
        *("another time", "another node"),
    ],
)
def test_what_broke_is_a_failure_whatever_was_written(tmp_path: Path, lines: list[str]):
    assert failures(tmp_path, *lines) == 1


@pytest.mark.parametrize("reason", ["rebooted", "GSP timeout, reboot", "maintenance"])
def test_an_outage_that_ended_a_job_is_unplanned_whatever_was_written(tmp_path: Path, reason: str):
    line = f"alpha|n1|{END}|{BACK}|DOWN*|{reason}|slurm(64030)"
    assert failures(tmp_path, line) == 1
    by_reason = ettr("nodes", tmp_path / "store", "--json").json["by_reason"]
    assert [(one["is_planned"], one["outages"]) for one in by_reason] == [(False, 1)]


def test_a_silent_node_that_ran_no_job_is_planned_as_its_reason_says(tmp_path: Path):
    line = "alpha|n2|2026-11-01T12:00:00|2026-11-01T12:30:00|DOWN*|maintenance|root(0)"
    assert failures(tmp_path, line) == 1, "the NODE_FAIL of the other node"
    by_reason = ettr("nodes", tmp_path / "store", "--json").json["by_reason"]
    assert [one["is_planned"] for one in by_reason] == [True]


def test_what_ended_for_planned_work_is_explained_so(tmp_path: Path):
    assert failures(tmp_path, f"alpha|n1|{END}|{BACK}|DOWN|maintenance|root(0)") == 0
    text = " ".join(ettr("explain", tmp_path / "store", "17", "--detail").out.split())
    assert "taken down for planned work" in text
    assert "a failure of the infrastructure with or without a check" not in text


def test_explain_says_who_cancelled_and_what_was_made_of_it(tmp_path: Path):
    rows = [
        f"{job}|a|u|c|{state}|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00|3600|1|"
        f"n{job}|gres/gpu=8"
        for job, state in ((1, "CANCELLED by 0"), (2, "CANCELLED by 1001"), (3, "CANCELLED"))
    ]
    (tmp_path / "sacct.psv").write_text(JOBS.splitlines()[0] + "\n" + "\n".join(rows) + "\n")
    ettr("ingest", tmp_path / "store", tmp_path / "sacct.psv", "--timezone", "UTC")
    endings = [
        " ".join(ettr("explain", tmp_path / "store", job, "--detail").out.split())
        for job in ("1", "2", "3")
    ]
    assert "Cancelled by 0, the system's user: an operator's act." in endings[0]
    assert "Cancelled by 1001" in endings[1]
    assert "an operator's act" not in endings[1]
    assert "no log names by whom" in endings[2]


def test_the_node_that_fell_silent_under_several_is_named_whatever_was_written(tmp_path: Path):
    """The outage's reason reads as planned work; its flag says that the node was silent."""
    (tmp_path / "jobs.psv").write_text(JOBS.replace("|1|n1|", "|3|n[1,3-4]|"))
    (tmp_path / "events.psv").write_text(
        f"{HEAD}alpha|n3|{END}|{BACK}|DOWN*|maintenance: ticket 4711|slurm(64030)\n"
        f"alpha|n4|{END}|{BACK}|DRAIN|maintenance|root(0)\n"
    )
    logs = (tmp_path / "jobs.psv", tmp_path / "events.psv")
    assert ettr("ingest", tmp_path / "store", *logs, "--timezone", "UTC").code == 0
    (row,) = ettr("failures", tmp_path / "store", "--json").json["rows"]
    assert (row["job_id"], row["node"]) == ("17", "n3")


@pytest.mark.parametrize(
    ("held", "words", "gpu_hours"),
    [
        ("gres/gpu=8", "2 nodes without a GPU count in an inventory count with the most GPUs", 8.0),
        ("cpu=8", "2 nodes without a GPU count: GPU-hours are not known.", None),
    ],
)
def test_without_an_inventory_outages_count_the_gpus_that_jobs_held(
    tmp_path: Path, held: str, words: str, gpu_hours: float | None
):
    """One hour of a node on which a job held eight GPUs."""
    (tmp_path / "jobs.psv").write_text(JOBS.replace("gres/gpu=8", held))
    (tmp_path / "events.psv").write_text(f"{HEAD}alpha|n1|{END}|{BACK}|DOWN*|x|slurm(64030)\n")
    logs = (tmp_path / "jobs.psv", tmp_path / "events.psv")
    assert ettr("ingest", tmp_path / "store", *logs, "--timezone", "UTC").code == 0
    nodes = ettr("nodes", tmp_path / "store", "--json").json
    assert (nodes["lost_gpu_hours"], nodes["by_reason"][0]["gpu_hours"]) == (gpu_hours, gpu_hours)
    text = " ".join(ettr("nodes", tmp_path / "store", "--detail").out.split())
    assert words in text
    sure = "by confidence: 1 named by the scheduler only"
    assert f"1 failure of 1 ({sure}) is blamed on a node" in text


@pytest.mark.parametrize(
    ("reason", "count"), [("maint: gpu ecc", 1), ("planned maintenance: replace GPU", 0)]
)
def test_a_fault_beside_the_word_of_planned_work_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, count: int
):
    """Drained minutes before its job ended FAILED: a fault that is named counts."""
    monkeypatch.setitem(globals(), "JOBS", JOBS.replace("NODE_FAIL", "FAILED"))
    line = f"alpha|n1|2026-11-01T21:57:00|{BACK}|DRAIN|{reason}|root(0)"
    assert failures(tmp_path, line) == count
