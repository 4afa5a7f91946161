"""Records that are torn, foreign or meant to do harm: refused with a reason, the rest is read."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest

from ettr.flight import judge, read_folder
from ettr.flight.record import Signatures, load_builtins, read_record
from flight.records import calls, entry, record, write


class Harm:
    """Calls a function when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def nested_key(protocol: int, depth: int = 60) -> bytes:
    """A dict whose key is a tuple that hashes in 2^depth steps."""
    made = bytes([0x80, protocol]) + b")q\x00"
    for i in range(depth):
        made += b"h%ch%c\x86q%c" % (i, i, i + 1)
    return made + b"}h%cK\x01s." % depth


WHOLE = json.dumps(record(calls(7)), separators=(",", ":"), sort_keys=True).encode()
BAD: dict[str, bytes] = {
    "torn": WHOLE[: len(WHOLE) // 2],
    "torn pickle": pickle.dumps(record(calls(7)), 2)[:-40],
    "empty": b"",
    "text": b"hello",
    "a list": b"[1, 2]",
    "no version": b"{}",
    "another format": b'{"version":"3.0","entries":[]}',
    "entries of another type": b'{"version":"2.10","entries":{"a":1}}',
    "deep": b'{"version":' * 100_000,
    "a huge number": b'{"version":"2.10","entries":' + b"9" * 100_000 + b"}",
    "no UTF-8": b'{"version":"\xff"}',
    "a class": pickle.dumps(Harm(), 2),
    "a class, protocol 4": pickle.dumps({"version": Harm()}, 4),
    "a class, protocol 0": pickle.dumps(Harm(), 0),
    "bytes": pickle.dumps({"version": b"2.10"}, 4),
    "a set": pickle.dumps({1, 2}, 4),
    "a place of the memo far away": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a longer text than the file": b"\x80\x02X\xff\xff\xff\x7fa.",
    "keys that take exponential time": nested_key(2),
    "the same, protocol 4": nested_key(4),
    "no stack": b"\x80\x02.",
    "items of nothing": b"\x80\x02(u.",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_refused_and_the_others_are_read(tmp_path: Path, name: str) -> None:
    write(tmp_path, {0: record(calls(7)), 1: record(calls(7)), 2: record(calls(6, True))})
    (tmp_path / "nccl_trace_rank_3").write_bytes(BAD[name])
    folder = read_folder(tmp_path)
    (refusal,) = folder.refused
    assert refusal.file == "nccl_trace_rank_3"
    assert refusal.reason
    assert [one.rank for one in judge(folder).culprits] == [2]


WRONG: list[dict[str, Any]] = [
    {"collective_seq_id": "7"},
    {"collective_seq_id": -1},
    {"collective_seq_id": 1 << 64},
    {"process_group": "0"},
    {"process_group": [1, 2]},
    {"input_sizes": [4]},
    {"input_sizes": [[4.5]]},
    {"input_sizes": [[4]] * 10_000},
    {"profiling_name": "x" * 10_000},
    {"profiling_name": None},
    {"retired": "yes"},
    {"time_created_ns": 1.5},
]


@pytest.mark.parametrize("form", ["json", "2"])
@pytest.mark.parametrize("place", range(len(WRONG)))
def test_an_entry_of_wrong_types_is_counted(tmp_path: Path, form: str, place: int) -> None:
    bad = [*calls(6, True), entry(7, done=False, **WRONG[place])]
    folder = write(tmp_path, {0: record(calls(6, True)), 1: record(bad)}, form)
    assert judge(read_folder(folder)).unreadable_entries == 1


@pytest.mark.parametrize("raw", [None, 3, [], "x", {}])
def test_an_entry_that_is_none_is_counted(tmp_path: Path, raw: object) -> None:
    document = record(calls(6, True))
    document["entries"].append(raw)
    assert judge(read_folder(write(tmp_path, {0: document}))).unreadable_entries == 1


def test_members_of_wrong_types_are_not_members(tmp_path: Path) -> None:
    for place, ranks in enumerate(("[[0]]", "[-1]", "[1e9]", "9" * 5000, "[" * 5000, '["a"]')):
        document = record(calls(7))
        document["pg_config"] = {"0": {"ranks": ranks}, "1": 3}
        assert judge(read_folder(write(tmp_path / str(place), {0: document}))).world_size is None


def test_links_pipes_and_odd_names_are_not_opened(tmp_path: Path) -> None:
    write(tmp_path, {0: record(calls(6, True))})
    (tmp_path / "rank_1").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "rank_2")
    (tmp_path / "notes").write_text("x")
    (tmp_path / "rank_999999999").write_text("{}")
    reasons = {one.file: one.reason for one in read_folder(tmp_path).refused}
    assert set(reasons) == {"rank_1", "rank_2", "notes", "rank_999999999"}


def test_the_name_and_the_content_of_a_record_must_agree(tmp_path: Path) -> None:
    write(tmp_path, {0: record(calls(6, True)), 1: record(calls(6, True), rank=5)})
    (refusal,) = read_folder(tmp_path).refused
    assert "rank 5" in refusal.reason


def test_the_newest_record_of_a_rank_counts(tmp_path: Path) -> None:
    write(tmp_path, {0: record(calls(7)), 1: record(calls(6, True))})
    for name, time in (("rank_1.json", 2_000_000_000), ("rank_0.json", 1)):
        (tmp_path / name).write_text(json.dumps(record(calls(7))))
        os.utime(tmp_path / name, (time, time))
    folder = read_folder(tmp_path)
    assert folder.superseded == 2
    assert judge(folder).verdict == "all inside"


def test_no_builtin_is_lost_in_a_pickle_as_pytorch_writes_it() -> None:
    value = {"a": [1, -2, 2**40, 1.5, None, True, (1, 2), ()], "b": {"c": "é" * 300}}
    written = io.BytesIO()
    pickler = pickle.Pickler(written, 2)
    pickler.fast = True  # no tuple in the memo, as PyTorch's
    pickler.dump(value)
    assert load_builtins(written.getvalue()) == value
    for protocol in (2, 3, 4, 5):
        with pytest.raises(ValueError, match="no pickle of builtins as PyTorch writes it"):
            load_builtins(pickle.dumps(value, protocol))


def test_memory_stays_bounded() -> None:
    """Every byte of this pickle becomes an empty list."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lists = b"\x80\x02(" + b"]" * (20 << 20) + b"t."
    with pytest.raises(ValueError, match="larger than"):
        read_record(lists, Signatures())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
