"""The notebooks in examples/ run as they are, each in a fresh kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MARKS = {"trainer": [pytest.mark.torch]}
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_is_one_for_each_user():
    assert {path.stem for path in NOTEBOOKS} == {"engineer", "planner", "trainer"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, [])) for path in NOTEBOOKS],
)
# Jupyter's own event loops and files: nothing of ours is open there
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copytree(EXAMPLES / "slurm", tmp_path / "slurm")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type in {"display_data", "execute_result"}
    ]
    rich = [output for output in shown if "text/html" in output.data]
    assert rich or path.stem == "trainer"
