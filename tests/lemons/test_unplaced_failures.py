"""Failures that no compared node can carry are counted and named, never dropped in silence."""

from pathlib import Path

import pytest

from cli.program import ettr

HEAD = "JobID|JobName|User|Cluster|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
RAN = [
    f"{1 + node}|a|u|c|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-11T00:00:00"
    f"|864000|1|n{node}|gres/gpu=8"
    for node in range(25)
]
# the accounting names no nodes of these; the controller's log blames n99, which ran no job
LOST = [
    f"{job}|a|u|c|NODE_FAIL|2026-01-11T00:00:00|2026-01-11T00:00:00|2026-01-12T0{hour}:00:00"
    f"|{86_400 + 3_600 * hour}|1|None assigned|gres/gpu=8"
    for job, hour in ((50, 0), (51, 6))
]
CONTROLLER = "[2026-01-12T05:59:59.000] Killing JobId=51 on failed node n99\n"


def ingested(folder: Path, rows: list[str]) -> Path:
    (folder / "sacct.psv").write_text("\n".join([HEAD, *rows]) + "\n")
    (folder / "slurmctld.log").write_text(CONTROLLER)
    logs = (folder / "sacct.psv", folder / "slurmctld.log")
    done = ettr("ingest", folder / "store", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


@pytest.mark.slow
def test_failures_without_a_node_to_carry_them_are_counted(tmp_path: Path):
    store = ingested(tmp_path, RAN + LOST)
    assert ettr("failures", store, "--json").json["all_jobs"]["failures"] == 2
    found = ettr("lemons", store, "--json").json
    assert found["unplaced"] == {"blame_unexposed_node": 1, "without_nodes": 1}
    notes = " ".join(found["notes"])
    assert "1 failure blames a node on which no log shows a running job" in notes
    assert "1 failure blames no node and no log names the nodes of its job" in notes
    assert "No failure of" not in " ".join(ettr("lemons", store, "--detail").out.split())


@pytest.mark.slow
def test_where_each_failure_has_a_node_nothing_is_said(tmp_path: Path):
    failed = LOST[0].replace("None assigned", "n3")
    found = ettr("lemons", ingested(tmp_path, [*RAN, failed]), "--json").json
    assert found["unplaced"] == {"blame_unexposed_node": 0, "without_nodes": 0}
    assert not [note for note in found["notes"] if "not counted" in note]


@pytest.mark.slow
@pytest.mark.parametrize("failed", [True, False])
def test_failures_on_nodes_that_are_not_judged_are_told_with_the_answer(
    tmp_path: Path, failed: bool
):
    """Three nodes of another type of GPU: too few to compare."""
    others = [
        row.replace("|n", "|m").replace("gres/gpu=8", "gres/gpu:mi300x=8").replace("|a|", f"|a{k}|")
        for k, row in enumerate(RAN[:3])
    ]
    others = [f"{100 + k}{row[row.index('|') :]}" for k, row in enumerate(others)]
    if failed:
        others[1] = others[1].replace("COMPLETED", "NODE_FAIL")
    named = [row.replace("gres/gpu=8", "gres/gpu:h100=8") for row in RAN]
    named[4] = named[4].replace("COMPLETED", "NODE_FAIL")
    text = ettr("lemons", ingested(tmp_path, named + others)).out
    assert text.startswith("No lemon is claimed among 25 nodes.")
    note = "3 nodes are not judged: fewer than 20 comparable nodes ran jobs. 1 failure is theirs."
    assert (note in text, "not judged" in text) == (failed, failed)
