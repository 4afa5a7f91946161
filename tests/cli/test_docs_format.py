"""Python in the docs is formatted as the code is, where ruff reads Markdown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_python_of_the_docs_is_formatted():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "docs", "examples", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
