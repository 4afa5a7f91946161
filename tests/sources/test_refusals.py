"""What cannot be: refused in words or rejected with a reason, never a figure."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ettr.analysis.reading import ingest_all
from ettr.errors import SourceError, UsageError
from ettr.sources import node_lists
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file, refuse_idle_options
from ettr.sources.origin import LogFile
from ettr.sources.registry import all_sources, named
from ettr.sources.slurm import sacct
from ettr.store import Store, open_store
from source_samples import read_all, rows_of, samples

UTC = ReadOptions(timezone="UTC")
SACCT = "JobID|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
GOOD = "1|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|3600|1|n1|gres/gpu=8\n"
LETTER = b"Dear all,\nnode n1 is ill\n" * 5


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with open_store(tmp_path / "store", create=True) as opened:
        yield opened


def rejected(path: Path, source: str, options: ReadOptions = UTC) -> list[str]:
    return [row["reason"] for row in rows_of(read_all(named(source), path, options), "rejects")]


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(set(all_sources()) - {"table", "infinitehbd"}))
def test_a_source_that_is_named_and_makes_no_row_is_no_success(
    store: Store, tmp_path: Path, source: str
):
    path = tmp_path / "letter.log"
    path.write_bytes(LETTER)
    with pytest.raises((SourceError, UsageError)) as caught:
        ingest_file(store, path, UTC, source)
    assert str(path) in str(caught.value)
    assert store.files() == ()


def test_another_log_under_the_name_of_kernel_xid_says_what_it_looks_like(
    store: Store, tmp_path: Path
):
    path = tmp_path / "sacct.psv"
    path.write_text(SACCT + GOOD)
    words = r"2 records read, 0 rejected, 2 skipped; it looks like slurm-sacct: leave out --source"
    with pytest.raises(SourceError, match=words):
        ingest_file(store, path, UTC, "kernel-xid")


def test_a_kernel_log_in_which_nothing_failed_is_one(store: Store, tmp_path: Path):
    path = tmp_path / "n1.log"
    path.write_text("2026-01-01T00:00:00Z n1 kernel: eth0: link becomes ready\n" * 3)
    done = ingest_file(store, path, UTC, "kernel-xid")
    assert (done.rows_read, done.rows_kept, done.rows_skipped) == (3, 0, 3)


@pytest.mark.parametrize(
    "options", [ReadOptions(table="events"), ReadOptions(column_map={"node": "host"})]
)
def test_a_table_for_a_log_that_is_none_is_refused(tmp_path: Path, options: ReadOptions):
    log, site = tmp_path / "sacct.psv", tmp_path / "site.csv"
    log.write_text(SACCT + GOOD)
    site.write_text("host,when\nn1,1770000000\n")
    with pytest.raises(UsageError, match=r"as slurm-sacct:\n  --(table|columns): for .*table"):
        refuse_idle_options([LogFile(log)], options, None)
    with pytest.raises(UsageError, match=r"--(table|columns)"):
        refuse_idle_options([LogFile(site)], options, "slurm-sacct")
    refuse_idle_options([LogFile(log), LogFile(site)], ReadOptions(table="events"), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(all_sources()))
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("forced", [True, False])
def test_text_of_wide_characters_is_refused_in_words(
    store: Store, tmp_path: Path, name: str, encoding: str, forced: bool
):
    sample = samples(name)[0]
    path = tmp_path / sample.path.name
    path.write_bytes(sample.path.read_bytes().decode("utf-8", "replace").encode(encoding))
    with pytest.raises(SourceError, match=r"is UTF-(16|32)(LE|BE)?; convert it first: iconv -f"):
        ingest_file(store, path, sample.options, name if forced else None)


@pytest.mark.parametrize(
    ("was", "given", "reason"),
    [
        ("Start", "1970-01-01T00:00:00", "bad-timestamp"),
        ("End", "9999-12-31T23:59:59", "bad-timestamp"),
        ("Start", "0001-01-01T00:00:00", "bad-timestamp"),
        ("Submit", "1969-12-31T16:00:00", "bad-timestamp"),
        ("ElapsedRaw", "99999999999", "bad-duration"),
        ("NNodes", "1000000000", "bad-number"),
        ("AllocTRES", "gres/gpu=1000000000", "bad-gpu-count"),
        ("NodeList", "x[0-199999]", "bad-node-list"),
    ],
)
def test_a_row_that_would_decide_every_rate_is_rejected(
    tmp_path: Path, was: str, given: str, reason: str
):
    at = SACCT.strip().split("|").index(was)
    cells = GOOD.strip().split("|")
    cells[0], cells[at] = "2", given
    path = tmp_path / "sacct.psv"
    path.write_text(SACCT + GOOD + "|".join(cells) + "\n")
    batches = read_all(named("slurm-sacct"), path, UTC)
    assert [row["job_id"] for row in rows_of(batches, "attempts")] == ["1"]
    assert [row["reason"] for row in rows_of(batches, "rejects")] == [reason]


def test_progress_and_controller_lines_of_no_real_year_are_rejected(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    event = '{"v":1,"run":"r","time":%s,"event":"step","step":1,"duration_s":%s}\n'
    path.write_text(event % ("253402300798", "1") + event % ("1770000000", "1e10"))
    assert rejected(path, "progress") == ["bad-timestamp", "bad-duration"]
    path.write_text("[9999-12-31T23:59:59] requeue job JobId=17 due to failure of node n2\n")
    assert rejected(path, "slurmctld-log") == ["bad-timestamp"]


def test_node_lists_in_small_pieces_do_not_fill_memory(tmp_path: Path):
    path = tmp_path / "sacct.psv"
    cells = GOOD.split("|")
    rows = []
    for k in range(40):
        cells[0], cells[7] = str(k + 1), f"x{k}y[0-199999]"
        rows.append("|".join(cells))
    path.write_text(SACCT + "".join(rows))
    tracemalloc.start()
    try:
        assert rejected(path, "slurm-sacct") == ["bad-node-list"] * 40
        assert tracemalloc.get_traced_memory()[1] < 600e6
    finally:
        tracemalloc.stop()


SINFO = "Mon Feb  2 10:00:00 2026\nNODELIST NODES PARTITION STATE CPUS MEMORY\n"
LONG = "x" * 100_000
# line of a file that holds all nodes at once -> the reason for which all but the first are rejected
BOMBS = {
    "topology": ("slurm-topology", "SwitchName=s%d Nodes=x%dy[0-199999]\n", "bad-node-list"),
    "switches": ("slurm-topology", "SwitchName=s%d Switches=x%dy[0-199999]\n", "bad-node-list"),
    "sinfo": ("slurm-inventory", "x%dy[%d-199999] 200000 p idle 8 1000\n", "bad-node"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_many_lists_of_one_file_do_not_fill_memory(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """A tenth of the limits, and of the memory: to trace millions of texts takes a minute."""
    monkeypatch.setattr(node_lists, "MOST_NODES", node_lists.MOST_NODES // 10)
    monkeypatch.setattr(node_lists, "MOST_NAMED", node_lists.MOST_NAMED // 10)
    source, line, reason = BOMBS[kind]
    path = tmp_path / "bomb.txt"
    lines = [line.replace("99999", "9999") % (k, k) for k in range(6)]
    path.write_text((SINFO if kind == "sinfo" else "") + "".join(lines))
    tracemalloc.start()
    try:
        batches = read_all(named(source), path, UTC)
        assert tracemalloc.get_traced_memory()[1] < 600e6
    finally:
        tracemalloc.stop()
    assert [row["reason"] for row in rows_of(batches, "rejects")] == [reason] * 5
    (made,) = batches
    others = made.rows_rejected + made.rows_folded + made.rows_skipped
    assert made.rows_read == made.rows_kept + others == 6


def test_lists_that_name_the_same_nodes_over_and_over_end_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node_lists, "MOST_NAMED", 500)
    path = tmp_path / "topology.conf"
    path.write_text("".join(f"SwitchName=s{k} Nodes=n[0-{99 - k}]\n" for k in range(20)))
    details = [
        row["detail"] for row in rows_of(read_all(named("slurm-topology"), path, UTC), "rejects")
    ]
    assert details == ["the lists of the file name more than 500 nodes in all"] * 15


def test_a_large_site_has_its_whole_topology(tmp_path: Path):
    of_leaf, of_middle, n = 20, 600, 30_000
    leaves = [f"n[{first}-{first + of_leaf - 1}]" for first in range(0, n, of_leaf)]
    lines = [f"SwitchName=l{k} Level=0 Nodes={listed}" for k, listed in enumerate(leaves)]
    lines += [f"BlockName=b{k} Nodes={listed}" for k, listed in enumerate(leaves)]
    lines += [
        f"SwitchName=m{k} Level=1 Nodes=n[{k * 600}-{k * 600 + 599}] Switches=l[{k * 30}-"
        f"{k * 30 + 29}]"
        for k in range(n // of_middle)
    ]
    lines.append(f"SwitchName=t Level=2 Nodes=n[0-{n - 1}] Switches=m[0-{n // of_middle - 1}]")
    path = tmp_path / "topology.conf"
    path.write_text("\n".join(lines) + "\n")
    batches = read_all(named("slurm-topology"), path, UTC)
    nodes = rows_of(batches, "nodes")
    assert (len(nodes), sum(made.rows_rejected for made in batches)) == (n, 0)
    assert all(row["switch"] and row["pod"] and row["rack"] for row in nodes)


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("slurm-topology", f"SwitchName={LONG} Nodes=n[0-199999]\n", "bad-topology"),
        ("slurm-topology", f"SwitchName=s Nodes={LONG}[0-199999]\n", "bad-node-list"),
        ("slurm-topology", f"SwitchName=s Nodes={LONG}[0-9]x[0-9999]\n", "bad-node-list"),
        ("slurm-topology", "BlockName=b1 Switches=s[1-2]\n", "bad-topology"),
        ("slurm-inventory", f"{SINFO}n[0-199999] 200000 {LONG} idle 8 1000\n", "bad-node"),
    ],
)
def test_a_long_name_is_not_written_once_for_each_node(
    tmp_path: Path, source: str, line: str, reason: str
):
    path = tmp_path / "bomb.txt"
    path.write_text(line)
    assert rejected(path, source) == [reason]


def test_many_nodes_of_many_jobs_come_in_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sacct, "_MOST_ALLOCATIONS", 2000)
    path = tmp_path / "sacct.psv"
    cells = GOOD.split("|")
    cells[6], cells[7] = "100", "n[0-99]"
    rows = ["|".join([str(k + 1), *cells[1:]]) for k in range(45)]
    path.write_text(SACCT + "".join(rows))
    batches = read_all(named("slurm-sacct"), path, UTC)
    sizes = [len(rows_of([batch], "allocations")) for batch in batches]
    assert [sum(b.rows_read for b in batches), sum(b.rows_kept for b in batches)] == [45, 45]
    assert sum(sizes) == 4500
    assert max(sizes) <= 2100


def test_bytes_of_latin_1_are_read_as_such(tmp_path: Path):
    path = tmp_path / "sacct.psv"
    head = SACCT.replace("NodeList", "NodeList|JobName")
    row = GOOD.replace("|n1|", "|n1|r\xe9glage|")
    path.write_bytes((head + row).encode("latin-1"))
    (attempt,) = rows_of(read_all(named("slurm-sacct"), path, UTC), "attempts")
    assert attempt["name"] == "réglage"


XID = (
    "[Tue Feb  3 12:00:%02d 2026] NVRM: Xid (PCI:0000:07:00): 79, pid=1, "
    "GPU has fallen off the bus.\n"
)
EVENT = '{"v":1,"run":"r","job":"1","time":1770000000,"event":"step","step":1,"duration_s":1}\n'


@pytest.mark.parametrize("foreign", [EVENT, "03/01/2026 10:00:00;Q;101.atlas;queue=gpu\n"])
@pytest.mark.parametrize("place", [0, 1, 29])
def test_a_line_that_a_job_wrote_into_a_kernel_log_makes_it_no_other_log(
    store: Store, tmp_path: Path, foreign: str, place: int
):
    lines = [XID % second for second in range(30)]
    lines.insert(place, foreign)
    path = tmp_path / "n1.log"
    path.write_text("".join(lines))
    done = ingest_file(store, path, UTC)
    assert (done.source, done.rows_kept) == ("kernel-xid", 30)


def test_a_log_of_which_nothing_was_kept_is_a_loud_note(store: Store, tmp_path: Path):
    path = tmp_path / "sacct.psv"
    path.write_text(SACCT + GOOD.replace("2026-", "1926-"))
    (note,) = [one for one in ingest_file(store, path, UTC).notes if "NO RECORD" in one]
    assert note == (
        "NO RECORD WAS KEPT: it was read as slurm-sacct, and of 1 record 1 could not be used "
        "(1 bad-timestamp); if it is another kind of log, name it with --source"
    )


@pytest.mark.parametrize("text", [SACCT, ""])
def test_a_dump_without_rows_is_a_note_among_others_and_an_error_alone(
    store: Store, tmp_path: Path, text: str
):
    empty, more, full = (tmp_path / name for name in ("empty.psv", "more.psv", "full.psv"))
    empty.write_text(text)
    more.write_text(text)
    full.write_text(SACCT + GOOD)
    said: list[str] = []
    with pytest.raises(SourceError, match=r"holds no record of slurm-sacct|is empty"):
        ingest_all(store, [empty, more], UTC, None, said.append)
    assert (said, store.files()) == ([], ())
    (done,) = ingest_all(store, [empty, full], UTC, None, said.append)
    assert done.rows_kept == 1
    assert [one.startswith(str(empty)) for one in said if "nothing was stored" in one] == [True]


@pytest.mark.parametrize(
    "header",
    [
        "JobID|State|Start|Submit|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n",
        "Cluster|JobIDRaw|State|Submit\n",
        "JobID,State,Submit,Start,End\n",
    ],
)
def test_two_dumps_of_other_columns_in_one_file_are_a_loud_note(
    store: Store, tmp_path: Path, header: str
):
    path = tmp_path / "sacct.psv"
    path.write_text(SACCT + GOOD + header + GOOD.replace("1|F", "2|F", 1))
    (note,) = [one for one in ingest_file(store, path, UTC).notes if "COLUMNS" in one]
    assert note.startswith("1 MORE HEADER WITH OTHER COLUMNS: what follows was read by the columns")


def test_headers_with_other_columns_are_counted_each(store: Store, tmp_path: Path):
    path = tmp_path / "sacct.psv"
    others = "Cluster|JobIDRaw|JobID|State|Submit\n", "JobID,State,Submit,Start,End\n"
    path.write_text(SACCT + GOOD + "".join(others) + GOOD.replace("1|F", "2|F", 1) + "JobI")
    (note,) = [one for one in ingest_file(store, path, UTC).notes if "COLUMNS" in one]
    assert note.startswith("2 MORE HEADERS WITH OTHER COLUMNS")


def test_a_job_that_names_itself_like_a_header_and_a_repeated_header_are_none(
    store: Store, tmp_path: Path
):
    path = tmp_path / "sacct.psv"
    named = "JobID|State|Submit|Start|End|JobName\n"
    row = "1|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|JobID\n"
    path.write_text(named + row + named + row.replace("1", "2", 1))
    done = ingest_file(store, path, UTC)
    assert done.rows_kept == 2
    assert not [one for one in done.notes if "COLUMNS" in one]
