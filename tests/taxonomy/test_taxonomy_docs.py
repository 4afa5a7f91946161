"""The how-to's own examples load."""

import re
from pathlib import Path

import pytest

from ettr.taxonomy import load_taxonomy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "taxonomy.md"


@pytest.mark.parametrize("kind", ["toml", "csv"])
def test_the_example_of_the_how_to_loads(tmp_path: Path, kind: str) -> None:
    (block,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / f"site.{kind}"
    path.write_text(block)
    site = load_taxonomy(path)
    assert site.believe == "gpud"
    assert site.domain("liquid-cooling") == "hardware"
    assert site.classify_reason("a leak").symptom == "liquid-cooling"
