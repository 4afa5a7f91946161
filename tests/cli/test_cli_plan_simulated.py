"""`ettr plan` where the exact form does not hold: lives by a law, bursts, spares, detection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

RUN = ("--nodes", "256", "--write", "1min", "--restart", "10min", "--interval", "30min")
RATE = ("--failures-per-1000-node-days", "12.5")
COARSE = ("--precision", "0.01")


def plan(*args: str | Path) -> dict[str, Any]:
    done = ettr("plan", *args, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.slow
def test_an_exponential_law_agrees_with_the_exact_form() -> None:
    made = plan(*RUN, *RATE, "--law", "constant", *COARSE)
    simulated = made["simulated"]
    assert made["engine"].startswith("simulation, event by event")
    assert simulated["engine"] == made["engine"]
    assert abs(simulated["ettr"] - simulated["exact_ettr"]) < 4 * simulated["ettr_error"]
    assert simulated["ettr_error"] <= 0.01
    assert simulated["precise"] is True
    assert simulated["short_of_nodes"] is None


def test_without_such_an_option_the_exact_form_answers() -> None:
    made = plan(*RUN, *RATE)
    assert (made["engine"], made["simulated"]) == ("exact form", None)


@pytest.mark.slow
def test_a_law_with_a_mean_of_its_own_is_the_failure_rate() -> None:
    made = plan(*RUN, "--law", "weibull:shape=0.7,mean=80d", *COARSE)
    assert made["rate"]["per_node_day"]["low"] is None
    assert abs(made["run"]["failures_per_node_day"] - 1 / 80) < 1e-12
    # as many failures in the long run as nodes of constant rate have
    assert abs(made["simulated"]["failures_per_node_day"] * 80 - 1) < 0.05


@pytest.mark.slow
def test_new_nodes_that_settle_in_fail_more_often_in_a_short_run() -> None:
    short = (*RUN, *RATE, "--days", "20", *COARSE)
    new = plan(*short, "--law", "weibull:shape=0.5", "--node-age", "new")["simulated"]
    old = plan(*short, "--law", "weibull:shape=0.5", "--node-age", "300d")["simulated"]
    assert new["failures_per_node_day"] > 1.3 * 0.0125 > 0.0125 > old["failures_per_node_day"]
    assert new["long_run"] is False
    assert new["mean_s"] > old["mean_s"]


@pytest.mark.slow
def test_few_spares_are_the_share_of_time_without_nodes() -> None:
    """3.2 failures a day, each away for 2 days: Erlang's loss of 6.4 on 4 servers is .47."""
    made = plan(*RUN, *RATE, "--spares", "3", "--repair", "2d", *COARSE)
    assert abs(made["simulated"]["short_of_nodes"] - 0.474) < 0.04
    done = ettr("plan", *RUN, *RATE, "--spares", "3", "--repair", "2d", *COARSE, "--detail")
    text = " ".join(done.out.split())
    assert "time without enough nodes (simulated)" in text
    assert "repairs take 2 d on average, 3 spares" in text
    assert "engine: simulation, event by event" in text


@pytest.mark.slow
def test_text_json_and_page_answer_with_the_simulation(tmp_path: Path) -> None:
    """Too few spares: the exact form knows nothing of the time without nodes."""
    page = tmp_path / "p.html"
    asked = ("--spares", "2", "--repair", "5d", "--target", "0.75", "--days", "20d")
    typed = ("plan", *RUN, *RATE, *asked, "--gpu-hour-price", "2USD", *COARSE)
    first = ettr(*typed).out.splitlines()[0]
    assert " simulated with " in first
    assert "missed by the simulated" in first
    done = ettr(*typed, "--html", page, "--detail")
    assert done.code == 0, done.err
    made = plan(*RUN, *RATE, *asked, "--gpu-hour-price", "2USD", *COARSE)
    simulated, cost = made["simulated"], made["answers"]["cost"]
    assert simulated["exact_ettr"] > 0.75 > simulated["ettr"]
    days = simulated["mean_s"] / 86400
    assert cost["simulated"] is True
    assert cost["days"] == pytest.approx(days)
    held = 256 * 8 * 24 * days
    assert cost["held_gpu_hours"]["estimate"] == pytest.approx(held, rel=1e-9)
    assert made["requirements"] == []
    assert "missed by the simulated" in " ".join(done.out.split())
    assert "Cost of the run, simulated (" in done.out
    text = page.read_text()
    head = text[text.index('class="simulated"') : text.index('id="contour"')]
    assert "missed" in head
    assert f"{held:,.0f} GPU-hours, {2 * held:,.0f} USD" in head
    # sliders, map and tables answer with the same engine, around the run too
    assert "exact form" not in text[text.index('id="contour"') : text.index('class="notes"')]
    given = json.loads(text.partition('id="given">')[2].partition("</script>")[0])
    middle = given["around"][2][2]
    assert middle * simulated["exact_ettr"] == pytest.approx(20 / days, rel=0.02)
    # a quarter of the failures needs fewer spares, four times as many more
    assert given["around"][0][2] > middle > given["around"][4][2]


def test_bursts_and_detection_are_played() -> None:
    """3.2 / 3 bursts a day; each failure after the first adds min(gap, 10 min), 4.3 on average."""
    made = plan(*RUN, *RATE, "--bursts", "size=3,gap=5min", "--detection", "10min", *COARSE)
    simulated = made["simulated"]
    assert abs(simulated["detecting"] - (10 + 2 * 4.32) * 3.2 / 3 / 1440) < 0.0015
    assert "bursts of 3 on average, 5 min apart" in simulated["law"]


def test_a_law_too_extreme_to_simulate_says_so() -> None:
    simulated = plan(*RUN, *RATE, "--law", "weibull:shape=0.05", *COARSE)["simulated"]
    assert simulated["precise"] is False
    assert "the simulated ETTR is not to be relied on" in simulated["why"]


@pytest.mark.slow
def test_an_interval_of_the_rate_gives_ends() -> None:
    made = plan(*RUN, "--failures", "30", "--node-days", "2400", "--law", "constant", *COARSE)
    ends = made["simulated"]["ettr_at_rate_ends"]
    assert ends["low"] < made["simulated"]["ettr"] < ends["high"]


def test_a_fit_in_a_file_is_a_law(tmp_path: Path) -> None:
    path = tmp_path / "nodes.toml"
    path.write_text(
        'format = "ettr failure model 1"\nmodel = "lognormal"\n'
        '[parameters.sigma]\nvalue = 1.0\nsource = "assumed"\n'
        '[parameters.median_s]\nvalue = 4192000.0\nsource = "Acme"\n'
    )
    made = plan(*RUN, "--law", path, *COARSE)
    # exp(1/2) times the median
    assert abs(1 / made["run"]["failures_per_node_day"] - 79.99) < 0.1
    assert "lognormal of nodes.toml" in made["simulated"]["law"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--law", "gompertz:b=2"), "give weibull:shape=0.7, lognormal:sigma=1"),
        (("--law", "weibull"), "give weibull:shape=0.7"),
        (("--law", "weibull:shape=x"), "'x' is not a number"),
        (("--law", "weibull:shape=-1"), "shape: -1; give a number above 0"),
        (("--law", "weibull:shape=0.7,mean=80d"), "more than one failure rate"),
        (("--law", "weibull:shape=0.7", "--repair-law", "minimal"), "give the age of the nodes"),
        (("--law", "weibull:shape=0.7", "--node-age", "new"), "give --days"),
        (("--law", "weibull:shape=0.7", "--repair-law", "perfect"), "give good-as-new, minimal"),
        (("--law", "missing.toml"), "missing.toml: cannot be read"),
        (("--bursts", "size=3"), "size=4,gap=10min"),
        (("--bursts", "size=0.5,gap=1min"), "mean size of 1 or more"),
        (("--spares", "3"), "--spares: needs --repair"),
        (("--repair", "2d"), "--repair would change nothing"),
        (("--seed", "3"), "--seed: needs --law, --bursts, --spares or --detection"),
        (("--node-age", "3d"), "--node-age: needs --law"),
        (("--detection", "5min", "--within", "60d", "--days", "20"), "--within is answered by"),
    ],
)
def test_what_cannot_be_simulated_says_what_to_give(options: tuple[str, ...], message: str) -> None:
    done = ettr("plan", *RUN, *RATE, *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())
