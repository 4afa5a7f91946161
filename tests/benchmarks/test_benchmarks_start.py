"""Every benchmark that `make bench` runs starts without an argument that it needs."""

import ast
import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def runner():
    spec = importlib.util.spec_from_file_location("bench_run", BENCHMARKS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("side", ["analysis", "training"])
def test_what_is_run_is_a_benchmark_and_needs_no_argument(side: str) -> None:
    found = runner().scripts(side)
    assert len(found) > 5
    for path in found:
        tree = ast.parse(path.read_text())
        mains = [node for node in tree.body if isinstance(node, ast.If)]
        assert any("__main__" in ast.unparse(node.test) for node in mains), path.name
        needed = [
            ast.unparse(call)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            and getattr(call.func, "attr", "") == "add_argument"
            and not str(ast.literal_eval(call.args[0])).startswith("-")
            and not any(keyword.arg == "nargs" for keyword in call.keywords)
        ]
        assert not needed, f"{path.name} needs {needed}"
