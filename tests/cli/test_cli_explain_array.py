"""`ettr explain` of an array: its tasks and how each ended."""

from pathlib import Path

import pytest

from cli.program import ettr

pytestmark = pytest.mark.slow

SACCT = """\
JobID|JobIDRaw|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES
7_1|8|sweep|ann|{c}|COMPLETED|2026-01-01T10:00:00|2026-01-01T10:00:00|2026-01-01T11:00:00|3600|1|n1|gres/gpu=8
7_2|9|sweep|ann|{c}|FAILED|2026-01-01T10:00:00|2026-01-01T10:00:00|2026-01-01T10:30:00|1800|1|n2|gres/gpu=8
7_10|10|sweep|ann|{c}|NODE_FAIL|2026-01-01T10:00:00|2026-01-01T10:00:00|2026-01-01T12:00:00|7200|1|n3|gres/gpu=8
7_10|10|sweep|ann|{c}|COMPLETED|2026-01-01T12:00:00|2026-01-01T12:05:00|2026-01-01T12:35:00|1800|1|n4|gres/gpu=8
7_[11-20]|7|sweep|ann|{c}|PENDING|2026-01-01T10:00:00|Unknown|Unknown|0|1|None assigned|
12|12|other|bob|{c}|COMPLETED|2026-01-01T10:00:00|2026-01-01T10:00:00|2026-01-01T11:00:00|3600|1|n5|gres/gpu=8
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("array")
    (folder / "sacct.psv").write_text(SACCT.format(c="alpha"))
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def test_the_id_of_an_array_lists_its_tasks_in_order(store: Path):
    found = ettr("explain", store, "7", "--json").json
    assert (found["cluster"], found["array_job_id"], found["user"]) == ("alpha", "7", "ann")
    tasks = {one["job_id"]: one for one in found["tasks"]}
    assert list(tasks) == ["7_1", "7_2", "7_10", "7_[11-20]"]
    assert [one["state"] for one in tasks.values()] == [
        *("COMPLETED", "FAILED", "COMPLETED", "PENDING")
    ]
    again = tasks["7_10"]
    assert (again["attempts"], again["failures"], again["symptom"], again["node"]) == (
        *(2, 1),
        *("unattributed", "n3"),
    )
    assert again["elapsed_s"] == 9000
    assert found["failures"] == 1
    assert tasks["7_[11-20]"]["start"] is None


def test_the_text_says_how_tasks_ended_and_what_to_ask_next(store: Path):
    done = ettr("explain", store, "7", "--detail")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "4 tasks: 2 COMPLETED, 1 FAILED, 1 PENDING." in text
    assert "1 attempt was failed by the infrastructure." in text
    assert "`ettr explain STORE 7_10`" in text
    assert ettr("explain", store, "7", "--csv").out.count("\n") == 5


def test_a_task_is_explained_and_an_unknown_one_names_the_others(store: Path):
    assert len(ettr("explain", store, "7_10", "--json").json["attempts"]) == 2
    refused = ettr("explain", store, "7_3")
    assert refused.code == 2
    assert "7_1" in refused.err


def test_an_array_in_two_clusters_wants_its_cluster(store: Path, tmp_path: Path):
    for name in ("alpha", "beta"):
        (tmp_path / f"{name}.psv").write_text(SACCT.format(c=name))
    files = [tmp_path / "alpha.psv", tmp_path / "beta.psv"]
    assert ettr("ingest", tmp_path / "both", *files, "--timezone", "UTC").code == 0
    refused = ettr("explain", tmp_path / "both", "7")
    assert refused.code == 2
    assert "say which: alpha/7, beta/7" in refused.err
    assert ettr("explain", tmp_path / "both", "beta/7", "--json").json["cluster"] == "beta"
