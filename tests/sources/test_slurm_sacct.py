"""`sacct -P` and `--json`: totals of a real log, every end state of a captured Slurm, dirt."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.origin import head_of
from ettr.sources.slurm import sacct as slurm_sacct
from ettr.sources.slurm.attempts import AttemptReader, rows_from_sacct_fields
from ettr.sources.slurm.sacct import SOURCE
from ettr.sources.slurm.sacct_json import SOURCE as JSON_SOURCE
from ettr.tables import TABLES
from ettr.tables.rows import attempt_id
from shared_data import shared
from source_samples import is_as_expected, read_all, samples

UTC_ZONE = ReadOptions(timezone="UTC")


def read(path: Path, options: ReadOptions = UTC_ZONE, source: Source = SOURCE):
    batches = read_all(source, path, options)
    tables: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, table in batch.tables.items():
            tables.setdefault(name, []).append(TABLES[name].check(table))
    whole = {name: pa.concat_tables(parts) for name, parts in tables.items()}
    counts = tuple(
        sum(getattr(batch, f"rows_{what}") for batch in batches)
        for what in ("read", "rejected", "folded", "skipped")
    )
    return whole, counts, [note for batch in batches for note in batch.notes]


def hours(table: pa.Table, count: str | None = None) -> float:
    elapsed = table.column("elapsed_s")
    weighted = elapsed if count is None else pc.multiply(elapsed, table.column(count))
    return pc.sum(weighted).as_py() / 3600


def write(tmp_path: Path, text: str | bytes, name: str = "sacct.psv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_real_clusters_log_gives_the_totals_that_xdmod_expects():
    folder = shared("data/traces/xdmod_slurm")
    with (folder / "expected" / "phillips.csv").open() as file:
        expected = {row["metric"]: float(row["value"]) for row in csv.DictReader(file)}
    tables, counts, notes = read(folder / "phillips.log.zst")
    attempts, allocations = tables["attempts"], tables["allocations"]
    assert counts == (expected["rows"], 0, 0, 0)
    assert attempts.num_rows == 4285
    assert hours(attempts, "n_cpus") == pytest.approx(expected["cpu_hours"], abs=5e-5)
    assert hours(attempts, "n_nodes") == pytest.approx(expected["node_hours"], abs=5e-5)
    assert hours(attempts, "n_gpus") == pytest.approx(expected["gpu_hours"], abs=5e-5)
    assert hours(allocations) == pytest.approx(expected["node_hours"], abs=5e-5)
    assert hours(allocations, "n_gpus") == pytest.approx(expected["gpu_hours"], abs=5e-5)
    idle = pc.and_(pc.equal(attempts["state"], "CANCELLED"), pc.equal(attempts["elapsed_s"], 0))
    assert attempts.num_rows - pc.sum(idle).as_py() == expected["jobs_ended"]
    assert any("XDMoD" in note for note in notes)


END_STATES = Counter(
    COMPLETED=11,
    FAILED=4,
    OUT_OF_MEMORY=2,
    REQUEUED=2,
    NODE_FAIL=2,
    TIMEOUT=1,
    CANCELLED=1,
    PREEMPTED=1,
    PENDING=1,
)


@pytest.mark.parametrize("name", ["sacct_jobs_X_D.psv", "sacct_all_D.psv", "sacct_format_ALL.psv"])
def test_every_attempt_of_a_real_slurm_is_in_its_end_state(name):
    tables, (_, rejected, *_), _ = read(shared("data/slurm_capture") / name)
    rows = tables["attempts"].to_pylist()
    assert rejected == 0
    assert Counter(row["state"] for row in rows) == END_STATES
    by_job: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_job.setdefault(row["job_id"], []).append(row)
    assert [row["state"] for row in by_job["17"]] == ["NODE_FAIL", "COMPLETED"]
    assert [row["state"] for row in by_job["14"]] == ["PREEMPTED", "COMPLETED"]
    assert by_job["6"][0]["cancelled_by"] == "0"
    assert by_job["7_3"][0]["job_id_raw"] == by_job["7_3"][0]["array_job_id"] == "7"
    assert by_job["14"][0]["n_gpus"] == 56
    assert by_job["21"][0]["derived_exit_signal"] == 125
    pending = by_job["22"][0]
    assert (pending["start"], pending["end"], pending["node_list"]) == (None, None, None)
    assert (pending["n_nodes"], pending["n_gpus"]) == (0, 0)
    assert tables["allocations"].num_rows == 47


def test_steps_tell_what_their_job_does_not():
    tables, (rows_read, _, folded, skipped), _ = read(shared("data/slurm_capture/sacct_all_D.psv"))
    by_job = {row["job_id"]: row for row in tables["attempts"].to_pylist()}
    assert (rows_read, folded, skipped) == (56, 31, 0)
    assert (by_job["21"]["state"], by_job["21"]["step_state"]) == ("FAILED", "OUT_OF_MEMORY")
    assert by_job["22"]["step_state"] is None


def same_everywhere(table: pa.Table) -> set[tuple[Any, ...]]:
    columns = [
        "attempt_id",
        "state",
        "start",
        "end",
        "elapsed_s",
        "n_nodes",
        "n_cpus",
        "n_gpus",
        "node_list",
        "time_limit_s",
        "qos",
        "partition",
        "user",
        "name",
    ]
    return {tuple(row.values()) for row in table.select(columns).to_pylist()}


def test_text_with_and_without_steps_every_field_and_json_agree():
    folder = shared("data/slurm_capture")
    shapes = [
        same_everywhere(read(folder / name)[0]["attempts"])
        for name in ("sacct_jobs_X_D.psv", "sacct_all_D.psv", "sacct_format_ALL.psv")
    ]
    from_json = read(folder / "sacct.json", ReadOptions(), JSON_SOURCE)[0]["attempts"]
    assert len(shapes[0]) == 25
    assert shapes[0] == shapes[1] == shapes[2] == same_everywhere(from_json)


def test_without_duplicates_the_earlier_attempts_are_gone():
    tables, _, _ = read(shared("data/slurm_capture/sacct_jobs_X_nodup.psv"))
    assert tables["attempts"].num_rows == 21


@pytest.mark.parametrize("sample", samples("slurm-sacct"), ids=str)
def test_samples_come_out_the_same_in_small_blocks(sample, monkeypatch):
    monkeypatch.setattr(slurm_sacct, "CHUNK_BYTES", 200)
    is_as_expected(sample.read(), sample.expected)


@pytest.mark.slow
def test_blocks_end_where_a_job_ends_whatever_their_size(monkeypatch):
    path = shared("data/slurm_capture/sacct_all_D.psv")
    whole, counts, _ = read(path)
    for chunk in (300, 1000, 5000):
        monkeypatch.setattr(slurm_sacct, "CHUNK_BYTES", chunk)
        again, other_counts, _ = read(path)
        assert other_counts == counts
        assert again["attempts"].equals(whole["attempts"])
        assert again["allocations"].equals(whole["allocations"])


HEADER = "JobID|State|Submit|Start|End|ElapsedRaw|NodeList|Cluster\n"
LOCAL = "7|COMPLETED|2026-07-01T12:00:00|2026-07-01T12:00:05|2026-07-01T13:00:05|3600|n1|c\n"


def test_local_times_need_a_zone_and_those_with_an_offset_do_not(tmp_path):
    path = write(tmp_path, HEADER + LOCAL)
    with pytest.raises(UsageError, match=r"--timezone"):
        read(path, ReadOptions())
    tables, _, _ = read(path, ReadOptions(timezone="Europe/Zurich"))
    assert tables["attempts"]["submit"][0].as_py() == datetime(2026, 7, 1, 10, tzinfo=UTC)
    zoned = write(
        tmp_path,
        HEADER
        + LOCAL.replace("|2026", "|@2026")
        .replace(":00|", ":00-07:00|")
        .replace(":05|", ":05-07:00|")
        .replace("@", ""),
        "zoned.psv",
    )
    assert not SOURCE.prints_local(zoned.read_bytes())
    tables, _, _ = read(zoned, ReadOptions())
    assert tables["attempts"]["submit"][0].as_py() == datetime(2026, 7, 1, 19, tzinfo=UTC)
    with pytest.raises(UsageError, match=r"no such time zone"):
        read(path, ReadOptions(timezone="Mars/Olympus"))


def test_the_hour_that_occurs_twice_is_noted(tmp_path):
    line = "8|COMPLETED|2026-10-25T02:30:00|2026-10-25T02:30:05|2026-10-25T03:30:05|7200|n1|c\n"
    tables, _, notes = read(write(tmp_path, HEADER + line), ReadOptions(timezone="Europe/Berlin"))
    assert tables["attempts"]["submit"][0].as_py() == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert any("2 local times" in n and "twice" in n and "its runtime say" in n for n in notes)


def test_an_hour_that_occurs_twice_and_that_nothing_decides_is_noted(tmp_path):
    line = "8|PENDING|2026-10-25T02:30:00|Unknown|Unknown|0|None assigned|c\n"
    tables, _, notes = read(write(tmp_path, HEADER + line), ReadOptions(timezone="Europe/Berlin"))
    assert tables["attempts"]["submit"][0].as_py() == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert any("1 local time lies" in note and "first of the two" in note for note in notes)


def test_a_reused_job_id_is_another_attempt(tmp_path):
    text = HEADER + LOCAL + LOCAL.replace("2026-07", "2026-08")
    tables, _, _ = read(write(tmp_path, text))
    assert len(set(tables["attempts"]["attempt_id"].to_pylist())) == 2
    row = tables["attempts"].to_pylist()[0]
    assert row["attempt_id"] == attempt_id("c", "7", row["submit"])


def test_what_is_missing_is_said_at_once(tmp_path):
    with pytest.raises(SourceError, match=r"needs State, Submit or Start; found .*jobid"):
        read(write(tmp_path, "JobID|User|Elapsed\n1|a|00:01\n"))
    with pytest.raises(UsageError, match=r"no header and 4 fields.*--fields"):
        read(write(tmp_path, "1|COMPLETED|2026-01-01T00:00:00|10\n"))
    with pytest.raises(SourceError, match=r"not the output of sacct -P"):
        read(write(tmp_path, "hello world\n"))
    with pytest.raises(SourceError, match=r"UTF-16"):
        read(write(tmp_path, (HEADER + LOCAL).encode("utf-16")))


def test_fields_can_be_named_where_there_is_no_header(tmp_path):
    fields = tuple(HEADER.strip().split("|"))
    tables, counts, _ = read(write(tmp_path, LOCAL * 2), ReadOptions(timezone="UTC", fields=fields))
    assert counts == (2, 0, 1, 0)  # the same record twice is one attempt
    assert tables["attempts"].num_rows == 1


def test_it_knows_its_own_and_leaves_the_others(tmp_path):
    folder = shared("data/slurm_capture")
    for path in sorted(folder.iterdir()):
        head = head_of(path)
        assert (SOURCE.matches(head, path.name) == 1.0) == path.name.startswith("sacct_"), path
        assert (JSON_SOURCE.matches(head, path.name) == 1.0) == (path.name == "sacct.json"), path
    assert SOURCE.matches(LOCAL.encode(), "x") == pytest.approx(0.6)
    assert SOURCE.matches(b"a,b,c\n1,2,3\n", "x") == 0


def test_json_of_newer_data_parsers(tmp_path):
    def wrapped(number):
        return {"set": True, "infinite": False, "number": number}

    job = {
        "job_id": 9,
        "array": {"job_id": 7, "task_id": wrapped(2), "task": ""},
        "het": {"job_id": 0, "job_offset": {"set": False, "infinite": False, "number": 0}},
        "cluster": "c",
        "user": "ann",
        "name": "train",
        "partition": "p",
        "qos": "q",
        "state": {"current": ["CANCELLED"], "reason": "None"},
        "kill_request_user": "root",
        "exit_code": {
            "status": ["SIGNALED"],
            "return_code": wrapped(0),
            "signal": {"id": wrapped(15), "name": "TERM"},
        },
        "derived_exit_code": {"status": ["SUCCESS"], "return_code": wrapped(0)},
        "time": {
            "submission": 1795256191,
            "eligible": 1795256191,
            "start": 1795256192,
            "end": 1795256252,
            "elapsed": 60,
            "suspended": 0,
            "limit": {"set": True, "infinite": True, "number": 0},
        },
        "nodes": "n[1-2]",
        "allocation_nodes": 2,
        "priority": wrapped(5),
        "restart_cnt": 1,
        "failed_node": "",
        "submit_line": "sbatch x",
        "working_directory": "/w",
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 8},
                {"type": "gres", "name": "gpu", "id": 2, "count": 4},
                {"type": "gres", "name": "gpu:h100", "id": 3, "count": 4},
            ]
        },
        "steps": [
            {
                "step": {"id": "9.batch"},
                "state": ["CANCELLED"],
                "exit_code": {
                    "status": ["SIGNALED"],
                    "return_code": wrapped(0),
                    "signal": {"id": wrapped(15), "name": "TERM"},
                },
            }
        ],
    }
    path = write(tmp_path, json.dumps({"jobs": [job, {"job_id": "x"}, 3]}), "s.json")
    tables, counts, _ = read(path, ReadOptions(), JSON_SOURCE)
    assert counts == (4, 2, 1, 0)
    (row,) = tables["attempts"].to_pylist()
    assert row["job_id"] == "7_2"
    assert (row["state"], row["cancelled_by"], row["exit_signal"]) == ("CANCELLED", "root", 15)
    assert (row["n_gpus"], row["n_cpus"], row["time_limit_s"], row["restarts"]) == (4, 8, None, 1)
    assert row["step_state"] == "CANCELLED"
    with pytest.raises(SourceError, match=r"is not a complete JSON"):
        read(write(tmp_path, '{"jobs": [', "t.json"), ReadOptions(), JSON_SOURCE)


def test_dictionaries_of_fields_give_the_same_rows():
    names, values = HEADER.strip().split("|"), LOCAL.strip().split("|")
    record = dict(zip(names, values, strict=True)) | {
        "Submit": "2026-07-01T12:00:00+02:00",
        "Start": "2026-07-01T12:00:05+02:00",
        "End": "1782903605",
        "User": None,
    }
    reader = AttemptReader("gcm", "file", ReadOptions(), "rows.ndjson")
    made = rows_from_sacct_fields(reader, [record, record | {"JobID": "?"}], [1, 2])
    (row,) = made.attempts.to_pylist()
    assert row["submit"] == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert row["end"] == datetime(2026, 7, 1, 11, 0, 5, tzinfo=UTC)
    assert [(bad.index, bad.reason) for bad in made.bad] == [(1, "bad-job-id")]
    assert made.allocations["node"].to_pylist() == ["n1"]


def test_attempts_that_ran_and_attempts_that_wait_lie_in_one_table():
    record = {
        "JobID": "1",
        "State": "COMPLETED",
        "Submit": "2026-07-01T10:00:00+00:00",
        "Start": "2026-07-01T10:00:05+00:00",
        "End": "2026-07-01T11:00:05+00:00",
        "ElapsedRaw": "3600",
        "NNodes": "1",
        "NodeList": "n1",
    }
    unknown = dict.fromkeys(("Start", "End", "ElapsedRaw", "NodeList"))
    waiting = record | unknown | {"JobID": "2", "State": "PENDING"}
    reader = AttemptReader("gcm", "file", ReadOptions(), "rows.ndjson")
    ran = rows_from_sacct_fields(reader, [record], [1]).allocations
    none = rows_from_sacct_fields(reader, [waiting], [2]).allocations
    assert pa.concat_tables([ran, none])["node"].to_pylist() == ["n1"]


def test_an_hour_that_never_occurs_and_a_far_year_are_no_reason_to_stop(tmp_path):
    text = HEADER + (
        "9|COMPLETED|2026-03-29T02:30:00|2026-03-29T02:30:00|9999-12-31T23:59:59|60|n1|c\n"
        "10|COMPLETED|0001-01-01T00:00:00|2026-03-29T05:30:00|2026-03-29T05:31:00|60|n1|c\n"
    )
    _, counts, notes = read(write(tmp_path, text), ReadOptions(timezone="Europe/Berlin"))
    assert counts[0] == 2
    assert any("leaves out" in note for note in notes)


def test_gpus_of_old_slurms_are_taken_from_alloc_gres_and_said_so(tmp_path):
    text = HEADER.replace("Cluster", "AllocGRES") + LOCAL.replace("|c\n", "|gpu:v100:4\n")
    tables, _, notes = read(write(tmp_path, text))
    assert tables["attempts"]["n_gpus"].to_pylist() == [4]
    assert any("AllocGRES" in note for note in notes)
    assert any("--cluster" in note for note in notes)


def test_a_line_break_in_the_last_text_belongs_to_the_record_before_it(tmp_path: Path) -> None:
    log = write(
        tmp_path,
        "JobID|State|Submit|Start|End|SubmitLine\n"
        "1|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:01|2026-03-01T00:00:02|sbatch --wrap a\n"
        "sleep 1 | tee log\n"
        "\n"
        "2|FAILED|2026-03-01T00:00:00|2026-03-01T00:00:01|2026-03-01T00:00:02|sbatch b\n",
    )
    tables, (rows_read, rejected, folded, skipped), _ = read(log)
    assert (rows_read, rejected, folded, skipped) == (3, 0, 0, 1)  # the blank line is counted
    assert tables["attempts"].column("submit_line").to_pylist() == [
        "sbatch --wrap a\nsleep 1 | tee log",
        "sbatch b",
    ]


_NAMED = "JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|{last}\n"
_ENDS = "2026-03-01T00:00:00|2026-03-01T01:00:00|2026-03-01T02:00:00|3600|2|g[1-2]|gres/gpu=16"


@pytest.mark.parametrize("last", ["SubmitLine", "Comment", "QOS"])
@pytest.mark.parametrize("name", ["a|b", "a|b|c", "|", "lr=1|wd=2|", "11|COMPLETED|x"])
@pytest.mark.parametrize("submit", ["", "sbatch -J '{name}' x.sh", "sbatch --wrap 'a|b;\nc|d'"])
def test_separators_in_a_jobs_name_cost_no_record(
    name: str, last: str, submit: str, tmp_path: Path
) -> None:
    """Neither the record itself nor those before and after it."""
    text = submit.format(name=name) if last == "SubmitLine" else ""
    rows = [
        f"10|ok|u|NODE_FAIL|{_ENDS}|{'sbatch big.sh' if text else ''}",
        f"11|{name}|u|COMPLETED|{_ENDS}|{text}",
        f"12|{name}|u|FAILED|{_ENDS}|{text}",
        f"13|ok|u|COMPLETED|{_ENDS}|{'sbatch x.sh' if text else ''}",
    ]
    log = write(tmp_path, _NAMED.format(last=last) + "\n".join(rows) + "\n")
    tables, (rows_read, rejected, *_), _ = read(log)
    found = {row["job_id"]: row for row in tables["attempts"].to_pylist()}
    assert (rows_read, rejected) == (4, 0)
    assert {job: row["state"] for job, row in found.items()} == {
        **{"10": "NODE_FAIL", "11": "COMPLETED", "12": "FAILED", "13": "COMPLETED"}
    }
    assert [row["n_gpus"] for row in found.values()] == [16] * 4
    assert found["10"]["submit_line"] in (None, "sbatch big.sh")
    if not text:
        assert found["11"]["name"] == found["12"]["name"] == name


def test_a_table_within_a_text_is_no_record(tmp_path: Path) -> None:
    """Its lines begin with a number and hold more separators than a record."""
    script = "sbatch --wrap 'cat <<E\n1|" + "|".join("abcdefghijklmnop") + "\nE'"
    rows = [f"10|ok|u|NODE_FAIL|{_ENDS}|{script}", f"11|ok|u|COMPLETED|{_ENDS}|sbatch x.sh"]
    log = write(tmp_path, _NAMED.format(last="SubmitLine") + "\n".join(rows) + "\n")
    tables, (rows_read, rejected, *_), _ = read(log)
    assert (rows_read, rejected) == (2, 0)
    assert tables["attempts"]["submit_line"].to_pylist() == [script, "sbatch x.sh"]
