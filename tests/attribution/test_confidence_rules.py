"""The rules of confidence: each decides something, all together everything, as documented."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ibis
import pytest

from attribution.attribution_tables import Cluster, at, by_job
from attribution.test_attribution_failures import END_S, Case
from ettr.attribution.confidence import CONFIDENCE_RULES, ConfidenceRule
from ettr.attribution.failures import failures

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "add-an-attribution-rule.md").read_text("utf-8")
PLACES: dict[str, tuple[Any, ...]] = {
    "node_failed": (False, True),
    "named_node": (None, "n1"),
    "lead_node": ("n1", "n2"),
    "lead_symptom": (None, "gpu-memory"),
    "lead_first": (at(-60), at(0), at(60)),
    "n_lead_nodes": (1, 2),
}
SCHEMA = {
    "node_failed": "boolean",
    "named_node": "string",
    "lead_node": "string",
    "lead_symptom": "string",
    "lead_first": "timestamp('UTC', 6)",
    "n_lead_nodes": "int64",
    "end": "timestamp('UTC', 6)",
}


def possible() -> list[dict[str, Any]]:
    """Every failure there can be: one that the scheduler names, or with a fault observed."""
    found = []
    for values in itertools.product(*PLACES.values()):
        row = dict(zip(PLACES, values, strict=True)) | {"end": at(0)}
        if row["lead_symptom"] is None:
            row |= {"lead_node": None, "lead_first": None, "n_lead_nodes": None}
        if row["named_node"] is not None and not row["node_failed"]:
            continue  # only a failed node is named
        if row["node_failed"] or row["lead_symptom"]:
            found.append(row)
    return found


def deciding(rules: Sequence[ConfidenceRule]) -> list[int]:
    """For each possible failure the place of the rule that decides it; beyond the last if none."""
    table = ibis.memtable(possible(), schema=SCHEMA)
    branches = [(rule.holds(table), place) for place, rule in enumerate(rules)]
    place = ibis.cases(*branches, else_=len(rules))
    decided: list[int] = table.select(place=place).to_pyarrow()["place"].to_pylist()
    return decided


def words_of(rules: Sequence[ConfidenceRule]) -> list[tuple[str, str]]:
    return [(rule.confidence.value, rule.says) for rule in rules]


def test_each_rule_decides_some_failures_and_together_they_decide_all() -> None:
    assert set(deciding(CONFIDENCE_RULES)) == set(range(len(CONFIDENCE_RULES)))


def test_the_documentation_has_the_rules_in_their_order() -> None:
    text = (DOCS / "explanation" / "attribution.md").read_text("utf-8")
    table = text.partition("| confidence | rule |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+) \| (.*) \|$", table, re.M) == words_of(CONFIDENCE_RULES)


class Example(NamedTuple):
    """The rules without and with that of the how-to page in its place, and the page's case."""

    without: list[ConfidenceRule]
    rules: list[ConfidenceRule]
    cases: dict[str, Case]


@pytest.fixture(scope="module")
def example() -> Example:
    entry, case = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    made: dict[str, Any] = {"Case": Case}
    exec(entry, made)  # noqa: S102 our own documentation
    exec(case, made)  # noqa: S102
    rule = made["SEEN_ON_SEVERAL_NODES"]
    # whoever follows the page to the letter has it among the rules already
    rules = [other for other in CONFIDENCE_RULES if other.says != rule.says]
    says = [other.says for other in rules]
    place = says.index("a FAILED job; the leading fault was seen before the job ended")
    return Example(rules, [*rules[:place], rule, *rules[place:]], made["CASES"])


def test_the_example_of_the_page_decides_something_and_hides_no_rule(example: Example) -> None:
    assert set(deciding(example.rules)) == set(range(len(example.rules)))


@pytest.mark.slow
def test_the_case_of_the_page_is_decided_by_its_rule_alone(
    duckdb_connection: ibis.BaseBackend, example: Example
) -> None:
    (case,) = example.cases.values()
    cluster = Cluster()
    cluster.attempt("1", case.state, case.nodes, end_s=END_S)
    for node, offset_s, code in case.seen:
        cluster.event(node, END_S + offset_s, code)
    found = cluster.on(duckdb_connection).attribute()
    row = by_job(failures(found.endings, found.observed, example.rules))["1"]
    assert (row["node"], row["symptom"], row["confidence"]) == case.expected
    without = by_job(failures(found.endings, found.observed, example.without))["1"]
    assert without["confidence"] != row["confidence"]
