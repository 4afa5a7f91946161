"""Each caution is one finding with its effect; what may move a number the most stands first."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

HEAD = (
    "JobID|JobName|User|Cluster|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes"
    "|NodeList|AllocTRES\n"
)


def job(number: int, state: str, at: date, hours: int, node: str, tres: str = "gres/gpu=8") -> str:
    start = f"{at.isoformat()}T00:00:00"
    end = f"{(at + timedelta(days=hours // 24)).isoformat()}T{hours % 24:02d}:00:00"
    exit_code = "1:0" if state == "FAILED" else "0:0"
    return (
        f"{number}|a|u|c|{state}|{exit_code}|{start}|{start}|{end}|{hours * 3600}|99999|1|{node}"
        f"|{tres}\n"
    )


FIRST = date(2026, 1, 1)
# 60 node-days that completed, 2 that the scheduler says a node ended, 3 that ended FAILED
REST = (
    "".join(
        job(day, "COMPLETED", FIRST + timedelta(days=day % 30), 24, f"n{1 + day // 30}")
        for day in range(60)
    )
    + "".join(
        job(100 + day, "NODE_FAIL", FIRST + timedelta(days=40 + day), 24, "n1") for day in (0, 1)
    )
    + "".join(
        job(200 + day, "FAILED", FIRST + timedelta(days=50 + day), 24, "n2") for day in (0, 1, 2)
    )
    + job(300, "COMPLETED", FIRST + timedelta(days=89), 24, "n2")
)
# two days of 89 are allowed: over by any reading
RUNAWAY = (
    "900|lost|u|c|RUNNING|0:0|2026-01-01T00:00:00|2026-01-01T00:00:00|Unknown|"
    f"{80 * 86400}|2880|1|n3|gres/gpu=8\n"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("findings")
    (folder / "sacct.psv").write_text(HEAD + REST + RUNAWAY)
    done = ettr("report", folder / "sacct.psv", "--timezone", "UTC", "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


@pytest.fixture(scope="module")
def by_code(report: dict[str, Any]) -> dict[str, Any]:
    return {one["code"]: one for one in report["findings"]}


def test_runtime_that_never_was_makes_the_rate_too_low_by_its_share(
    by_code: dict[str, Any],
) -> None:
    found = by_code["runaway-jobs"]
    assert found["rows"] == 1
    assert found["effect"]["moves"] == ["failure rate"]
    assert found["effect"]["direction"] == "too low"
    true_days = 60 + 2 + 3 + 1
    assert found["effect"]["at_most"] == pytest.approx((true_days + 80) / true_days)


def test_failures_that_only_logs_of_nodes_would_show_bound_what_is_missing(
    by_code: dict[str, Any],
) -> None:
    found = by_code["no-checks"]
    assert found["rows"] == 3  # each FAILED attempt may have been a node's failure
    assert found["effect"]["at_most"] == pytest.approx((2 + 3) / 2)


def test_the_largest_effect_stands_first_and_what_moves_nothing_last(
    report: dict[str, Any],
) -> None:
    effects = [one["effect"] for one in report["findings"]]
    sizes = [1.0 if effect is None else effect["at_most"] or float("inf") for effect in effects]
    assert sizes == sorted(sizes, reverse=True)
    codes = [one["code"] for one in report["findings"]]
    assert codes.index("no-checks") < codes.index("runaway-jobs")  # 2.5 before 2.2


def test_a_finding_is_said_once_with_its_effect(tmp_path: Path) -> None:
    (tmp_path / "sacct.psv").write_text(HEAD + REST + RUNAWAY)
    store = tmp_path / "store"
    assert ettr("ingest", store, tmp_path / "sacct.psv", "--timezone", "UTC").code == 0
    done = ettr("quality", store, "--detail")
    text = " ".join(done.out.split())
    assert text.count("Effect: failure rate at most 2.50 times too low.") == 1
    assert text.count("Effect: failure rate at most 2.21 times too low.") == 1
