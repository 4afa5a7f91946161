"""Print every text that a user may read, once each, with the place that has it.

Run: python docs/texts.py [PREFIX ...], for example `python docs/texts.py cli sources`. Help texts
and messages are the package's string literals, with {} for values; headings are the pages'.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "ettr"
A_SENTENCE = re.compile(r"[A-Za-z]{2,}.* .*[A-Za-z]{2,}.* ")
NO_PROSE = re.compile(
    r"\b(SELECT|CREATE|INSERT|FROM|WITH|JOIN|CASE WHEN|UNION|DROP|SET|CAST)\b"
    r"|coalesce\(|\(\?|\\[dbsSw]|: \w+ \|"
)


def _text(node: ast.expr) -> str | None:
    """A literal, an f-string with {} for its values, or a sum of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values
        )
    return None


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of a module that may be shown, with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "cli" in path.parts and node.name[0] != "_":
            says = " ".join((ast.get_docstring(node) or "").split())
            if "Raises:" not in says and "Args:" not in says:
                yield node.lineno, says
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in hidden | inner:
            text = " ".join((_text(node) or "").split())
            if A_SENTENCE.search(text + " ") and not NO_PROSE.search(text):
                yield node.lineno, text


def main(prefixes: list[str]) -> None:
    """Print the texts of the rooms named, else of all."""
    seen: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if prefixes and not name.startswith(tuple(prefixes)):
            continue
        for line, text in texts_of(path):
            if text and text not in seen:
                seen.add(text)
                sys.stdout.write(f"{name}:{line}: {text}\n")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = str(page.relative_to(ROOT))
        if prefixes and not name.startswith(tuple(prefixes)):
            continue
        for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M):
            sys.stdout.write(f"{name}: {heading}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
