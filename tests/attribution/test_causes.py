"""The ledger of causes: planted causes, whose hazards it finds, and stores read as a user would."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.program import ettr, ettr_once
from ettr.attribution.hazards import (
    FAILED,
    FixedTerms,
    Hazards,
    Interruptions,
    coincidences,
    evidence_table,
    hazards_without_own,
)
from ettr.attribution.ledger import fit_ledger
from ettr.attribution.shared_bursts import burst_odds
from ettr.taxonomy import load_taxonomy
from shared_data import shared

pytestmark = pytest.mark.slow

CAUSE_KEYS = (
    *("node_hardware", "shared", "system_software", "user_program", "operator", "unknown"),
)
HEADER = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES"
)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
NODES, DAYS = 32, 20


def _row(number: int, user: str, node: int, begin_h: float, hours: float, state: str) -> str:
    start = FIRST + timedelta(hours=begin_h)
    end = start + timedelta(hours=hours)
    times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start, start, end))
    code = "0:0" if state == "COMPLETED" else "1:0"
    return (
        f"c|{number}|{user}-train|{user}|{state}|{code}|{times}|{round(3600 * hours)}|1|n{node}"
        "|node=1,gres/gpu=8"
    )


def _write(place: Path) -> None:
    """Five jobs a day on each node by ten users: u0's program fails on every node, n5 fails the
    jobs of all others every second day, and the nodes of rack r1 fail at one moment."""
    rows, number = [HEADER], 0
    for day in range(DAYS):
        for node in range(NODES):
            for slot in range(5):
                number += 1
                # of the users one runs on each node once in a while, without a pattern
                user = f"u{(7 * day + 3 * node + slot) % 10}"
                state, hours = "COMPLETED", 4.0
                if user == "u0" and (day + node) % 2:
                    state, hours = "FAILED", 1.0
                elif node == 5 and day % 2 and user != "u0":
                    state, hours = "FAILED", 1.5
                elif node // 8 == 1 and (day, slot) == (9, 2):
                    state, hours = "FAILED", 2.0
                rows.append(_row(number, user, node, 24 * day + 4.5 * slot, hours, state))
    (place / "sacct.psv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    switches = [f"SwitchName=s{rack} Nodes=n[{8 * rack}-{8 * rack + 7}]" for rack in range(4)]
    (place / "topology.conf").write_text("\n".join(switches) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("causes")
    _write(place)
    logs = (place / "sacct.psv", place / "topology.conf")
    done = ettr("ingest", place / "store", *logs, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    return place / "store"


def test_code_that_fails_on_many_nodes_a_node_that_fails_many_users_and_a_switch(store: Path):
    listed = ettr_once("causes", store, "--json").json["listed"]
    of_user = [one for one in listed if one["user"] == "u0" and one["node"] != "n5"]
    assert np.mean([one["user_program"] for one in of_user]) > 0.9
    of_node = [one for one in listed if one["node"] == "n5" and one["user"] != "u0"]
    assert np.mean([one["node_hardware"] for one in of_node]) > 0.6
    at_once = (FIRST + timedelta(hours=24 * 9 + 9 + 2)).isoformat()[:19]
    switch = [one for one in listed if one["end"].startswith(at_once) and one["user"] != "u0"]
    assert len(switch) >= 6
    assert np.mean([one["shared"] for one in switch]) > 0.9


def test_totals_export_and_csv_agree(store: Path, tmp_path: Path):
    found = ettr_once("causes", store, "--json").json
    assert sum(one["expected"] for one in found["totals"]) == pytest.approx(found["interruptions"])
    rows = list(csv.DictReader(io.StringIO(ettr("causes", store, "--csv").out)))
    assert len(rows) == found["interruptions"] == len(found["listed"])
    for row in rows:
        assert sum(float(row[key]) for key in CAUSE_KEYS) == pytest.approx(1.0)
    table = tmp_path / "causes.csv"
    assert ettr("export", store, "--table", "causes", "--to", table).code == 0
    exported = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))
    for total in found["totals"]:
        summed = sum(float(row[total["cause"]]) for row in exported)
        assert summed == pytest.approx(total["expected"], abs=1e-6)
    assert "user's program" in ettr("causes", store, "--detail").out


def test_a_list_that_is_cut_says_so_and_leaves_the_totals_alone(store: Path):
    whole = ettr_once("causes", store, "--json").json
    assert whole["not_listed"] == 0
    n = whole["interruptions"]
    found = ettr("causes", store, "--json", "--limit", "7").json
    assert found["totals"] == whole["totals"]
    assert found["interruptions"] == n
    assert found["listed"] == whole["listed"][-7:]
    assert found["not_listed"] == n - 7
    note = f"{n - 7} earlier interruptions are not listed; the totals have them too."
    assert any(one.startswith(note) for one in found["notes"])
    assert found["notes"][:-1] == whole["notes"]
    done = ettr("causes", store, "--csv", "--limit", "7")
    assert len(list(csv.DictReader(io.StringIO(done.out)))) == 7
    assert note in done.err
    assert ettr("causes", store, "--json", "--limit", str(n)).json == whole
    assert ettr("causes", store, "--json", "--limit", "0").json["listed"] == []
    refused = ettr("causes", store, "--json", "--limit", "-1")
    assert refused.code == 2
    assert "--limit" in refused.err


def test_another_catalogue_shows_what_it_changes(store: Path, tmp_path: Path):
    kernel = tmp_path / "kernel.log"
    when = FIRST + timedelta(hours=24 + 0.99)
    kernel.write_text(
        "".join(
            f"{when:%Y-%m-%dT%H:%M:%S}+00:00 n{node} kernel: NVRM: Xid (PCI:0000:3b:00): 79, "
            "pid=1, name=x, GPU has fallen off the bus.\n"
            for node in range(NODES)
        ),
        encoding="utf-8",
    )
    sacct, zone = store.parent / "sacct.psv", ("--timezone", "UTC")
    assert ettr("ingest", tmp_path / "store", sacct, kernel, *zone, "--cluster", "c").code == 0
    plain = ettr("causes", tmp_path / "store", "--json").json
    assert all(one["by_default"] is None for one in plain["totals"])
    done = ettr("causes", tmp_path / "store", "--believe", "aws", "--json")
    assert done.code == 0, done.err
    for before, after in zip(plain["totals"], done.json["totals"], strict=True):
        assert after["by_default"] == pytest.approx(before["expected"])
    assert "change" in ettr("causes", tmp_path / "store", "--believe", "aws", "--detail").out


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    nodes=st.integers(1, 6),
    programs=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_probabilities_sum_to_one_whatever_was_seen(seed: int, n: int, nodes: int, programs: int):
    rng = np.random.default_rng(seed)
    symptoms = load_taxonomy().symptoms
    kinds = (*list(symptoms)[: rng.integers(1, 16)], FAILED)
    pair_of = np.sort(rng.integers(0, n, rng.integers(0, 3 * n)))
    interruptions = Interruptions(
        rng.integers(0, len(kinds), n),
        kinds,
        rng.integers(0, programs, n),
        np.zeros(programs, dtype=np.int64),
        rng.integers(0, 50, programs).astype(float),
        pair_of,
        rng.integers(0, nodes, len(pair_of)),
        rng.exponential(1.0, len(pair_of)),
        rng.random(len(pair_of)) < 0.2,
        rng.exponential(5.0, nodes),
        rng.integers(0, 9, nodes).astype(float),
        np.where(rng.random((2, n)) < 0.2, 1e4, 0.0),
        rng.integers(0, 3, n),
        3,
    )
    fit = fit_ledger(interruptions, evidence_table(kinds, symptoms, bool(rng.integers(2))))
    assert fit.probability.sum(axis=1) == pytest.approx(np.ones(n))
    assert (fit.probability >= 0).all()
    assert (fit.node_probability <= fit.probability[:, 0] + 1e-9).all()


def test_a_hundred_jobs_of_one_user_are_no_burst_and_three_users_are():
    times_s = np.concatenate([np.linspace(0, 2e6, 50), np.full(100, 1e6)])
    one = np.concatenate([np.arange(50), np.full(100, 99)])
    everywhere = {"cluster": {"all": range(150)}}
    signs = np.ones((2, 150))
    assert (burst_odds(times_s, one, signs, everywhere, 2e6)[0, 50:] < 0.01).all()
    several = np.concatenate([np.arange(50), 100 + np.arange(100) % 5])
    assert (burst_odds(times_s, several, signs, everywhere, 2e6)[0, 50:] > 10).all()


def _ends_of_few_users(jobs_each: int, array: int) -> tuple[np.ndarray, np.ndarray]:
    """Two ends in each quarter of an hour over 20 days, by lot among nine users; then seven users
    lose so many jobs each within 14 minutes, and twenty arrays of one user crash, as one ends."""
    rng = np.random.default_rng(1)
    usual = 2 * 96 * 20
    seven = np.repeat(np.arange(7), jobs_each)
    arrays = np.repeat(rng.uniform(0.0, 1.7e6, 20), array)
    times_s = np.concatenate(
        [
            9e5 + rng.uniform(0.0, 840.0, len(seven)),
            arrays + rng.uniform(0.0, 60.0, len(arrays)),
            rng.uniform(0.0, 1.7e6, usual),
        ]
    )
    users = np.concatenate([seven, np.full(len(arrays), 8), rng.integers(0, 9, usual)])
    return times_s, users


def test_few_users_who_lose_many_jobs_each_at_once_had_an_outage_and_arrays_are_none():
    for jobs_each, is_outage in ((12, True), (1, False)):
        times_s, users = _ends_of_few_users(jobs_each, array=30)
        signs = np.ones((2, len(times_s)))
        places = {"cluster": {"c": range(len(times_s))}}
        odds = burst_odds(times_s, users, signs, places, 20 * 86_400.0)[0]
        hit = 7 * jobs_each
        assert (np.median(odds[:hit]) > 1) == is_outage
        # arrays among ends of others at the same time
        assert np.median(odds[hit : hit + 600]) < 0.1


def _ends_of_an_outage() -> tuple[np.ndarray, np.ndarray, dict[str, dict[str, list[int]]]]:
    """A hundred ends of ten users on ten racks over 20 days, then one of each of five users at one
    moment: four of rack 3, the last of rack 7."""
    times_s = np.append(np.linspace(0, 1.7e6, 100), np.full(5, 9e5 + 0.5))
    users = np.append(np.arange(100) % 10, np.arange(5))
    rack = np.append(np.arange(100) // 10, [3, 3, 3, 3, 7])
    racks = {str(one): np.flatnonzero(rack == one).tolist() for one in range(10)}
    return times_s, users, {"rack": racks, "cluster": {"c": list(range(105))}}


def test_signs_of_others_decide_between_an_outage_and_two_crashes():
    times_s, users, places = _ends_of_an_outage()
    fewer = {
        kind: {k: [i for i in v if i not in (102, 103, 104)] for k, v in some.items()}
        for kind, some in places.items()
    }
    by_sign = {}
    for sign in (0.3, 1.0, 20.0):
        signs = np.ones((2, 105))
        signs[:, 100:102] = sign
        by_sign[sign] = burst_odds(times_s, users, signs, fewer, 20 * 86_400.0)[0, 100]
    assert by_sign[20.0] > 1 > by_sign[0.3]
    assert by_sign[0.3] < by_sign[1.0] < by_sign[20.0]


def test_what_a_rack_explains_is_no_outage_of_the_cluster():
    times_s, users, places = _ends_of_an_outage()
    signs = np.ones((2, 105))
    signs[0, 100:104], signs[1] = 10.0, 0.3
    odds = burst_odds(times_s, users, signs, places, 20 * 86_400.0)
    assert (odds[0, 100:104] > 100).all()
    # ended by itself in another rack at the same moment
    assert odds[:, 104].sum() < 1
    assert odds[1].max() < 1


def test_daemons_that_end_jobs_everywhere_are_system_software():
    times_s, users, places = _ends_of_an_outage()
    # at one moment on five racks, with symptoms of drivers and daemons
    spread = {str(one): [*range(10 * one, 10 * one + 10)] for one in range(10)}
    for at in range(5):
        spread[str(2 * at)].append(100 + at)
    signs = np.ones((2, 105))
    signs[0, 100:], signs[1, 100:] = 0.2, 10.0
    everywhere = {"rack": spread, "cluster": places["cluster"]}
    odds = burst_odds(times_s, users, signs, everywhere, 20 * 86_400.0)
    assert (odds[1, 100:] > 10).all()
    assert (odds[1, 100:] > 100 * odds[0, 100:]).all()


def test_no_interruption_confirms_its_own_outage():
    """One end with the clearest sign among ends without any stays alone."""
    times_s, users, _ = _ends_of_an_outage()
    signs = np.full((2, 105), 0.3)
    signs[0, 50] = 1e4
    odds = burst_odds(
        times_s[:100], users[:100], signs[:, :100], {"cluster": {"c": range(100)}}, 1.7e6
    )
    assert odds[0, 50] < 1


def test_the_only_failure_of_a_program_does_not_confirm_itself():
    """Ten programs that ran fifteen times: the first failed twelve times, each other one once."""
    program = np.append(np.zeros(12, dtype=np.int64), np.arange(1, 10))
    n = len(program)
    interruptions = Interruptions(
        evidence=np.zeros(n, dtype=np.int64),
        kinds=(FAILED,),
        program=program,
        user=np.arange(10),
        program_runs=np.full(10, 15.0),
        pair_of=np.arange(n),
        pair_node=np.arange(n),
        pair_days=np.full(n, 0.2),
        pair_named=np.zeros(n, dtype=np.bool_),
        node_days=np.full(n, 20.0),
        node_runs=np.full(n, 100.0),
        burst_odds=np.zeros((2, n)),
        day=np.arange(n),
        days=n,
    )
    fixed = FixedTerms.of(interruptions, np.full((1, 6), 0.5))
    start = Hazards.start(interruptions, fixed, np.full((1, 6), 0.5))
    of_user = np.zeros((n, 6))
    of_user[:, 3] = 1.0
    hazards = hazards_without_own(interruptions, fixed, of_user, np.zeros(n), start)
    # by their own failure it would be 1 in 15 or so; the other fourteen runs were well
    assert (hazards.program[12:] < 1 / 3 * 21 / 150).all()
    assert (hazards.program[:12] > 0.5).all()


def test_where_no_log_has_an_operator_none_is_blamed(store: Path):
    totals = {
        one["cause"]: one["expected"] for one in ettr_once("causes", store, "--json").json["totals"]
    }
    assert totals["operator"] < 0.01 * sum(totals.values())


def test_coincidences_are_what_completed_attempts_of_each_size_show():
    of_nodes = coincidences(
        np.array([1.0, 64.0]), np.array([1e5, 1e4]), np.array([1e2, 640.0]), {"pcie": 740}
    )
    chance = of_nodes.chance(("pcie", FAILED), np.array([1.0, 64.0]))
    assert chance[0] == pytest.approx([1e-3, 0.062], rel=0.1)
    assert not chance[1].any()
    # none of many is not never
    none = coincidences(np.array([1.0]), np.array([1e3]), np.zeros(1), {})
    assert 0 < none.chance(("pcie",), np.ones(1))[0, 0] < 1e-3
    assert coincidences(np.zeros(0), np.zeros(0), np.zeros(0), {}).per_attempt == 0.01


def test_intervals_of_totals_allow_for_what_the_model_has_wrong(store: Path):
    found = ettr_once("causes", store, "--json").json
    for one in found["totals"]:
        share = one["share"]
        assert share["low"] <= share["estimate"] <= share["high"]
        # no log of nodes was read: even a sure share is uncertain by some per cent
        if one["cause"] in ("node_hardware", "user_program"):
            assert share["high"] - share["low"] > 0.03
    assert any("intervals of the totals allow for it" in note for note in found["notes"])


def test_what_a_probability_is_worth_is_printed_next_to_it(store: Path):
    found = ettr_once("causes", store, "--json").json
    worth = found["reliability"]
    assert {one["cause"] for one in worth} == {*CAUSE_KEYS} - {"unknown"}
    for one in worth:
        assert 0 <= one["low"] < one["stated"] < one["high"] <= 1
    shown = next(one for one in worth if one["cause"] == "system_software" and one["stated"] == 0.8)
    note = f"{shown['low']:.2f} to {shown['high']:.2f} for system software"
    assert any(note in one for one in found["notes"])


def test_kernel_logs_without_an_error_are_logs_of_nodes(tmp_path: Path):
    rows = [_row(number, "ann", number, 0.0, 10.0, "FAILED") for number in (1, 2)]
    (tmp_path / "sacct.psv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    kernel = tmp_path / "kernel.log"
    kernel.write_text(
        f"{FIRST + timedelta(hours=5):%Y-%m-%dT%H:%M:%S}+00:00 n1 kernel: usb 1-1: new device\n",
        encoding="utf-8",
    )
    logs = (tmp_path / "sacct.psv", kernel)
    done = ettr("ingest", tmp_path / "store", *logs, "--timezone", "UTC", "--cluster", "c")
    assert done.code == 0, done.err
    notes = ettr("causes", tmp_path / "store", "--json").json["notes"]
    assert not any("No log of nodes" in note for note in notes)


def test_without_jobs_no_interruption_was_counted(tmp_path: Path):
    events = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    events += "c|n1|2026-03-01T08:00:00|2026-03-01T09:00:00|DOWN*|Not responding|slurm(64030)\n"
    (tmp_path / "events.psv").write_text(events, encoding="utf-8")
    done = ettr("ingest", tmp_path / "store", tmp_path / "events.psv", "--timezone", "UTC")
    assert done.code == 0, done.err
    found = ettr("causes", tmp_path / "store", "--json").json
    assert [found[name] for name in ("interruptions", "preemptions", "bursts")] == [None] * 3
    assert found["totals"] == []
    assert found["listed"] == []
    assert "not measured" in ettr("causes", tmp_path / "store", "--detail").out


def test_phillips_blames_the_user_not_the_node(tmp_path: Path):
    trace = shared("data/traces/xdmod_slurm/phillips.log.zst")
    done = ettr("ingest", tmp_path / "store", trace, "--timezone", "America/New_York")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(ettr("causes", tmp_path / "store", "--csv").out)))
    pairs = [(row["user"], row["node"]) for row in rows]
    worst = max(set(pairs), key=pairs.count)
    mine = [row for row in rows if (row["user"], row["node"]) == worst]
    assert len(mine) > 1000
    assert np.mean([float(row["user_program"]) for row in mine]) > 0.95
