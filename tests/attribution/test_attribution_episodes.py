"""Observations fold into episodes by the public rules, whatever their order."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution.attribution_tables import Cluster, arrow, at
from ettr.attribution import FoldingRules
from ettr.errors import UsageError
from ettr.facts.facts import at as at_us
from ettr.tables import EVENTS
from fact_tables import attributed

pytestmark = pytest.mark.slow


def folded(cluster: Cluster, rules: FoldingRules | None = None) -> list[dict[str, Any]]:
    """Episodes of a fault in order, with times of the tests' clock."""
    found = cluster.on(folding=rules or FoldingRules()).rows("all_episodes")
    key = ("first_us", "node", "check", "code_key", "entity_key")
    ordered = sorted(found, key=lambda row: [row[name] for name in key])
    return [
        {**row, "first": at_us(row["first_us"]), "last": at_us(row["last_us"])} for row in ordered
    ]


def spans(found: list[dict[str, Any]]) -> list[tuple[str, str | None, float, float, int, str]]:
    return [
        (
            e["node"],
            e["code"],
            (e["first"] - at(0)).total_seconds(),
            (e["last"] - at(0)).total_seconds(),
            e["n_events"],
            e["event_id"],
        )
        for e in found
    ]


def test_a_burst_is_one_episode_until_a_silence_of_over_three_minutes() -> None:
    cluster = Cluster()
    for time_s in (1000, 1180, 1360, 1540.000001):
        cluster.event("n1", time_s, "48")
    assert spans(folded(cluster)) == [
        ("n1", "48", 1000, 1360, 3, "e0000"),
        ("n1", "48", 1540.000001, 1540.000001, 1, "e0003"),
    ]


@pytest.mark.parametrize("code", ["74", "79", "95", "109", "119"])
def test_a_sticky_code_is_one_episode_for_three_hours(code: str) -> None:
    cluster = Cluster()
    for time_s in (0, 10_800, 21_600, 32_400.5):
        cluster.event("n1", time_s, code)
    assert [(e[2], e[3], e[4]) for e in spans(folded(cluster))] == [
        (0, 21_600, 3),
        (32_400.5, 32_400.5, 1),
    ]


def test_nodes_gpus_and_codes_fold_apart() -> None:
    cluster = Cluster()
    for node, code, entity in [
        ("n1", "79", "0000:18:00"),
        ("n1", "79", "0000:2a:00"),
        ("n2", "79", "0000:18:00"),
        ("n1", "48", "0000:18:00"),
        ("n1", "79", "0000:18:00"),
    ]:
        cluster.event(node, 10, code, entity=entity)
    found = folded(cluster)
    assert sorted((e["node"], e["code"], e["entity"], e["n_events"]) for e in found) == [
        ("n1", "48", "0000:18:00", 1),
        ("n1", "79", "0000:18:00", 2),
        ("n1", "79", "0000:2a:00", 1),
        ("n2", "79", "0000:18:00", 1),
    ]


def test_pointers_companions_and_program_errors_are_no_episodes_of_a_fault() -> None:
    cluster = Cluster()
    for code in ("154", "45", "31", "13", "43"):
        cluster.event("n1", 10, code)
    cluster.event("n1", 10, None, "check mountpoint", severity="ok")
    cluster.event("n1", 10, "NODE_FAIL", "slurmctld", job_id="1")
    assert folded(cluster) == []


def test_a_lone_companion_counts_where_the_site_wants_it() -> None:
    cluster = Cluster()
    cluster.attempt("1", "FAILED", ("n1",))
    cluster.attempt("2", "FAILED", ("n2",))
    cluster.event("n1", 7100, "45")
    cluster.event("n2", 7100, "45")
    cluster.event("n2", 6990, "31")
    assert cluster.failures() == []
    counted = cluster.failures(folding=FoldingRules(count_lone_sympathetic=True))
    assert [row["job_id"] for row in counted] == ["1"]


def test_800_thousand_lines_of_one_gpu_are_one_episode() -> None:
    n_lines = 800_000
    lines = pa.table(
        {
            "event_id": [f"{i:08x}" for i in range(n_lines)],
            "cluster": ["c"] * n_lines,
            "node": ["n1"] * n_lines,
            "time": pa.array(
                [1_767_225_600_000_000 + 10_000 * i for i in range(n_lines)],
                pa.timestamp("us", "UTC"),
            ),
            "time_end": pa.nulls(n_lines, pa.timestamp("us", "UTC")),
            "check": ["xid"] * n_lines,
            "code": ["79"] * n_lines,
            "severity": ["unknown"] * n_lines,
            "entity": ["0000:18:00"] * n_lines,
        }
    )
    lines = lines.append_column("source", [["kern"] * n_lines])
    lines = lines.append_column("file_id", [["file-kern"] * n_lines])
    lines = lines.append_column("line", [list(range(n_lines))])
    for field in EVENTS.arrow_schema:
        if field.name not in lines.column_names:
            lines = lines.append_column(field, pa.nulls(n_lines, field.type))
    lines = EVENTS.check(lines.select(EVENTS.names).cast(EVENTS.arrow_schema))
    found = attributed({"events": lines}).rows("all_episodes")
    assert [(e["n_events"], e["event_id"]) for e in found] == [(n_lines, "00000000")]


def test_reasons_of_node_states_are_observations_too() -> None:
    cluster = Cluster()
    said = cluster.state("n1", "DRAIN", "NHC: check_dcgm: GPU 3 XID 79 fallen off the bus", 50)
    cluster.state("n2", "DRAIN", "firmware upgrade", 50)
    cluster.state("n3", "DRAIN", "see ticket", 50)
    cluster.state("n4", "DOWN", "Not responding", 50)
    found = [e for e in folded(cluster) if e["fault"]]
    assert [(e["node"], e["symptom"], e["event_id"]) for e in found] == [
        ("n1", "gpu-unavailable", said)
    ]


def test_a_fault_with_an_end_lasts_until_then() -> None:
    cluster = Cluster()
    cluster.event("n1", 0, "48", time_end=at(5000))
    cluster.event("n1", 5100, "48")
    assert spans(folded(cluster)) == [("n1", "48", 0, 5100, 2, "e0000")]


def plain_folding(times: list[int], gap_s: int) -> list[tuple[int, int, int]]:
    """The rule as it is written, for points in time."""
    found: list[list[int]] = []
    for time in sorted(times):
        if found and time - found[-1][-1] <= gap_s:
            found[-1].append(time)
        else:
            found.append([time])
    return [(some[0], some[-1], len(some)) for some in found]


# a case on each node, so that one query tries many
CASES = st.lists(st.lists(st.integers(0, 40_000), min_size=1, max_size=40), min_size=1, max_size=20)


@settings(max_examples=4, deadline=None)
@given(
    cases=CASES,
    gap_s=st.sampled_from([1, 60, 180, 3600]),
    sticky=st.booleans(),
    shuffle=st.randoms(use_true_random=False),
)
def test_folding_is_the_written_rule_in_any_order_and_folding_again_changes_nothing(
    cases: list[list[int]],
    gap_s: int,
    sticky: bool,
    shuffle: random.Random,
) -> None:
    rules = FoldingRules(burst_gap_s=1 if sticky else gap_s, sticky_gap_s=gap_s)
    cluster = Cluster()
    for number, times in enumerate(cases):
        for time in times:
            cluster.event(f"n{number}", time, "79" if sticky else "48")
    once = folded(cluster, rules)
    expected = [
        (f"n{number}", *episode)
        for number, times in enumerate(cases)
        for episode in plain_folding(times, gap_s)
    ]
    assert sorted((e[0], *e[2:5]) for e in spans(once)) == sorted(expected)

    shuffle.shuffle(cluster.events)
    assert folded(cluster, rules) == once

    again = Cluster()
    for one in once:
        again.event(
            one["node"],
            (one["first"] - at(0)).total_seconds(),
            one["code"],
            time_end=one["last"],
            event_id=one["event_id"],
        )
    twice = folded(again, rules)
    key = ("node", "first", "last", "event_id")
    assert [[e[k] for k in key] for e in twice] == [[e[k] for k in key] for e in once]


def test_gaps_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="the burst gap must be over 0 and no longer than"):
        FoldingRules(burst_gap_s=200, sticky_gap_s=100)
    with pytest.raises(UsageError, match="gaps of 0 s"):
        FoldingRules(burst_gap_s=0)


def test_the_events_of_these_tests_are_valid() -> None:
    cluster = Cluster()
    cluster.event("n1", 0, "79")
    assert arrow(EVENTS, cluster.events).num_rows == 1
