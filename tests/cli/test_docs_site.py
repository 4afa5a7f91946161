"""The documentation site builds without a warning and asks nothing of the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//""")


@pytest.mark.slow
def test_the_site_builds_with_every_link_and_loads_nothing(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50
    assert [page.name for page in pages if LOADED.search(page.read_text("utf-8"))] == []
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
    reference = (tmp_path / "site" / "reference" / "python.html").read_text("utf-8")
    assert "plan_run" in reference
    assert "node_days" in reference
