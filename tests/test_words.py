"""Wording that may not come back: docstrings, comments, messages, help, report text and the docs.

Each entry has the plain words to write instead.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

INSTEAD = {
    # "cannot tell" is what a verdict is called
    r"told|(?<!cannot )tells?|telling|untold": "reports, says, records; distinguished; unknown",
    r"anew": "again, from the start, new",
    r"beside": "next to, compared with, in addition to, along with",
    r"none that": "no ... that",
    r"(?<!there )(?-i:(?:is|are) none)": "has no ..., is not one of",
    r"heard of": "seen, received, reported",
    r"gasps?": "save on exit",
    r"wholeness": "integrity",
    r"what came of": "the outcome of, the result of",
    r"(?:gives?|gave|giving) way": "yields, is replaced",
    r"so too": "also, likewise",
    r"stands? for": "represents, replaces, means",
    r"laid to": "attributed to",
    r"dearer": "costs more, more expensive",
    r"lest": "so that ... not",
    r"for ever": "forever, without end",
    r"befalls?|befell": "happens to",
    r"whither|whence|thereof|thereupon": "where, from which, of it",
}
PHRASES = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and string literals of a module, docstrings among them, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            yield token.start[0], token.string


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, with its lines."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from python_texts(source)
    else:
        yield from enumerate(source.splitlines(), 1)


def findings(path: Path) -> list[str]:
    """Where a file uses a listed phrase: `path:line: phrase`."""
    name = str(path.relative_to(ROOT))
    if not PHRASES.search(" ".join(path.read_text("utf-8").split())):
        return []  # taking a module apart takes a hundred times as long as this search
    return [
        f"{name}:{line}: {match.group()}"
        for line, text in texts(path)
        for match in PHRASES.finditer(" ".join(text.split()))
    ]


def files() -> list[Path]:
    """Every file whose prose a user or a contributor reads."""
    package = ROOT / "src" / "ettr"
    found = [
        *package.rglob("*.py"),
        *package.rglob("*.j2"),
        *package.rglob("*.js"),
        *package.rglob("*.csv"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").glob("*.py"),
        *(ROOT / "campaigns").rglob("*.py"),
        *(ROOT / "reproduction").rglob("*.py"),
        *ROOT.glob("*.md"),
        ROOT / "examples" / "README.md",
    ]
    return sorted(found)


def test_every_file_is_written_in_plain_words():
    found = [finding for path in files() for finding in findings(path)]
    assert found == [], f"write plainly; instead of these: {INSTEAD}"


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ('"""Which runs told their progress."""', "told"),
        ("x = 1  # computed anew", "anew"),
        ('raise ValueError(f"{n} runs that tell none")', "tell"),
        ('"""A line that\n    gives way to another."""', "gives way"),
    ],
)
def test_a_listed_phrase_is_found_in_every_kind_of_text(text: str, phrase: str, tmp_path: Path):
    [(_, found)] = python_texts(text + "\n")
    assert PHRASES.search(" ".join(found.split())).group() == phrase


@pytest.mark.slow
def test_no_name_of_the_package_is_one_of_these_words():
    """Names that narrate: a value is named for what it is."""
    narrating = re.compile(r"(?:\b|_)(?:told|untold|tells?|telling|said|gasp|anew)(?:\b|_)")
    sources = {path: path.read_text("utf-8") for path in (ROOT / "src" / "ettr").rglob("*.py")}
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path, source in sources.items()
        if narrating.search(source)  # to take a module apart takes far longer
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        # a file's own tell() is Python's
        if token.type == tokenize.NAME and token.string != "tell" and narrating.search(token.string)
    ]
    assert found == []


def test_names_of_the_code_are_not_prose():
    assert list(python_texts("told = position.tell()\n")) == []
