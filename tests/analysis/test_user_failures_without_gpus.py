"""What failed by its user's fault without a word on its GPUs held an unknown time of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.store import open_store

HEAD = "Cluster|JobID|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES\n"
DAY = "2026-03-01T"


def job(number: int, user: str, hours: int, gpus: int | None, state: str = "FAILED") -> str:
    held = "" if gpus is None else f"gres/gpu={gpus}"
    span = f"{DAY}00:00:00|{DAY}00:00:00|{DAY}{hours:02}:00:00|{3600 * hours}"
    return f"c|{number}|{user}|{state}|1:0|{span}|1|n{number}|{held}\n"


def site(folder: Path, *rows: str) -> Path:
    (folder / "sacct.psv").write_text(HEAD + "".join(rows))
    done = ettr("ingest", folder / "site", folder / "sacct.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


RAN = job(9, "dan", 10, 8, "COMPLETED")


@pytest.mark.parametrize(
    ("second", "third", "bob", "cid", "whole"),
    [
        (4, 1, (8.0, 0), (3.0, 0), (27.0, 0)),
        (None, 1, (None, 1), (3.0, 0), (19.0, 1)),
        (0, None, (0.0, 0), (None, 1), (16.0, 1)),
    ],
)
def test_hours_of_a_group_without_gpus_are_unknown(
    second: int | None, third: int | None, bob: tuple[float | None, int],
    cid: tuple[float | None, int], whole: tuple[float | None, int], tmp_path: Path,
) -> None:  # fmt: skip
    """Ann's job held 8 GPUs for 2 h; Bob's ran for 2 h and Cid's for 3 h."""
    jobs = job(1, "ann", 2, 8), job(2, "bob", 2, second), job(3, "cid", 3, third)
    with open_store(site(tmp_path, *jobs, RAN)) as store:
        found = Analysis(store).user_failures
    held = {one.name: (one.gpu_hours, one.attempts_without_gpus) for one in found.by_user}
    assert held == {"ann": (16.0, 0), "bob": bob, "cid": cid}
    assert (found.gpu_hours, found.attempts_without_gpus) == whole
    (state,) = found.by_state
    assert (state.gpu_hours, state.attempts_without_gpus) == whole
    nodes = {one.name: (one.gpu_hours, one.attempts_without_gpus) for one in found.by_node}
    assert nodes == {"n1": (16.0, 0), "n2": bob, "n3": cid}


def test_the_page_says_what_adds_nothing(tmp_path: Path) -> None:
    """Of 16 known GPU-hours at 2 USD; 96 are known to have run."""
    store = site(tmp_path, job(1, "ann", 2, 8), job(2, "bob", 2, None), RAN)
    said = " ".join(
        ettr("user-failures", store, "--gpu-hour-price", "2USD", "--detail").out.split()
    )
    assert "They held at least 16 GPU-hours, 16.7 % of all that ran" in said, said
    assert "32 USD held by them, a lower bound" in said
    assert "1 attempt without a GPU count or a runtime adds nothing to the GPU-hours" in said


def test_none_that_says_its_gpus_did_not_hold_none(tmp_path: Path) -> None:
    store = site(tmp_path, job(1, "ann", 2, None), RAN)
    found = ettr("user-failures", store, "--json").json
    assert (found["gpu_hours"], found["attempts_without_gpus"]) == (None, 1)
    said = " ".join(
        ettr("user-failures", store, "--gpu-hour-price", "2USD", "--detail").out.split()
    )
    assert "What they held is not measured: no log has both their GPUs" in said
    assert "0 USD" not in said


def test_a_time_limit_is_told_from_an_error(tmp_path: Path) -> None:
    """Ann's jobs fail after 2 h; one of Bob's reaches its limit after 10 h of 8 GPUs."""
    failed = job(1, "ann", 2, 8), job(2, "ann", 2, 8)
    (tmp_path / "a").mkdir()
    text = ettr("user-failures", site(tmp_path / "a", *failed, RAN)).out
    assert text.startswith("2 jobs failed by errors of their own and held 32 GPU-hours; most")
    text = ettr("user-failures", site(tmp_path, *failed, job(3, "bob", 10, 8, "TIMEOUT"))).out
    assert text.startswith(
        "3 jobs failed by errors of their own or at a time limit (1, 80 GPU-hours) and held 112 "
        "GPU-hours; most often ann, 2."
    )
