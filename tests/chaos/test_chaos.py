"""Faults on a schedule: the same for a seed, done to real processes and files, and undone."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clocks import time_since
from ettr import chaos
from ettr.chaos import ChaosPlan, Fault, PlannedFault, run, schedule
from ettr.errors import UsageError

# A parent with two children that wait for a file `end`; writes `both` when they are there, and ends
# when they have ended.
PARENT = """
import subprocess, sys
from pathlib import Path
wait = "import sys, time; from pathlib import Path"
wait += "\\nwhile not Path(sys.argv[1]).exists(): time.sleep(0.01)"
end = str(Path(sys.argv[1]) / "end")
children = [subprocess.Popen([sys.executable, "-c", wait, end]) for _ in range(2)]
(Path(sys.argv[1]) / "both").touch()
sys.exit(sum(child.wait() != 0 for child in children))
"""
HANGS_S = 300.0  # ends a test that has failed


def parent(folder: Path) -> list[str]:
    return [sys.executable, "-c", PARENT, str(folder)]


def one(fault: Fault, at_s: float = 0.1, target: float = 0.0, place: float = 0.5) -> PlannedFault:
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


@pytest.mark.slow
def test_a_kill_hits_a_child_and_spares_the_launcher(tmp_path):
    events: list[str] = []
    report = run(
        parent(tmp_path),
        ChaosPlan((one(Fault.KILL, 0.1), one(Fault.KILL, 1.6))),
        on_event=events.append,
        clock=time_since(tmp_path / "both"),  # before they run there is only the launcher to hit
    )
    assert [d.hit for d in report.done] == [True, True]
    assert report.status == 2  # both children were killed, the parent lived to count them
    assert not report.survived
    assert events == [d.what for d in report.done]
    assert json.loads(json.dumps(report.as_dict()))["faults"][0]["fault"] == "kill"


# A launcher that outlives its only child, writes `ended` then, and waits for a file `end`.
LINGERING = """
import subprocess, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
subprocess.run([sys.executable, "-c", "import time; time.sleep(2)"], check=True)
(folder / "ended").touch()
while not (folder / "end").exists(): time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_launcher_whose_children_have_ended_is_spared_too(tmp_path):
    report = run(
        [sys.executable, "-c", LINGERING, str(tmp_path)],
        ChaosPlan((one(Fault.KILL, 0.1),)),
        on_event=lambda _what: (tmp_path / "end").touch(),
        clock=time_since(tmp_path / "ended"),
    )
    assert [d.hit for d in report.done] == [False]
    assert report.done[0].what == "kill: there is nothing to hit"
    assert report.status == 0


def test_a_command_that_never_had_children_is_hit(tmp_path):
    alone = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(300)"
    report = run(
        [sys.executable, "-c", alone, str(tmp_path / "runs")],
        ChaosPlan((one(Fault.KILL, 0.1),)),
        clock=time_since(tmp_path / "runs"),
    )
    assert [d.hit for d in report.done] == [True]
    assert report.done[0].what.endswith("the command itself, of which no child was seen so far")
    assert report.status == -9


def test_a_launcher_is_spared_before_it_has_had_children(tmp_path):
    # Imports of a launcher may take longer than the first fault is away.
    slow = "import sys, time; from pathlib import Path; Path(sys.argv[1]).touch()"
    slow += "\nwhile not Path(sys.argv[2]).exists(): time.sleep(0.01)"
    report = run(
        [sys.executable, "-c", slow, str(tmp_path / "runs"), str(tmp_path / "end")],
        ChaosPlan((one(Fault.KILL, 0.1),)),
        launcher=True,
        on_event=lambda _what: (tmp_path / "end").touch(),
        clock=time_since(tmp_path / "runs"),
    )
    assert [(d.hit, d.what) for d in report.done] == [(False, "kill: there is nothing to hit")]
    assert report.status == 0


def test_without_faults_a_command_runs_as_it_would(tmp_path):
    (tmp_path / "end").touch()
    report = run(parent(tmp_path), ChaosPlan((one(Fault.KILL, 3600.0),)))
    assert (report.survived, report.done, report.not_reached) == (True, (), 1)


@pytest.mark.slow
def test_a_stopped_process_goes_on_after_the_hold(tmp_path):
    report = run(
        parent(tmp_path),
        ChaosPlan((one(Fault.STOP),), hold_s=2.0),
        timeout_s=HANGS_S,
        # from here on nothing but the stopped process keeps the command from its end
        on_event=lambda _what: (tmp_path / "end").touch(),
        clock=time_since(tmp_path / "both"),
    )
    assert report.survived
    (stop,) = report.done
    assert stop.what.startswith("stopped pid")
    assert report.wall_s > stop.at_s + 2.0


@pytest.mark.slow
def test_a_command_that_outlives_its_time_leaves_no_process(tmp_path):
    report = run(
        parent(tmp_path), ChaosPlan(()), timeout_s=1.0, clock=time_since(tmp_path / "both")
    )
    assert report.timed_out
    assert not report.survived
    deadline_s = time.monotonic() + HANGS_S
    while any(str(tmp_path) in _command(p) for p in _pids() if p != os.getpid()):
        assert time.monotonic() < deadline_s
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
    harmed, other = tmp_path / "harmed", tmp_path / "other"
    for folder in (harmed, other):
        folder.mkdir()
    (harmed / "a").write_bytes(data)
    (harmed / "b").write_bytes(data)
    plan = ChaosPlan(
        (one(Fault.FLIP, 0.1), one(Fault.TRUNCATE, 0.1, 0.99, 0.25), one(Fault.FILL, 0.1)),
        folder=str(harmed),
        ballast_bytes=5000,
        hold_s=2 * HANGS_S,
    )
    events: list[str] = []

    def on_event(what: str) -> None:
        events.append(what)
        if len(events) == len(plan.faults):
            (other / "done").touch()

    report = run(
        [
            sys.executable,
            "-c",
            "import time,os,sys\n"
            "while not os.path.exists(sys.argv[2] + '/done'): time.sleep(0.01)\n"
            "seen = [f'{e.name}:{e.stat().st_size}' for e in os.scandir(sys.argv[1])]\n"
            "open(sys.argv[2] + '/seen','w').write(' '.join(seen))",
            str(harmed),
            str(other),
        ],
        plan,
        timeout_s=HANGS_S,
        on_event=on_event,
    )
    assert [d.hit for d in report.done] == [True] * 3
    flipped = (harmed / "a").read_bytes()
    different = [(x, y) for x, y in zip(data, flipped, strict=True) if x != y]
    assert len(different) == 1
    assert (different[0][0] ^ different[0][1]).bit_count() == 1
    assert (harmed / "b").read_bytes() == data[:256]
    assert re.search(r"\.ettr-ballast-[0-9a-f]{16}:5000", (other / "seen").read_text())
    assert sorted(p.name for p in harmed.iterdir()) == ["a", "b"]  # the ballast is gone again


def test_faults_without_a_target_are_reported_as_such(tmp_path):
    (tmp_path / "empty").mkdir()
    report = run(
        parent(tmp_path),
        ChaosPlan((one(Fault.FLIP),), folder=str(tmp_path / "empty")),
        timeout_s=HANGS_S,
        on_event=lambda _what: (tmp_path / "end").touch(),
    )
    assert not report.done[0].hit
    assert report.done[0].what == "flip: there is nothing to hit"


def test_a_limit_on_files_is_set_and_lifted():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process = chaos.descendants(child.pid)[0]
        before = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
        what, held = chaos.limit(process, 1234)
        assert "to 1234 bytes" in what
        assert resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[0] == 1234
        assert held is not None
        chaos.unlimit(process, held)
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

    from ettr.cli import training as module
    from ettr.cli.groups import flattened

    app = typer.Typer()
    app.command("chaos", **module.SETTINGS["chaos"])(flattened(module.chaos))
    return CliRunner().invoke(app, list(arguments))


def test_the_command_reports_and_exits_with_what_became_of_the_command(tmp_path):
    where = tmp_path / "report.json"
    found = command_line(
        "--every",
        "0.1",
        "--after",
        "0.3",
        "--at-most",
        "1",
        "--report",
        str(where),
        "--json",
        "--",
        sys.executable,
        "-c",
        "import time; time.sleep(600)",
    )
    assert found.exit_code == 1
    document = json.loads(where.read_text())
    assert document["survived"] is False
    assert [one["fault"] for one in document["faults"]] == ["kill"]
    (tmp_path / "end").touch()
    assert command_line("--every", "100000", "--", *parent(tmp_path)).exit_code == 0
