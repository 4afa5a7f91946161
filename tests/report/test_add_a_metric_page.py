"""The example of docs/how-to/add-a-metric.md is a metric everywhere once its files are there."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ettr
import ettr.metrics
import ettr.report.sections
from attempt_tables import site_of_attempts
from cli.program import ettr as run
from ettr.analysis.assumptions import MOST_TAKEN, taken_by
from ettr.report.json_schema import report_schema
from ettr.report.registry import PARTS

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "how-to" / "add-a-metric.md").read_text("utf-8")
DAY = "2026-03-01T00:00:00Z,2026-03-01T00:00:00Z,2026-03-02T00:00:00Z,86400"


def block_of(path: str) -> str:
    """The fenced block that follows the path on the page."""
    found = re.search(rf"`{re.escape(path)}`[^`]*\n```python\n(.*?)\n```\n", PAGE, re.S)
    assert found, path
    return found[1] + "\n"


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two source files of the page, next to those of the package."""
    for package, folder in ((ettr.metrics, "metrics"), (ettr.report.sections, "report/sections")):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "widths.py").write_text(block_of(f"src/ettr/{folder}/widths.py"))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
    yield
    for package in (ettr.metrics, ettr.report.sections):
        sys.modules.pop(f"{package.__name__}.widths", None)
        vars(package).pop("widths", None)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    rows = (f"c,1,COMPLETED,{DAY},1,8,n1\n", f"c,2,COMPLETED,{DAY},3,24,n[2-4]\n")
    return site_of_attempts(tmp_path, *rows)


@pytest.mark.usefixtures("widths")
def test_its_command_stands_among_the_metrics_and_prints_the_part(site: Path) -> None:
    names = re.findall(r"^  ([a-z-]+)  ", run("--help").out, re.M)
    assert names[names.index("sizes") + 1] == "widths"
    assert "  ettr widths site\n" in run("widths", "--help").out
    assert "One node or several" in run("widths", site, "--detail").out
    rows = run("widths", site, "--csv").out.splitlines()
    assert rows == [
        "nodes,attempts,node_hours,share_of_node_hours",
        "one node,1,24.0,0.25",
        "several nodes,1,72.0,0.75",
    ]


@pytest.mark.usefixtures("widths")
def test_it_is_a_key_of_the_report_a_section_of_its_page_and_in_the_schema(
    site: Path, tmp_path: Path
) -> None:
    document = run("report", site, "--json").json
    names = list(document)
    assert names[names.index("sizes") + 1] == "widths"
    assert document["widths"]["node_hours_a_day"] == pytest.approx(96.0)
    done = run("report", site, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert '<section id="widths">' in (tmp_path / "report.html").read_text("utf-8")
    schema = report_schema()
    assert schema["properties"]["widths"] == {"$ref": "#/$defs/Widths"}
    assert "share_of_node_hours" in schema["$defs"]["Width"]["properties"]


@pytest.mark.usefixtures("widths")
def test_it_is_an_attribute_in_python(site: Path) -> None:
    with ettr.open(site) as fleet:
        found: Any = getattr(fleet, "widths")  # noqa: B009 - its type is made by `make docs`
        assert found.value.widths[1].node_hours == pytest.approx(72.0)
        assert "widths" in dir(fleet)
        with pytest.raises(AttributeError, match="no attribute 'width'"):
            getattr(fleet, "width")  # noqa: B009


@pytest.mark.usefixtures("widths")
def test_without_job_accounting_its_figures_are_null(tmp_path: Path) -> None:
    trace = Path(__file__).parents[1] / "samples" / "infinitehbd" / "trace.json"
    store = tmp_path / "faults"
    assert run("ingest", store, trace, "--timezone", "UTC", "--nodes", "400").code == 0
    assert "no job accounting" in run("widths", store).out
    assert json.loads(run("widths", store, "--json").out)["node_hours_a_day"] is None


@pytest.mark.usefixtures("widths")
def test_the_reference_has_its_keys_and_its_type() -> None:
    generate = module_of(DOCS / "generate.py")
    pages = {**generate.pages(), **generate.reference()}
    assert (
        "| `widths.node_hours_a_day` |  | Node-hours held a day of the logs. |"
        in pages["reference/report-json.md"]
    )
    assert "### ettr widths" in pages["reference/commands.md"]
    assert "    widths: Result[Widths]\n" in pages["../src/ettr/api/answers.py"]


@pytest.mark.usefixtures("widths")
def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    test = tmp_path / "test_metrics_widths.py"
    test.write_text(block_of("tests/metrics/test_metrics_widths.py"))
    folder = tmp_path / "of_page"
    folder.mkdir()
    module_of(test).test_shares_are_of_the_node_time(folder)


def test_no_question_takes_more_than_twelve_things() -> None:
    questions = [
        question
        for part in PARTS.values()
        for question in (part.question, *part.joined.values())
        if question is not None
    ]
    assert len(questions) > 25
    assert max(len(taken_by(question)) for question in questions) <= MOST_TAKEN


def test_a_question_cannot_read_what_it_does_not_name(site: Path) -> None:
    def asks_for_more(_: object, given: Any) -> object:
        return given.fleet

    asks_for_more.__annotations__ |= {"given": OfNothing}
    with ettr.open(site) as fleet, pytest.raises(AttributeError, match="fleet: the question takes"):
        fleet.analysis.ask(asks_for_more)


class OfNothing:
    """What that question takes."""

    period: object
