"""Many small ingestions leave few parts, with the rows of one large ingestion."""

import json
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.store import open_store
from ettr.store.folder import FolderStore
from store.test_store import NOON, attempts, ingest, states


def n_parts(place: Path) -> int:
    parts = json.loads((place / "store.json").read_text())["parts"]
    return max(len(listed) for listed in parts.values())


@pytest.mark.slow
def test_small_ingestions_leave_few_parts_and_every_row(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", create=True) as store:
        for number in range(30):
            # every job is seen running, then ended in the next file
            jobs = [(str(number), "RUNNING", None), (str(number - 1), "FAILED", NOON)]
            ingest(store, f"f{number}", attempts(f"f{number}", *jobs))
        assert n_parts(tmp_path / "store") <= 14  # seven of each of two levels
        expected = {str(number): "FAILED" for number in range(-1, 29)} | {"29": "RUNNING"}
        assert states(store) == expected
        assert [file.file_id for file in store.files()] == [f"f{number}" for number in range(30)]
    done = ettr("compact", tmp_path / "store", "--json")
    assert done.code == 0, done.err
    assert n_parts(tmp_path / "store") == 1
    with open_store(tmp_path / "store") as store:
        assert states(store) == expected
    assert ettr("compact", tmp_path / "store", "--json").json["parts"] == done.json["parts"]


def test_a_reader_goes_on_while_a_store_is_compacted(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", create=True) as store:
        for number in range(3):
            ingest(store, f"f{number}", attempts(f"f{number}", (str(number), "FAILED", NOON)))
    with open_store(tmp_path / "store") as reader:
        with open_store(tmp_path / "store") as other:
            other.compact()
            ingest(other, "f3", attempts("f3", ("3", "FAILED", NOON)))
        assert set(states(reader)) == {"0", "1", "2"}
    with FolderStore(tmp_path / "store") as store:
        ingest(store, "f4", attempts("f4", ("4", "FAILED", NOON)))
        assert set(states(store)) == {"0", "1", "2", "3", "4"}
    there = {str(path.relative_to(tmp_path / "store")) for path in tmp_path.rglob("*.parquet")}
    assert there == store._manifest.all_parts()  # what the reader needed is gone with it
