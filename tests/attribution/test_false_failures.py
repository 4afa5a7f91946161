"""How many failures chance explains: the estimate lies within its own ends."""

from __future__ import annotations

import random

import pytest

from attribution.attribution_tables import Cluster, at
from ettr.analysis.assumptions import Assumptions
from ettr.attribution.background import background, false_failures_by_size
from ettr.attribution.rules import Window
from ettr.facts import Facts
from fact_tables import attributed


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [0, 1, 20])
def test_the_expected_number_lies_within_its_interval(episodes: int) -> None:
    """Two failures rest on a check; a long job meets so many critical events that end nothing."""
    cluster = Cluster()
    for job in (1, 2):
        cluster.attempt(str(job), "FAILED", (f"n{job}",))
        cluster.event(f"n{job}", 7100, "79")
    for job in (3, 4, 5):
        cluster.attempt(str(job), "FAILED", (f"n{job}",))
    cluster.attempt("9", "COMPLETED", ("n9",), end_s=7_200_000)
    for number in range(episodes):
        cluster.event("n9", 200_000 + 300_000 * number, "79")
    false = false_failures_by_size(cluster.on(above_gpus=8))
    assert false.background.episodes == episodes
    expected = false.all_jobs.expected_false
    assert false.all_jobs.on_evidence == 2
    assert expected.low <= expected.estimate <= expected.high
    assert (expected.estimate > 0) is (episodes > 0)


@pytest.mark.slow
def test_the_background_counts_what_began_in_the_quiet_part_of_each_run() -> None:
    """Runs of a day and more, short ones and some that could be blamed, counted one by one."""
    draw = random.Random(5)
    window = Window(before_s=600.0, after_s=300.0)
    runs = []
    for number in range(60):
        start_s = draw.uniform(0.0, 300_000.0)
        ran_s = draw.choice([0.3, 400.0, 600.4, 601.5, 5_000.0, 200_000.0])
        runs.append((f"a{number}", f"n{number % 3}", start_s, start_s + ran_s, number % 2 == 0))
    begins = [(f"n{number % 3}", draw.uniform(0.0, 400_000.0)) for number in range(200)]
    # just before and after what decides: the beginning, the window and the end
    begins += [
        (node, moment_s + by_s)
        for _, node, start_s, end_s, _ in runs
        for moment_s in (start_s, end_s - window.before_s, end_s)
        for by_s in (-0.2, 0.2)
    ]

    def in_quiet(node: str, began_s: float) -> int:
        return sum(
            start_s < began_s <= (end_s - window.before_s if blamed else end_s)
            and int(end_s - window.before_s * blamed) > int(start_s)
            for _, name, start_s, end_s, blamed in runs
            if name == node
        )

    allocations = [
        (node, name, us(start_s), us(end_s), end_s - start_s)
        for name, node, start_s, end_s, _ in runs
    ]
    suspect = {name for name, *_, blamed in runs if blamed}
    folded = [(node, us(began_s), us(int(began_s) + 30.0)) for node, began_s in begins]
    found = background(quiet_facts(allocations, suspect, folded, window))
    expected = [in_quiet(node, began_s) for node, began_s in begins]
    assert found.episodes == sum(expected)
    assert found.mean_length_s == pytest.approx(30.0)
    assert found.by_symptom[0].symptom == "gpu"
    # the same to the last digit in whatever order the rows are
    for place in (1, 2, 8):
        turned = allocations[place:] + allocations[:place]
        assert background(quiet_facts(turned, suspect, folded, window)) == found


Held = tuple[str, str, int, int, float]


def us(offset_s: float) -> int:
    """Microseconds from 1970 to so many seconds on the tests' clock."""
    return round(at(offset_s).timestamp() * 1e6)


def quiet_facts(
    held: list[Held], suspect: set[str], folded: list[tuple[str, int, int]], window: Window
) -> Facts:
    """Facts of what was held, by which suspects, and of episodes of one symptom.

    Args:
        held: node, attempt, start, end and seconds of each.
        suspect: attempts that their nodes may have ended; users ended the others.
        folded: node, first and last of each episode.
        window: whose beginning is left out of the time of suspects.
    """
    facts = attributed({}, Assumptions(window=window))
    columns = ["cluster", "node", "attempt_id", "start_us", "end_us", "elapsed_s"]
    kinds = ["VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT", "DOUBLE"]
    typed = list(zip(columns, kinds, strict=True))
    put = facts.engine.put
    put("held_here", typed, [("c", *row) for row in held])
    kind = {row[1]: "hardware-candidate" if row[1] in suspect else "user-failure" for row in held}
    put(
        "interrupted_here",
        [*typed, ("kind", "VARCHAR")],
        [("c", *row, kind[row[1]]) for row in held],
    )
    names = [("cluster", "VARCHAR"), ("node", "VARCHAR"), ("symptom", "VARCHAR")]
    put(
        "episodes_here",
        [*names, ("first_us", "BIGINT"), ("last_us", "BIGINT")],
        [("c", node, "gpu", first_us, last_us) for node, first_us, last_us in folded],
    )
    return facts.over(
        allocations="held_here", interrupted_held="interrupted_here", all_episodes="episodes_here"
    )


def test_of_two_runs_at_once_on_one_node_only_the_suspect_has_a_window() -> None:
    """Two GPUs of the node show the same fault at the same time, 100 s before both runs end."""
    held = [("n", name, us(0), us(5000), 5000.0) for name in ("failed", "completed")]
    late, early = ("n", us(4900), us(4910)), ("n", us(1000), us(1040))
    window = Window(before_s=600.0, after_s=300.0)
    found = background(quiet_facts(held, {"failed"}, [late, late, early], window))
    # the late two in the run that completed, the early one in both
    assert found.episodes == 2 + 2
    assert found.mean_length_s == pytest.approx((2 * 10.0 + 2 * 40.0) / 4)
    assert found.node_hours == pytest.approx((5000.0 + 4400.0) / 3600)
