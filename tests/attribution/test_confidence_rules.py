"""The rules of confidence: each decides something, all together everything, as documented."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from attribution.attribution_tables import Cluster, by_job
from attribution.test_attribution_failures import END_S, Case
from ettr.facts import fact

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "add-an-attribution-rule.md").read_text("utf-8")
RULE = re.compile(r"-- (.+)\n\s*WHEN (.+) THEN '(\w+)'")
PLACES: dict[str, tuple[Any, ...]] = {
    "node_failed": (False, True),
    "named_node": (None, "n1"),
    "lead_node": ("n1", "n2"),
    "lead_symptom": (None, "gpu-memory"),
    "state_symptom": (None, "boot"),
    "lead_us": (-60, 0, 60),
    "n_lead_nodes": (1, 2),
    "end_us": (0,),
}
COLUMNS = (
    "node_failed BOOLEAN, named_node VARCHAR, lead_node VARCHAR, lead_symptom VARCHAR, "
    "state_symptom VARCHAR, "
    "lead_us BIGINT, n_lead_nodes BIGINT, end_us BIGINT"
)


class Rule(NamedTuple):
    """One rule: what it says, when it holds, and how sure those are for which it holds first."""

    says: str
    holds: str
    confidence: str


def rules_in(text: str) -> list[Rule]:
    return [Rule(*found) for found in RULE.findall(text)]


RULES = rules_in(fact("all_failures").text)


def possible() -> list[dict[str, Any]]:
    """Every failure there can be: one that the scheduler names, or with a fault observed."""
    found = []
    for values in itertools.product(*PLACES.values()):
        row = dict(zip(PLACES, values, strict=True))
        if row["lead_symptom"] is None:
            row |= {"lead_node": None, "lead_us": None, "n_lead_nodes": None}
        if row["named_node"] is not None and not row["node_failed"]:
            continue  # only a failed node is named
        if row["node_failed"] or row["lead_symptom"]:
            found.append(row)
    return found


def deciding(rules: Sequence[Rule]) -> list[int]:
    """For each possible failure the place of the rule that decides it; beyond the last if none."""
    branches = " ".join(f"WHEN {rule.holds} THEN {place}" for place, rule in enumerate(rules))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE found ({COLUMNS})")
        marks = ", ".join("?" * len(PLACES))
        connection.executemany(
            f"INSERT INTO found VALUES ({marks})",  # noqa: S608
            [[row[name] for name in PLACES] for row in possible()],
        )
        sql = f"SELECT CASE {branches} ELSE {len(rules)} END FROM found"  # noqa: S608
        return [place for (place,) in connection.execute(sql).fetchall()]


def words_of(rules: Sequence[Rule]) -> list[tuple[str, str]]:
    return [(rule.confidence, rule.says) for rule in rules]


def test_each_rule_decides_some_failures_and_together_they_decide_all() -> None:
    assert set(deciding(RULES)) == set(range(len(RULES)))


def test_the_documentation_has_the_rules_in_their_order() -> None:
    text = (DOCS / "explanation" / "attribution.md").read_text("utf-8")
    table = text.partition("| confidence | rule |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+) \| (.*) \|$", table, re.M) == words_of(RULES)


class Example(NamedTuple):
    """The rules without and with that of the how-to page in its place, and the page's case."""

    without: list[Rule]
    rules: list[Rule]
    cases: dict[str, Case]


@pytest.fixture(scope="module")
def example() -> Example:
    (entry,) = rules_in(re.findall(r"```sql\n(.*?)```", HOW_TO, re.DOTALL)[0])
    (case,) = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    made: dict[str, Any] = {"Case": Case}
    exec(case, made)  # noqa: S102 our own documentation
    # whoever follows the page to the letter has it among the rules already
    rules = [other for other in RULES if other.says != entry.says]
    says = [other.says for other in rules]
    place = says.index("a FAILED job; the leading fault was seen before the job ended")
    return Example(rules, [*rules[:place], entry, *rules[place:]], made["CASES"])


def test_the_example_of_the_page_decides_something_and_hides_no_rule(example: Example) -> None:
    assert set(deciding(example.rules)) == set(range(len(example.rules)))


@pytest.mark.slow
def test_the_case_of_the_page_is_decided_by_its_rule_alone(example: Example) -> None:
    (case,) = example.cases.values()
    cluster = Cluster()
    cluster.attempt("1", case.state, case.nodes, end_s=END_S)
    for node, offset_s, code in case.seen:
        cluster.event(node, END_S + offset_s, code)
    facts = cluster.on()

    def failures(rules: Sequence[Rule]) -> dict[str, dict[str, Any]]:
        branches = " ".join(f"WHEN {rule.holds} THEN '{rule.confidence}'" for rule in rules)
        code = fact("all_failures").code
        with_rules = re.sub(
            r"WHEN lead_symptom IS NULL.*?(?=ELSE 'none')", branches, code, flags=re.S
        )
        assert branches in with_rules
        one = replace(fact("all_failures"), code=with_rules)
        return by_job(facts.engine.rows(one.code_with(facts.table), {}))

    row = failures(example.rules)["1"]
    assert (row["node"], row["symptom"], row["confidence"]) == case.expected
    assert failures(example.without)["1"]["confidence"] != row["confidence"]
