"""What a command loads before it answers: a closed form needs no engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.program import ettr, write_logs
from ettr.cli.main import PlainValues

RUN = """
import json, sys
blocked, commands = sys.argv[1:]

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked.split():
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from ettr.cli.main import main
for words in json.loads(commands):
    sys.argv = ["ettr", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
sys.stderr.write("\\n".join(sorted(sys.modules)))
"""
RATE = ("plan", "--gpus", "16384", "--failures-per-1000-node-days", "6.5")
COUNTS = ("plan", "--gpus", "16384", "--failures", "419", "--node-days", "110592")
SCHEMES = ("--state-bytes", "5.6TB", "--step", "10s", "--bandwidth", "200GB/s")
ENGINES = {"pyarrow", "duckdb", "pandas", "sqlglot", "plotly", "torch"}
NOT_REQUIRED = ("ibis", "pandas", "polars", "pytz", "sqlglot")


def loaded(*words: str, blocked: tuple[str, ...] = ()) -> set[str]:
    """The modules that a fresh interpreter, where some cannot be, has loaded after a command."""
    return loaded_by_all(words, blocked=blocked)


def loaded_by_all(*commands: tuple[str, ...], blocked: tuple[str, ...] = ()) -> set[str]:
    """The same after some commands in turn: what is not among them none of these has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, " ".join(blocked), json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_a_typed_rate_needs_the_standard_library_only() -> None:
    modules = loaded_by_all(
        ("--help",),
        RATE,
        (*RATE, "--json"),
        (*RATE, "--days", "30", "--target", "0.9"),
        (*RATE, *SCHEMES),
    )
    assert modules & (ENGINES | {"scipy", "numpy", "jinja2", "pydantic"}) == set()


def test_typed_counts_and_their_exact_interval_need_no_more() -> None:
    modules = loaded_by_all(COUNTS, (*COUNTS, *SCHEMES, "--target", "0.9", "--json"))
    assert "ettr.estimates.exact" in modules
    assert modules & (ENGINES | {"scipy", "numpy", "jinja2", "pydantic"}) == set()


@pytest.mark.slow
def test_a_store_is_read_and_reported_without_frames_and_other_engines(tmp_path: Path) -> None:
    store, logs = str(tmp_path / "store"), map(str, write_logs(tmp_path))
    ingest = ("ingest", store, *logs, "--timezone", "UTC")
    export = ("export", store, "--to", str(tmp_path / "out.duckdb"))
    loaded_by_all(ingest, export, blocked=NOT_REQUIRED)
    page = loaded("report", store, "-o", str(tmp_path / "report.html"), blocked=NOT_REQUIRED)
    assert "ettr.report.page" in page
    assert "torch" not in page
    assert "ettr.sources.slurm.sacct" not in page  # nor any other reader of logs
    answer = loaded("failures", store, "--json", blocked=NOT_REQUIRED)
    unneeded = {"scipy", "plotly", "jinja2", "torch", "pyarrow", "pydantic", "duckdb"}
    assert answer & unneeded == set()
    assert page & {"numpy.f2py", "pyarrow.compute", "pyarrow.parquet", "pydantic"} == set()


def test_a_command_loads_no_other_command() -> None:
    modules = {name for name in loaded(*RATE) if name.startswith("ettr.cli.")}
    assert "ettr.cli.plan" in modules
    assert not modules & {"ettr.cli.project", "ettr.cli.ingest", "ettr.cli.training"}


class TestPlainValues:
    """The short way takes what Typer's own takes, and refuses nothing that it would not."""

    @pytest.mark.parametrize(
        ("word", "value"),
        [("5", 5.0), ("0.5", 0.5), ("1e-3", 1e-3), ("  7 ", 7.0), (".5", 0.5), ("+3", 3.0)],
    )
    def test_numbers_of_every_spelling(self, word: str, value: float) -> None:
        done = ettr("plan", "--gpus", "8", "--failures-per-1000-node-days", word, "--json")
        assert done.code == 0, done.err
        assert done.json["rate"]["per_node_day"]["estimate"] == pytest.approx(value / 1000)

    @pytest.mark.parametrize("word", ["five", "", "1_0_", "0x10", "1.5", "²"])
    def test_what_is_no_whole_number_is_refused(self, word: str) -> None:
        done = ettr("plan", "--gpus", word, "--failures-per-1000-node-days", "6.5", "--detail")
        assert done.code == 2
        assert "--gpus" in done.err

    def test_a_number_out_of_range_is_refused(self) -> None:
        done = ettr("plan", "--gpus", "0", "--failures-per-1000-node-days", "6.5", "--detail")
        assert done.code == 2
        assert "greater than or equal to 1" in done.err

    def test_only_what_is_beyond_doubt_is_plain(self) -> None:
        class Info:
            min = 1
            max = None

        assert PlainValues(int, Info)._plain("12") == 12
        assert PlainValues(int, Info)._plain("0") is None
        assert PlainValues(float, Info)._plain("nan") is None
        assert PlainValues(str, Info)._plain("") == ""
