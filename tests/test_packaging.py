"""What the package says of itself, as an index of packages would show it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: dict[str, Any] = settings["project"]
    return found


def test_the_long_description_has_no_link_that_leads_nowhere_on_an_index(project: dict[str, Any]):
    text = project["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "ettr report" in text
    assert project["readme"]["content-type"] == "text/markdown"


def test_the_metadata_is_complete(project: dict[str, Any]):
    assert project["authors"] == [{"name": "ettr contributors"}]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    lowest = project["requires-python"].removeprefix(">=")
    versions = [
        one.rpartition(" ")[2]
        for one in project["classifiers"]
        if one.startswith("Programming Language :: Python :: 3.")
    ]
    assert versions[0] == lowest
    assert {"3.11", "3.12", "3.13"} <= set(versions)
    assert "urls" not in project, "give its address in README.md and CITATION.cff as well"


def test_each_dependency_states_its_lowest_version(project: dict[str, Any]):
    assert [one for one in project["dependencies"] if ">=" not in one] == []
