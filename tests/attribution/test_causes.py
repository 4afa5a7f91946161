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

from cli.program import ettr
from ettr.attribution.cause_evidence import FAILED, coincidences, evidence_table
from ettr.attribution.hazards import FixedTerms, Interruptions, hazards_without_own
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
    listed = ettr("causes", store, "--json").json["listed"]
    of_user = [one for one in listed if one["user"] == "u0" and one["node"] != "n5"]
    assert np.mean([one["user_program"] for one in of_user]) > 0.9
    of_node = [one for one in listed if one["node"] == "n5" and one["user"] != "u0"]
    assert np.mean([one["node_hardware"] for one in of_node]) > 0.6
    at_once = (FIRST + timedelta(hours=24 * 9 + 9 + 2)).isoformat()[:19]
    switch = [one for one in listed if one["end"].startswith(at_once) and one["user"] != "u0"]
    assert len(switch) >= 6
    assert np.mean([one["shared"] for one in switch]) > 0.9


def test_totals_export_and_csv_agree(store: Path, tmp_path: Path):
    found = ettr("causes", store, "--json").json
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
    assert "user's program" in ettr("causes", store).out


def test_a_list_that_is_cut_says_so_and_leaves_the_totals_alone(store: Path):
    whole = ettr("causes", store, "--json").json
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
    assert "change" in ettr("causes", tmp_path / "store", "--believe", "aws").out


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
        np.where(rng.random(n) < 0.2, 1e4, 0.0),
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
    everywhere = {"all": range(150)}
    assert not burst_odds(times_s, one, everywhere, 2e6)[50:].any()
    several = np.concatenate([np.arange(50), 100 + np.arange(100) % 5])
    assert (burst_odds(times_s, several, everywhere, 2e6)[50:] > 10).all()


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
        burst_odds=np.zeros(n),
        day=np.arange(n),
        days=n,
    )
    fixed = FixedTerms.of(interruptions, np.full((1, 6), 0.5))
    of_user = np.zeros((n, 6))
    of_user[:, 3] = 1.0
    hazards = hazards_without_own(interruptions, fixed, of_user, np.zeros(n))
    # by their own failure it would be 1 in 15 or so; the other fourteen runs were well
    assert (hazards.program[12:] < 1 / 3 * 21 / 150).all()
    assert (hazards.program[:12] > 0.5).all()


def test_where_no_log_has_an_operator_none_is_blamed(store: Path):
    totals = {
        one["cause"]: one["expected"] for one in ettr("causes", store, "--json").json["totals"]
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
    found = ettr("causes", store, "--json").json
    for one in found["totals"]:
        share = one["share"]
        assert share["low"] <= share["estimate"] <= share["high"]
        # no log of nodes was read: even a sure share is uncertain by some per cent
        if one["cause"] in ("node_hardware", "user_program"):
            assert share["high"] - share["low"] > 0.03
    assert any("simulated clusters" in note for note in found["notes"])


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
