"""What a restore will take: by hand, and what is left of it for a job that lost every process."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.recovery import RestorePrior, RestoreTimings, RunTimings, predicted_s
from ettr.recovery.restore_costs import combined_timings, read_timings, write_timings

PRIOR = RestorePrior(latency_s=0.5, bytes_per_s=1e8)


def test_until_one_was_timed_the_prior_counts():
    assert predicted_s(0, RestoreTimings(), PRIOR) == 0.5
    assert predicted_s(200_000_000, RestoreTimings(), PRIOR) == pytest.approx(2.5)


def test_what_was_timed_replaces_the_prior_and_follows_the_bytes():
    seen = RestoreTimings().with_one(100, 2.5).with_one(300, 2.5)  # 200 bytes in 2.5 s on the mean
    assert seen.bytes_per_s == pytest.approx(80)
    assert predicted_s(200, seen, PRIOR) == pytest.approx(2.5)
    assert predicted_s(400, seen, PRIOR) == pytest.approx(0.5 + 4.0)
    assert predicted_s(0, seen, PRIOR) == pytest.approx(0.5)
    fast = RestoreTimings().with_one(
        100, 0.1
    )  # below the prior's latency: nothing is left for bytes
    assert predicted_s(1_000_000, fast, PRIOR) == pytest.approx(0.1)
    assert predicted_s(50, RestoreTimings(1, 0, 3.0), PRIOR) == 3.0
    assert RestoreTimings().bytes_per_s is None


@given(n=st.integers(1, 50), size=st.integers(1, 10**12), seconds=st.floats(0.001, 1000))
def test_a_restore_of_the_usual_size_takes_the_usual_time(n, size, seconds):
    seen = RestoreTimings(n, n * size, n * seconds)
    assert predicted_s(size, seen, PRIOR) == pytest.approx(seconds)
    assert predicted_s(2 * size, seen, PRIOR) >= predicted_s(size, seen, PRIOR)


def test_a_prior_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="the rate above 0"):
        RestorePrior(0.1, 0)
    with pytest.raises(UsageError, match=r"restore prior of -1 s"):
        RestorePrior(-1, 1)


def test_of_several_ranks_the_most_experienced_and_slowest_counts():
    new = RunTimings(2.0, None, {"replica": RestoreTimings(1, 10, 1.0)})
    old = RunTimings(
        3.0, 4.0, {"replica": RestoreTimings(2, 20, 1.0), "partial": RestoreTimings(1, 5, 1.0)}
    )
    slow = RunTimings(3.5, 4.5, {"replica": RestoreTimings(2, 20, 6.0)})
    assert combined_timings([new, old, slow]) == RunTimings(
        2.0, 4.0, {"replica": RestoreTimings(2, 20, 6.0), "partial": RestoreTimings(1, 5, 1.0)}
    )
    assert combined_timings([]) == RunTimings(None, None, {})


def test_a_note_survives_the_job_and_a_damaged_one_is_none(tmp_path):
    timed = RunTimings(0.25, None, {"rollback": RestoreTimings(2, 800, 1.5)})
    folder = tmp_path / "full"
    assert read_timings(folder) is None
    write_timings(folder, timed)
    write_timings(folder, timed)
    assert read_timings(folder) == timed
    (note,) = folder.iterdir()  # nothing half written is left
    whole = note.read_text()
    raw = json.loads(whole)
    for damaged in (
        whole[:20],
        "[]",
        json.dumps({**raw, "step_s": -1}),
        json.dumps({**raw, "step_s": "1"}),
        json.dumps({**raw, "restores": {"rollback": {"n": 1, "bytes": 2}}}),
    ):
        note.write_text(damaged)
        assert read_timings(folder) is None
    note.unlink()
    folder.rmdir()
    folder.write_text("a file where the folder should be")
    write_timings(folder, timed)  # training goes on
