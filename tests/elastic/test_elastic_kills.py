"""Real ranks (FSDP2, AdamW, gloo), really killed: who lives, what is kept, what is lost.

Each test runs four ranks and kills several of them one after another, in computing, within
`optimizer.step()` (one group of parameters updated, the other not) and within a save.
"""

import json
import signal
import sys
from pathlib import Path

import pytest

from clocks import time_since
from elastic_runs import STEPS, WORKER, Outcome, kill, survivors_keep_their_pid, train

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

# who is killed in computing is killed when the others have done the step before, too
UNHURRIED = {"step_s": 0.1}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Outcome:
    return train(tmp_path_factory.mktemp("elastic") / "undisturbed", spares=0)


def test_from_a_buddy_the_end_is_bit_for_bit_that_of_the_undisturbed_run(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    kills = [kill(2, 5, "update"), kill(0, 10, "compute"), kill(3, 15, "update")]
    # with groups of the script's own (`dist.new_group`), which every generation makes again
    outcome = train(tmp_path / "buddy", kills=kills, subgroups=True)
    assert [loss.slot for loss in outcome.report.losses] == [2, 0, 3]
    assert {loss.status for loss in outcome.report.losses} == {-signal.SIGKILL}
    survivors_keep_their_pid(outcome)
    for number in (2, 3, 4):
        ranks = outcome.generation(number)
        assert {r["source"] for r in ranks} == {"replica"}
        assert all(r["lost_steps"] <= 1 for r in ranks)  # at most the one uncommitted step
        assert len({r["step"] for r in ranks}) == 1
    assert outcome.final == undisturbed.final


def test_a_second_death_in_the_step_that_is_done_again_is_recovered_from_memory(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    # Slot 0 dies while slot 1, whose process is new, has its image of the agreed step alone.
    kills = [kill(1, 5, "update"), kill(0, 5, "update", **{"from": 2})]
    outcome = train(tmp_path / "again", kills=kills)
    assert [loss.slot for loss in outcome.report.losses] == [1, 0]
    survivors_keep_their_pid(outcome)
    for number in (2, 3):
        assert {(r["source"], r["step"]) for r in outcome.generation(number)} == {("replica", 4)}
    assert outcome.final == undisturbed.final


def test_from_a_parity_bit_for_bit_and_from_the_next_source_where_it_does_not_hold(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    # while it computes; within its update, when the others are a step further; and after another
    # rank's parameter was changed outside of an update
    kills = [kill(2, 5, "compute"), kill(1, 10, "update"), kill(3, 15, "compute")]
    outcome = train(
        tmp_path / "parity", parity=4, full_every=4, kills=kills, tamper=[0, 14, 3], **UNHURRIED
    )
    assert [loss.slot for loss in outcome.report.losses] == [2, 1, 3]
    survivors_keep_their_pid(outcome)
    found = [{(r["source"], r["step"]) for r in outcome.generation(number)} for number in (2, 3, 4)]
    assert (found[0], found[2]) == ({("replica", 4)}, {("rollback", 12)})
    # the others may have heard of its death before they knew that all had voted
    assert found[1] in ({("rollback", 8)}, {("replica", 9)})
    assert outcome.final == undisturbed.final


def test_from_a_parity_with_images_at_any_moment(undisturbed: Outcome, tmp_path: Path) -> None:
    kills = [kill(1, 5, "update"), kill(0, 5, "update", **{"from": 2}), kill(3, 11, "compute")]
    outcome = train(tmp_path / "images", parity=4, parity_images=True, kills=kills, **UNHURRIED)
    assert [loss.slot for loss in outcome.report.losses] == [1, 0, 3]
    found = [{(r["source"], r["step"]) for r in outcome.generation(number)} for number in (2, 3, 4)]
    assert found == [{("replica", 4)}, {("replica", 4)}, {("replica", 10)}]
    assert outcome.final == undisturbed.final


def test_a_rank_takes_over_what_its_replica_holds_now(tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "undisturbed", spares=0, hsdp=[2, 2])
    # nothing was ever copied, and no step is lost: as a rule not even that of the kill
    kills = [kill(2, 5, "compute"), kill(0, 10, "update")]
    outcome = train(tmp_path / "replicas", hsdp=[2, 2], kills=kills, **UNHURRIED)
    survivors_keep_their_pid(outcome)
    found = [{(r["source"], r["step"]) for r in outcome.generation(number)} for number in (2, 3)]
    assert found[0] == {("replica", 4)}
    assert found[1] in ({("replica", 10)}, {("replica", 9)})
    assert outcome.final == undisturbed.final


def test_replicas_that_differ_are_not_believed(tmp_path: Path) -> None:
    kills = [kill(3, 7, "compute")]
    config = {"hsdp": [4, 1], "full_every": 4, "steps": 8, "tamper": [0, 6, 1]}
    outcome = train(tmp_path / "apart", kills=kills, **config, **UNHURRIED)
    assert {(r["source"], r["step"]) for r in outcome.generation(2)} == {("rollback", 4)}


def test_partial_recovery_leaves_survivors_as_they_are(tmp_path: Path) -> None:
    outcome = train(
        tmp_path / "partial",
        buddy=False,
        running=True,
        running_options={"policy": "round-robin"},
        full_every=50,
        allowed=["partial", "rollback"],
        kills=[kill(1, 8, "save"), kill(3, 14, "update")],
    )
    survivors_keep_their_pid(outcome)
    for number in (2, 3):
        for rank in outcome.generation(number):
            assert rank["source"] == "partial"
            assert rank["step"] == rank["reached"]
            if rank["slot"] not in rank["lost_slots"]:
                assert rank["before"] == rank["after"]
    for slot in range(4):
        counter = [o["step"] for o in outcome.steps if o["slot"] == slot]
        assert counter == sorted(counter)  # never goes back


def test_without_memory_or_running_checkpoint_a_rollback_reports_the_steps_it_lost(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    outcome = train(
        tmp_path / "rollback", buddy=False, full_every=6, kills=[kill(1, 11, "compute")]
    )
    survivors_keep_their_pid(outcome)
    ranks = outcome.generation(2)
    assert {(r["source"], r["step"], r["lost_steps"]) for r in ranks} == {("rollback", 6, 4)}
    assert outcome.final == undisturbed.final  # the random states were in the checkpoint


def test_a_stopped_rank_is_fenced_and_replaced(undisturbed: Outcome, tmp_path: Path) -> None:
    stop = kill(1, 9, "compute", signal=int(signal.SIGSTOP))
    # a rank that is merely slow is silent for seconds too
    outcome = train(tmp_path / "hung", kills=[stop], heartbeat_s=12.0)
    (loss,) = outcome.report.losses
    assert (loss.slot, loss.cause, loss.status) == (1, "hung", -signal.SIGKILL)
    survivors_keep_their_pid(outcome)
    assert outcome.final == undisturbed.final


LAUNCHER = """
import json, sys
from pathlib import Path
from torch.distributed import TCPStore  # which takes its time
from ettr.elastic import supervise

arguments = Path(sys.argv[1])
arguments.with_name("begun").touch()
sys.exit(not supervise(json.loads(arguments.read_text()), 2).finished)
"""


def test_kills_from_outside_at_random_moments_change_nothing(tmp_path: Path) -> None:
    """Any process below the supervisor, spares too, while it imports, regroups or trains."""
    from ettr.chaos import ChaosPlan, Fault, run, schedule

    # The ranks stay before the end until the last fault was done. Time stands still until they are
    # about to be started, and only they are named as `match` wants it: the launcher is no target.
    undisturbed = train(tmp_path / "undisturbed", ranks=2, spares=0)
    config = {"steps": STEPS, "step_s": 0.5, "hold": STEPS - 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER)
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps([sys.executable, str(WORKER), str(tmp_path / "config.json")]))
    faults = schedule(5, [Fault.KILL], every_s=3, for_s=300, after_s=5, at_most=3)
    events: list[str] = []

    def on_event(what: str) -> None:
        events.append(what)
        if len(events) == len(faults):
            (tmp_path / "go").touch()

    report = run(
        [sys.executable, str(launcher), str(arguments)],
        ChaosPlan(faults, match="elastic_worker"),
        timeout_s=400,
        on_event=on_event,
        clock=time_since(tmp_path / "begun"),
    )
    assert report.survived
    assert len(report.done) == len(faults)
    assert any(one.hit for one in report.done)
    final = [json.loads((tmp_path / f"final-{slot}.json").read_text())["hash"] for slot in range(2)]
    assert final == undisturbed.final
