"""PBS accounting: reruns, days in any order, TORQUE's dialect, and what no record says."""

from pathlib import Path

import pytest

from cli.program import ettr

JOB = "user=eva jobname=train queue=gpu ctime=1772359200 qtime=1772359200 etime=1772359200"
RAN = f"{JOB} start=1772359260 exec_host=g1/0*8+g2/0*8 exec_vnode=(g1:ngpus=8)+(g2:ngpus=8)"
START = f"03/01/2026 10:01:00;S;7.atlas;{RAN} Resource_List.nodect=2\n"
END = f"03/02/2026 10:01:00;E;7.atlas;{RAN} Resource_List.nodect=2 end=1772445660 Exit_status=0\n"


def status(store: Path) -> dict[str, int]:
    done = ettr("status", store, "--json")
    assert done.code == 0, done.err
    return {entry["state"]: entry["attempts"] for entry in done.json["states"]}


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_run_over_midnight_is_one_attempt_in_either_order(tmp_path: Path, order):
    days = [tmp_path / "20260301", tmp_path / "20260302"]
    for day, text in zip(days, (START, END), strict=True):
        day.write_text(text)
    for i in order:
        assert ettr("ingest", tmp_path / "store", days[i]).code == 0
    assert status(tmp_path / "store") == {"COMPLETED": 1}


def test_a_rerun_is_an_attempt_of_its_own(tmp_path: Path):
    rerun = END.replace(";E;", ";R;").replace("Exit_status=0", "Exit_status=-11 run_count=1")
    again = END.replace("start=1772359260", "start=1772445700").replace(
        "end=1772445660", "end=1772449300"
    )
    (tmp_path / "log").write_text(
        START + rerun + again.replace("Exit_status=0", "Exit_status=0 run_count=2")
    )
    done = ettr("ingest", tmp_path / "store", tmp_path / "log")
    assert done.code == 0, done.err
    assert status(tmp_path / "store") == {"COMPLETED": 1, "REQUEUED": 1}
    assert "run_count" in done.err


@pytest.mark.slow
def test_torque_names_each_core_and_each_gpu(tmp_path: Path):
    line = (
        "03/01/2026 11:00:00;E;8.napali;user=eva group=ml jobname=t queue=batch ctime=1772359200 "
        "qtime=1772359200 etime=1772359200 start=1772359200 owner=eva@login "
        "exec_host=n1/0-3+n2/0-3 exec_gpus=n1-gpu/0+n1-gpu/1+n2-gpu/0+n2-gpu/1 "
        "Resource_List.nodect=2 Resource_List.walltime=02:00:00 session=1 end=1772362800 "
        "Exit_status=0 resources_used.walltime=01:00:00\n"
    )
    (tmp_path / "log").write_text(line)
    assert ettr("ingest", tmp_path / "store", tmp_path / "log").code == 0
    totals = ettr("report", tmp_path / "store", "--json").json["totals"]
    # two nodes with two GPUs each for one hour
    assert (totals["node_hours"], totals["gpu_hours"]) == (2.0, 4.0)
