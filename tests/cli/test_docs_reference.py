"""The reference is what the program is: generated pages up to date, every key of the JSON told."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["tables.md", "taxonomy.md", "commands.md", "sources.md"])
def test_a_generated_page_is_up_to_date(name: str, generate: Any):
    committed = (DOCS / "reference" / name).read_text("utf-8")
    assert committed == generate.pages()[name], "out of date; `make docs` writes it anew"


def test_every_command_option_has_a_meaning(generate: Any):
    rows = re.findall(r"^\| `(-[^`]+)` \| (.*?) \|", generate.pages()["commands.md"], re.M)
    assert len(rows) > 50
    assert [name for name, means in rows if not means.strip()] == []


def test_an_argument_that_may_be_left_out_stands_in_brackets(generate: Any):
    page = generate.pages()["commands.md"]
    assert "\nettr plan [STORE] [OPTIONS]\n" in page
    assert "\nettr catalog [XID] [OPTIONS]\n" in page
    assert "\nettr explain STORE JOB [OPTIONS]\n" in page


def documented() -> set[str]:
    """Dotted keys of the page; `.key` after a full key has that key's parent."""
    keys = set()
    for line in (DOCS / "reference" / "report-json.md").read_text("utf-8").splitlines():
        if not line.startswith("| `"):
            continue
        parent = ""
        for key in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
            full = parent + key if key.startswith(".") else key
            parent = full.rpartition(".")[0]
            keys.add(full)
    return keys


def keys_of(document: dict[str, Any]) -> set[str]:
    """Keys of the first and second level."""
    found = set(document)
    for name, part in document.items():
        if isinstance(part, dict):
            found |= {f"{name}.{key}" for key in part}
    return found


def test_every_key_of_the_report_is_documented(document: dict[str, Any]):
    told = documented() | {key.partition(".")[0] for key in documented()}
    assert keys_of(document) - told == set()


def test_no_documented_key_is_absent(document: dict[str, Any]):
    here = keys_of(document)
    assert {key for key in documented() if "[" not in key and key.count(".") < 2} - here == set()


@pytest.mark.parametrize("page", sorted(p.relative_to(DOCS) for p in DOCS.rglob("*.md")), ids=str)
def test_links_of_the_docs_lead_somewhere(page: Path):
    text = (DOCS / page).read_text("utf-8")
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path = target.partition("#")[0]
        assert not path or (DOCS / page).parent.joinpath(path).exists(), target
