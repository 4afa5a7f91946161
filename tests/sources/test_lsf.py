"""lsb.acct: exit statuses, GPUs in requirements, runs of one job, and lines that are damaged."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.program import ettr
from ettr.sources.lsf import SOURCE, matches
from ettr.sources.registry import recognise
from source_samples import SAMPLES, counts_of, read_all, rows_of

SUBMIT = 1772359200
QUOTES = (SAMPLES / "lsf" / "lsb.acct").read_text().split("\n")[0]


def record(
    *,
    start: int = SUBMIT,
    end: int = SUBMIT + 3600,
    hosts: tuple[str, ...] = ("g1", "g2"),
    status: int = 32,
    code: int = 0,
    why: int = 0,
    asked: str = "",
    option: str = "",
    effective: str = "",
    asked_slots: int = 2,
) -> str:
    """One JOB_FINISH record of version 10.1, field by field after the documented order."""
    listed = " ".join(f'"{host}"' for host in hosts)
    rusage = " ".join(["-1"] * 19)
    pairs = f'1 1110 "{option}"' if option else "0"
    return (
        f'"JOB_FINISH" "10.1" {end} 7 1001 33554434 {asked_slots} {SUBMIT} 0 0 {start} "eva" "gpu" '
        f'"{asked}" "" "" "login1" "/home" "" "" "" "f" 0 {len(hosts)} {listed} {status} 60.0 "t" '
        f'"run" {rusage} "" "ml" {code} 2 "" "" 0 2048 0 "" "" "" "" 0 "" {why} "" -1 "" "" "" "" '
        f'-1 "" "" 5136 "" {start} "" "" {pairs} 0 -1 4194304 1024 "{effective}" "" -1'
    ).replace("  ", " ")


def attempts(folder: Path, *lines: str) -> list[dict[str, Any]]:
    log = folder / "lsb.acct"
    log.write_text("\n".join(lines) + "\n")
    return rows_of(read_all(SOURCE, log), "attempts")


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [
        (0, 0, None),
        (3 << 8, 3, None),
        (9, None, 9),
        (9 | 0x80, None, 9),  # with a core file
        (130 << 8, None, 2),  # LSF adds 128 to the signal
        (255 << 8, 255, None),  # beyond any signal
        (1 << 20, None, None),
    ],
)
def test_the_exit_status_is_that_of_wait(tmp_path: Path, status: int, code, signal):
    (row,) = attempts(tmp_path, record(code=status))
    assert (row["exit_code"], row["exit_signal"]) == (code, signal)


@pytest.mark.parametrize(
    ("requirement", "gpus"),
    [
        ({"effective": "select[ngpus>0] rusage[ngpus_physical=4.00/host]"}, 8),
        ({"effective": "rusage[ngpus_physical=2.00]"}, 4),
        ({"effective": "rusage[mem=10,ngpus_excl_p=1] span[ptile=1]"}, 2),
        ({"asked": "rusage[ngpus_physical=1]"}, 2),
        ({"option": "num=3/task:mode=shared:mps=no"}, 6),
        ({"option": "num=8:j_exclusive=yes"}, 16),
        ({"effective": "rusage[ngpus_physical=0]"}, 0),
        # what counts none, or not for all hosts alike
        ({}, None),
        ({"effective": "select[ngpus==4] order[ut]"}, None),
        ({"effective": "rusage[ngpus_shared=1]"}, None),
        ({"effective": "1*{rusage[ngpus_physical=1]}+1*{rusage[mem=1]}"}, None),
        ({"effective": "rusage[ngpus_physical=1||ngpus_physical=2]"}, None),
        ({"effective": "rusage[ngpus_physical=999999]"}, None),
        # each host once, although more slots were asked for: how many per host is not said
        ({"option": "num=1/task", "asked_slots": 4}, None),
    ],
)
def test_gpus_are_those_that_the_requirements_state(tmp_path: Path, requirement, gpus):
    (row,) = attempts(tmp_path, record(**requirement))
    assert row["n_gpus"] == gpus


def test_a_record_without_the_later_fields_has_no_gpus(tmp_path: Path):
    whole = record(effective="rusage[ngpus_physical=4]")
    (row,) = attempts(tmp_path, whole[: whole.index(" 4194304")])
    assert (row["n_nodes"], row["n_gpus"]) == (2, None)


@pytest.mark.slow
def test_a_requeued_job_is_two_attempts(tmp_path: Path):
    first = record(why=11, end=SUBMIT + 600)
    again = record(status=64, start=SUBMIT + 900)
    (tmp_path / "lsb.acct").write_text(f"{first}\n{again}\n{again}\n")
    assert ettr("ingest", tmp_path / "store", tmp_path / "lsb.acct").code == 0
    done = ettr("status", tmp_path / "store", "--json")
    assert {e["state"]: e["attempts"] for e in done.json["states"]} == {
        "COMPLETED": 1,
        "REQUEUED": 1,
    }


def test_the_end_of_the_post_execution_command_is_not_that_of_the_job(tmp_path: Path):
    assert attempts(tmp_path, record(status=64 | 128))[0]["state"] == "COMPLETED"
    assert attempts(tmp_path, record(status=32 | 256))[0]["state"] == "FAILED"


def test_a_record_cut_anywhere_before_the_reason_is_rejected(tmp_path: Path):
    log = tmp_path / "lsb.acct"
    text = record(why=14)
    end = text.index(' 14 "" -1 ') + len(" 14")
    log.write_text("\n".join(text[:n] for n in range(20, end + 1)))
    batches = read_all(SOURCE, log)
    assert not rows_of(batches, "attempts")
    read, rejected, skipped = counts_of(batches)
    assert (read, skipped) == (rejected, 0)


def test_the_log_of_events_is_not_taken_for_it():
    line = f'"JOB_NEW" "10.1" {SUBMIT} 7 1001 33554434 2 {SUBMIT} 0 0 0 "eva"\n'
    assert matches(line.encode(), "lsb.acct") == 0
    assert recognise((record() + "\n").encode(), "x") is SOURCE
    # a job can write such a line into a log of something else
    assert matches(b"step\n" * 9 + record().encode(), "x") < 1


@pytest.mark.slow
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_line_ends_the_reading(tmp_path: Path, data: st.DataObject):
    fields = QUOTES.split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(fields) - 1))
        fields[place] = data.draw(
            st.text(max_size=6) | st.sampled_from(['"', '""', "-1", "9" * 40])
        )
    broken = " ".join(fields).replace("\n", " ").replace("\r", " ")
    log = tmp_path / "lsb.acct"
    log.write_text(f"{broken}\n{QUOTES}\n", encoding="utf-8", errors="replace")
    batches = read_all(SOURCE, log)
    kinds = ("rows_kept", "rows_rejected", "rows_folded", "rows_skipped")
    assert counts_of(batches)[0] == sum(getattr(b, kind) for b in batches for kind in kinds)
    assert rows_of(batches, "attempts")[-1]["job_id"] == "101"
