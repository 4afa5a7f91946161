"""The docs match the program: generated pages, keys of the JSON, links, commands."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.docs_pages import DOCS, PAGES, ROOT, blocks, named
from ettr.cli.main import build_app
from ettr.sources.registry import all_sources


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_made_pages_and_parts_are_up_to_date(generate: Any):
    made = generate.pages()
    assert {"explanation/architecture.md", "how-to/README.md"} < made.keys()
    stale = [name for name, text in made.items() if (DOCS / name).read_text("utf-8") != text]
    assert stale == [], "out of date; run `make docs`"


def test_a_part_whose_marks_are_gone_is_an_error(generate: Any):
    with pytest.raises(ValueError, match="sources: 0 places"):
        generate._with_parts("# A page without marks\n", {"sources": "| a |"})


def test_every_source_has_a_guide():
    for source in all_sources().values():
        assert (DOCS / "how-to" / source.guide_page).is_file(), source.name


def test_every_guide_is_in_the_index_and_every_folder_has_one():
    for index in DOCS.glob("*/README.md"):
        linked = re.findall(r"\]\(([^)#]+)", index.read_text("utf-8"))
        there = {str(page.relative_to(index.parent)) for page in index.parent.rglob("*.md")}
        assert there - {"README.md"} - set(linked) == set(), index


def test_the_first_page_leads_to_every_page_that_no_index_holds(generate: Any):
    linked = re.findall(r"\]\(([^)#]+)", (DOCS / "README.md").read_text("utf-8"))
    assert generate.reference().keys() <= set(linked)
    folders = ("tutorials", "reference", "explanation")
    there = {f"{name}/{page.name}" for name in folders for page in (DOCS / name).glob("*.md")}
    assert there - set(linked) == set()


def test_every_command_option_has_a_meaning(generate: Any):
    rows = re.findall(
        r"^\| `(-[^`]+)` \| (.*?) \|", generate.reference()["reference/commands.md"], re.M
    )
    assert len(rows) > 50
    assert [name for name, means in rows if not means.strip()] == []


@pytest.mark.slow
def test_an_argument_that_may_be_left_out_stands_in_brackets(generate: Any):
    page = generate.reference()["reference/commands.md"]
    assert "\nettr plan [STORE] [OPTIONS]\n" in page
    assert "\nettr catalog [XID] [OPTIONS]\n" in page
    assert "\nettr explain [STORE] [JOB] [OPTIONS]\n" in page
    assert "\nettr lemons STORE [NODE] [OPTIONS]\n" in page
    assert "\nettr mttf STORE [OPTIONS]\n" in page


@pytest.fixture(scope="module")
def documented(generate: Any) -> set[str]:
    """Dotted keys of the page; `.key` after a full key has that key's parent."""
    keys = set()
    for line in generate.reference()["reference/report-json.md"].splitlines():
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


@pytest.mark.slow
def test_every_key_of_the_report_is_documented(document: dict[str, Any], documented: set[str]):
    explained = documented | {key.partition(".")[0] for key in documented}
    assert keys_of(document) - explained == set()


@pytest.mark.slow
def test_no_documented_key_is_absent(document: dict[str, Any], documented: set[str]):
    here = keys_of(document)
    assert {key for key in documented if "[" not in key and key.count(".") < 2} - here == set()


def anchor(heading: str) -> str:
    """What a heading is called in a link, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.fixture(scope="module")
def made(generate: Any) -> dict[Path, str]:
    """The pages of the site that are made and not kept, by the place that links name."""
    return {DOCS / name: text for name, text in generate.reference().items()}


def wrong_links(page: Path, text: str, made: dict[Path, str]) -> list[str]:
    """Links of a page whose file, page of the site or heading is absent."""
    wrong = []
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, part = target.partition("#")
        there = Path(os.path.normpath(page.parent / path)) if path else page
        if there not in made and not there.exists():
            wrong.append(target)
        elif part:
            found = made.get(there) or there.read_text("utf-8")
            if part not in map(anchor, re.findall(r"^#+ (.*)$", found, re.M)):
                wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_of_the_docs_lead_somewhere(page: Path, made: dict[Path, str]):
    assert wrong_links(page, page.read_text("utf-8"), made) == []


def test_links_of_the_made_pages_lead_somewhere(made: dict[Path, str]):
    assert [wrong_links(page, text, made) for page, text in made.items()] == [[]] * len(made)


def test_only_the_documentation_links_to_pages_that_are_made(made: dict[Path, str]):
    """A reader of the checkout has no such page; the pages of docs are read as a site."""
    names = [str(place.relative_to(ROOT)) for place in made]
    outside = [page for page in PAGES if not page.is_relative_to(DOCS)]
    assert [n for page in outside for n in names if f"]({n}" in page.read_text("utf-8")] == []


def test_files_that_the_docs_name_exist():
    folders = "tests|benchmarks|campaigns|docs|examples|src|reproduction"
    missing = {
        f"{named(page)}: {name}"
        for page in PAGES
        if not page.name.startswith("add-")  # those name the files that the reader will write
        for name in re.findall(rf"`((?:{folders})/[\w./-]+)", page.read_text("utf-8"))
        if not (ROOT / name).exists()
    }
    assert missing == set()


def test_the_commands_of_the_docs_are_ones_that_ettr_takes():
    """Every line of a block that begins with ettr: the command, its arguments, its options."""
    group: Any = typer.main.get_command(build_app())
    wrong, seen = [], 0
    for page in PAGES:
        text = "\n".join(blocks(page, "sh", "text", "console")).replace("\\\n", " ")
        for line in (line.removeprefix("$ ") for line in text.splitlines()):
            if not line.startswith("ettr "):
                continue
            seen += 1
            # --config is read before the command's parser
            command = re.split(r" [|>]", re.sub(r" --config \S+", "", line))[0]
            words = shlex.split(command, comments=True)[1:]
            try:
                context = group.make_context("ettr", list(words), resilient_parsing=True)
                name, parser, words = group.resolve_command(context, words)
                parser.make_context(name, words)
            except Exception as error:  # whatever it is, the reader would meet it
                wrong.append(f"{named(page)}: {line}: {error!r}")
    assert seen > 40
    assert wrong == []


def test_the_documentation_stays_short():
    """What people wrote, and not what the site is built of."""
    read = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
    words = {page: len(page.read_text("utf-8").split()) for page in read}
    assert words[ROOT / "CHANGELOG.md"] <= 1_500, "say what a user of an earlier state must know"
    assert sum(words.values()) <= 55_000
    # a how-to fits a screen or two, its code and tables apart; those on extending ettr are recipes
    for page in (DOCS / "how-to").glob("[!R]*.md"):
        bare = re.sub(r"^```.*?^```|^\|.*?$", "", page.read_text("utf-8"), flags=re.M | re.S)
        prose = len(bare.split())
        assert prose <= (650 if page.name.startswith("add-") else 400), f"{page.name}: {prose}"
