"""What `ettr.checkpoint` and `ettr.recovery` offer, and what importing them costs."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ettr.checkpoint
import ettr.recovery

HEAVY = ("torch", "numpy", "xxhash")


def loaded_after(program: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded after a program."""
    code = (
        f"import json, sys\n{program}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "program",
    [
        "import ettr.checkpoint; dir(ettr.checkpoint)",
        "from ettr.checkpoint import BlockAge, CheckpointError, FencedError, fence",
        "from ettr.checkpoint import block_ages, prometheus_text, survey, verify, write_metrics",
        "import ettr.recovery",
    ],
)
def test_what_needs_no_tensor_needs_the_standard_library_only(program: str) -> None:
    assert loaded_after(program) == []


@pytest.mark.torch
def test_every_public_name_resolves() -> None:
    pytest.importorskip("torch")
    for name in ettr.checkpoint.__all__:
        assert getattr(ettr.checkpoint, name) is not None


@pytest.mark.parametrize("room", ["ettr.checkpoint", "ettr.recovery"])
def test_no_module_hides_a_public_name(room: str) -> None:
    package = importlib.import_module(room)
    modules = {path.stem for path in Path(package.__path__[0]).glob("*.py")}
    assert modules & set(package.__all__) == set()
    assert set(package.__all__) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Checkpoint'"):
        _ = ettr.checkpoint.Checkpoint  # type: ignore[attr-defined]
