"""Every guarantee of the page names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"


def test_each_row_names_a_test_that_exists():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| ---")]
    rows = [row for row in rows if not row.endswith("| test |")]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in rows]
    assert len(rows) >= 25
    assert all(len(of_row) == 1 for of_row in named), "one test a row"
    for ((path, name),) in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
