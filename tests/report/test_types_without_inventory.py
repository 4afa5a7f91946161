"""Types of GPU where no inventory names them: from what jobs held, and from partitions.

Made by hand, 40 days of one job a day and node: four nodes of V100 that are H100 from day 20 on,
four of A100, two whose jobs list no type but run in the partition of the A100, two in a partition
that is called by its model. h-nodes fail on every fifth day.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.program import ettr

FIRST, DAYS, RAN_S = datetime(2026, 3, 1, tzinfo=UTC), 40, 72000
NODES = {
    **{f"h{n}": ("gpu", "v100") for n in range(4)},
    **{f"a{n}": ("alpha", "a100") for n in range(4)},
    **{f"b{n}": ("alpha", "") for n in range(2)},
    **{f"m{n}": ("big-mi300x", "") for n in range(2)},
}
CHANGED_DAY = 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untyped")
    lines = [
        "JobID|User|Cluster|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"
    ]
    for node, (partition, kind) in NODES.items():
        for day in range(DAYS):
            begin = FIRST + timedelta(days=day)
            end = begin + timedelta(seconds=RAN_S)
            typed = "h100" if kind == "v100" and day >= CHANGED_DAY else kind
            tres = f"gres/gpu:{typed}=8,gres/gpu=8" if typed else "gres/gpu=8"
            state = "NODE_FAIL" if node[0] == "h" and day % 5 == 0 else "COMPLETED"
            lines.append(
                f"{len(lines)}|u|c|{partition}|{state}|{begin:%FT%T}|{begin:%FT%T}|{end:%FT%T}"
                f"|{RAN_S}|1|{node}|cpu=8,{tres}"
            )
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    done = ettr("ingest", folder / "store", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def test_a_node_counts_in_the_class_of_each_of_its_lives(store: Path) -> None:
    found = ettr("failures", store, "--json").json
    by_class = {one["name"]: (one["failures"], one["node_days"]) for one in found["by_class"]}
    day = RAN_S / 86400
    assert by_class == {
        "v100": (16, pytest.approx(4 * 20 * day)),
        "h100": (16, pytest.approx(4 * 20 * day)),
        "a100": (0, pytest.approx(6 * 40 * day)),
        "mi300x": (0, pytest.approx(2 * 40 * day)),
    }


def test_a_type_that_jobs_name_is_selected(store: Path) -> None:
    first = ettr("failures", store, "--gpu-type", "v100", "--json").json["all_jobs"]
    assert (first["failures"], first["node_days"]) == (16, pytest.approx(4 * 20 * RAN_S / 86400))
    placed = ettr("failures", store, "--gpu-type", "mi300x", "--json").json["all_jobs"]
    assert placed["node_days"] == pytest.approx(2 * 40 * RAN_S / 86400)
    unknown = ettr("failures", store, "--gpu-type", "h200")
    assert "they name a100, h100, mi300x, v100" in " ".join((unknown.err + unknown.out).split())
    both = ettr("compare", store, "--by", "gpu-type", "--json")
    assert both.code == 0, both.err
    assert {one["name"] for one in both.json["fleets"]} == {"a100", "h100", "v100", "mi300x"}


def test_parts_of_gpus_and_several_types_name_no_node(tmp_path: Path) -> None:
    head = "JobID|Cluster|Partition|State|Submit|Start|End|NNodes|NodeList|AllocTRES"
    times = "2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T10:00:00"
    tres = {
        "n1": "gres/gpu:a100_1g.10gb=2,gres/gpu=2",
        "n2": "gres/gpu:a100=4,gres/gpu:v100=4",
        "n3": "gres/gpu:h100=8",
    }
    rows = [
        f"{n}|c|p|COMPLETED|{times}|1|{node}|{one}" for n, (node, one) in enumerate(tres.items())
    ]
    (tmp_path / "sacct.psv").write_text("\n".join([head, *rows]) + "\n")
    assert ettr("ingest", tmp_path / "s", tmp_path / "sacct.psv", "--timezone", "UTC").code == 0
    done = ettr("export", tmp_path / "s", "--table", "attempts", "--to", tmp_path / "a.csv")
    assert done.code == 0, done.err
    written = (tmp_path / "a.csv").read_text().splitlines()
    at = written[0].split(",").index("gpu_type")
    assert ['"a100,v100"' in line for line in written[1:]] == [False, True, False]
    assert written[3].split(",")[at - 1 :][:2] == ["8", "h100"]
