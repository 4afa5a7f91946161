"""Each campaign at a twentieth of its size: it runs, and its table says what the whole one says."""

import csv
import importlib

import numpy as np
import pytest

from campaigns import NAMES, Table

pytestmark = pytest.mark.slow


def twentieth(name: str) -> Table:
    module = importlib.import_module(f"campaigns.{name.replace('-', '_')}")
    table: Table = module.run(max(1, module.SIZE // 20))
    return table


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_has_a_page_of_its_whole_run(name: str) -> None:
    from campaigns.__main__ import RESULTS

    module = importlib.import_module(f"campaigns.{name.replace('-', '_')}")
    kept = _index()[name]
    assert (kept["measured"], kept["draws_a_row"]) == (module.TITLE, str(module.SIZE))
    assert (RESULTS / f"{name}.csv").exists()


def test_intervals_hold_under_bursts() -> None:
    rows = {row[0]: row for row in twentieth("clustering").rows}
    # 20 draws of a coverage of .92: fewer than 14 inside has a chance of 1 in 10,000
    assert float(rows["bursts, 100 expected"][1]) >= 0.7
    assert float(rows["bursts, 100 expected"][2]) <= 0.85, "the bursts must show the defect"
    assert float(rows["alone, 200 against 100: power"][4]) >= 0.85


def test_the_corrected_rate_is_nearer_to_the_truth_than_the_counted_one() -> None:
    rows = {row[:2]: row for row in twentieth("false-attribution").rows}
    for completed in ("0", "2", "200"):
        counted, corrected = (float(cell) for cell in rows["0.2", completed][5:7])
        assert abs(corrected - 1.0) < abs(counted - 1.0)
    within, clusters = rows["all", ""][4].split(" of ")
    assert clusters == "8"
    assert int(within) >= 5


def test_bursts_are_no_steps_and_steps_are_found() -> None:
    rows = {row[:2]: row for row in twentieth("steps").rows}
    constant = [float(row[2]) for (fleet, _), row in rows.items() if fleet.startswith("constant")]
    assert sum(constant) / len(constant) <= 0.10
    assert float(rows["step of 3, alone", "100"][2]) >= 0.6


def test_a_constant_rate_is_seldom_called_better_or_worse() -> None:
    rows = {row[:2]: row for row in twentieth("direction").rows}
    constant = [
        float(row[2]) + float(row[3]) for (fleet, _), row in rows.items() if "constant" in fleet
    ]
    assert sum(constant) / len(constant) <= 0.03
    # power at p < .01: .74 of 400 fleets at 100 failures, all of them at 300
    assert float(rows["alone, times 2", "100"][3]) >= 0.5
    assert float(rows["alone, times 0.5", "100"][2]) >= 0.5
    assert float(rows["alone, times 2", "300"][3]) >= 0.95
    assert float(rows["alone, times 0.5", "300"][2]) >= 0.95


def test_checks_that_were_always_there_are_seldom_called_new() -> None:
    rows = {row[:2]: float(row[3]) for row in twentieth("new-checks").rows}
    always = [share for (there, _), share in rows.items() if there == "always"]
    assert sum(always) / len(always) <= 0.05
    assert rows["since day 90", "10"] >= 0.95


def test_spares_agree_with_a_simulation() -> None:
    for row in twentieth("spares").rows:
        simulated, error = (float(part) for part in row[4].split(" ± "))
        assert abs(float(row[3]) - simulated) <= 4.0 * error + 0.005


def test_published_runs_lie_within_their_bands() -> None:
    rows = twentieth("published").rows
    for row in rows:
        assert row[4].startswith("inside") or "missing: " in row[4] or "their form" in row[4], row
    assert sum(row[0].startswith("Kokolis") for row in rows) == 15
    bands = {row[0]: row[3] for row in rows}
    for source, published in (
        ("ByteRobust", 0.97),
        ("FT-HSDP, before", 0.44),
        ("FT-HSDP, after", 0.80),
        ("TorchPass, checkpoint restart", 818.0),
    ):
        low, high = (float(end) for end in bands[source].split(" to "))
        assert low <= published <= high, source


def test_one_failure_rate_gives_both_figures_of_ft_hsdp() -> None:
    from campaigns.published import CLAIMS, needed

    before, after = (needed(claim) for claim in CLAIMS if claim.source.startswith("FT-HSDP"))
    assert before == pytest.approx(after, rel=0.15)


def test_schemes_are_what_their_descriptions_give(monkeypatch: pytest.MonkeyPatch) -> None:
    from campaigns import schemes as campaign

    # as many failures as 200 runs of 60 have, in a fourth of the rounds
    monkeypatch.setattr(campaign, "EVENTS", campaign.EVENTS // 4)
    *rows, total = campaign.run(4 * campaign.SIZE // 20).rows
    assert len(rows) == 32
    schemes, over, apart, otherwise = (int(total[i]) for i in (3, 5, 6, 7))
    assert schemes > 300
    assert apart > 2000
    # 200 runs: of 390 differences one is over 3 standard errors by chance, 5 with a chance of .004
    assert over <= 4
    assert max(float(row[4]) for row in rows) < 5
    assert otherwise == 0


def test_projections_hold_under_bursts() -> None:
    rows = {row[:2]: row for row in twentieth("projections").rows}
    shares = [float(cell) for (kind, _), row in rows.items() if "4" in kind for cell in row[2:]]
    # 1,200 bands of .88 or more: fewer than .85 of them inside has a chance of 1 in 1,000
    assert sum(shares) / len(shares) >= 0.85


def test_random_inputs_of_a_plan_give_a_table_or_a_sentence() -> None:
    from campaigns.plan_inputs import node_js, run

    inputs = 25
    numbers = {row[0]: int(row[1]) for row in run(inputs).rows}
    assert numbers["table"] + numbers["sentence"] == inputs
    assert numbers["table"] > numbers["sentence"]
    for what in ("traceback", "no share", "worse is better", "page differs"):
        assert numbers[what] == 0, what
    assert numbers["pages compared"] == (numbers["table"] if node_js() else 0)


@pytest.mark.torch
def test_no_damaged_checkpoint_is_restored_wrong() -> None:
    pytest.importorskip("torch")
    rows = {row[0]: [int(cell) for cell in row[1:]] for row in twentieth("checkpoint-damage").rows}
    assert sum(rows["all"]) == 11 * 25
    assert rows["all"][3] == 0, rows
    assert min(rows["all"][:3]) > 10, "each way of coming through must be met"


def test_no_mutant_ends_in_a_traceback_or_loses_a_record_in_silence() -> None:
    *_, total = twentieth("fuzz").rows
    mutants, read, refused, tracebacks, wrong, _ = (int(cell) for cell in total[1:7])
    assert mutants == read + refused
    assert (tracebacks, wrong) == (0, 0)
    assert read >= 0.5 * mutants, "most damage costs records, not the log"


def test_lines_of_a_megabyte_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source reads long lines in sources/test_long_lines.py, and here damaged."""
    from campaigns import long_lines

    monkeypatch.setattr(long_lines, "all_sources", lambda: ["kernel-xid"])
    (row,) = long_lines.run(1, repeats=1).rows
    assert row[0] == "kernel-xid"
    assert float(row[3]) >= 0


def test_lemons_are_claimed_and_ordinary_nodes_are_left_alone() -> None:
    from campaigns import lemons

    equal = ("no lemon", "no lemon, spread 0.5", "no lemon, 4 rack bursts")
    unequal, found = "no lemon, spread 1", ("20 times", "40 times", "20 times, 50% named")
    table = lemons.run(lemons.SIZE // 20, frozenset((*equal, unequal, *found)))
    rows = {row[:2]: row for row in table.rows}
    # 5 fleets of 24 lemons each; the whole table has recall .975, .642, .40 and an error of .01
    assert float(rows["40 times", "ettr"][2]) >= 0.9
    assert float(rows["20 times", "ettr"][2]) >= 0.5
    assert float(rows["20 times, 50% named", "ettr"][2]) >= 0.2
    assert float(rows["20 times", "ettr"][4]) <= 0.25
    for fleet in equal:
        assert float(rows[fleet, "ettr"][5]) <= 0.2
    assert float(rows[unequal, "two points"][5]) >= 0.8, "the spread must show the trap"


def _rows_of_page(name: str) -> list[tuple[str, ...]]:
    from campaigns.__main__ import RESULTS

    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def _index() -> dict[str, dict[str, str]]:
    from campaigns.__main__ import RESULTS

    with (RESULTS / "index.csv").open(encoding="utf-8", newline="") as file:
        return {row["campaign"]: row for row in csv.DictReader(file)}


def test_what_the_page_of_lemons_says_to_hold_follows_from_its_rows() -> None:
    from campaigns import lemons

    rows = _rows_of_page("lemons")
    said = lemons.verdict(rows)
    assert _index()["lemons"]["verdict"] == said
    # the rows decide: a worse one moves to what does not hold
    worse = [
        ("20 times", "ettr", "0.600", *row[3:]) if row[:2] == ("20 times", "ettr") else row
        for row in rows
    ]
    missed = lemons.verdict(worse).split("What does not hold")[1]
    assert "20 times: recall 0.600 (0.014), asked 0.64" in missed
    assert "20 times: recall" not in said.split("What does not hold")[1]


def test_what_the_page_of_slow_runs_says_to_miss_follows_from_its_rows() -> None:
    from campaigns import slow_runs

    rows = _rows_of_page("slow-runs")
    said = slow_runs.verdict(rows)
    assert _index()["slow-runs"]["verdict"] == said
    # the rows decide: a worse one is listed, and counts among all claims
    worse = [
        (*row[:-4], "0.900", "80 (0)", "100", "0.800") if row[:2] == ("alike", "1 by 10%") else row
        for row in rows
    ]
    assert "alike, 1 by 10%: 0.800 of 100 claims" in slow_runs.verdict(worse)
    assert "alike, 1 by 10%" not in said


def test_slow_nodes_of_runs_are_found_and_ordinary_ones_are_left_alone() -> None:
    from campaigns.slow_runs import ALIKE, CASES, UNEQUAL, judge

    for nodes in (ALIKE, UNEQUAL):
        # 1 history: the whole table has all of 20 by the end, and hardly a claim in the others
        assert judge((CASES.index((nodes, 0.2)), 0)).found[-1]
        assert judge((CASES.index((nodes, 0.0)), 0)).claimed[-1] == 0


def test_stated_causes_are_the_planted_ones_as_often_as_stated() -> None:
    rows = twentieth("causes").rows
    bins = {row[:3]: row[5:9] for row in rows if row[1] != "all"}
    for cause in ("node_hardware", "shared", "user_program"):
        for probability in ("0.7 to 0.9", "0.9 to 0.98", "0.98 to 1"):
            for clusters in ("chosen by", "held out"):
                stated, true, error = map(float, bins[clusters, cause, probability][:3])
                low, high = map(float, bins[clusters, cause, probability][3].split(" to "))
                # a cluster of each kind: the whole table is within the interval by 1.645 errors
                assert low - 4 * error <= true <= high + 4 * error, (clusters, cause, probability)
                if (clusters, cause) != ("held out", "shared"):
                    # without logs of nodes daemons look like an outage
                    assert abs(stated - true) <= 0.08 + 4 * error, (clusters, cause, probability)
    totals = [row[2] for row in rows if row[1] == "all"]
    shares = [float(one.split(": ")[1].split(",")[0]) for one in totals]
    assert len(shares) == 49
    assert np.mean(shares) >= 0.9


def test_slow_nodes_are_claimed_and_ordinary_ones_are_not() -> None:
    rows = {row[:2]: row[2:] for row in twentieth("slow-nodes").rows}
    for nodes in ("alike", "unequal"):
        assert float(rows[nodes, "1 by 20%"][0]) == 1.0
        assert float(rows[nodes, "4 by 10%"][0]) >= 0.7
        # 5 runs: the whole table has a claim in 4 of 100 at most
        assert float(rows[nodes, "no slow node"][2]) <= 0.2
    assert float(rows["alike", "1 by 5%"][0]) >= 0.8


@pytest.mark.torch
def test_the_rank_that_hangs_stops_dies_or_is_slow_is_named() -> None:
    pytest.importorskip("torch")
    *rows, total = twentieth("flight-records").rows
    assert len(rows) == 6
    # a pause of the machine before the fault may leave a verdict open, never a wrong one
    assert all(row[3] == "" or row[3].startswith("cannot tell []") for row in rows), rows
    assert int(total[2]) >= int(total[1]) - 1, rows


def test_a_report_finds_what_was_planted_in_a_simulated_cluster() -> None:
    rows = {row[1]: row for row in twentieth("simulated-clusters").rows}
    for quantity in ("first order, GPU-hours", "second order, GPU-hours"):
        assert abs(float(rows[quantity][4])) <= 0.02, quantity
    assert abs(float(rows["failures with their symptom"][4])) <= 0.02
    assert abs(float(rows["failures with their node"][4])) <= 0.1
    invented, failures = (int(cell) for cell in rows["failures that were none"][4].split(" of "))
    assert failures > 100
    assert invented <= 0.02 * failures
    for quantity in ("r_f", "repair, mean", "GPU-hours lost", "MTTF, 17-32 GPUs"):
        assert rows[quantity][3] == "2 of 2", quantity


def test_a_back_test_finds_what_is_wrong_with_a_scenario() -> None:
    from campaigns import back_tests

    # that the right one passes, and failures thrice as often do not: analysis/test_calibration.py
    (found,) = back_tests.run(1, ("no preemption",)).rows
    assert found[1:3] == ("0 of 1", "1 of 1"), found
