"""CITATION.cff names the version that is installed and the papers that the software stands on."""

from __future__ import annotations

import re
from pathlib import Path

import ettr

ROOT = Path(__file__).resolve().parents[2]
CITATION = (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_version_is_that_of_the_package():
    assert re.findall(r"^version: (.+)$", CITATION, re.M) == [ettr.__version__]


def test_what_the_schema_requires_is_there():
    top = re.findall(r"^([a-z-]+):", CITATION, re.M)
    assert {"cff-version", "message", "title", "authors"} < set(top)
    assert len(top) == len(set(top))


def test_every_reference_of_the_readme_is_cited():
    titles = re.findall(r"^    title: (.+)$", CITATION, re.M)
    assert len(titles) == 2
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert [title for title in titles if title not in readme] == []
