"""`ettr collect` with commands of our own on the PATH: what is run and written, and from when."""

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.program import EVENTS, SACCT, ettr

NODES = "NodeName=n1 Arch=x86_64 CPUTot=64\n   State=IDLE Gres=gpu:8\n\n"
TOPOLOGY = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
ANSWERS = {
    "sacct": SACCT,
    "sacctmgr": EVENTS,
    "scontrol node": NODES,
    "scontrol topology": TOPOLOGY,
}
SITE = """#!/usr/bin/env python3
import json, os, sys
folder = {folder!r}
name = os.path.basename(sys.argv[0])
key = name if name != "scontrol" else f"scontrol {{sys.argv[-1]}}"
with open(os.path.join(folder, "calls"), "a") as calls:
    set_to = [os.environ["TZ"], os.environ["SLURM_TIME_FORMAT"]]
    calls.write(json.dumps([name, *sys.argv[1:], *set_to]) + "\\n")
answer = json.load(open(os.path.join(folder, "answers"))).get(key)
if answer is None:
    sys.exit("slurm_load: Unable to contact slurm controller")
sys.stdout.write(answer)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Commands of that name on the PATH; the function changes their answers and gives the calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sacct", "sacctmgr", "scontrol"):
        (folder / name).write_text(SITE.format(folder=str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def answering(**changed: str | None) -> list[list[str]]:
        answers = ANSWERS | {key.replace("_", " "): text for key, text in changed.items()}
        (folder / "answers").write_text(json.dumps(answers))
        calls = folder / "calls"
        return (
            [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        )

    answering()
    return answering


MARCH = ("--since", "2026-03-01", "--until", "2026-03-05T06:00")


@pytest.mark.slow
def test_the_commands_of_a_period_are_run_with_lists_of_words(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    logs = tmp_path / "a folder"
    done = ettr("collect", logs, *MARCH, "--run")
    assert done.code == 0, done.err
    env = ["UTC", "standard"]
    period = ["2026-03-01T00:00:00", "2026-03-05T06:00:00"]
    event_format = "Format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"
    events = ["sacctmgr", "-P", "show", "event", f"Start={period[0]}", f"End={period[1]}"]
    assert site() == [
        [*events, event_format, *env],
        ["scontrol", "show", "node", *env],
        ["scontrol", "show", "topology", *env],
        ["sacct", "-a", "-D", "-P", "-S", period[0], "-E", period[1], "-o", "ALL", *env],
    ]
    files = {path.name: path for path in logs.iterdir()}
    assert sorted(files) == [
        "events-20260301T000000Z-20260305T060000Z.psv",
        "nodes-20260305T060000Z.txt",
        "sacct-20260301T000000Z-20260305T060000Z.psv",
        "topology-20260305T060000Z.txt",
    ]
    assert files["nodes-20260305T060000Z.txt"].read_text() == NODES
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
    assert stat.S_IMODE(logs.stat().st_mode) == 0o700
    read = ettr("ingest", tmp_path / "store", *sorted(files.values()), "--timezone", "UTC")
    assert read.code == 0, read.err


@pytest.mark.slow
def test_the_printed_script_does_the_same(tmp_path: Path, site: Callable[..., list[list[str]]]):
    logs = tmp_path / "it's here; $(touch x)"
    done = ettr("collect", logs, *MARCH)
    assert site() == []
    assert "journalctl -k -o json --no-pager --since '2026-03-01 00:00:00 UTC'" in done.out
    subprocess.run(["/bin/sh"], input=done.out, text=True, check=True, cwd=tmp_path)
    printed = {path.name: path.read_bytes() for path in logs.iterdir()}
    calls = site()
    ettr("collect", tmp_path / "other", *MARCH, "--run")
    assert printed == {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    assert site() == [*calls, *calls]
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_script_whose_command_fails_leaves_no_file_of_it(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    site(sacct=None)
    script = ettr("collect", tmp_path / "logs", *MARCH).out
    done = subprocess.run(["/bin/sh"], input=script, text=True, check=False, capture_output=True)
    assert done.returncode == 1
    assert not list((tmp_path / "logs").glob("sacct*"))


@pytest.mark.slow
def test_a_script_says_which_files_have_no_record(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    """The folder's name begins with a dash, as an option does."""
    site(sacctmgr="Cluster|NodeName|TimeStart\n", scontrol_topology="no topology plugin\n")
    script = ettr("collect", "./-logs", *MARCH).out
    done = subprocess.run(
        ["/bin/sh"], input=script, text=True, check=True, capture_output=True, cwd=tmp_path
    )
    assert {path.name for path in (tmp_path / "-logs").iterdir()} == {
        "nodes-20260305T060000Z.txt",
        "sacct-20260301T000000Z-20260305T060000Z.psv",
    }
    assert done.stderr.splitlines() == [
        "sacctmgr: no record from then; events-20260301T000000Z-20260305T060000Z.psv is left out",
        "scontrol: no record from then; topology-20260305T060000Z.txt is left out",
    ]


@pytest.mark.slow
def test_a_link_of_a_files_name_is_replaced_and_not_followed(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    logs, victim = tmp_path / "logs", tmp_path / "victim"
    logs.mkdir()
    victim.write_text("precious")
    link = logs / "nodes-20260305T060000Z.txt"
    link.symlink_to(victim)
    assert ettr("collect", logs, *MARCH, "--run").code == 0
    assert victim.read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() == NODES


def test_what_fails_ends_it_before_accounting_says_that_the_period_is_known(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    site(sacctmgr=None)
    done = ettr("collect", tmp_path / "logs", *MARCH, "--run")
    assert done.code == 1
    assert "sacctmgr: ended with status 1: slurm_load: Unable to contact" in done.err
    assert [call[0] for call in site()] == ["sacctmgr"]
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("topology", [None, "", "topo_print: No topology information available\n"])
def test_a_site_without_a_topology_has_the_other_logs(
    tmp_path: Path, site: Callable[..., list[list[str]]], topology: str | None
):
    site(scontrol_topology=topology)
    done = ettr("collect", tmp_path / "logs", *MARCH, "--run")
    assert done.code == 0
    assert "left out" in done.err
    names = sorted(path.name.split("-")[0] for path in (tmp_path / "logs").iterdir())
    assert names == ["events", "nodes", "sacct"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "print"])
def test_a_period_without_a_record_leaves_no_file_that_cannot_be_read(
    tmp_path: Path, site: Callable[..., list[list[str]]], how: str
):
    header = EVENTS.splitlines()[0] + "\n"
    site(sacctmgr=header)
    done = ettr("collect", tmp_path / "logs", *MARCH, *(["--run"] if how == "run" else []))
    assert done.code == 0
    if how == "print":
        subprocess.run(["/bin/sh"], input=done.out, text=True, check=True)
    else:
        assert "sacctmgr: no record" in done.err
    files = sorted((tmp_path / "logs").glob("*"))
    assert [path.name.split("-")[0] for path in files] == ["nodes", "sacct", "topology"]
    assert ettr("ingest", tmp_path / "store", *files, "--timezone", "UTC").code == 0


def test_a_command_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = ettr("collect", tmp_path / "logs", *MARCH, "--run")
    assert done.code == 1
    assert "sacctmgr: there is no such command on the PATH" in done.err


@pytest.mark.slow
def test_it_goes_on_from_the_last_time_of_the_store_and_completes_what_was_running(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    """The first dump has job 6 running; the second, which begins a day earlier, its end."""
    logs, store = tmp_path / "logs", tmp_path / "store"
    row = "c|6|long|ann|{}|0:0|2026-03-02T00:00:00|2026-03-02T00:00:00|2026-03-02T00:00:00|{}|1|1|n2|gres/gpu=8|/w\n"  # noqa: E501
    site(sacct=SACCT + row.format("RUNNING", "Unknown"))
    ettr("collect", logs, *MARCH, "--run")
    assert ettr("ingest", store, *sorted(logs.iterdir()), "--timezone", "UTC").code == 0
    site(sacct=SACCT + row.format("COMPLETED", "2026-03-07T00:00:00"))
    until = ("--until", "2026-03-08")
    done = ettr("collect", logs, "--store", store, *until, "--run", "--json")
    assert done.code == 0, done.err
    # the last time in the accounting is the end of job 5, 2026-03-03T04:00
    assert {entry["since"] for entry in done.json} == {"2026-03-02T04:00:00+00:00"}
    assert ettr("ingest", store, *sorted(logs.iterdir()), "--timezone", "UTC").code == 0
    (attempt,) = ettr("explain", store, "6", "--json").json["attempts"]
    assert (attempt["state"], attempt["end"]) == ("COMPLETED", "2026-03-07T00:00:00Z")
    later = ettr("collect", logs, "--store", store, *until, "--overlap", "2h").out
    assert "# from 2026-03-06T22:00:00Z" in later


def test_a_store_that_cannot_say_from_when_is_an_error(
    tmp_path: Path, site: Callable[..., list[list[str]]]
):
    store, sacct = tmp_path / "store", tmp_path / "sacct.psv"
    sacct.write_text(SACCT)
    assert "--since, or --store" in ettr("collect", tmp_path / "logs").err
    ettr("ingest", store, sacct, "--timezone", "UTC")
    early = ettr("collect", tmp_path / "logs", "--store", store, "--until", "2026-03-01")
    assert early.code == 2
    assert "after the end of the period" in early.err
    absent = ettr("collect", tmp_path / "logs", "--store", store, "--cluster", "d")
    assert "no accounting of the cluster d yet" in absent.err
    other = tmp_path / "other.psv"
    other.write_text(SACCT.replace("\nc|", "\nd|"))
    ettr("ingest", store, other, "--timezone", "UTC")
    assert "the clusters c, d" in ettr("collect", tmp_path / "logs", "--store", store).err
    of_one = ettr("collect", tmp_path / "logs", "--store", store, "--cluster", "d")
    assert of_one.code == 0
    assert "sacct -M d -a" in of_one.out
    assert "Clusters=d" in of_one.out


@pytest.mark.parametrize("name", ["-M", "a b", "a;b", "$(x)", "../x", ""])
def test_a_name_that_no_cluster_has_is_refused(tmp_path: Path, name: str):
    done = ettr("collect", tmp_path / "logs", *MARCH, f"--cluster={name}")
    assert done.code == 2


def test_a_long_period_is_asked_for_in_pieces_without_a_gap(tmp_path: Path):
    entries = ettr(
        "collect", tmp_path, "--since", "2026-01-01", "--until", "2026-03-10", "--json"
    ).json
    spans = [
        (entry["command"][5], entry["command"][7])
        for entry in entries
        if entry["command"][0] == "sacct"
    ]
    assert spans == [
        ("2026-01-01T00:00:00", "2026-02-01T00:00:00"),
        ("2026-02-01T00:00:00", "2026-03-04T00:00:00"),
        ("2026-03-04T00:00:00", "2026-03-10T00:00:00"),
    ]
    assert len({entry["file"] for entry in entries}) == len(entries)
