"""Schedulers and loaders of real ranks survive kills, whichever way the lost shard comes back."""

from pathlib import Path

import pytest

from elastic_runs import Outcome, kill, survivors_keep_their_pid, train

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Outcome:
    return train(tmp_path_factory.mktemp("objects") / "undisturbed", spares=0, objects=True)


def by_step(outcome: Outcome, name: str) -> dict[tuple[int, int], object]:
    """(slot, step) -> what the rank logged when it did the step for the last time."""
    return {(one["slot"], one["step"]): one[name] for one in outcome.steps}


def logs_the_same(outcome: Outcome, undisturbed: Outcome, name: str) -> None:
    """A rank that is called away between an update and its note has no line for that step."""
    logged, expected = by_step(outcome, name), by_step(undisturbed, name)
    assert logged == {place: expected[place] for place in logged}
    assert len(logged) >= len(expected) - 4 * len(outcome.report.losses)


def test_from_a_buddy_the_end_is_that_of_the_undisturbed_run(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    kills = [kill(2, 5, "update"), kill(0, 10, "compute"), kill(3, 15, "update")]
    outcome = train(tmp_path / "buddy", kills=kills, objects=True)
    survivors_keep_their_pid(outcome)
    assert {rank["source"] for rank in outcome.generation(4)} == {"replica"}
    for name in ("rates", "drawn"):
        logs_the_same(outcome, undisturbed, name)
    assert outcome.final == undisturbed.final


def test_after_a_partial_recovery_no_rank_has_another_learning_rate(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    outcome = train(
        tmp_path / "partial",
        buddy=False,
        running=True,
        running_options={"policy": "round-robin"},
        allowed=["partial"],
        kills=[kill(1, 8, "save"), kill(3, 14, "update")],
        objects=True,
    )
    survivors_keep_their_pid(outcome)
    assert {rank["source"] for rank in outcome.generation(3)} == {"partial"}
    logs_the_same(outcome, undisturbed, "rates")
    drawn = by_step(outcome, "drawn")
    behind = {place: place[1] - 1 - n for place, n in drawn.items()}
    for slot in (0, 2):  # of the survivors, their own readers
        # called away before its update, a survivor stays one behind, and has no line of that step
        without_line = [step for step in (8, 14) if (slot, step) not in drawn]
        for step in (step for of, step in behind if of == slot):
            assert 0 <= behind[slot, step] <= sum(missed < step for missed in without_line)
    for slot, lost_at in ((1, 8), (3, 14)):  # of a lost one, its own, at most two steps old
        later = {n for (of, step), n in behind.items() if of == slot and step >= lost_at + 2}
        assert later <= {0, 1, 2}


def test_after_a_rollback_all_is_of_the_step_of_the_full_checkpoint(
    undisturbed: Outcome, tmp_path: Path
) -> None:
    outcome = train(
        tmp_path / "full",
        buddy=False,
        full_every=4,
        kills=[kill(1, 7, "compute"), kill(0, 14, "update")],
        objects=True,
    )
    assert [{rank["step"] for rank in outcome.generation(n)} for n in (2, 3)] == [{4}, {12}]
    for name in ("rates", "drawn"):
        logs_the_same(outcome, undisturbed, name)
    assert outcome.final == undisturbed.final
