"""What answers of `run` and `whatif` owe to assumed values: `--sensitivity`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.program import ettr
from cluster_scenarios import small
from ettr.errors import UsageError
from ettr.sim.cluster import whatif as module
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.scenario import ClusterScenario, scenario_text
from ettr.sim.cluster.whatif import effect_plan, effect_sensitivity, what_if

CHANGES = ("checkpoints.restart_s=0", "lemons.share=0")


def planted(scenario: ClusterScenario, seed: int, replay: object) -> ClusterHours:
    """Lost hours: restarts by the factor of lemons, and a constant for lemons; any seed alike."""
    rules, lemons = scenario.checkpoints, scenario.lemons
    noise = 1.0 + seed / 100.0
    lost = rules.restart_s * lemons.factor * noise + 1000.0 * noise * (lemons.share > 0)
    return ClusterHours(100.0, lost, 0.0, 1, 1)


def test_the_planted_product_of_two_values_is_found(monkeypatch: pytest.MonkeyPatch):
    """No restarts win restart_s x factor: half a factor, half of that; lemons win a constant."""
    monkeypatch.setattr(module, "hours_of", planted)
    base = small(lemons={"factor": 20.0, "share": 0.1})
    base = replace(base, checkpoints=replace(base.checkpoints, restart_s=300))
    patterns = ("lemons.*", "checkpoints.restart_s")
    plan = effect_plan(base, CHANGES, patterns)
    found = effect_sensitivity(plan, range(3))
    assert found.simulations == plan.simulations(3) == 3 * 3 * (1 + 6)
    own = {(one.headline, one.value): one for one in found.effects}
    mean_noise = 1.01
    for value in ("lemons.factor", "checkpoints.restart_s"):
        effect = own[CHANGES[0], value]
        assert effect.at_less.estimate == pytest.approx(-3000 * mean_noise)
        assert effect.at_more.estimate == pytest.approx(3000 * mean_noise)
        assert effect.shown_change > 0
        assert own[CHANGES[1], value].shown_change == 0.0
    assert own[CHANGES[0], "lemons.share"].shown_change == 0.0
    assert {one.value for one in found.effects[:2]} == {"lemons.factor", "checkpoints.restart_s"}
    assert [one.rank for one in found.effects] == list(range(1, 7))


def test_a_value_with_which_a_change_cannot_be_is_named():
    """Shares of sizes that sum to 1 with the change do not with another share."""
    plan = effect_plan(small(), ["jobs.1.share=0.40,jobs.4.share=0.20"], ("jobs.8.*",))
    assert [one.name for one, _ in plan.varied if one.name.endswith(".share")] == []
    assert any(line.startswith("jobs.8.share: ") for line in plan.not_varied)
    with pytest.raises(UsageError, match="no assumed value is called nothing"):
        effect_plan(small(), CHANGES, ("nothing",))


@pytest.fixture
def short(tmp_path: Path) -> Path:
    made = tmp_path / "short.toml"
    made.write_text(scenario_text("small")[0].replace("days = 7", "days = 0.2"), "utf-8")
    return made


@pytest.mark.slow
def test_whatif_says_what_it_owes_and_its_size_beforehand(short: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    words = ("simulate", "whatif", short, "--set", CHANGES[0], "--runs", "3")
    plain = ettr(*words)
    assert "--sensitivity says what the answer owes to them" in " ".join(plain.out.split())
    done = ettr(*words, "--sensitivity", "--vary", "lemons.*", "--html", page)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "the 2 of 2 that move them most (30 simulations)" in text
    assert "--sensitivity says" not in text
    assert "sensitivity: 30 simulations, 2 assumed values" in done.err
    assert "owe to assumed values" in page.read_text("utf-8")
    document = json.loads(ettr(*words, "--sensitivity", "--vary", "lemons.*", "--json").out)
    assert document["sensitivity"]["simulations"] == 30
    assert [one["rank"] for one in document["sensitivity"]["effects"]] == [1, 2]
    alone = json.loads(ettr(*words, "--json").out)
    assert alone["sensitivity"] is None
    # the answer itself is the same
    own, same = (
        [one["won_gpu_hours"]["estimate"] for one in found["interventions"]]
        for found in (document, alone)
    )
    assert own == same


@pytest.mark.slow
def test_run_ranks_its_headlines_and_says_so_without(short: Path, tmp_path: Path):
    words = ("simulate", "run", short, "--store")
    plain = ettr(*words, tmp_path / "a")
    assert "--sensitivity says what the answer owes to them" in plain.out
    extra = ("--sensitivity", "--vary", "lemons.*", "--runs", "3")
    done = ettr(*words, tmp_path / "b", *extra)
    assert done.code == 0, done.err
    assert "the one that moves it most" in " ".join(done.out.split())
    assert "sensitivity: 15 simulations" in done.err
    document = json.loads(ettr(*words, tmp_path / "c", *extra, "--json").out)
    assert {one["value"] for one in document["sensitivity"]["effects"]} == {
        "lemons.share", "lemons.factor",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("whatif", "small", "--set", CHANGES[0], "--vary", "lemons.*"), "only with --sensitivity"),
        (("run", "small", "--store", "new", "--runs", "3"), "only with --sensitivity"),
        (("sensitivity", "small", "--sensitivity"), "has no use for it"),
        (
            ("run", "small", "--store", "new", "--sensitivity", "--vary", "x"),
            "no assumed value is called x",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_work(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    done = ettr("simulate", *words)
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "new").exists()


def test_one_more_seed_set_is_what_if_own(monkeypatch: pytest.MonkeyPatch):
    """The win with the scenario as it is, from which effects are counted, is that of `what_if`."""
    monkeypatch.setattr("ettr.sim.cluster.whatif.hours_of", planted)
    (one,) = what_if(small(), CHANGES[:1], range(3)).interventions
    monkeypatch.setattr(module, "hours_of", planted)
    plan = effect_plan(small(), CHANGES[:1], ("checkpoints.restart_s",))
    (effect,) = effect_sensitivity(plan, range(3)).effects
    # half as long a restart wins half of it
    assert effect.at_less.estimate == pytest.approx(-0.5 * one.won_gpu_hours.estimate)
