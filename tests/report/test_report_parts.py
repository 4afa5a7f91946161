"""One registry of report parts: page, JSON and commands agree; none loads the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.program import ettr, write_logs

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[1] / "samples"
METRICS = ("status", "sizes", "failures", "mttf", "goodput", "runs", "nodes", "quality")
# runs three commands and prints the modules that any of them loaded of rooms that it has no use
# for; of the models every rate needs those that say whether failures cluster, and every help page
# the names
FOREIGN = """
import sys
from ettr.cli.main import main
store = sys.argv[1]
for name in ("failures", "status", "nodes"):
    sys.argv = ["ettr", name, store]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, stop.code
rooms = ("ettr.plan", "ettr.projection", "ettr.models.", "ettr.sources.slurm", "plotly", "torch")
light = ("base", "clustering", "compare", "data", "direction", "dispersion", "law", "ratio")
expected = {f"ettr.models.{name}" for name in (*light, "registry")}
found = {name for name in sys.modules if name.startswith(rooms)} - expected
sys.stderr.write(" ".join(sorted(found)))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    done = ettr("ingest", folder / "store", *write_logs(folder), "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "store"


def test_each_metric_prints_its_part_of_the_document(store: Path):
    document = ettr("report", store, "--json").json
    for name in METRICS:
        part = {"selection": document["selection"], **document[name]}
        assert ettr(name, store, "--json").json == part, name


def test_the_page_has_a_section_for_each_metric(store: Path, tmp_path: Path):
    done = ettr("report", "--detail", store, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    html = (tmp_path / "report.html").read_text("utf-8")
    for name in METRICS:
        assert f'<section id="{name}">' in html, name


def test_a_metric_loads_neither_models_nor_planner(store: Path):
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == []


def test_logs_of_faults_alone_print_them_before_the_nodes(tmp_path: Path):
    """A fault trace has no jobs: `ettr nodes` shows its faults, as its JSON always did."""
    trace = SAMPLES / "infinitehbd" / "trace.json"
    done = ettr("ingest", tmp_path / "store", trace, "--timezone", "UTC", "--nodes", "400")
    assert done.code == 0, done.err
    text = ettr("nodes", tmp_path / "store", "--detail").out
    titles = [line for line in text.splitlines() if line in {"Faults of the fleet", "Nodes"}]
    assert titles == ["Faults of the fleet", "Nodes"]
    assert ettr("nodes", tmp_path / "store", "--json").json["faults"]["faults"] > 0
