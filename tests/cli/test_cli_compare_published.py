"""`ettr compare --published`: a fleet beside the rates that others have published."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program import ettr


def rows(*words: str) -> dict[str, dict[str, Any]]:
    done = ettr("compare", *words, "--published", "--json")
    assert done.code == 0, done.err
    return {row["name"]: row for row in done.json["published"]}


def test_rates_are_as_published():
    """RSC-1 6.50 and RSC-2 2.34 (HPCA 2025); Llama 3: 419 in 54 days of 2,048 nodes; 4.18."""
    found = rows("ours=30/5000")
    rates = {name: row["per_1000_node_days"]["estimate"] for name, row in found.items()}
    assert (rates["RSC-1"], rates["RSC-2"]) == (6.50, 2.34)
    assert rates["Llama 3 405B"] == pytest.approx(3.79, abs=0.005)
    assert rates["InfiniteHBD"] == pytest.approx(4.18, abs=0.005)
    assert all(row["source"] and row["counted"] for row in found.values())


def test_a_rate_without_its_count_has_neither_interval_nor_test():
    row = rows("ours=30/5000")["RSC-1"]
    assert row["per_1000_node_days"] == {"estimate": 6.5, "low": None, "high": None}
    assert row["p_value"] is None
    # Garwood's 90 % interval of 30 is 21.59 to 40.69
    assert row["ratio"]["estimate"] == pytest.approx(6.0 / 6.5)
    assert row["ratio"]["low"] == pytest.approx(21.59 / 5 / 6.5, abs=1e-3)
    assert row["ratio"]["high"] == pytest.approx(40.69 / 5 / 6.5, abs=1e-3)


def test_a_count_without_exposure_has_no_rate():
    row = rows("ours=30/5000")["LANL 1996-2005"]
    assert row["failures"] == 23_739
    assert row["node_days"] is None
    assert row["per_1000_node_days"]["estimate"] is None
    assert row["ratio"]["estimate"] is None


def test_counts_are_tested_exactly():
    found = rows("ours=419/110592")["Llama 3 405B"]
    assert found["ratio"]["estimate"] == pytest.approx(1.0)
    assert found["p_value"] > 0.9
    assert rows("ours=60/5000")["Llama 3 405B"]["p_value"] < 1e-6


def test_text_says_what_each_counts():
    done = ettr("compare", "ours=30/5000", "--published", "--detail")
    assert done.code == 0, done.err
    assert "ours has 6 [" in done.out
    assert "unexpected interruptions of one run" in " ".join(done.out.split())


def test_one_fleet_is_given():
    done = ettr("compare", "a=30/5000", "b=3/500", "--published", "--detail")
    assert done.code == 2
    assert "give exactly one" in done.err
