"""A store is written and read within its folder only, and others read it only if they may."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cli.program import ettr, write_logs
from ettr.errors import StoreError
from ettr.files import write_text
from ettr.store import Access, layout, open_store
from store.test_store import NOON, VERSION_1, attempts, ingest, states


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(place: Path) -> set[tuple[bool, int]]:
    """Of the store and all in it: (is a folder, permissions)."""
    return {(path.is_dir(), mode_of(path)) for path in [place, *place.rglob("*")]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_store(tmp_path / "s", create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None)))
    return tmp_path / "s"


# -- how parts are compressed ---------------------------------------------------------------------


def test_what_every_command_reads_is_fast_to_decompress(tmp_path: Path) -> None:
    """As first written, and as rewritten where a later dump replaces some of its rows."""
    place = tmp_path / "s"
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "RUNNING", None), ("2", "FAILED", NOON)))
        ingest(store, "two", attempts("two", ("1", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED", "2": "FAILED"}

    def codecs(table: str) -> set[str]:
        parts = str(place / "parts" / table / "*.parquet")
        query = "SELECT DISTINCT compression FROM parquet_metadata(?)"
        return {row[0] for row in duckdb.execute(query, [parts]).fetchall()}

    assert len(list((place / "parts" / "attempts").iterdir())) == 2
    assert codecs("attempts") == {"LZ4_RAW"}
    assert codecs("files") == {"ZSTD"}


# -- a creation that failed -----------------------------------------------------------------------


@pytest.mark.parametrize("left", ["store.json.draft", ".0123456789abcdef.draft", ".lock"])
def test_a_store_whose_creation_failed_is_made_again(left: str, tmp_path: Path) -> None:
    place = tmp_path / "s"
    place.mkdir()
    (place / left).touch()
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED"}
    assert not list(place.glob("*.draft"))
    assert not list(place.glob(".*.draft"))


def test_an_empty_file_in_place_of_a_duckdb_store_is_made_one(tmp_path: Path) -> None:
    """What a kill left between the making of the file and its first byte; or mktemp."""
    place = tmp_path / "s.duckdb"
    place.touch()
    with open_store(place, create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
        assert states(store) == {"1": "FAILED"}


def test_a_store_that_could_not_be_made_is_no_store_that_was_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written: .* \(\d+ MB free\); no store was m"):
        open_store(tmp_path / "file" / "s", create=True)


def test_parts_without_a_manifest_are_not_taken_over(place: Path) -> None:
    (place / "store.json").unlink()
    with pytest.raises(StoreError, match=r"holds other files and no store\.json"):
        open_store(place, create=True)
    assert list((place / "parts" / "attempts").iterdir())


# -- symbolic links -------------------------------------------------------------------------------


def test_a_link_in_place_of_the_lock_is_not_followed(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "thesis.tex"
    target.write_text("ten years")
    (place / ".lock").unlink()
    (place / ".lock").symlink_to(target)
    with open_store(place) as store, pytest.raises(StoreError, match=r"\.lock: is a symbolic link"):
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
    assert target.read_text() == "ten years"


def test_a_link_among_the_parts_is_not_swept_through(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    kept = elsewhere / "important.parquet"
    kept.write_text("x")
    (place / "parts" / "zzz").symlink_to(elsewhere)
    (place / "parts" / "attempts" / "stray.parquet").symlink_to(kept)
    with open_store(place) as store:
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
    assert kept.read_text() == "x"
    assert not (place / "parts" / "attempts" / "stray.parquet").is_symlink()


@pytest.mark.parametrize("linked", ["parts", "parts/attempts"])
def test_no_part_is_written_through_a_link(linked: str, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "s", tmp_path / "mine"
    open_store(place, create=True).close()
    elsewhere.mkdir()
    (place / linked).parent.mkdir(exist_ok=True)
    (place / linked).symlink_to(elsewhere)
    with (
        open_store(place) as store,
        pytest.raises(StoreError, match="is a symbolic link, and ettr follows none within a store"),
    ):
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
    assert not list(elsewhere.iterdir())


def test_a_link_where_the_manifest_was_drafted_is_not_followed(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_text("x")
    (place / "store.json.draft").symlink_to(target)
    with open_store(place) as store:
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
    assert target.read_text() == "x"
    assert not (place / "store.json").is_symlink()


def test_a_link_to_a_manifest_is_not_read(place: Path, tmp_path: Path) -> None:
    (place / "store.json").rename(tmp_path / "m.json")
    (place / "store.json").symlink_to(tmp_path / "m.json")
    with pytest.raises(StoreError, match=r"store\.json: cannot be read as a store's manifest"):
        open_store(place)


def test_a_duckdb_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    with open_store(tmp_path / "mine.duckdb", create=True) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
    before = (tmp_path / "mine.duckdb").read_bytes()
    for target in ("mine.duckdb", "nowhere"):
        link = tmp_path / f"{target}-link.duckdb"
        link.symlink_to(tmp_path / target)
        with pytest.raises(
            StoreError, match="is a symbolic link, and ettr follows none when it writes"
        ):
            open_store(link, create=True)
    (tmp_path / "mine.duckdb.wal").symlink_to(tmp_path / "nowhere")
    with (
        open_store(tmp_path / "mine.duckdb") as store,
        pytest.raises(StoreError, match=r"mine\.duckdb\.wal: is a symbolic link"),
        store.ingestion("two"),
    ):
        pass
    assert (tmp_path / "mine.duckdb").read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


def test_a_report_is_not_written_through_a_link(tmp_path: Path) -> None:
    target, page = tmp_path / "bashrc", tmp_path / "r.html"
    target.write_text("x")
    for name in (".r.html.draft", "r.html"):
        (tmp_path / name).symlink_to(target)
    write_text(page, "<html>")
    assert target.read_text() == "x"
    assert not page.is_symlink()
    assert page.read_text() == "<html>"
    assert mode_of(page) == 0o666 & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_standard_output_is_a_link_that_is_followed(tmp_path: Path) -> None:
    """As root, /dev/stdout itself was replaced by a file where the output went to one."""
    code = "from pathlib import Path; from ettr.files import write_text as w; w(Path({!r}), 'page')"
    with (tmp_path / "out").open("w") as out:
        for name in ("/dev/stdout", "/dev/fd/1"):
            words = [sys.executable, "-c", code.format(name)]
            assert subprocess.run(words, stdout=out, check=False).returncode == 0
    assert Path("/dev/stdout").is_symlink()
    assert "page" in (tmp_path / "out").read_text()


# -- permissions ----------------------------------------------------------------------------------


@pytest.fixture
def _open_umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_a_store_is_for_its_owner(place: Path) -> None:
    with open_store(place) as store:
        ingest(store, "two", attempts("two", ("1", "FAILED", NOON), ("2", "FAILED", NOON)))
    assert modes(place) == {(True, 0o700), (False, 0o600)}


@pytest.mark.usefixtures("_open_umask")
def test_a_duckdb_file_is_for_its_owner(tmp_path: Path) -> None:
    place, logs = tmp_path / "s.duckdb", []
    log = place.with_name("s.duckdb.wal")
    with open_store(place, create=True) as store:
        # the log holds rows for a moment; a kill leaves it
        store.connection.execute("SET wal_autocheckpoint = '1GB'")
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
        logs.append(mode_of(log))
    assert mode_of(place) == 0o600
    assert logs == [0o600]


@pytest.mark.slow
@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize("kind", ["s", "s.duckdb"])
def test_a_store_may_be_opened_to_others(kind: str, tmp_path: Path) -> None:
    place = tmp_path / kind
    with open_store(place, create=True, readable_by=Access.GROUP) as store:
        ingest(store, "one", attempts("one", ("1", "FAILED", NOON)))
    with open_store(place) as store:  # and it stays so
        ingest(store, "two", attempts("two", ("2", "FAILED", NOON)))
    expected = {(True, 0o750), (False, 0o640)} if kind == "s" else {(False, 0o640)}
    assert modes(place) == expected
    open_store(place, readable_by=Access.OWNER).close()
    expected = {(True, 0o700), (False, 0o600)} if kind == "s" else {(False, 0o600)}
    assert modes(place) == expected


@pytest.mark.usefixtures("_open_umask")
def test_an_older_store_that_others_read_stays_readable(tmp_path: Path) -> None:
    place = Path(shutil.copytree(VERSION_1, tmp_path / "s"))
    (place / "store.json").chmod(0o644)
    with open_store(place) as store:
        ingest(store, "two", attempts("two", ("new", "FAILED", NOON)))
    parts = list((place / "parts" / "attempts").glob("two-*"))
    assert [mode_of(part) for part in (*parts, place / "store.json")] == [0o644, 0o644]


@pytest.mark.slow
def test_the_option_is_of_a_known_kind(tmp_path: Path) -> None:
    words = ("ingest", tmp_path / "s", *write_logs(tmp_path), "--timezone", "UTC", "--readable-by")
    done = ettr(*words, "world")
    assert (done.code, done.out) == (2, "")
    assert "--readable-by world: give owner or group or all" in done.err
    assert not (tmp_path / "s").exists()
    assert ettr(*words, "all").code == 0
    assert mode_of(tmp_path / "s") == 0o755


# -- manifests ------------------------------------------------------------------------------------


def reseal(place: Path, **changes: object) -> None:
    """Edit the manifest as somebody would who knows its checksum."""
    path = place / "store.json"
    content = {**json.loads(path.read_text()), **changes}
    content = {key: value for key, value in content.items() if value is not Ellipsis}
    content.pop("manifest_crc32", None)
    path.write_text(json.dumps({**content, "manifest_crc32": layout._seal(content)}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"parts": None},
        {"parts": []},
        {"parts": "attempts"},
        {"parts": ...},
        {"parts": {"attempts": [1, None]}},
        {"parts": {"attempts": None}},
        {"parts": {"attempts": {}}},
        {"parts": {"jobs": []}},
        {"parts": {}},
        {"parts": {"attempts": ["../outside.parquet"]}},
        {"parts": {"attempts": ["parts/attempts/../../outside.parquet"]}},
        {"parts": {"attempts": ["/etc/passwd"]}},
        {"parts": {"attempts": ["parts/events/one-1-new.parquet"]}},
        {"parts": {"attempts": ["parts/attempts/one.parquet\n"]}},
        {"crc32": []},
        {"crc32": None},
        {"crc32": {"a": 1}},
        {"crc32": {"a": "zzzzzzzz"}},
        {"crc32": {}},
        {"crc32": ...},
        {"ingested": -1},
        {"ingested": "1"},
        {"ingested": 1.0},
        {"ingested": True},
        {"ingested": None},
        {"ingested": 0},
        {"ingested": ...},
        {"version": 0},
        {"version": -1},
        {"version": 10**400},
        {"version": "2"},
        {"version": 2.0},
        {"version": None},
        {"version": True},
        {"version": ...},
        {"format": None},
        {"format": []},
        {"format": ...},
    ],
)
def test_a_manifest_of_wrong_values_is_refused_in_a_sentence(
    changes: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    part = next((place / "parts" / "attempts").iterdir())
    shutil.copy(part, tmp_path / "outside.parquet")
    reseal(place, **changes)
    done = ettr("status", place, "--detail")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("ettr: ")
    assert "Traceback" not in done.err
    assert "checksum is" not in done.err, "nothing is said of a file outside"


@pytest.mark.parametrize("text", ["[]", "null", "7", "", "[" * 100_000, "{", '"x"', "\x00\xff"])
def test_what_is_no_manifest_is_refused_in_a_sentence(text: str, place: Path) -> None:
    (place / "store.json").write_text(text)
    with pytest.raises(StoreError, match="cannot be read as a store's manifest"):
        open_store(place)


def test_a_part_that_is_named_twice_is_not_counted_twice(place: Path) -> None:
    held = layout.read(place)
    reseal(place, parts={**held.parts, "attempts": held.parts["attempts"] * 2})
    with pytest.raises(StoreError, match="a part of attempts is named twice"):
        open_store(place)


def test_a_part_that_is_a_link_is_not_read(place: Path, tmp_path: Path) -> None:
    part = next((place / "parts" / "attempts").iterdir())
    part.rename(tmp_path / "outside.parquet")
    part.symlink_to(tmp_path / "outside.parquet")
    with (
        open_store(place) as store,
        pytest.raises(StoreError, match=f"{part.name}: .*is not a regul"),
    ):
        store.rows("attempts")
    part.unlink()
    (place / "parts" / "attempts").rmdir()
    (tmp_path / "moved").mkdir()
    (tmp_path / "outside.parquet").rename(tmp_path / "moved" / part.name)
    (place / "parts" / "attempts").symlink_to(tmp_path / "moved")
    with open_store(place) as store, pytest.raises(StoreError, match="behind, a symbolic link"):
        store.rows("attempts")


@pytest.mark.parametrize("what", ["store.json", "part"])
def test_a_pipe_in_a_store_is_not_waited_for(what: str, place: Path) -> None:
    path = place / what if what != "part" else next((place / "parts" / "attempts").iterdir())
    path.unlink()
    os.mkfifo(path)

    def look() -> None:
        with open_store(place) as store:
            store.rows("attempts")

    with pytest.raises(StoreError, match="it is not a regular file"):
        look()
