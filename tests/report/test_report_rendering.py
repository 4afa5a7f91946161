"""Numbers, text and JSON as a reader and a program get them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import PackageLoader

from ettr.analysis.comparing import compare_fleets
from ettr.analysis.fleet_evidence import typed_evidence
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.metrics.availability import LogsRead
from ettr.metrics.goodput import CrashLoop, FailureBurst
from ettr.models.compare import funnel
from ettr.report.actions import actions, sentences
from ettr.report.answers import Answer
from ettr.report.html import Page, environment, plotly, render
from ettr.report.numbers import between, bounds, duration, moment, number, percent, share_between
from ettr.report.rows import plain
from ettr.report.section import WIDTH, Figure, Section, TextTable, section_text, table_text, wrapped
from ettr.report.sections.compare import compare_section
from ettr.report.sections.models import node_funnel
from ettr.words import counted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (12345.678, "12,346"),
        (12.345, "12.3"),
        (1.0, "1"),
        (0.012345, "0.0123"),
        (-0.5, "-0.500"),
        (0.000123, "0.000123"),
        (0.0000123456, "0.0000123"),
        (-9.87e-88, "> -0.0000001"),
        (1e300, "> 1,000,000 billion"),
    ],
)
def test_numbers(value: float | None, text: str):
    assert number(value) == text


def test_shares_durations_and_moments():
    assert percent(0.604) == "60.4 %"
    assert percent(None) == "–"
    assert [duration(s) for s in (None, 5, 600, 7200, 200000)] == [
        "–",
        "5 s",
        "10 min",
        "2 h",
        "2.31 d",
    ]
    summer = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert moment(summer) == "2026-07-01 10:00:00"
    assert moment(None) == "–"


def test_an_estimate_stands_beside_its_interval():
    assert between(Interval(6.5, 1.2, 20.0)) == "6.50 [1.20, 20]"
    assert between(Interval(6.5, 1.2, math.inf)) == "6.50 [1.20, ∞]"
    assert between(Interval(None, 3.25, math.inf)) == "≥ 3.25"
    assert between(Interval.unknown()) == "–"
    assert share_between(Interval(0.5, 0.25, 0.75)) == "50 [25, 75] %"


class _Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class _Result:
    rate: float
    when: datetime
    where: Path
    kinds: tuple[_Colour, ...]
    table: dict[int, float]


def test_plain_is_json_whatever_it_is_given():
    given = _Result(
        math.inf,
        datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        Path("a/b"),
        (_Colour.RED,),
        {1: math.nan},
    )
    made = plain(given)
    assert made == {
        "rate": None,
        "when": "2026-01-01T00:00:00Z",
        "where": "a/b",
        "kinds": ["red"],
        "table": {"1": None},
    }
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert plain(datetime(2026, 1, 1)) == "2026-01-01T00:00:00Z"  # noqa: DTZ001 - as Spark hands out


def test_a_table_fits_its_columns_cuts_no_cell_and_says_how_many_rows_it_left_out():
    table = TextTable(
        "Nodes",
        ("node", "n"),
        (("gpu-ä", "1"), ("計算", "22"), ("x" * 200, "3"), ("last", "4")),
        frozenset({1}),
        shown_rows=3,
    )
    lines = table_text(table, WIDTH).splitlines()
    assert lines[0] == "Nodes"
    assert lines[-1] == "... and 1 more row; --json has all"
    assert lines[4].startswith("gpu-ä")
    assert lines[4].endswith(" 1")
    assert "".join(lines[6:-1]).count("x") == 200
    assert lines[6].endswith(" 3")
    assert max(map(len, lines)) <= WIDTH


LONG = TextTable(
    "",
    ("fleet", "rate", "meaning"),
    (("a" * 30, "6.51 [6.13, 6.91]", "No difference is shown. " * 8), ("b", "1", "short")),
    frozenset({1}),
)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_is_as_wide_as_the_terminal_and_keeps_numbers_whole(width: int):
    lines = table_text(LONG, width).splitlines()
    assert max(map(len, lines)) <= width
    if width < 200:
        assert max(map(len, lines)) > width - 12
    text = " ".join(lines)
    assert "6.51 [6.13, 6.91]" in text
    assert text.count("difference") == 8


def test_a_table_in_a_pipe_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]):
    head, rule, first, second = table_text(LONG).splitlines()
    assert head.split() == ["fleet", "rate", "meaning"]
    assert rule.count("  ") == 2
    assert ("No difference is shown. " * 8).strip() in first
    assert second.split() == ["b", "1", "short"]


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(len, table_text(LONG).splitlines())) <= 70
    assert max(map(len, wrapped("word " * 50).splitlines())) <= 70


def test_a_section_as_text_leads_with_the_answer():
    section = Section("s", "What it costs", "It costs a lot. " * 20, notes=("A note.",))
    text = section_text(section)
    assert text.startswith("What it costs\n=============\n\nIt costs a lot.")
    assert text.endswith("* A note.")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert wrapped("word " * 50, "  ").splitlines()[1].startswith("  word")


def page_of(**given: Any) -> Page:
    empty: dict[str, Any] = {
        "title": "T",
        "subtitle": "S",
        "caution": None,
        "sections": (),
        "footer": "F",
    }
    return Page(**{**empty, **given})


def test_paper_gets_the_first_rows_of_a_long_table_and_the_command_that_lists_all():
    rows = tuple((str(n),) for n in range(60))
    tables = (
        TextTable("short", ("n",), rows[:5]),
        TextTable("long", ("n",), rows, lists_all="ettr node STORE --csv"),
    )
    html = render(page_of(sections=(Section("s", "S", "L", tables=tables),)))
    assert "tr:nth-child(n+6)" in html  # the style that ends the table on paper
    assert html.count("Printed:") == 1
    assert "Printed: 5 of 60 rows. <code>ettr node STORE --csv</code> lists all" in html


def test_the_page_begins_with_its_answers():
    answers = (Answer("Lost to failures", "12 [3, 20] GPU-hours", "of 400 that ran"),)
    html = render(page_of(answers=answers, sections=(Section("s", "S", "L"),)))
    assert html.index("12 [3, 20] GPU-hours") < html.index('<section id="')
    assert "of 400 that ran" in html
    assert 'class="answers"' not in render(page_of())


def test_only_the_pages_own_scripts_and_styles_are_allowed_to_count():
    figure = Figure("f", "F", "It shows f.", ({"type": "bar", "x": ["a"], "y": [1]},))
    html = render(page_of(sections=(Section("s", "S", "L", figures=(figure,)),)))
    policy = html.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert "unsafe" not in policy
    inline = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL)
    assert len(inline) == 2
    for text in (*inline, plotly()):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_a_report_is_small_enough_to_be_mailed():
    figure = Figure("f", "F", "It shows f.", ({"type": "bar", "x": ["a"], "y": [1]},))
    html = render(page_of(sections=(Section("s", "S", "L", figures=(figure,)),)))
    assert len(html.encode()) < 700_000


def test_a_page_without_figures_carries_no_library():
    """The button that switches its theme has a script of its own, the library has none."""
    html = render(page_of())
    assert 'id="library"' not in html
    assert 'getElementById("theme")' in html
    assert len(html) < 24_000


def test_a_page_says_that_a_long_table_is_cut():
    rows = tuple((str(n),) for n in range(1200))
    html = render(
        page_of(sections=(Section("s", "S", "L", tables=(TextTable("t", ("n",), rows),)),))
    )
    assert "The first 1,000 of 1200 rows; --json has all of them." in html


def test_a_figure_needs_no_other_file():
    figure = Figure("f", "F", "It shows f.", ({"type": "bar", "x": ["a"], "y": [1]},))
    html = render(page_of(sections=(Section("s", "S", "L", figures=(figure,)),)))
    assert 'id="figure-f"' in html
    assert "<link" not in html
    assert " src=" not in html.split("<script>")[0]


# -- what to do next ------------------------------------------------------------------------------


def analysis(**given: Any) -> Any:
    def cause(symptom: str, gpu_hours: float, failures: int = 1) -> SimpleNamespace:
        return SimpleNamespace(symptom=symptom, gpu_hours=gpu_hours, failures=failures)

    return SimpleNamespace(
        fleet_is_known=True,
        logs_read=LogsRead(
            jobs=given.get("jobs", True),
            node_checks=given.get("checks", ("xid",)),
            node_states=given.get("states", True),
            progress=False,
        ),
        period=SimpleNamespace(
            start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 8, tzinfo=UTC)
        ),
        evidence=SimpleNamespace(failed=SimpleNamespace(total=0, heard=0)),
        black_holes=(),
        hung_runs=(),
        node_records=SimpleNamespace(nodes=()),
        failure_list=SimpleNamespace(failures=given.get("failures", ())),
        goodput=SimpleNamespace(
            by_cause=[cause(*one) for one in given.get("causes", ())],
            crash_loops=given.get("loops", ()),
        ),
        rates=SimpleNamespace(all_jobs=SimpleNamespace(failures=0)),
        runs=SimpleNamespace(runs_found=given.get("runs", 0), measured_runs=0),
        lemon_nodes=SimpleNamespace(candidates=given.get("lemons", ())),
    )


def said(given: Any) -> list[str]:
    """The actions for an analysis."""
    return [one.says for one in actions(given, None)]


def test_a_quiet_site_is_told_nothing():
    assert said(analysis()) == []


def test_logs_without_jobs_ask_for_them():
    assert said(analysis(jobs=False)) == ["Add job accounting: failure rates and cost need it"]


def test_each_step_says_what_it_wins_and_how_it_is_done():
    steps = sentences(actions(analysis(loops=(repeated("fast"),), runs=5), None))
    assert steps[0] == ("Hold job 7: 12 failures, 80 GPU-hours lost (`ettr explain STORE 7`).")
    assert steps[1].startswith("Record training progress: without it ETTR rests on assumed times")


def repeated(*patterns: str, lost_gpu_hours: float = 80.0) -> CrashLoop:
    """A job that failed twelve times."""
    return CrashLoop(
        cluster="c",
        job_id="7",
        failures=12,
        n_gpus=512,
        preemptions=0,
        preempted_gpus=0,
        lost_gpu_hours=lost_gpu_hours,
        symptoms=("gpu-memory",),
        run_hours=118.6,
        expected_failures=2.0,
        burst=FailureBurst(10, 2.5, 0.1) if "fast" in patterns else None,
        node="n9" if "same-node" in patterns else None,
        patterns=patterns,
    )


def test_a_large_job_that_failed_by_chance_is_left_alone():
    """To hold it would have stopped a healthy run."""
    assert said(analysis(loops=(repeated(),))) == []


def test_advice_on_a_crash_loop_names_the_node_that_it_always_failed_on():
    (step,) = said(analysis(loops=(repeated("fast", "same-node"),)))
    assert "12 failures, always on n9" in step


def test_the_costliest_crash_loop_is_named():
    loops = (repeated("fast"), repeated("same-cause", lost_gpu_hours=900.0))
    (step,) = said(analysis(loops=loops))
    assert "900 GPU-hours" in step


def test_a_crash_loop_whose_gpus_nobody_named_has_no_cost():
    (step,) = said(analysis(loops=(repeated("fast", lost_gpu_hours=0.0),)))
    assert step == "Hold job 7: 12 failures"


def test_claimed_lemons_are_drained():
    lemons = [SimpleNamespace(node="n7", claimed=True)]
    failure = SimpleNamespace(node="n7", lost_gpu_hours=3.0, preempted_gpu_hours=None)
    (step,) = said(analysis(lemons=lemons, failures=[failure]))
    assert step == "Drain n7: 1 of 1 failure, 3 GPU-hours lost"


def test_missing_logs_are_asked_for():
    steps = said(analysis(checks=(), states=False, causes=[("gpu-memory", 300.0, 4)]))
    assert [step.split(":")[0] for step in steps] == [
        "Add kernel logs and health checks",
        "Add node states",
    ]


def test_the_costliest_known_cause_has_its_share_of_the_whole_loss():
    (step,) = said(analysis(causes=[("unattributed", 900.0, 9), ("gpu-memory", 100.0, 2)]))
    assert step == "Look into gpu memory first: 10 % of the loss"


def test_times_are_utc():
    assert moment(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01 00:00:00"


@pytest.mark.parametrize(("n", "text"), [(0, "0 runs"), (1, "1 run"), (1234, "1,234 runs")])
def test_a_count_and_its_noun_agree(n: int, text: str):
    assert counted(n, "run") == text


def funnel_of_nodes(counts: list[int], node_days: list[float]) -> Figure:
    """The figure of a fleet with those failures by node."""
    nodes = [
        (f"n{i}", FailureRate(n, days))
        for i, (n, days) in enumerate(zip(counts, node_days, strict=True))
    ]
    return node_funnel(funnel(nodes))


def test_the_funnel_names_the_node_that_chance_does_not_explain():
    """Twenty nodes at one failure in 50 days, and one with twelve."""
    figure = funnel_of_nodes([1] * 20 + [12], [50.0] * 21)
    points = figure.traces[0]
    assert [name for name in points["text"] if name] == ["n20"]
    assert points["hovertext"][20] == "n20: 12 failures in 50 node-days\nabove 99.8 %"
    assert points["y"][0] == pytest.approx(20.0)
    assert "1 of 21 nodes lie above the 99.8 % control limit" in figure.caption


def test_a_node_hardly_used_does_not_flatten_the_funnel():
    figure = funnel_of_nodes([1, 2, 1, 0], [40.0, 60.0, 50.0, 0.001])
    assert figure.layout["yaxis"]["range"][1] < 500.0
    assert figure.layout["xaxis"]["tickvals"] == [1e-3, 0.01, 0.1, 1.0, 10.0]


def test_axis_of_equal_nodes_still_has_ticks():
    figure = funnel_of_nodes([1, 2, 0], [30.0, 30.0, 30.0])
    assert figure.layout["xaxis"]["tickvals"] == [20.0]


HOSTILE = "</script><img src=x onerror=alert(1)>\u202e&\"'"


def test_names_that_are_markup_stay_text_in_the_page_and_in_its_figures():
    """Node, fleet and symptom names come from logs: in tables, notes, and what a figure says."""
    nodes = [(f"n{i}", FailureRate(1, 50.0)) for i in range(20)]
    of_nodes = node_funnel(funnel([*nodes, (HOSTILE, FailureRate(12, 50.0))]))
    compared = compare_section(
        compare_fleets(
            [typed_evidence(name, 5, 100.0) for name in (HOSTILE, "b", "c")], confidence=0.9
        )
    )
    section = Section(
        "s",
        HOSTILE,
        HOSTILE,
        (of_nodes,),
        (TextTable(HOSTILE, (HOSTILE,), ((HOSTILE,),)),),
        (HOSTILE,),
    )
    page = page_of(
        answers=(Answer(HOSTILE, HOSTILE, HOSTILE),),
        title=HOSTILE,
        subtitle=HOSTILE,
        footer=HOSTILE,
        sections=(section, compared),
    )
    html = render(page)
    assert compared.figures, "the funnel of fleets is among what is rendered"
    assert "<img" not in html
    assert "\u202e" not in html
    assert html.count("<script") == html.count("</script")
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") >= 10
    # the script decodes its data, and Plotly then reads markup in what it shows: escaped twice
    assert "\\u0026lt;img src=x onerror=alert(1)\\u0026gt;" in html


def test_an_interval_and_a_range_are_printed_apart():
    assert between(Interval(3.0, 2.0, 4.0)) == "3 [2, 4]"
    assert bounds(Interval(3.0, 2.0, 4.0)) == "3 (2 to 4)"
    assert bounds(Interval(None, 0.0, 0.888)) == "0 to 0.888"
    assert bounds(Interval(0.845, 0.845, 0.845)) == "0.845"
    assert bounds(Interval.unknown()) == "–"


def test_a_compiled_template_is_kept_for_the_next_process_and_a_broken_one_is_not_used(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    name = "notebook_answers.html.j2"
    fresh = environment.__wrapped__
    fresh().get_template(name)
    (kept,) = tmp_path.rglob("templates/*.pyc")
    compiled = []

    def counted_compile(*given: object, **more: object) -> object:
        compiled.append(given)
        return fresh().compile(*given, **more)

    def load() -> int:
        compiled.clear()
        environment = fresh()
        monkeypatch.setattr(environment, "compile", counted_compile)
        environment.get_template(name)
        return len(compiled)

    assert load() == 0
    before = kept.read_bytes()
    for broken in (b"", before[:40], b"not a template"):
        kept.write_bytes(broken)
        assert load() == 1
        assert load() == 0
    text = (Path(fresh().loader.get_source(fresh(), name)[1])).read_text("utf-8")
    monkeypatch.setattr(PackageLoader, "get_source", lambda *_: (f"{text} changed", None, None))
    assert load() == 1
