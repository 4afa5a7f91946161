"""The example of docs/how-to/add-a-source.md does what the page says."""

import importlib.util
import json
import re
from pathlib import Path

from ettr.sources.base import ReadOptions, Source
from ettr.sources.origin import head_of
from ettr.sources.registry import all_sources
from source_samples import is_as_expected, read_all

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-source.md"


def block_of(path: str) -> str:
    """The fenced block that follows the path on the page."""
    found = re.search(
        rf"`{re.escape(path)}`[^`]*\n```\w+\n(.*?)\n```\n", PAGE.read_text("utf-8"), re.S
    )
    assert found, path
    return found[1] + "\n"


def test_the_example_reads_its_sample_as_the_twin_says(tmp_path: Path) -> None:
    module_path = tmp_path / "abacus.py"
    module_path.write_text(block_of("src/ettr/sources/abacus.py"))
    spec = importlib.util.spec_from_file_location("abacus", module_path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source: Source = module.SOURCE
    log = tmp_path / "accounting.log"
    log.write_text(block_of("tests/samples/abacus/accounting.log").rstrip("\n"))
    twin = json.loads(block_of("tests/samples/abacus/accounting.log.expected.json"))
    is_as_expected(read_all(source, log, ReadOptions(**twin["options"])), twin)
    assert source.matches(head_of(log), log.name) == 1.0
    assert max(s.matches(head_of(log), log.name) for s in all_sources().values()) == 0.0
