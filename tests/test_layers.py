"""Who may import whom: the contracts hold, and the base needs no torch and starts at once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(" ".join(name for name in sys.argv[2:] if name in sys.modules))
"""


def loaded_with(module: str, *names: str) -> set[str]:
    """Which of `names` a fresh interpreter has loaded after importing `module`."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, module, *names], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


TRAINING = ("ettr.checkpoint", "ettr.elastic", "ettr.recovery", "ettr.chaos")
HEAVY = ("torch", "scipy.stats", "pandas", "plotly", "ibis", "duckdb", "pyarrow", "lifelines")


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("ettr.plan", ("numpy", "scipy", *HEAVY)),
        ("ettr.taxonomy", ("numpy", "scipy", *HEAVY)),
        ("ettr.progress.recorder", ("numpy", "scipy", *HEAVY)),
        ("ettr.elastic", ("numpy", "scipy", *HEAVY)),
        ("ettr.tables", ("torch", "scipy.stats", "pandas", "ibis", "duckdb", *TRAINING)),
        ("ettr.analysis", ("torch", "scipy.stats", "lifelines", *TRAINING)),
        ("ettr.report.html", ("torch", "scipy.stats", "plotly", *TRAINING)),
        ("ettr.cli.main", ("torch", "scipy.stats", "plotly", "ibis", "duckdb", *TRAINING)),
    ],
)
def test_a_part_loads_nothing_it_need_not(module: str, without: tuple[str, ...]) -> None:
    assert loaded_with(module, *without) == set()
