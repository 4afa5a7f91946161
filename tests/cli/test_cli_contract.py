"""What others may rely on: commands, options, exit status, the JSON of a report."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.program import PROGRAM, SACCT, TOTALS, ettr, program

pytestmark = pytest.mark.slow

METRICS = ("status", "sizes", "failures", "mttf", "runs", "goodput", "nodes", "quality")


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- ingest ---------------------------------------------------------------------------------------


def test_ingest_says_what_came_of_each_file(logs: list[Path], tmp_path: Path):
    done = ettr("ingest", tmp_path / "store", *logs, "--timezone", "UTC")
    assert done.code == 0
    assert (
        "sacct.psv: slurm-sacct, 6 records read as rows of attempts (6), allocations (6)"
        in done.out
    )
    assert "kernel.log: kernel-xid, 1 record read as rows of events (1)" in done.out
    assert "events.psv: slurm-events, 1 record read as rows of node_states (1)" in done.out


def test_ingest_as_json(logs: list[Path], tmp_path: Path):
    done = ettr("ingest", tmp_path / "store", *logs, "--timezone", "UTC", "--json")
    told = {entry["name"]: entry for entry in done.json}
    assert told["sacct.psv"]["rows_read"] == 6
    assert told["sacct.psv"]["rows_rejected"] == 0


def test_reading_a_file_again_changes_nothing(logs: list[Path], site: Path, tmp_path: Path):
    store = tmp_path / "store"
    shutil.copytree(site, store)
    before = files_of(store)
    done = ettr("ingest", store, *logs, "--timezone", "UTC")
    assert done.out.count("already in the store, unchanged") == 3
    assert files_of(store) == before


def test_a_later_dump_updates_the_job(site: Path, tmp_path: Path):
    store, later = tmp_path / "store", tmp_path / "later.psv"
    shutil.copytree(site, store)
    later.write_text(SACCT.replace("FAILED|1:0", "OUT_OF_MEMORY|0:125"))
    assert ettr("ingest", store, later, "--timezone", "UTC").code == 0
    document = ettr("report", store, "--json").json
    assert document["totals"] == TOTALS
    states = {entry["state"]: entry["attempts"] for entry in document["status"]["states"]}
    assert states["OUT_OF_MEMORY"] == 1
    assert "FAILED" not in states


def test_a_dump_without_header_takes_its_fields(tmp_path: Path):
    header, *rows = SACCT.splitlines()
    dump = tmp_path / "dump.psv"
    dump.write_text("\n".join(rows) + "\n")
    fields = header.replace("|", ",")
    done = ettr("report", dump, "--fields", fields, "--timezone", "UTC", "--json")
    assert done.json["totals"] == TOTALS


def test_source_names_the_format(logs: list[Path], tmp_path: Path):
    done = ettr("ingest", tmp_path / "s", logs[1], "--source", "slurm-sacct", "--timezone", "UTC")
    assert done.code == 0
    done = ettr("ingest", tmp_path / "s", logs[1], "--source", "abacus", "--timezone", "UTC")
    assert done.code == 2
    assert "no source named 'abacus'; there are: slurm-sacct" in done.err


# -- exit status ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ingest", "report"])
def test_a_missing_zone_is_wrong_use_and_no_prompt(command: str, logs: list[Path], tmp_path: Path):
    words = ["ingest", tmp_path / "store"] if command == "ingest" else ["report"]
    done = program(*words, logs[1])
    assert done.code == 2
    assert "--timezone" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report"], "Missing argument"),
        (["report", "nowhere.psv"], "no such file: nowhere.psv"),
        (["report", "{sacct}", "--timezone", "Mars/Base"], "is no IANA zone"),
        (["report", "{site}", "{sacct}"], "is a store and other files are named with it"),
        (["report", "{site}", "--confidence", "90"], "confidence"),
        (["report", "{site}", "--window", "ten"], "give two numbers of seconds"),
        (["failures", "{site}", "--window", "nan,300"], "give two numbers of seconds"),
        (["failures", "{site}", "--window", "600,nan"], "give two numbers of seconds"),
        (["failures", "{site}", "--window", "1e300,300"], "none above 31622400"),
        (["runs", "{site}", "--interval", "nan"], "give a number with its unit"),
        (["runs", "{site}", "--interval", "0"], "give a positive number of seconds"),
        (["runs", "{site}", "--restart", "5"], "give a number with its unit"),
        (
            ["project", "{site}", "--seen-gpus", "64"],
            "--seen-gpus: needs a failure rate typed in",
        ),
        (["report", "{site}", "--believe", "astrology"], "astrology"),
        (["report", "{site}", "--taxonomy", "absent.toml"], "absent.toml"),
        (["report", "{site}", "-o", "{folder}"], "is a folder"),
        (["report", "{sacct}", "--start", "monday"], "give a time with its zone"),
        (["report", "{sacct}", "--columns", "node"], "'node' is no pair; write node=host,time=ts"),
        (["explain", "{site}", "999"], "999"),
        (["nonsense"], "No such command"),
        (["report", "{site}", "--no-such-option"], "No such option"),
        (["catalog", "99999"], "not in the catalogue"),
    ],
)
def test_wrong_use_exits_2_and_says_what_to_do(
    words: list[str], says: str, site: Path, logs: list[Path], tmp_path: Path
):
    places = {"site": site, "sacct": logs[1], "folder": tmp_path}
    done = ettr(*(word.format(**places) for word in words))
    assert done.code == 2, done
    assert says in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status", "{folder}/no-store"], "no store here"),
        (["report", "{folder}/letter", "--timezone", "UTC"], "no known log format"),
        (["report", "{folder}/empty", "--timezone", "UTC"], "is empty"),
        (["ingest", "{folder}/store", "{folder}/gone", "--timezone", "UTC"], "gone"),
        (["ingest", "{folder}/letter", "{sacct}", "--timezone", "UTC"], "letter"),
    ],
)
def test_what_cannot_be_done_exits_1(words: list[str], says: str, logs: list[Path], tmp_path: Path):
    (tmp_path / "letter").write_text("Dear all,\nthe node is ill.\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "gone").mkdir()
    done = ettr(*(word.format(folder=tmp_path, sacct=logs[1]) for word in words))
    assert done.code == 1, done
    assert says in done.err
    assert done.out == ""


def test_a_file_that_is_not_there_makes_no_store(tmp_path: Path):
    done = ettr("ingest", tmp_path / "store", tmp_path / "absent.psv", "--timezone", "UTC")
    assert done.code == 2
    assert "no such file" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_logs_is_no_store(logs: list[Path]):
    folder = logs[0].parent
    done = ettr("report", folder)
    assert done.code == 2
    assert f"is a folder of files, not a store; name the files: ettr report {folder}/*" in done.err


def test_a_log_where_a_store_belongs_says_how_to_read_it(logs: list[Path]):
    done = ettr("status", logs[1], "--detail")
    assert done.code == 1
    assert f"`ettr ingest STORE {logs[1]}` reads a log into one" in done.err


@pytest.mark.parametrize("command", ["failures", "catalog", "plan"])
def test_a_taxonomy_that_is_not_there_is_wrong_use(command: str, site: Path):
    words = [] if command == "catalog" else [site]
    done = ettr(command, *words, "--taxonomy", "nowhere.toml")
    assert done.code == 2
    assert "--taxonomy nowhere.toml: no such file; give a TOML or CSV file" in done.err
    done = ettr(command, *words, "--believe", "amd")
    assert done.code == 2
    assert "no vendor named 'amd' to believe; there are: nvidia" in done.err


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path):
    from ettr.store import open_store

    with open_store(tmp_path / "store", create=True):
        pass
    done = ettr("report", tmp_path / "store", "--json")
    assert done.code == 1
    assert "holds no rows yet; `ettr ingest" in done.err
    assert ettr("status", tmp_path / "store", "--detail").out.startswith("How jobs end")


def test_the_script_runs_as_installed(site: Path, tmp_path: Path):
    done = program("report", site, "-o", "out/my report.html", folder=tmp_path)
    assert done.code == 0, done.err
    assert "Report: out/my report.html" in done.out
    assert (tmp_path / "out" / "my report.html").stat().st_size > 500_000
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["my report.html"]


def test_a_reader_that_goes_away_is_no_error(site: Path):
    with subprocess.Popen(
        [PROGRAM, "report", site, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


# -- report ---------------------------------------------------------------------------------------


def test_a_report_from_files_equals_that_of_their_store(logs: list[Path], document: dict[str, Any]):
    assert ettr("report", *logs, "--timezone", "UTC", "--json").json == document


def test_the_sections_that_others_rely_on(document: dict[str, Any]):
    assert document["format"] == "ettr-report"
    assert document["version"] == 1
    sections = {"totals", *METRICS}
    assert sections <= set(document)
    assert document["totals"] == TOTALS
    assert document["quality"]["rows_read"] == 8
    assert document["quality"]["rows_rejected"] == 0
    assert document["quality"]["rejected"] == []


def test_the_report_tells_the_small_sites_story(document: dict[str, Any]):
    rows = document["failures"]["rows"]
    assert [(r["job_id"], r["node"], r["symptom"]) for r in rows] == [
        ("2", "n1", "gpu-unavailable")
    ]
    all_jobs = document["failures"]["all_jobs"]
    assert all_jobs["failures"] == 1
    assert all_jobs["node_days"] == pytest.approx(73 / 24)
    assert all_jobs["per_1000_node_days"]["estimate"] == pytest.approx(1000 * 24 / 73)
    assert document["goodput"]["first_order_gpu_hours"] == pytest.approx(0.5 * 8)
    run = next(run for run in document["runs"]["runs"] if run["name"] == "tune")
    assert run["attempts"] == 2
    assert document["nodes"]["repair_h"]["mean_h"]["estimate"] == pytest.approx(6)


@pytest.mark.parametrize("metric", METRICS)
def test_one_command_per_metric_with_the_numbers_of_the_report(
    metric: str, site: Path, document: dict[str, Any]
):
    shown = ettr(metric, site, "--json").json
    assert shown.pop("selection") == document["selection"]
    assert shown == document[metric]


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_as_text(metric: str, site: Path):
    done = ettr(metric, site)
    assert done.code == 0
    assert done.err == ""
    assert len(done.out.splitlines()) > 3
    assert "nan" not in done.out.lower().split()
    assert "None" not in done.out


def test_metrics_take_the_assumptions(site: Path):
    wide = ettr("failures", site, "--confidence", "0.99", "--json").json
    usual = ettr("failures", site, "--json").json
    assert (
        wide["all_jobs"]["per_1000_node_days"]["low"]
        < (usual["all_jobs"]["per_1000_node_days"]["low"])
    )
    narrow = ettr("report", site, "--window", "30,30", "--json").json
    assert narrow["failures"]["rows"][0]["symptom"] == "unattributed"


def test_the_catalogue_shows_each_vendors_verdict(site: Path):
    (listed,) = ettr("catalog", "79", "--json").json
    assert listed["xid"] == 79
    assert {"nvidia_says", "gpud_says", "gcm_says"} <= set(listed)
    assert "gpu-unavailable" in ettr("catalog", "79").out


def test_explain_tells_one_jobs_story(site: Path):
    done = ettr("explain", site, "2", "--detail")
    assert done.code == 0
    for piece in (
        "Attempt 1: NODE_FAIL",
        "Attempt 2: COMPLETED",
        "nodes      n1",
        "gpu-unavailable",
        "kernel.log",
        "GPU has fallen off the bus",
    ):
        assert piece in done.out
    story = ettr("explain", site, "c/2", "--json").json
    assert [attempt["state"] for attempt in story["attempts"]] == ["NODE_FAIL", "COMPLETED"]


def test_a_job_that_is_not_there_says_how_to_find_one(site: Path):
    done = ettr("explain", site, "31415", "--detail")
    assert done.code == 2
    assert "31415" in done.err


def test_the_terminal_summary_leads_with_numbers_and_ends_with_steps(site: Path, tmp_path: Path):
    done = ettr("report", site, "-o", tmp_path / "r.html")
    title, first, *_ = done.out.splitlines()
    assert title == "Reliability of c, 1 to 3 Mar 2026 UTC"
    assert first.startswith("GPU time lost to failures: ")
    assert "\nDo first: " in done.out
    assert done.out.rstrip().endswith("r.html")
    assert max(len(line) for line in done.out.splitlines()) <= 130


def test_json_writes_no_file(site: Path, tmp_path: Path):
    assert ettr("report", site, "--json", folder=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_made_leaves_the_old_one(tmp_path: Path):
    old = tmp_path / "report.html"
    old.write_text("yesterday's")
    (tmp_path / "bad").write_text("no log")
    assert ettr("report", tmp_path / "bad", "-o", old, "--timezone", "UTC").code == 1
    assert old.read_text() == "yesterday's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "report.html"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_a_device_stays_a_device(site: Path):
    done = ettr("report", site, "-o", "/dev/full")
    assert done.code == 1
    assert "/dev/full: No space left on device" in done.err
    assert Path("/dev/full").is_char_device()


def test_a_link_is_replaced_and_what_it_points_to_stays(site: Path, tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("another's")
    page = tmp_path / "page.html"
    page.symlink_to(target)
    assert ettr("report", site, "-o", page).code == 0
    assert target.read_text() == "another's"
    assert not page.is_symlink()


def test_a_page_that_breaks_off_leaves_the_old_one(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old = tmp_path / "report.html"
    old.write_text("yesterday's")
    monkeypatch.setattr(Path, "replace", _no_space)
    done = ettr("report", site, "-o", old)
    assert done.code == 1
    assert "report.html: No space left" in done.err
    assert old.read_text() == "yesterday's"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def _no_space(_path: Path, _target: Path) -> None:
    raise OSError(28, "No space left on device")


def test_rejected_records_are_told_where_one_looks(tmp_path: Path):
    dump = tmp_path / "sacct.psv"
    dump.write_text(SACCT + "c|6|odd|eve|FAILED|1:0|never|never|never|never|x|1|n4||/w\n")
    done = ettr("report", dump, "--timezone", "UTC", "--json")
    assert "1 of 7 records rejected" in done.err
    document = done.json
    assert document["quality"]["rows_rejected"] == 1
    assert sum(entry["rows"] for entry in document["quality"]["rejected"]) == 1


def test_sources_lists_every_format():
    done = ettr("sources", "--json")
    names = {entry["name"] for entry in done.json}
    assert {
        "slurm-sacct",
        "slurm-events",
        "kernel-xid",
        "gcm",
        "nvsentinel",
        "gpud",
        "nhc",
        "nvrx",
        "infinitehbd",
        "lanl",
        "table",
    } <= names
    text = ettr("sources").out
    assert all(name in text for name in names)


def test_the_status_that_a_command_exits_with_is_the_programs(monkeypatch: pytest.MonkeyPatch):
    """`ettr verify` prints what it found and ends with 1, as scripts need."""
    monkeypatch.setattr("ettr.cli.ingest.say", _exits_1)
    assert ettr("sources").code == 1


def _exits_1(_text: str) -> None:
    raise typer.Exit(1)
