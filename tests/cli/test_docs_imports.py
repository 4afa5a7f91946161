"""Python in the docs: imports run, complete programs run, names exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.docs_pages import PAGES, ROOT, blocks, named

pytestmark = pytest.mark.slow

NEEDS_TORCH = ("torch", "ettr.checkpoint", "ettr.elastic", "ettr.adapters")
NEEDS_LIBRARY = {  # module -> the library of its own that it needs
    "ettr.adapters.hugging_face": "transformers",
    "ettr.adapters.lightning": "lightning",
}
# runs each program of a file, and prints what went wrong in each that fails
EACH = """
import json, sys, traceback
wrong = {}
for name, code in json.load(open(sys.argv[1])).items():
    try:
        exec(compile(code, name, "exec"), {})
    except BaseException:
        wrong[name] = traceback.format_exc()
print(json.dumps(wrong))
"""
# what names in the docs may be resolved against
RESOLVE = """
import importlib, sys
for name in sys.argv[1:]:
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
            continue
        for part in parts[n:]:
            thing = getattr(thing, part)
        break
"""


def fresh(code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter at the root of the checkout."""
    path = os.pathsep.join(str(ROOT / name) for name in ("src", "tests", ""))
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def imports_of(page: Path) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of a page's Python, also of `python -c "..."` in its shell blocks."""
    code = blocks(page, "python")
    for block in blocks(page, "sh", "console", "text"):
        code += re.findall(r'python3? -c "([^"]*)"', block)
    trees = [ast.parse(block) for block in code]
    return [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and modules_of(node) != ["__future__"]
    ]


def modules_of(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [str(statement.module)]
    return [name.name for name in statement.names]


def needs_torch(module: str) -> bool:
    return any(module == room or module.startswith(room + ".") for room in NEEDS_TORCH)


def is_of_training(page: Path) -> bool:
    """Whether an import of a page needs torch."""
    return any(needs_torch(module) for node in imports_of(page) for module in modules_of(node))


def written_by(page: Path) -> set[str]:
    """The modules that a page has its reader write."""
    paths = re.findall(r"`(src/ettr/[\w/]+)\.py`", page.read_text("utf-8"))
    absent = [path for path in paths if not (ROOT / f"{path}.py").exists()]
    return {path.removeprefix("src/").replace("/", ".") for path in absent}


def documented_programs(*, training: bool) -> dict[str, str]:
    """Imports of each page that needs torch, or of each other; look-ups of dotted names.

    All run in one interpreter, which imports what they share once.
    """
    absent = {
        module
        for module, library in NEEDS_LIBRARY.items()
        if importlib.util.find_spec(library) is None
    }
    programs = {
        named(page): "\n".join(
            ast.unparse(node)
            for node in imports_of(page)
            if not (absent | written_by(page)).intersection(modules_of(node))
        )
        for page in PAGES
        if imports_of(page) and is_of_training(page) == training
    }
    assert len(programs) >= 5
    names = sorted(name for name in documented_names() if needs_torch(name) == training)
    assert len(names) > 10
    return programs | {name: f"import sys; sys.argv = ['', {name!r}]\n{RESOLVE}" for name in names}


def wrong_of(programs: dict[str, str], folder: Path) -> dict[str, str]:
    """The programs that fail in a fresh interpreter, with the error."""
    (folder / "programs.json").write_text(json.dumps(programs))
    done = fresh(EACH, folder / "programs.json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_imports_of_each_page_run_and_each_dotted_name_exists(tmp_path: Path):
    """Those of the training side: elastic/test_pages_of_training.py."""
    assert wrong_of(documented_programs(training=False), tmp_path) == {}


@pytest.mark.parametrize(
    "page",
    [
        "docs/explanation/ettr-models.md",
        "reproduction/scar/THEORY.md",
        "docs/how-to/choose-a-failure-model.md",
    ],
)
def test_a_program_that_a_page_shows_whole_runs(page: str):
    done = fresh("\n".join(blocks(ROOT / page, "python")))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def dotted_names(page: Path) -> set[str]:
    """Names of the package in code spans, such as `ettr.plan.renewal`."""
    text = page.read_text("utf-8")
    return {
        name.replace(":", ".")
        for name in re.findall(r"`((?:ettr|reproduction)(?:\.\w+)+(?::\w+(?:\.\w+)*)?)", text)
        if not name.endswith((".md", ".prom", ".py", ".toml"))
    }


def documented_names() -> set[str]:
    """Every dotted name of the docs; those in the changelog may be of the past."""
    return {name for page in PAGES if page.name != "CHANGELOG.md" for name in dotted_names(page)}


def test_a_name_that_is_not_there_is_noticed(tmp_path: Path):
    assert "no attribute 'nowhere'" in fresh(RESOLVE, "ettr.plan.nowhere").stderr
    programs = {"good": "import ettr", "bad": "from ettr.plan.renewal import nothing"}
    assert list(wrong_of(programs, tmp_path)) == ["bad"]
