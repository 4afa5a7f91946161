"""Whatever the bytes: a SourceError, a UsageError, or every record accounted for."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions
from ettr.sources.limits import MOST_NODES
from ettr.sources.node_lists import NodeLists, expand_nodes, listed_nodes
from ettr.sources.origin import HEAD_BYTES, Origin
from ettr.sources.slurm import events as slurm_events
from ettr.sources.slurm import inventory as slurm_inventory
from ettr.sources.slurm import sacct
from ettr.sources.slurm import sacct as slurm_sacct
from ettr.sources.slurm import sacct_json as slurm_sacct_json
from ettr.sources.slurm import slurmctld as slurmctld_log
from ettr.tables import TABLES

SACCT = (
    b"JobID|JobName|State|Submit|Start|End|Elapsed|NodeList|NNodes|AllocTRES|Comment\n"
    b"1|a|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T00:01:01|01:00|n[1-2]|2||\n"
    b"1.0|a|FAILED|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T00:01:01|01:00|n1|1||\n"
    b"2_3|<script>|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:00:01|Unknown|01:00|n1|1|x=1|=1+1\n"
)
EVENTS = (
    b"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    b"c|n1|2026-01-01T00:00:00|Unknown|DOWN*|Not responding|root(0)\n"
    b"c||2026-01-01T00:00:00|Unknown||Cluster Registered TRES|\n"
    b"c|../n2|2026-01-01T00:00:00|2026-01-01T00:00:09|DRAIN|a|b|root(0)\n"
)
CTLD = (
    b"[2026-01-01T00:00:00.123] requeue job JobId=17 due to failure of node n2\n"
    b"[2026-01-01T00:00:00.123] error: Nodes n[1-3] not responding, setting DOWN\n"
    b"[2026-01-01T00:00:01] preempted JobId=7_0(10) has been killed to reclaim resources for "
    b"JobId=8+1(9)\n"
)
SCONTROL = (
    b"NodeName=n1 Arch=x86_64 CoresPerSocket=16\n   CPUTot=16\n   Gres=gpu:h100:8(S:0-1)\n"
    b"   RealMemory=64000\n   State=IDLE+DRAIN\n   Partitions=a,b\n"
    b"   Reason=XID 79 [root@2026-01-01T00:00:00]\n\n"
)
JSON = (
    b'{"jobs": [{"job_id": 1, "state": {"current": "COMPLETED"}, "time": {"start": 1795256191, '
    b'"submission": 1795256190, "elapsed": 5, "end": 1795256196}, "nodes": "n1", "steps": []}]}'
)
CASES = (
    (slurm_sacct.SOURCE, SACCT),
    (slurm_events.SOURCE, EVENTS),
    (slurmctld_log.SOURCE, CTLD),
    (slurm_inventory.SOURCE, SCONTROL),
    (slurm_sacct_json.SOURCE, JSON),
)
OPTIONS = (
    ReadOptions(timezone="UTC"),
    ReadOptions(timezone="Europe/Paris", cluster="c"),
    ReadOptions(),
    ReadOptions(timezone="UTC", fields=("JobID", "State", "Start", "Elapsed")),
)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The sample with pieces cut, doubled, or replaced by other bytes."""
    place = st.integers(0, len(whole))
    noise = st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [
                b"|",
                b"\n",
                b"\r",
                b"\x00",
                b"\xff",
                b"\x1f",
                b"[",
                b"9" * 30,
                b"||\n",
                b"2026-99-99T00:00:00",
                b"0001-01-01T00:00:00",
                b"9999-12-31T23:59:59",
                b"99999999999",
                b"1e400",
                b"-1",
                b"99999999999:00",
                b"n[1-999999999]",
                b"@all",
                b"\x1b[2J",
                b"{",
            ]
        ),
    )
    return st.lists(st.tuples(place, place, noise), max_size=5).map(
        lambda cuts: _apply(whole, cuts)
    )


def _apply(whole: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    for first, last, piece in cuts:
        low, high = sorted((first, last))
        whole = whole[:low] + piece + (whole[low:high] if len(piece) % 2 else b"") + whole[high:]
    return whole


@pytest.mark.slow
@pytest.mark.parametrize(("source", "whole"), CASES, ids=lambda each: getattr(each, "name", ""))
def test_whatever_the_bytes_every_record_is_accounted_for(source, whole):
    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(st.one_of(damaged(whole), st.binary(max_size=300)), st.sampled_from(OPTIONS))
    @example(whole, OPTIONS[0])
    @example(b"", OPTIONS[0])
    @example(whole * 3, OPTIONS[0])
    def check(data, options):
        score = source.matches(data[:HEAD_BYTES], "file")
        assert 0 <= score <= 1
        source.prints_local(data[:HEAD_BYTES])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            path.write_bytes(data)
            with contextlib.suppress(SourceError, UsageError):
                batches = list(source.read(Origin(path, "f", data[:HEAD_BYTES]), options))
                assert_accounted(batches)

    check()


def assert_accounted(batches: list) -> None:
    for batch in batches:
        for table_name, table in batch.tables.items():
            TABLES[table_name].check(table)
        rejected = batch.tables["rejects"].num_rows if "rejects" in batch.tables else 0
        assert rejected == batch.rows_rejected
    kinds = ("rows_read", "rows_kept", "rows_rejected", "rows_folded", "rows_skipped")
    read, *others = (sum(getattr(batch, kind) for batch in batches) for kind in kinds)
    assert read == sum(others)


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.sampled_from(["n", "gpu-a", "cpn-f13-03-", "x%y"[:1], "rack1node"]),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 5)), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_the_short_way_of_expanding_node_lists_agrees_with_clustershell(prefix, ranges, width):
    from ClusterShell.NodeSet import NodeSet

    parts = [
        f"{low:0{width}d}" + (f"-{low + more:0{width}d}" if more else "") for low, more in ranges
    ]
    text = f"{prefix}[{','.join(parts)}]"
    assert sorted(expand_nodes(text)) == sorted(NodeSet(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n1,n2,n1", ("n1", "n2")),
        (
            "cpn-f13-03-[01-02],cpn-f13-04-[01-02]",
            ("cpn-f13-03-01", "cpn-f13-03-02", "cpn-f13-04-01", "cpn-f13-04-02"),
        ),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[8-10]", ("n8", "n9", "n10")),
    ],
)
def test_node_lists(text, names):
    assert expand_nodes(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "@all",
        "n[1-",
        "n[1-99999999999]",
        f"n[0-{MOST_NODES}]",
        "a&b",
        "n[1-900]x[1-900]",
        "n1!n2",
        "",
        "n*",
        "a b",
        "n[3-1]",
    ],
)
def test_what_is_no_node_list_is_refused_without_asking_anyone(text):
    with pytest.raises(ValueError, match=r"not a list of nodes|absurd|names no node"):
        expand_nodes(text)


@pytest.mark.parametrize("text", ["[1-2]10000000000", "n[001-010,015]010000000000"])
def test_a_number_that_is_too_large_for_clustershell_makes_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of nodes"):
        expand_nodes(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("n1", 1),
        ("a,b,a", 3),
        ("n[1-4,6-8]", 7),
        ("n[08-11]", 4),
        ("r[1-2]n[1-3]", 6),
        ("n[5-2]", 1),
    ],
)
def test_a_list_is_counted_without_expanding_it(text: str, count: int) -> None:
    assert listed_nodes(text) == count


def test_a_megabyte_of_separators_in_a_record_is_not_taken_apart() -> None:
    header = b"JobID|State|Submit|JobName|Comment|SubmitLine|WorkDir"
    layout = sacct.RecordLayout(sacct.fields_of_header(header, b"|"), b"|")
    texts = b"n|c|sbatch " + b"|" * (1 << 20)
    block = b"1|FAILED|2026-01-01T00:00:00|" + texts + b"|/a\n"
    tracemalloc.start()
    try:
        found = sacct.split_records(block, layout, None)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert (found.repaired, found.data.count(b"|"), len(found.broken)) == (1, 6, 0)


def test_a_high_number_in_a_list_of_one_node_makes_no_other_names() -> None:
    lists = NodeLists()
    tracemalloc.start()
    try:
        for rack in range(20):
            assert lists(f"x{rack}y[199999]") == (f"x{rack}y199999",)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_lists_of_one_prefix_agree_with_themselves_in_any_order() -> None:
    texts = ["n[0900-0907]", "n[0001-0500]", "n[0880-0904,0001]", "n[0001-0999]", "n[7]", "n[5-12]"]
    for order in (texts, texts[::-1]):
        lists = NodeLists()
        assert [lists(text) for text in order] == [expand_nodes(text) for text in order]
