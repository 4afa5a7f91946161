"""The example of docs/how-to/add-a-checkpoint-scheme.md does what the page says."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ettr.estimates import Interval
from ettr.plan.ranking import rank
from ettr.plan.schemes import SCHEMES, Domain, Scheme, Terms
from plan.test_plan_schemes import JOB
from plan.test_scheme_contract import departures

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "how-to" / "add-a-checkpoint-scheme.md").read_text("utf-8")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the page's module and its test define."""
    module, test = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    made: dict[str, Any] = {}
    exec(module, made)  # noqa: S102 our own documentation
    made |= {"JOB": JOB, "pytest": pytest}
    exec(test, made)  # noqa: S102
    return made


@pytest.fixture(scope="module")
def scheme(names: dict[str, Any]) -> Scheme:
    made: Scheme = names["PartnerDisks"]()
    return made


def test_the_test_of_the_page_passes(names: dict[str, Any]) -> None:
    names["test_partner_disks_outlive_a_node_and_not_a_rack"]()


def test_the_scheme_keeps_the_contract(scheme: Scheme) -> None:
    elsewhere = [replace(JOB, n_nodes=n, restart_s=s) for n in (1, 7, 9000) for s in (0.0, 900.0)]
    assert departures(scheme, JOB, elsewhere) == []


def test_the_scheme_is_ranked_with_the_others(scheme: Scheme) -> None:
    rates = {Domain.NODE: Interval(8.0, 6.0, 11.0)}
    ranked = rank(JOB, rates, (*SCHEMES, scheme))
    (one,) = [one for one in ranked if one.scheme is scheme]
    assert one.usable
    assert "survives without durable storage: process, node" in one.why


def test_the_page_names_every_field_of_the_terms() -> None:
    table = PAGE.partition("| field | is |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) - {"None"} == {field.name for field in fields(Terms)}


def test_every_scheme_has_a_row_in_the_explanation() -> None:
    text = (DOCS / "explanation" / "checkpoint-schemes.md").read_text("utf-8")
    rows = text.partition("## The schemes")[2].partition("\n## ")[0]
    assert re.findall(r"^\| ([\w -]+?) \|", rows, re.M)[1:] == [one.name for one in SCHEMES]
