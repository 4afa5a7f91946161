"""From trials to numbers: intervals, tables and the figure of the reproduction."""

import math
import time

import numpy as np
import pytest

from ettr.errors import UsageError
from reproduction.scar import results, summary
from reproduction.scar.controls import controls
from reproduction.scar.overhead import overhead
from reproduction.scar.trials import prepare, settings_record, trial
from small_workloads import SETTINGS, regression


def written(tmp_path, trials=10):
    prepared = prepare(regression(), SETTINGS)
    path = tmp_path / "mlr-small.jsonl"
    results.resume(path, settings_record(prepared.workload, prepared))
    list(results.missing(path, "control", 2, lambda n: controls(prepared, n)))
    list(results.missing(path, "trial", trials, lambda n: trial(prepared, n)))
    return path


def test_the_summary_pairs_the_trials_and_draws_the_figure(tmp_path):
    from xml.etree import ElementTree as Tree

    path = written(tmp_path)
    results.append(path, overhead(prepare(regression(), SETTINGS), time.perf_counter))
    assert summary.write_summary(tmp_path)
    found = summary.summarise(results.read(path))
    base = found.arms["full/full"]
    assert base.saving == 0
    assert base.saving_low == base.saving_high == 0  # paired with itself
    half = found.arms["partial/full/50"]
    assert half.saving_low <= half.saving <= half.saving_high
    assert half.trials == 10
    assert "78 to 95 %" in (tmp_path / "table.md").read_text()
    late = sum(r["T"] > 8 for r in results.read(path) if r["kind"] == "trial")
    assert f"| mlr-small | {late} | " in summary.late_table([results.read(path)])
    figure = Tree.fromstring((tmp_path / "figure.svg").read_text())  # noqa: S314 our own file
    assert figure.tag.endswith("svg")
    assert len((tmp_path / "summary.jsonl").read_text().splitlines()) == len(found.arms)


def test_a_control_that_fails_is_not_hidden(tmp_path):
    path = written(tmp_path, trials=2)
    path.write_text(path.read_text().replace('"ok":true', '"ok":false', 1))
    assert not summary.write_summary(tmp_path)
    assert "1 of 2" in (tmp_path / "table.md").read_text()


def test_nothing_to_summarise_is_said(tmp_path):
    with pytest.raises(UsageError, match="holds no results"):
        summary.write_summary(tmp_path)


def shared_noise(runs: int, each: int) -> list[results.Record]:
    """Trials whose cost is that of their clean run alone: `each` of a run say no more than one."""
    costs_of_runs = np.random.default_rng(8).normal(5, 2, runs)
    return [
        {
            "kind": "trial",
            "trial": number,
            "stream": number % runs,
            "T": 20,
            "arms": {
                "full/full": [10.0, 0, 1.0],
                "partial/full/50": [costs_of_runs[number % runs], 0, 1.0],
            },
        }
        for number in range(runs * each)
    ]


def test_more_trials_of_the_same_clean_runs_do_not_narrow_an_interval():
    head = {"kind": "settings", "workload": "w", "grid": "large"}
    widths = []
    for each in (1, 10):
        arm = summary.summarise([head, *shared_noise(20, each)]).arms["partial/full/50"]
        widths.append(arm.cost_high - arm.cost_low)
    spread = np.std([r["arms"]["partial/full/50"][0] for r in shared_noise(20, 1)], ddof=1)
    assert widths[0] == pytest.approx(2 * 1.96 * spread / math.sqrt(20), rel=0.15)
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_trials_are_drawn_where_clean_runs_are_too_few_to_draw():
    weights = summary.resampled(shared_noise(4, 25), 1)
    assert weights.shape == (summary.RESAMPLES, 100)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert len(np.unique(weights[0, ::4])) > 1  # trials of one run have weights of their own


def test_a_trial_whose_arms_all_cost_the_same_says_nothing_of_agreement():
    flat = {key: [0.0, 0, float(size)] for size, key in enumerate("abcd", 1)}
    tied = {"a": [0.0, 0, 1.0], "b": [0.0, 0, 2.0], "c": [3.0, 0, 3.0], "d": [4.0, 0, 4.0]}
    # Spearman with ties, by hand: ranks 1.5 1.5 3 4 against 1 2 3 4
    assert summary._agreement([flat, tied]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def test_a_few_seeds_have_students_interval(tmp_path):
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    for seed, cost in enumerate([1.0, 2.0, 3.0, 4.0, 5.0]):
        arms = {"25/10": [cost, 0, 0.1]}
        results.append(path, {"kind": "trial", "trial": seed, "T": 12, "arms": arms})
    (row,) = summary.stale_rows(tmp_path)
    # t(0.975; 4) = 2.776 from a table; the mean 3 ± 2.776 · sqrt(2.5 / 5)
    assert row["cost_low"] == pytest.approx(3 - 2.776 * math.sqrt(0.5), abs=1e-3)
    assert row["cost_high"] == pytest.approx(3 + 2.776 * math.sqrt(0.5), abs=1e-3)
    assert "3.0 (1.0 to 5.0)" in summary.stale_table([row])


def test_seeds_that_cost_the_same_have_an_interval_without_width(tmp_path):
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    for seed in range(5):
        arms = {"25/10": [50.0, 0, 0.1]}
        results.append(path, {"kind": "trial", "trial": seed, "T": 12, "arms": arms})
    (row,) = summary.stale_rows(tmp_path)
    assert (row["cost_low"], row["cost_high"]) == (50.0, 50.0)


def test_a_single_seed_has_no_interval(tmp_path):
    path = tmp_path / "gpt-stale-tuned.jsonl"
    results.append(path, {"kind": "settings", "rate": 6e-3, "label": "tuned"})
    arms = {"25/10": [7.0, 0, 0.1]}
    results.append(path, {"kind": "trial", "trial": 0, "T": 12, "arms": arms})
    (row,) = summary.stale_rows(tmp_path)
    assert row["cost_low"] is row["cost_high"] is None
    assert "| 7.0 |" in summary.stale_table([row])
