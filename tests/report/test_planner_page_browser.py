"""The planner page in real Chromium: sliders move, and its numbers are those of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.plan.intervals import exact_interval_s, required, second_form_ettr
from ettr.plan.outlook import PlanningRate, counted_rate, plan_run
from ettr.plan.ranking import rank
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun, RunShape
from ettr.plan.schemes import SCHEMES, Domain, JobShape
from ettr.report.planner_page import given, planner_html
from report.browser import LIMIT_MS, chromium, not_accessible

pytestmark = pytest.mark.browser

JOB = JobShape(
    state_bytes=5.6e12,
    step_s=10.0,
    n_nodes=2048,
    storage_bytes_per_s=200e9,
    network_bytes_per_s=50e9,
    device_bytes_per_s=100e9,
    host_bytes=500e9,
    replicas=2,
    embedding_share=0.6,
    expert_share=0.5,
    logged_bytes_per_step=1e9,
    one_writer_share=0.5,
)
SHARES = {"process": 0.2, "node": 0.6, "rack": 0.15, "job": 0.05}
# GPUs, failures per 1,000 node-days, interval, write, restart and queue in seconds
VECTORS = [
    (16384, 6.5, 1800.0, 60.0, 300.0, 0.0),
    (131072, 6.5, 420.0, 5.0, 300.0, 30.0),
    (8, 2.34, 3600.0, 300.0, 300.0, 60.0),
    (100000, 6.5, 1260.0, 0.0, 300.0, 0.0),
    (4096, 50.0, 7200.0, 120.0, 900.0, 3600.0),
]


def rate_of(failures: int, node_days: float) -> PlanningRate:
    evidence = FailureRate(failures, node_days)
    return counted_rate(evidence, evidence.interval(0.9), 0.9)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = plan_run(
        RunShape(2048, write_s=30.0),
        rate_of(419, 110592.0),
        n_gpus=16384,
        target=0.9,
        job=JOB,
        domain_shares=SHARES,
    )
    file = tmp_path_factory.mktemp("planner") / "planner.html"
    file.write_text(planner_html(plan), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Any, html: Path) -> Iterator[Any]:
    tab = browser.new_page(viewport={"width": 1280, "height": 1000})
    tab.set_default_timeout(LIMIT_MS)
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(html.as_uri())
    yield tab
    assert said == []
    assert asked == [html.as_uri()]
    tab.close()


def put(page: Any, **state: object) -> None:
    page.evaluate(
        "detail => document.documentElement.dispatchEvent(new CustomEvent('plan', { detail }))",
        state,
    )


def value(page: Any, name: str) -> float:
    return float(page.locator(f"#{name}").get_attribute("data-value"))


def test_starts_at_the_run_as_planned(page: Any) -> None:
    run = PlannedRun(
        failures_per_node_day=419 / 110592,
        n_nodes=2048,
        interval_s=exact_interval_s(30.0, 54 * 86400 / 419),
        write_s=30.0,
        restart_s=300.0,
    )
    assert value(page, "ettr") == pytest.approx(exact_ettr(run), rel=1e-6)
    assert page.locator("#ettr").inner_text() == f"{exact_ettr(run):.4f}"
    assert page.locator("#target-state").inner_text() == "reached"
    assert "[0.8" in page.locator("#ettr-detail").inner_text()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not_accessible(page) == []


def test_sliders_of_a_simulated_run_follow_the_simulations(browser: Any, tmp_path: Path) -> None:
    """25 runs around it: a share of the exact form's ETTR for each factor of rate and of GPUs."""
    plan = plan_run(RunShape(2048, write_s=30.0), rate_of(419, 110592.0), n_gpus=16384, target=0.1)
    around = tuple(tuple(1 / (1 + i + j) for i in range(5)) for j in range(5))
    file = tmp_path / "planner.html"
    file.write_text(planner_html(plan, around), encoding="utf-8")
    page, said = browser.new_page(), []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())

    def move(name: str, share: float) -> float:
        page.evaluate(
            "([name, share]) => { const one = document.getElementById('slider-' + name);"
            "one.value = share * one.max; one.dispatchEvent(new Event('input')); }",
            [name, share],
        )
        gpus, rate = (page.locator(f"#field-{one}").input_value() for one in ("gpus", "per_1000"))
        daily = 419 / 110.592 if name == "gpus" else float(rate)
        nodes = int(gpus.replace(",", "")) // 8
        best_s = exact_interval_s(30.0, 86400 / (daily / 1e3 * nodes))
        run = PlannedRun(
            failures_per_node_day=daily / 1e3,
            n_nodes=nodes,
            interval_s=best_s,
            write_s=30.0,
            restart_s=300.0,
        )
        return value(page, "ettr") / exact_ettr(run)

    for i, share in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
        assert move("gpus", share) == pytest.approx(1 / (3 + i), rel=1e-3)
    page.click("#reset")
    for j, share in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
        assert move("per_1000", share) == pytest.approx(1 / (3 + j), rel=5e-3)
    page.click("#reset")
    # beyond them nothing is known: neither typed nor by an address
    page.fill("#field-gpus", "131072")
    page.keyboard.press("Tab")
    assert page.locator("#field-gpus").get_attribute("aria-invalid") == "true"
    put(page, gpus=131072)
    assert page.locator("#field-gpus").input_value() == "65,536"
    put(page)
    assert page.locator('#needs [data-name="per_1000"]').inner_text().endswith("more than 15.2")
    assert said == []
    page.close()


@pytest.mark.parametrize("vector", VECTORS)
def test_numbers_are_those_of_python(page: Any, vector: tuple[float, ...]) -> None:
    gpus, per_1000, interval_s, write_s, restart_s, queue_s = vector
    run = PlannedRun(
        failures_per_node_day=per_1000 / 1e3,
        n_nodes=int(gpus) // 8,
        interval_s=interval_s,
        write_s=write_s,
        restart_s=restart_s,
        queue_s=queue_s,
    )
    put(
        page,
        gpus=gpus,
        per_1000=per_1000,
        interval_s=interval_s,
        write_s=write_s,
        restart_s=restart_s,
        queue_s=queue_s,
        best=False,
    )
    assert value(page, "mttf") == pytest.approx(run.mttf_s, rel=1e-6)
    assert value(page, "ettr") == pytest.approx(exact_ettr(run), rel=1e-6)
    best_s = exact_interval_s(write_s, run.mttf_s)
    assert value(page, "optimum") == pytest.approx(best_s, rel=1e-6)
    shown = page.locator("#ettr-detail").get_attribute("data-value")
    if run.lost_share < 1:
        assert float(shown) == pytest.approx(second_form_ettr(run), rel=1e-6)
    else:
        assert shown == ""
    need = required(run, "restart_s", 0.9)
    shown = page.locator("#needs tr[data-name=restart_s]").get_attribute("data-value")
    if need.at_most is None:
        assert shown == ""
    else:
        assert float(shown) == pytest.approx(need.at_most, rel=1e-4)


@pytest.mark.parametrize("nodes", [64, 2048, 16384])
def test_schemes_are_those_of_python(page: Any, nodes: int) -> None:
    from dataclasses import replace

    job = replace(JOB, n_nodes=nodes, restart_s=240.0, queue_s=60.0)
    per_day = nodes * 6.5e-3
    rates = {d: Interval(*(SHARES[d.key] * per_day,) * 3) for d in Domain}
    for one in rank(job, rates):
        put(
            page,
            gpus=8 * nodes,
            per_1000=6.5,
            restart_s=240.0,
            queue_s=60.0,
            best=True,
            scheme=one.scheme.name,
        )
        assert (page.locator("#target-state").inner_text() != "no") == one.usable, one.scheme.name
        if one.ettr.estimate is not None:
            expected = pytest.approx(one.ettr.estimate, rel=1e-4)
            assert value(page, "ettr") == expected, one.scheme.name


def test_a_slider_moves_everything_at_once(page: Any) -> None:
    before = {name: value(page, name) for name in ("mttf", "ettr", "optimum")}
    picture = page.locator("#contour").screenshot()
    slider = page.locator("#slider-per_1000")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    after = {name: value(page, name) for name in before}
    assert all(after[name] < before[name] for name in before)
    assert page.locator("#target-state").inner_text() == "missed"
    assert page.locator("#contour").screenshot() != picture
    slider.press("ArrowLeft")
    assert value(page, "ettr") >= after["ettr"]
    page.locator("#reset").click()
    assert value(page, "ettr") == pytest.approx(before["ettr"], rel=1e-9)


def test_a_field_takes_the_exact_value_and_refuses_what_is_none(page: Any) -> None:
    page.locator("#field-restart_s").fill("2min")
    page.locator("#field-restart_s").press("Enter")
    mttf_s = 86400 / (419 / 110592 * 2048)
    interval_s = exact_interval_s(30.0, mttf_s)
    run = PlannedRun(
        failures_per_node_day=419 / 110592,
        n_nodes=2048,
        interval_s=interval_s,
        write_s=30.0,
        restart_s=120.0,
    )
    assert value(page, "ettr") == pytest.approx(exact_ettr(run), rel=1e-6)
    page.locator("#field-write_s").fill("soon")
    page.locator("#field-write_s").press("Enter")
    assert page.locator("#field-write_s").get_attribute("aria-invalid") == "true"
    assert value(page, "ettr") == pytest.approx(exact_ettr(run), rel=1e-6)


def test_an_address_brings_back_both_plans(browser: Any, page: Any) -> None:
    page.locator("#keep").click()
    page.locator("#field-write_s").fill("5s")
    page.locator("#field-write_s").press("Enter")
    page.locator("#field-price").fill("2.5")
    page.locator("#field-price").press("Enter")
    shown = page.locator("#cost").inner_text()
    assert page.locator("#cost-head").inner_text().split("\t")[1:] == ["this plan", "plan kept"]
    days = [float(one) for one in page.locator("#cost").get_attribute("data-days").split()]
    assert days[0] == pytest.approx(30.0 / value(page, "ettr"), rel=1e-6)
    assert days[1] > days[0]
    other = browser.new_page()
    other.goto(page.url)
    assert other.locator("#cost").inner_text() == shown
    other.close()
    page.locator("#drop").click()
    assert page.locator("#cost-head").inner_text().split() == ["quantity", "this", "plan"]


@pytest.mark.parametrize("width", [1280, 390])
def test_no_table_of_the_page_is_cut(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.locator("#keep").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 1000})
    cut = (
        "[...document.querySelectorAll('table, canvas, .card')].filter(part => "
        "part.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"
    )
    assert page.evaluate(cut) == 0


def test_what_was_typed_is_on_paper(page: Any) -> None:
    page.emulate_media(media="print")
    assert page.locator(".slider input[type=text]").count() == 9
    assert all(one.is_visible() for one in page.locator(".slider input[type=text]").all())
    assert page.locator("#best").is_visible()
    assert not any(one.is_visible() for one in page.locator("input[type=range], button").all())


def test_own_interval_leaves_the_best(page: Any) -> None:
    best = value(page, "ettr")
    slider = page.locator("#slider-interval_s")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.95 * box["width"], box["y"] + box["height"] / 2)
    assert not page.locator("#best").is_checked()
    assert value(page, "ettr") < best
    page.locator("#best").check()
    assert value(page, "ettr") == pytest.approx(best, rel=1e-9)


def test_axis_target_and_theme(page: Any) -> None:
    for act in (
        lambda: page.locator("#axis").select_option("per_1000"),
        lambda: page.locator("#slider-target").press("ArrowRight"),
        lambda: page.locator("#theme").click(),
        lambda: page.locator("#scheme").select_option("in-memory copies"),
    ):
        picture = page.screenshot()
        act()
        assert page.screenshot() != picture


def test_a_scheme_that_cannot_be_used_says_why(page: Any) -> None:
    for gpus, why in ((8, "it needs 2 nodes or more"), (16, "GB of a node's memory")):
        put(page, gpus=gpus, scheme="in-memory copies")
        assert why in page.locator("#scheme-note").inner_text()
        assert page.locator("#target-state").inner_text() == "no"


def test_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_scheme_is_in_the_page() -> None:
    plan = plan_run(RunShape(16), rate_of(10, 1000.0))
    names = [one["name"] for one in given(plan, JOB)["schemes"]]
    assert names == [scheme.name for scheme in SCHEMES]
    assert "</script>" not in json.dumps(names)
