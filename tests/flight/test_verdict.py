"""Who holds a job up, from records whose culprit is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ettr.errors import SourceError, UsageError
from ettr.flight import FlightVerdict, judge, read_folder
from flight.records import BEGAN_NS, calls, entry, record, write

FORMS = ("json", "spaced", "2")
Records = dict[int, dict[str, Any]]


def verdict(folder: Path, records: Records, form: str = "json", **known: Any) -> FlightVerdict:
    return judge(read_folder(write(folder, records, form)), **known)


def culprits(found: FlightVerdict) -> list[int]:
    return [one.rank for one in found.culprits]


def one_missing(name: str = "gloo:all_reduce", **facts: Any) -> Records:
    """Rank 2 of four did not start collective 7."""
    return {
        rank: record(calls(6, True, name=name) if rank == 2 else calls(7, name=name), **facts)
        for rank in range(4)
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["gloo:all_reduce", "nccl:all_reduce"])
def test_a_rank_that_did_not_start_it(tmp_path: Path, form: str, name: str) -> None:
    found = verdict(tmp_path, one_missing(name), form)
    assert (found.verdict, culprits(found)) == ("missing", [2])
    (stuck,) = found.stuck
    assert (stuck.seq, stuck.name, stuck.started, stuck.missing) == (7, name, (0, 1, 3), (2,))


@pytest.mark.parametrize("form", FORMS)
def test_another_collective_in_its_place(tmp_path: Path, form: str) -> None:
    records = {rank: record(calls(7)) for rank in range(4)}
    records[1]["entries"][-1]["profiling_name"] = "gloo:broadcast"
    found = verdict(tmp_path, records, form)
    assert (found.verdict, culprits(found)) == ("mismatch", [1])
    assert dict(found.stuck[0].calls) == {"gloo:all_reduce 4": 3, "gloo:broadcast 4": 1}


def test_other_sizes_are_a_mismatch_but_not_of_a_scatter(tmp_path: Path) -> None:
    for name, expected in (("gloo:all_reduce", [3]), ("gloo:scatter", [])):
        records = {rank: record(calls(7, name=name)) for rank in range(4)}
        records[3]["entries"][-1]["input_sizes"] = [[8]]
        assert culprits(verdict(tmp_path / name[5:], records)) == expected


def test_a_rank_without_a_record(tmp_path: Path) -> None:
    records = {rank: record(calls(7)) for rank in (0, 1, 2)}
    found = verdict(tmp_path, records, ranks=4)
    assert (found.verdict, culprits(found), found.without_record) == ("no record", [3], (3,))
    unknown = judge(read_folder(tmp_path))
    assert (unknown.verdict, culprits(unknown)) == ("all inside", [])
    assert "--ranks" in unknown.reasons[0], "who does not know must say so"


def test_the_number_of_ranks_is_read_from_nccls_default_group(tmp_path: Path) -> None:
    records = {
        rank: record(calls(7, name="nccl:all_reduce"), {"0": [0, 1, 2, 3]}) for rank in (0, 1, 2)
    }
    assert culprits(verdict(tmp_path, records)) == [3]


def test_the_culprit_of_a_sub_group_is_outside_of_it(tmp_path: Path) -> None:
    """0 waits for 1 in one group, and 1 for 2 in another."""
    members = {"5": [0, 1], "6": [1, 2]}
    first, second = ("5", "tp"), ("6", "pp")
    records = {
        0: record(calls(3, group=first, name="nccl:all_reduce"), members),
        1: record(
            calls(2, True, group=first, name="nccl:all_reduce")
            + calls(4, group=second, name="nccl:all_reduce"),
            members,
        ),
        2: record(calls(3, True, group=second, name="nccl:all_reduce"), members),
    }
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("missing", [2])
    assert {one.group: one.missing for one in found.stuck} == {"5": (1,), "6": (2,)}


def test_groups_called_in_different_orders_are_a_circle(tmp_path: Path) -> None:
    members = {"5": [0, 1], "6": [0, 1]}
    records = {
        rank: record([entry(1, "nccl:all_reduce", group=(group, ""), done=False)], members)
        for rank, group in ((0, "5"), (1, "6"))
    }
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("circular wait", [])


def test_two_groups_hang_at_once(tmp_path: Path) -> None:
    groups = {0: "5", 1: "5", 2: "6", 3: "6"}
    records = {
        rank: record(calls(3 - rank % 2, rank % 2 == 1, group=(name, "dp")))
        for rank, name in groups.items()
    }
    found = verdict(tmp_path, records)
    assert culprits(found) == [1, 3]
    assert [one.culprits for one in found.stuck] == [(1,), (3,)]


def test_a_wrapped_record_says_nothing_of_what_it_overwrote(tmp_path: Path) -> None:
    wrapped = record([entry(900, group=("1", "other"), record_id=4000)])
    records = {0: record(calls(7)), 1: record(calls(7)), 2: wrapped}
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("cannot tell", [])
    assert found.stuck[0].overwritten == (2,)
    assert "TORCH_FR_BUFFER_SIZE" in found.reasons[0]


def test_a_wrapped_record_that_reaches_back_far_enough_is_as_good(tmp_path: Path) -> None:
    records = {rank: record([entry(seq) for seq in range(400, 410)]) for rank in range(3)}
    for rank in (0, 1):
        records[rank]["entries"].append(entry(410, done=False))
    assert culprits(verdict(tmp_path, records)) == [2]


def test_records_written_after_the_timeout_blame_nobody(tmp_path: Path) -> None:
    """Gloo retires the call that timed out; a rank that lacks it may have come to it later."""
    records = one_missing()
    for rank in (0, 1, 3):
        records[rank]["entries"][-1]["retired"] = True
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("cannot tell", [])
    assert "while it hangs" in found.reasons[0]


def test_nccl_says_itself_that_it_gave_up(tmp_path: Path) -> None:
    records = one_missing("nccl:all_reduce")
    for rank in (0, 1, 3):
        records[rank]["entries"][-1] |= {"retired": True, "state": "started"}
    assert verdict(tmp_path, records).verdict == "cannot tell"


def test_a_rank_whose_record_is_older_than_the_call_is_not_missing(tmp_path: Path) -> None:
    """Rank 2's record was written before anybody called collective 7."""
    records = {}
    for rank, document in one_missing().items():
        seconds = 6.5 if rank == 2 else 20
        facts = {"rank": rank, "world_size": 4, "written_ns": BEGAN_NS + int(seconds * 1e9)}
        records[rank] = document | {"ettr": facts}
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("cannot tell", [])


def test_a_watcher_that_wrote_nothing_this_time_counts_as_no_record(tmp_path: Path) -> None:
    """Rank 2's record is of a stall an hour before; it was stopped since."""
    records = {}
    for rank, document in one_missing().items():
        seconds = 6.5 if rank == 2 else 3600
        facts = {"rank": rank, "world_size": 4, "after_s": 60.0, "reason": "stall"}
        records[rank] = document | {"ettr": facts | {"written_ns": BEGAN_NS + int(seconds * 1e9)}}
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("no record", [2])


@pytest.mark.parametrize(("reason", "kind"), [("moved", "no record"), ("stall", "missing")])
def test_a_watcher_whose_record_is_of_an_earlier_pause(
    tmp_path: Path, reason: str, kind: str
) -> None:
    """Rank 2 paused before collective 6. It went on and was stopped, or it never went on."""
    records = {}
    for rank, document in one_missing().items():
        seconds = 6.5 if rank == 2 else 9
        facts = {"rank": rank, "world_size": 4, "after_s": 1.5, "reason": "stall"}
        facts |= {"written_ns": BEGAN_NS + int(seconds * 1e9)}
        records[rank] = document | {"ettr": facts | ({"reason": reason} if rank == 2 else {})}
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == (kind, [2])


def test_late_is_not_missing(tmp_path: Path) -> None:
    records = {
        rank: record([entry(seq, after_s=5.5 * (rank == 1 and seq == 4)) for seq in range(1, 6)])
        for rank in range(4)
    }
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("late", [1])
    assert found.late[0].longest_s == pytest.approx(5.5)
    assert found.stuck == ()


def test_calls_in_flight_are_no_hang(tmp_path: Path) -> None:
    """A watcher that writes after a minute's stall met the next call half a second old."""
    records = {}
    for rank, document in one_missing().items():
        facts = {"rank": rank, "world_size": 4, "after_s": 60.0, "reason": "moved"}
        records[rank] = document | {"ettr": facts | {"written_ns": BEGAN_NS + int(7.5e9)}}
    assert verdict(tmp_path, records).verdict == "nothing hangs"


def test_a_root_that_is_ahead_is_no_hang(tmp_path: Path) -> None:
    """The root of a broadcast has ended it before the others come to it."""
    records = {rank: record(calls(6, True)) for rank in range(3)}
    records[0]["entries"].append(entry(7, "gloo:broadcast"))
    assert verdict(tmp_path, records).verdict == "nothing hangs"


def test_a_receive_waits_for_its_peer(tmp_path: Path) -> None:
    members = {"0": [0, 1, 2]}
    waits = entry(1, "nccl:recv 0<-2", done=False, is_p2p=True, p2p_seq_id=1)
    records = {rank: record([], members) for rank in range(3)}
    records[0] = record([waits], members)
    found = verdict(tmp_path, records)
    assert (found.verdict, culprits(found)) == ("missing", [2])


def test_only_the_last_entry_of_a_coalesced_call_has_a_state(tmp_path: Path) -> None:
    """NCCL leaves the parts as scheduled, whatever becomes of them."""
    parts = [entry(1, "nccl:all_gather", done=False), entry(1, "nccl:coalesced", done=True)]
    records = {rank: record(parts) for rank in range(2)}
    assert verdict(tmp_path, records).verdict == "nothing hangs"


def test_nodes_come_from_the_launch_the_record_or_the_folder(tmp_path: Path) -> None:
    found = verdict(tmp_path / "a", one_missing(), nodes={2: "n7"})
    assert found.culprits[0].node == "n7"
    stated = one_missing()
    stated[2]["ettr"] = {"rank": 2, "node": "n8"}
    assert verdict(tmp_path / "b", stated).culprits[0].node == "n8"
    for rank, document in one_missing().items():
        write(tmp_path / "c" / f"host{rank // 2}", {rank: document})
    assert judge(read_folder(tmp_path / "c")).culprits[0].node == "host1"


def test_more_records_than_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="record of rank 3"):
        verdict(tmp_path, one_missing(), ranks=2)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no flight record"):
        read_folder(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        read_folder(tmp_path / "absent")


def test_recorders_that_were_all_empty_show_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path, {rank: record([]) for rank in range(4)})
    assert (found.verdict, culprits(found)) == ("cannot tell", [])
    assert "records without entries" in found.reasons[0]
