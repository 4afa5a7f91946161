"""The pages of the documentation, and the code in them, for the tests that read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "examples" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


def named(page: Path) -> str:
    """The page's path from the root of the checkout."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in one of these languages."""
    fence = rf"^```(?:{'|'.join(languages)})\n(.*?)^```"
    return re.findall(fence, page.read_text("utf-8"), re.S | re.M)
