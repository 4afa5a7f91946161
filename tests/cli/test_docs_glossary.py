"""The glossary holds the words that the tables, the commands and the pages use."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from ettr.recovery import RecoverySource
from ettr.tables import DERIVED, TABLES
from ettr.taxonomy import load_taxonomy
from ettr.taxonomy.rules import read_records

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "glossary.md"
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]

# what a reader of these pages knows, and names that are no concept of ours
KNOWN = set(
    re.findall(
        r"\w+",
        "API CPU CRC CSV GPU HTML JSON SQL TOML YAML UTC GPT ISO LANL LSF PBS SCAR ICML CUDA STORE "
        "FILE PID JPEG HTTP SHA",
    )
)


def entries() -> dict[str, str]:
    """Each term with its definition; a row may define several terms."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)[1:]
    return {term.casefold(): means for names, means in rows for term in names.split(", ")}


def singular(name: str) -> str:
    """The name of a table as a word for one of its rows."""
    return name.removesuffix("s").replace("_", " ")


def test_the_terms_are_in_order_and_none_stands_twice():
    rows = re.findall(r"^\| (.+?) \| .+ \|$", PAGE.read_text("utf-8"), re.M)[1:]
    assert rows == sorted(rows, key=str.casefold)
    terms = [term.casefold() for row in rows for term in row.split(", ")]
    assert [term for term, times in Counter(terms).items() if times > 1] == []


def test_a_definition_is_at_most_two_sentences_and_forty_words():
    long = {
        term: means
        for term, means in entries().items()
        if len(re.findall(r"[.:](?= [A-Z]|$)", means)) > 2 or len(means.split()) > 40
    }
    assert long == {}


def test_every_table_has_its_word():
    words = {singular(name) for name in (*TABLES, *DERIVED) if name != "progress"}
    assert words - entries().keys() == set()


def test_every_kind_of_interruption_has_its_word():
    kinds = {str(state.kind) for state in load_taxonomy().states.values()} - {"none", "time-limit"}
    assert {"preemption", "operator"} < kinds
    assert {kind.replace("-", " ") for kind in kinds} - entries().keys() == set()


def test_every_source_of_a_lost_shard_is_named():
    words = {word.split()[0] for word in entries()}
    assert {source.value for source in RecoverySource} - words == set()


def test_an_abbreviation_that_several_pages_use_is_in_the_glossary():
    """One page may define its own; what three pages share is a word of the project."""
    pages = Counter()
    for page in PROSE:
        if page == PAGE:
            continue
        prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", page.read_text("utf-8"), flags=re.S)
        pages.update(set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", prose)))
    shared = {word for word, n_pages in pages.items() if n_pages > 2}
    assert {"MTTF", "ETTR", "XID"} < shared
    states = load_taxonomy().states.keys() | {row["state"] for row in read_records("node_states")}
    assert shared - KNOWN - states - {term.upper() for term in entries()} == set()


# names that say all in themselves, and errors about one
SELF_EXPLAINING = {
    "BadLineError",
    "Decision",
    "Export",
    "RandomStates",
    "SavedValues",
    "Situation",
    "Start",
    "State",
    "Stateful",
    "Survey",
    "TensorState",
    "Timeouts",
}


@pytest.mark.parametrize("door", ["checkpoint", "elastic", "progress", "recovery"])
def test_a_public_class_is_named_for_a_term(door: str):
    terms = [re.sub(r"ion$|ed$", "", term) for term in entries()]
    names = importlib.import_module(f"ettr.{door}").__all__
    classes = {name for name in names if name[0].isupper() and not name.isupper()}
    assert classes
    unexplained = {
        name
        for name in classes - SELF_EXPLAINING
        if not any(term.replace(" ", "") in name.casefold() for term in terms)
    }
    assert unexplained == set()
