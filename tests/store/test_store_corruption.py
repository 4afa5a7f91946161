"""What a store has kept is read as it was written, or the user is told which part is not."""

import json
import random
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.program import ettr
from ettr.errors import StoreError
from ettr.store import Store, folder, layout, open_store
from ettr.store.folder import FolderStore
from ettr.tables import PROGRESS, TABLES
from store.test_store import FILE_ROW, NOON, attempts, ingest, states

N_FLIPS, N_CUTS = 100, 20


def steps(n_rows: int) -> pa.Table:
    rng = random.Random(1)
    rows = [
        {
            "run_id": "r",
            "rank": 0,
            "time": NOON + timedelta(seconds=at),
            "event": "step",
            "step": at,
            "duration_s": rng.random(),
            "source": "progress",
            "file_id": "one",
            "line": at,
        }
        for at in range(n_rows)
    ]
    return pa.Table.from_pylist(rows, schema=PROGRESS.arrow_schema)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with rows in three tables, which no test changes."""
    place = tmp_path_factory.mktemp("corruption") / "s"
    with open_store(place, create=True) as store, store.ingestion("one") as ingestion:
        ingestion.write("progress", steps(400))
        jobs = [(str(job), "FAILED", NOON + timedelta(seconds=job)) for job in range(100)]
        ingestion.write("attempts", attempts("one", *jobs))
        ingestion.commit(FILE_ROW)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "s"))


def part_of(place: Path, name: str) -> Path:
    (part,) = (place / "parts" / name).glob("*.parquet")
    return part


def everything(place: Path) -> str:
    with open_store(place) as store:
        return repr([_rows(store, name) for name in TABLES]) + repr(store.files())


def _rows(store: Store, name: str) -> list[dict[str, Any]]:
    key = [(column, "ascending") for column in TABLES[name].key]
    rows: list[dict[str, Any]] = store.rows(name).sort_by(key).to_pylist()
    return rows


def spoil_page(part: Path, column: str) -> None:
    """Zeros over the pages of a column; the footer stays whole."""
    raw = bytearray(part.read_bytes())
    start, n_bytes = pages_of(part, column)
    raw[start : start + n_bytes] = bytes(n_bytes)
    part.write_bytes(raw)


def pages_of(part: Path, column: str) -> tuple[int, int]:
    """Where the pages of a column begin, and how many bytes they are."""
    held = pq.read_metadata(part)
    of = held.row_group(0).column(held.schema.names.index(column))
    return of.dictionary_page_offset or of.data_page_offset, of.total_compressed_size


def without_checksums(place: Path) -> None:
    """The manifest as an older ettr wrote it."""
    path = place / "store.json"
    kept = json.loads(path.read_text())
    del kept["crc32"], kept["manifest_crc32"]
    path.write_text(json.dumps(kept, indent=1))


@pytest.mark.parametrize("name", ["attempts", "progress", "files"])
def test_no_flipped_byte_and_no_cut_gives_another_number(name: str, place: Path) -> None:
    """Of the same damage without checksums, one in eleven was read as other values."""
    part, rng = part_of(place, name), random.Random(name)
    raw = part.read_bytes()
    for turn in range(N_FLIPS + N_CUTS):
        spoilt = bytearray(raw)
        if turn < N_FLIPS:
            spoilt[rng.randrange(len(raw))] ^= rng.randrange(1, 256)
        else:
            del spoilt[rng.randrange(len(raw)) :]
        part.write_bytes(spoilt)
        with (
            open_store(place) as store,
            pytest.raises(StoreError, match=rf"{part.name}: a part of the store is corrupt or mi"),
        ):
            store.rows(name)
    part.write_bytes(raw)
    assert len(everything(place)) > 1000


def test_a_value_that_a_flipped_byte_changed_is_never_given(place: Path) -> None:
    """Parquet's readers see nothing wrong with it: only the checksum tells."""
    part = part_of(place, "progress")
    good, raw = everything(place), part.read_bytes()
    start, n_bytes = pages_of(part, "duration_s")
    middle = start + n_bytes // 2
    part.write_bytes(raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :])
    with pytest.raises(StoreError, match=r"its checksum is [0-9a-f]{8}, and [0-9a-f]{8} was writt"):
        everything(place)
    without_checksums(place)
    assert everything(place) != good


def test_what_follows_from_damage_is_an_error_of_the_command(place: Path) -> None:
    part = part_of(place, "attempts")
    spoil_page(part, "submit")
    for command in (
        ("report", place, "--json"),
        ("project", place, "--gpus", "1024"),
        ("status", place),
    ):
        done = ettr(*command)
        assert done.code == 1
        assert done.err.startswith(
            f"ettr: {part}: a part of the store is corrupt or missing: its ch"
        )
        assert "restore it from a backup, or ingest the logs into a new store" in done.err
        assert "Traceback" not in done.err


def test_a_store_without_checksums_names_the_part_that_a_query_met(place: Path) -> None:
    part = part_of(place, "attempts")
    spoil_page(part, "submit")
    without_checksums(place)
    with pytest.raises(
        StoreError, match=rf"{part.name}: a part of the store is corrupt or missing: "
    ):
        everything(place)


def test_a_footer_without_checksum_must_name_the_columns(place: Path) -> None:
    part = part_of(place, "progress")
    renamed = pq.read_table(part).rename_columns(
        ["eOent" if name == "event" else name for name in PROGRESS.names]
    )
    pq.write_table(renamed, part)
    without_checksums(place)
    with open_store(place) as store, pytest.raises(StoreError, match="it has no column event"):
        store.rows("progress")


def test_the_list_of_files_is_reported_corrupt_without_an_engine(place: Path) -> None:
    part = part_of(place, "files")
    spoil_page(part, "name")
    without_checksums(place)
    with open_store(place) as store, pytest.raises(StoreError, match=f"{part.name}: a part of"):
        store.files()


def test_a_fault_that_is_no_damage_stays_what_it_is(place: Path) -> None:
    with pytest.raises(KeyError, match="a slip of ours"), open_store(place):
        raise KeyError("a slip of ours")


def test_a_flipped_byte_in_the_manifest_is_told(place: Path) -> None:
    """A table under another name would be a table without rows."""
    path, rng = place / "store.json", random.Random(1)
    good, raw = layout.read(place), path.read_bytes()
    n_told = 0
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ rng.randrange(1, 256)]) + raw[at + 1 :])
        with suppress(StoreError):
            n_told += 1
            assert layout.read(place) == good
            n_told -= 1
    assert n_told > 0.95 * len(raw)  # a space may become another


@pytest.mark.parametrize("lost", [(), ("crc32",), ("manifest_crc32",)])
def test_an_edited_manifest_is_refused(lost: tuple[str, ...], place: Path) -> None:
    path = place / "store.json"
    text = path.read_text().replace('"attempts": [', '"attempxs": [')
    path.write_text(json.dumps({k: v for k, v in json.loads(text).items() if k not in lost}))
    with pytest.raises(
        StoreError, match=r"does not match its checksum: it is corrupt or was edited"
    ):
        open_store(place)


def test_parts_of_an_older_store_get_their_checksums_at_the_next_ingestion(place: Path) -> None:
    without_checksums(place)
    good = everything(place)
    with open_store(place) as store:
        ingest(store, "two", attempts("two", ("new", "FAILED", NOON)))
    held = json.loads((place / "store.json").read_text())
    assert set(held["crc32"]) == {part for parts in held["parts"].values() for part in parts}
    assert len(everything(place)) > len(good)


def test_no_checksum_blesses_a_part_that_was_corrupt_before(place: Path) -> None:
    without_checksums(place)
    part = part_of(place, "progress")
    spoil_page(part, "duration_s")  # which no merge looks at
    before = (place / "store.json").read_bytes()
    with open_store(place) as store, pytest.raises(StoreError, match=f"{part.name}: a part of"):
        ingest(store, "two", attempts("two", ("new", "FAILED", NOON)))
    assert (place / "store.json").read_bytes() == before


def test_a_merge_takes_no_rows_out_of_a_corrupt_part(place: Path) -> None:
    part = part_of(place, "attempts")
    spoil_page(part, "state")
    with open_store(place) as store, pytest.raises(StoreError, match=f"{part.name}: a part of"):
        ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))


def test_a_part_that_a_later_dump_rewrote_has_the_checksum_of_what_is_left(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None), ("2", "FAILED", NOON)))
        ingest(store, "two", attempts("two", ("1", "COMPLETED", NOON)))
    with open_store(tmp_path / "s") as store:
        assert states(store) == {"1": "COMPLETED", "2": "FAILED"}


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which a reader cannot keep the parts that it reads."""
    monkeypatch.setattr(layout, "hold", lambda *_: lambda: None)


@pytest.mark.usefixtures("no_locks")
def test_a_store_that_another_process_changed_meanwhile_is_no_damage(place: Path) -> None:
    with open_store(place) as reader:
        reader.rows("attempts")
        with open_store(place) as writer:
            ingest(writer, "two", attempts("two", ("1", "COMPLETED", NOON)))
        with pytest.raises(StoreError, match=r"another process ingested .* run the command again"):
            reader.rows("attempts")


@pytest.mark.usefixtures("no_locks")
def test_a_command_reads_again_what_another_process_changed_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest by cron in the middle of a report is no reason to go without it."""
    tries: list[Path] = []
    writing: list[Path] = []

    def stamp(path: Path) -> tuple[int, int] | None:
        if path.parent.name == "attempts" and len(tries) < 2 and not writing:
            tries.append(path)
            writing.append(path)
            with open_store(place) as writer:
                ingest(writer, f"n{len(tries)}", attempts("two", ("1", "COMPLETED", NOON)))
            writing.clear()
        return found(path)

    found = folder._stamp
    monkeypatch.setattr(folder, "_stamp", stamp)
    done = ettr("status", place, "--json")
    assert done.code == 0, done.err
    assert len(tries) == 2


@pytest.mark.usefixtures("no_locks")
def test_a_query_under_way_when_another_process_ingests_is_told_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ettr.store.folder.SMALL_BYTES", 0)

    def count(reader: Store) -> None:
        source = reader.source("attempts")
        with open_store(place) as writer:
            ingest(writer, "two", attempts("two", ("1", "COMPLETED", NOON)))
        reader.connection.execute(f"SELECT * FROM {source}").fetchall()

    with pytest.raises(StoreError, match="another process ingested"), open_store(place) as reader:
        count(reader)


def count(store: Store, source: str) -> int:
    return int(store.connection.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])


def test_a_small_table_is_read_once_and_another_process_changes_nothing_of_it(place: Path) -> None:
    with open_store(place) as reader:
        assert reader.is_small("attempts")
        source = reader.source("attempts")
        rows = count(reader, source)
        with open_store(place) as writer:
            ingest(writer, "two", attempts("two", ("never seen before", "COMPLETED", NOON)))
        assert count(reader, source) == rows
    with open_store(place) as reader:
        assert reader.rows("attempts").num_rows > rows


def test_a_table_read_after_an_ingestion_has_its_rows(place: Path) -> None:
    with open_store(place) as store:
        before = store.source("attempts")
        rows = count(store, before)
        ingest(store, "two", attempts("two", ("never seen before", "COMPLETED", NOON)))
        assert store.rows("attempts").num_rows == rows + 1
        assert count(store, before) == rows


def test_parts_are_checked_before_the_engine_sees_them(place: Path) -> None:
    part = part_of(place, "attempts")
    spoil_page(part, "submit")
    with FolderStore(place) as store, pytest.raises(StoreError, match=part.name):
        store.source("attempts")


@pytest.mark.slow
def test_a_corrupt_duckdb_file_is_told_by_its_table(tmp_path: Path) -> None:
    place = tmp_path / "site.duckdb"
    with open_store(place, create=True) as store:
        jobs = [(str(job), "FAILED", NOON + timedelta(seconds=job)) for job in range(50_000)]
        ingest(store, "one", attempts("one", *jobs))
    raw = bytearray(place.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 1000] = bytes(1000)
    place.write_bytes(raw)
    with (
        pytest.raises(StoreError, match=r"site\.duckdb, table attempts: a part of the store is co"),
        open_store(place) as store,
    ):
        store.rows("attempts")


def test_a_query_that_fails_on_a_whole_duckdb_file_fails_as_it_did(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyError, match="a slip of ours"),
        open_store(tmp_path / "site.duckdb", create=True),
    ):
        raise KeyError("a slip of ours")


def test_a_query_without_room_for_what_it_puts_aside_is_told(place: Path) -> None:
    def ask_too_much() -> None:
        with open_store(place) as store:
            store.connection.execute("SET memory_limit = '16MB'")
            store.connection.execute("SET max_temp_directory_size = '0KB'")
            store.connection.execute(
                "SELECT list(i) FROM range(40_000_000) t(i) GROUP BY i % 3_000_000"
            ).fetchall()

    with pytest.raises(
        StoreError, match=r"s: Out of Memory Error.*; raise --memory-limit, free memory"
    ):
        ask_too_much()
