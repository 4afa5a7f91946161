"""Who may import whom: the contracts hold, and the base needs no torch and starts at once."""

import re
import subprocess
import sys
import tomllib
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


def test_every_room_has_a_floor() -> None:
    """A package or module that no contract names could import anything."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    floors = " | ".join(
        floor
        for contract in contracts
        if contract["type"] == "layers"
        for floor in contract["layers"]
    )
    named = {name.strip().split(".")[1] for name in floors.split("|")}
    package = ROOT / "src" / "ettr"
    rooms = {place.parent.name for place in package.glob("*/__init__.py")}
    rooms |= {place.stem for place in package.glob("*.py")} - {"__init__"}
    assert rooms == named


TRAINING = ("ettr.checkpoint", "ettr.elastic", "ettr.recovery", "ettr.chaos")
HEAVY = ("torch", "scipy.stats", "pandas", "plotly", "duckdb", "pyarrow", "lifelines")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("ettr", ("numpy", "scipy", *HEAVY, *TRAINING, "ettr.analysis")),
        ("ettr.plan", ("numpy", "scipy", *HEAVY)),
        ("ettr.taxonomy", ("numpy", "scipy", *HEAVY)),
        ("ettr.progress", ("numpy", "scipy", *HEAVY)),
        ("ettr.recovery", ("numpy", "scipy", *HEAVY)),
        ("ettr.chaos", ("numpy", "scipy", *HEAVY)),
        ("ettr.checkpoint", ("numpy", "scipy", *HEAVY)),
        ("ettr.elastic", ("numpy", "scipy", *HEAVY)),
        ("ettr.sim.one_run", ("scipy.stats", "pandas", "duckdb", "plotly", *TRAINING)),
        ("ettr.tables", ("torch", "scipy.stats", "pandas", "duckdb", *TRAINING)),
        ("ettr.analysis", ("torch", "scipy.stats", "lifelines", *TRAINING)),
        ("ettr.report.html", ("torch", "scipy.stats", "plotly", *TRAINING)),
        ("ettr.cli.main", ("torch", "scipy.stats", "plotly", "duckdb", *TRAINING)),
    ],
)
def test_a_part_loads_nothing_it_need_not(module: str, without: tuple[str, ...]) -> None:
    assert loaded_with(module, *without) == set()


def test_no_class_name_has_two_meanings() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "ettr").rglob("*.py")):
        for name in re.findall(r"^ *class (\w+)[(:]", path.read_text("utf-8"), re.M):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
