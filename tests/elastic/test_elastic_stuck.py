"""Ranks that show signs of life and are of no use, and failures that are the script's own."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from traceback import TracebackException

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch.distributed import HashStore

from ettr.checkpoint import FencedError
from ettr.elastic import SupervisorOptions, supervise
from ettr.elastic.rendezvous import OWN_ERROR
from ettr.elastic.supervisor import OwnError, OwnErrors, own_error
from forked_python import forked_workers

pytestmark = [pytest.mark.torch, pytest.mark.slow]

RANK = """
import os, sys, time
from pathlib import Path
from ettr.elastic import ElasticGroup, Protection, Timeouts

folder, how = Path(sys.argv[1]), sys.argv[2]

def train(generation):
    (folder / f"seen-{generation.number}-{generation.slot}-{os.getpid()}").touch()
    if how == "broken":
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    if how == "assertion":
        assert generation.slot < 0, "no slot is below 0"
    first = generation.number == 1
    if first and generation.slot == 1:
        while not list(folder.glob("seen-1-0-*")):  # it could not form a group with one that left
            time.sleep(0.05)
        raise RuntimeError("its collective has run into the timeout")
    while first and how == "stuck":
        time.sleep(0.05)
    if first and how == "slow":
        while group._heartbeat.newest == generation.number:
            time.sleep(0.05)
        time.sleep(1)
        raise RuntimeError("the cut has come late")

group = ElasticGroup.from_env(Protection(buddy=False), timeouts=Timeouts(20.0, 120.0, 180.0))
group.run(train)
"""


def run(folder: Path, how: str, **options):
    script = folder / "rank.py"
    script.write_text(RANK)
    with forked_workers():
        return supervise(
            [sys.executable, str(script), str(folder), how],
            2,
            options=SupervisorOptions(spares=1, **options),
            environment={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def pids(folder: Path, generation: int) -> dict[int, int]:
    """Slot -> process of a generation."""
    found = (path.name.split("-") for path in folder.glob(f"seen-{generation}-*"))
    return {int(slot): int(pid) for _, _, slot, pid in found}


def test_who_does_not_leave_a_generation_is_replaced_and_the_others_live(tmp_path):
    report = run(tmp_path, "stuck", failed_grace_s=6.0)
    assert report.finished, report.reason
    (loss,) = report.losses
    assert (loss.slot, loss.cause) == (0, "hung")
    first, last = pids(tmp_path, 1), pids(tmp_path, report.generations)
    assert last[1] == first[1]
    assert last[0] != first[0]


def test_who_leaves_a_generation_late_is_not_replaced(tmp_path):
    # a second after the others were called to the next one; fifteen are allowed
    report = run(tmp_path, "slow", failed_grace_s=15.0)
    assert report.finished, report.reason
    assert report.losses == ()
    assert pids(tmp_path, report.generations) == pids(tmp_path, 1)


@pytest.mark.parametrize(
    ("how", "words"), [("broken", "mat1 and mat2 shapes"), ("assertion", "no slot is below 0")]
)
def test_a_script_that_fails_on_every_rank_ends_the_run_in_words(tmp_path, capfd, how, words):
    # tried once more, and not as often as a failure without a known reason
    report = run(tmp_path, how, max_idle_failures=9)
    assert not report.finished
    assert "the script failed with the same error" in report.reason
    assert words in report.reason
    assert f"{tmp_path}/rank.py, line " in report.reason
    assert words in capfd.readouterr().err  # and the traceback is there
    tried = {path.name.split("-")[1] for path in tmp_path.glob("seen-*")}
    assert len(tried) <= 3


REPORTED = OwnError(1, 0, 12, "ValueError at train.py, line 3", "ValueError: no")


def verdict(*events: tuple[list[OwnError], list[str], int]) -> str | None:
    """What is said of three slots after (reports, ended workers, generation) in turn."""
    store = HashStore()
    errors = OwnErrors(store)
    for reports, ended, generation in events:
        for error in reports:
            store.set(OWN_ERROR.format(worker=f"w{error.slot}"), error.to_json())
        errors.listen([f"w{slot}" for slot in range(3)], ended, generation)
    return errors.reason(3)


def test_one_error_on_several_slots_in_two_generations_is_the_scripts():
    again = [replace(REPORTED, generation=2, slot=slot) for slot in (0, 1)]
    reason = verdict(([REPORTED], ["w0"], 1), (again, ["w0", "w1"], 2))
    assert "generations 1, 2, on slots 0, 1" in reason
    assert "ValueError: no (ValueError at train.py, line 3)" in reason


@pytest.mark.parametrize(
    ("second", "ended"),
    [
        (replace(REPORTED, generation=2), ["w0"]),  # one slot alone: its device may be bad
        (replace(REPORTED, slot=1), ["w1"]),  # one generation: it is tried once more
        (replace(REPORTED, generation=2, slot=1, step=13), ["w1"]),  # a step was made since
        (replace(REPORTED, generation=2, slot=1, place="elsewhere"), ["w1"]),
        (replace(REPORTED, generation=2, slot=1), ["w1", "w2"]),  # w2 was killed: a consequence
    ],
)
def test_whatever_may_have_another_reason_is_tried_again(second, ended):
    assert verdict(([REPORTED], ["w0"], 1), ([second], ended, 2)) is None


def failed(action):
    """What a rank reports of an error."""
    try:
        action()
    except Exception as error:
        failure = TracebackException.from_exception(error)
        return own_error(type(error), failure, generation=1, slot=0, step=3)


def test_errors_that_a_peer_or_a_disk_may_have_caused_are_not_reported():
    def raises(error):
        raise error

    def collective():
        dist.barrier()  # without a group

    assert failed(lambda: raises(KeyError("lr"))).text == "KeyError: 'lr'"
    assert failed(lambda: torch.ones(2, 3) @ torch.ones(2, 3)).step == 3
    assert failed(collective) is None
    assert failed(lambda: raises(OSError("stale file handle"))) is None
    assert failed(lambda: raises(RuntimeError("[pair.cc:144] Connection closed by peer"))) is None
    assert failed(lambda: raises(RuntimeError("CUDA error: an illegal memory access"))) is None
    assert failed(lambda: raises(FencedError("another process has this slot"))) is None
