"""Money next to GPU-hours, on every command that prints them, and nothing of it without a price."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from cli.program import TOTALS, ettr

pytestmark = pytest.mark.slow

PRICE = 2.5
GPU_HOURS = TOTALS["gpu_hours"]
# job 2 lost half an hour of 8 GPUs (`program.SACCT`), job 4 failed by itself after one hour of 8
LOST, OWN = 0.5 * 8, 8.0


def costs(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [key for key in value if key.endswith("_cost") or key == "price"]
        return own + [key for one in value.values() for key in costs(one)]
    return [key for one in value for key in costs(one)] if isinstance(value, list) else []


def both_of(hours: Any, cost: Any) -> list[tuple[float | None, float | None]]:
    """The pair, or those of the estimate and of both ends of its interval."""
    if not isinstance(hours, dict):
        return [(hours, cost)]
    assert cost.keys() == hours.keys() == {"estimate", "low", "high"}
    return [(hours[key], cost[key]) for key in hours]


def pairs(value: object) -> list[tuple[float | None, float | None]]:
    """GPU-hours and their money, wherever both stand."""
    if isinstance(value, list):
        return [pair for one in value for pair in pairs(one)]
    if not isinstance(value, dict):
        return []
    own = [
        pair
        for key in value
        if key.endswith("_cost")
        for pair in both_of(value[key.removesuffix("_cost")], value[key])
    ]
    return own + [pair for one in value.values() for pair in pairs(one)]


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (("goodput",), 3),
        (("failures", "--list"), 2),
        (("report",), 20),
    ],
)
def test_json_has_money_next_to_each_gpu_hour_and_none_without_a_price(
    site: Path, words: tuple[str, ...], least: int
):
    plain = ettr(words[0], site, *words[1:], "--json").json
    assert costs(plain) == []
    done = ettr(words[0], site, *words[1:], "--json", "--gpu-hour-price", "2.50usd")
    assert done.json["price"] == {"per_gpu_hour": PRICE, "currency": "USD"}
    found = pairs(done.json)
    assert len(found) >= least
    for hours, cost in found:
        assert cost is None if hours is None else cost == pytest.approx(PRICE * hours)


def test_the_answers_name_the_money_and_the_price(site: Path):
    out = " ".join(ettr("goodput", site, "--gpu-hour-price", "2.50USD", "--detail").out.split())
    assert f"At 2.50 USD a GPU-hour: {PRICE * LOST:g} USD lost to failures" in out
    out = " ".join(
        ettr("user-failures", site, "--gpu-hour-price", "2.50EUR", "--detail").out.split()
    )
    assert f"{PRICE * OWN:g} EUR held by them" in out
    out = " ".join(ettr("status", site, "--gpu-hour-price", "2.50EUR", "--detail").out.split())
    assert f"{PRICE * GPU_HOURS:,.0f} EUR held in all" in out


def test_csv_has_a_column_of_money_and_its_currency(site: Path):
    rows = list(
        csv.DictReader(
            io.StringIO(ettr("status", site, "--csv", "--gpu-hour-price", "2.50USD").out)
        )
    )
    assert sum(float(row["gpu_hours_cost"]) for row in rows) == pytest.approx(PRICE * GPU_HOURS)
    assert {row["currency"] for row in rows} == {"USD"}
    assert "share_of_gpu_hours_cost" not in rows[0]


def test_the_report_states_its_price_at_the_head(site: Path, tmp_path: Path):
    page = tmp_path / "r.html"
    done = ettr("report", "--detail", site, "-o", page, "--gpu-hour-price", "2.50USD")
    assert done.code == 0, done.err
    assert "10 USD" in done.out.splitlines()[1]
    assert "at 2.50 USD a GPU-hour" in done.out
    assert "at 2.50 USD a GPU-hour" in page.read_text("utf-8")


@pytest.mark.parametrize("text", ["2.50", "USD", "2.50 dollars", "-2USD", "nanUSD", "2,50EUR", ""])
def test_a_price_without_its_currency_is_refused_in_a_sentence(site: Path, text: str):
    done = ettr("goodput", site, f"--gpu-hour-price={text}", "--detail")
    assert done.code == 2
    assert "give a number and the three letters of its currency, such as 2.50USD" in done.err


@pytest.mark.parametrize("command", ["goodput", "report", "plan"])
def test_a_currency_that_does_not_exist_is_refused_in_a_sentence(site: Path, command: str):
    done = ettr(command, site, "--gpu-hour-price", "2.50XYZ")
    assert done.code == 2
    assert "XYZ is no currency of ISO 4217" in done.err
    assert "such as USD or EUR, or XXX for a unit of your own" in done.err
    typo = ettr(command, site, "--gpu-hour-price", "2.50USS")
    assert typo.code == 2
    assert "did you mean" in typo.err
    assert "USD" in typo.err


def test_a_unit_of_ones_own_is_a_price_without_a_currency(site: Path):
    out = ettr("goodput", site, "--gpu-hour-price", "2.50xxx", "--json").json
    assert out["price"] == {"per_gpu_hour": 2.5, "currency": "XXX"}


def test_a_price_is_refused_where_it_would_change_nothing(site: Path):
    done = ettr("failures", site, "--gpu-hour-price", "2.50USD", "--detail")
    assert done.code == 2
    assert "--list" in done.err
    assert ettr("mttf", site, "--gpu-hour-price", "2.50USD").code == 2


def test_money_is_not_measured_where_gpus_are_not(tmp_path: Path):
    log = tmp_path / "sacct.psv"
    log.write_text(
        "Cluster|JobID|JobName|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NodeList\n"
        "c|1|a|ann|FAILED|1:0|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-02T00:00:00|86400|1"
        "|n1\n"
    )
    assert ettr("ingest", tmp_path / "store", log, "--timezone", "UTC").code == 0
    for command in ("status", "user-failures", "goodput"):
        done = ettr(command, tmp_path / "store", "--gpu-hour-price", "2.50USD")
        assert "USD" not in done.out, command
    document = ettr("status", tmp_path / "store", "--gpu-hour-price", "2.50USD", "--json").json
    assert {cost for _, cost in pairs(document)} == {None}
