import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.models.data import Counts, Lifetimes, counts_by_window


def test_every_problem_of_lifetimes_is_told_at_once():
    with pytest.raises(UsageError) as told:
        Lifetimes([-1.0, 5.0], [True], entry_s=[0.0, np.nan], group=["a"])
    text = str(told.value)
    assert "duration_s: 1 of 2 values are negative; give 0 or more" in text
    assert "observed: 1 values for 2 durations" in text
    assert "entry_s: 1 of 2 values are not finite" in text
    assert "group: 1 labels for 2 rows" in text


def test_a_span_must_have_a_length():
    with pytest.raises(UsageError, match="1 of 2 spans end where or before they begin"):
        Lifetimes([3.0, 2.0], [True, False], [1.0, 2.0])


def test_no_rows_are_refused():
    with pytest.raises(UsageError, match="give at least one span"):
        Lifetimes([], [])


def test_exposure_is_time_at_risk():
    spans = Lifetimes([86400.0, 2 * 86400.0], [True, False], [0.0, 86400.0])
    assert spans.failures == 1
    assert spans.node_days == 2.0


def test_inputs_cannot_be_changed_afterwards():
    spans = Lifetimes([1.0], [True])
    with pytest.raises(ValueError, match="read-only"):
        spans.duration_s[0] = 2.0


@pytest.mark.parametrize(
    ("failures", "exposure", "says"),
    [
        ([1.5], [1.0], "not whole numbers"),
        ([1], [0.0], "1 nodes failed without any exposure"),
        ([1, 2], [1.0, 2.0, 3.0], "3 values for 2 nodes"),
        ([-1], [1.0], "are negative"),
        ([], [], "give at least one"),
    ],
)
def test_counts_that_cannot_be(failures, exposure, says):
    with pytest.raises(UsageError, match=says):
        Counts(failures, exposure)


def test_windows_count_each_failure_once_and_drop_the_rest():
    counts = counts_by_window([0.0, 0.5, 1.0, 2.9, 3.0, 3.2], 0.0, 3.5, 1.0, 10)
    assert counts.failures.tolist() == [2, 1, 1]
    assert counts.node_days == 30.0


@pytest.mark.parametrize(("nodes", "window", "says"), [(0, 1.0, "n_nodes"), (5, 9.0, "no window")])
def test_windows_that_cannot_be(nodes, window, says):
    with pytest.raises(UsageError, match=says):
        counts_by_window([0.1], 0.0, 3.0, window, nodes)
