"""Faults on a schedule: the same for a seed, done to real processes and files, and undone."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ettr.errors import UsageError
from ettr.training import chaos_faults as faults
from ettr.training.chaos import ChaosPlan, Fault, PlannedFault, schedule
from ettr.training.chaos_run import run

# A parent with two children that do nothing; says so in a file, and ends when both have ended.
PARENT = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(float(%r))"])
            for _ in range(2)]
if sys.argv[1:]:
    open(sys.argv[1], "w").close()
sys.exit(sum(child.wait() != 0 for child in children))
"""


def parent(sleep_s: float) -> list[str]:
    return [sys.executable, "-c", PARENT % str(sleep_s)]


def one(fault: Fault, at_s: float = 0.6, target: float = 0.0, place: float = 0.5) -> PlannedFault:
    return PlannedFault(at_s, fault, target, place)


def test_a_schedule_is_the_same_for_its_seed_and_keeps_its_mean():
    first = schedule(7, list(Fault), every_s=2, for_s=20_000)
    assert first == schedule(7, list(Fault), every_s=2, for_s=20_000)
    assert first != schedule(8, list(Fault), every_s=2, for_s=20_000)
    assert {planned.fault for planned in first} == set(Fault)
    # 10,000 are expected; 4 standard deviations of a Poisson count are 400
    assert abs(len(first) - 10_000) < 400
    assert [p.at_s for p in first] == sorted(p.at_s for p in first)
    assert len(schedule(7, ["kill"], every_s=2, for_s=100, at_most=3)) == 3


def test_a_schedule_that_cannot_be_lists_every_problem():
    with pytest.raises(UsageError, match=r"fault: melt was given.*every_s: 0.*for_s: -1"):
        schedule(0, ["melt"], every_s=0, for_s=-1)
    with pytest.raises(UsageError, match="no fault was given"):
        schedule(0, [], every_s=1, for_s=1)


def time_since(marker: Path):
    """A clock that stands still until a file is there."""
    begin_s: list[float] = []

    def clock() -> float:
        if not begin_s and marker.exists():
            begin_s.append(time.monotonic())
        return time.monotonic() - begin_s[0] if begin_s else 0.0

    return clock


def test_a_kill_hits_a_child_and_spares_the_launcher(tmp_path):
    told: list[str] = []
    report = run(
        [*parent(30), str(tmp_path / "both")],
        ChaosPlan((one(Fault.KILL, 0.1), one(Fault.KILL, 1.6))),
        on_event=told.append,
        clock=time_since(tmp_path / "both"),  # before they run there is only the launcher to hit
    )
    assert [d.hit for d in report.done] == [True, True]
    assert report.status == 2  # both children were killed, the parent lived to count them
    assert not report.survived
    assert told == [d.what for d in report.done]
    assert json.loads(json.dumps(report.as_dict()))["faults"][0]["fault"] == "kill"


def test_without_faults_a_command_runs_as_it_would():
    report = run(parent(0.1), ChaosPlan((one(Fault.KILL, 60.0),)))
    assert (report.survived, report.done, report.not_reached) == (True, (), 1)


def test_a_stopped_process_goes_on_after_the_hold():
    report = run(parent(1.5), ChaosPlan((one(Fault.STOP),), hold_s=2.0), timeout_s=60)
    assert report.survived
    assert report.done[0].what.startswith("stopped pid")
    assert report.wall_s > 2.5


def test_a_command_that_outlives_its_time_leaves_no_process():
    report = run(parent(600), ChaosPlan(()), timeout_s=1.0)
    assert report.timed_out
    assert not report.survived
    deadline = time.monotonic() + 10
    while any("time.sleep(float('600.0'))" in _command(p) for p in _pids()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _pids():
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_files_are_flipped_cut_and_crowded_out(tmp_path):
    data = bytes(range(256)) * 4
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(data)
    plan = ChaosPlan(
        (one(Fault.FLIP, 0.1), one(Fault.TRUNCATE, 0.1, 0.99, 0.25), one(Fault.FILL, 0.1)),
        folder=str(tmp_path),
        ballast_bytes=5000,
        hold_s=30,
    )
    seen = tmp_path.parent / "seen"
    report = run(
        [sys.executable, "-c", "import time,os,sys; time.sleep(0.8);"
         "open(sys.argv[2],'w').write(' '.join(f'{e.name}:{e.stat().st_size}' for e in "
         "os.scandir(sys.argv[1])))", str(tmp_path), str(seen)],
        plan,
    )  # fmt: skip
    assert [d.hit for d in report.done] == [True] * 3
    flipped = (tmp_path / "a").read_bytes()
    different = [(x, y) for x, y in zip(data, flipped, strict=True) if x != y]
    assert len(different) == 1
    assert (different[0][0] ^ different[0][1]).bit_count() == 1
    assert (tmp_path / "b").read_bytes() == data[:256]
    assert f".ettr-ballast-{os.getpid()}:5000" in seen.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]  # the ballast is gone again


def test_faults_without_a_target_are_told_and_not_hidden(tmp_path):
    report = run(parent(0.5), ChaosPlan((one(Fault.FLIP, 0.1),), folder=str(tmp_path)))
    assert not report.done[0].hit
    assert report.done[0].what == "flip: there is nothing to hit"


def test_a_limit_on_files_is_set_and_lifted():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        process = faults.descendants(child.pid)[0]
        before = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
        what, held = faults.limit(process, 1234)
        assert "to 1234 bytes" in what
        assert resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[0] == 1234
        assert held is not None
        faults.unlimit(process, held)
        assert resource.prlimit(child.pid, resource.RLIMIT_FSIZE) == before
    finally:
        child.kill()
        child.wait()


def test_wrong_use_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no command was given"):
        run([], ChaosPlan(()))
    with pytest.raises(UsageError, match="flip needs a folder"):
        run(["true"], ChaosPlan((one(Fault.FLIP),)))
    with pytest.raises(UsageError, match="not a folder to damage"):
        run(["true"], ChaosPlan((one(Fault.FLIP),), folder="/"))


def command_line(*arguments: str):
    import typer
    from typer.testing import CliRunner

    from ettr.cli import chaos as module

    app = typer.Typer()
    app.command("chaos", **module.SETTINGS["chaos"])(module.chaos)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_reports_and_exits_with_what_became_of_the_command(tmp_path):
    where = tmp_path / "report.json"
    found = command_line(
        "--every", "0.1", "--after", "0.3", "--at-most", "1", "--report", str(where), "--json",
        "--", *parent(30),
    )  # fmt: skip
    assert found.exit_code == 1
    document = json.loads(where.read_text())
    assert document["survived"] is False
    assert [one["fault"] for one in document["faults"]] == ["kill"]
    assert command_line("--every", "1000", "--", *parent(0.1)).exit_code == 0
