"""The terminal answers first; first help is short; a site file gives defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cli.program import ettr
from ettr.cli.groups import site_file
from ettr.cli.main import commands
from ettr.report.section import Section, TextTable, brief_text, without_intervals

METRICS = [name for panel, name, _ in commands() if panel == "One metric at a time"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("618 [322, 1,078] per 1,000 node-days (90 % interval).", "618 per 1,000 node-days."),
        ("mean 41.7 [31.4, 51.0] min, 12.8 [0, ∞] s", "mean 41.7 min, 12.8 s"),
        ("MTTF 4.55 min [2.61 min, 8.73 min], 40 [15.0, 69.6] %", "MTTF 4.55 min, 40 %"),
        ("8.7 h [2.6 h, 30 h; 90 % over all fitted models]", "8.7 h"),
        ("14.5 [< 0.0000001, 678] per 1,000", "14.5 per 1,000"),
        ("12.9 h [16.6 min, > 1,000,000 billion d], ETTR", "12.9 h, ETTR"),
        ("gpu[01-08] (gpu02) [context]", "gpu[01-08] (gpu02) [context]"),
    ],
)
def test_intervals_leave_nothing_behind(text: str, plain: str):
    assert without_intervals(text) == plain


def test_the_answer_stands_first_and_one_line_says_what_to_be_careful_with():
    table = TextTable("All", ("node", "rate", "why"), (("n1", "3 [1, 5]", "x"),) * 12, frozenset())
    section = Section(
        "s", "Title", "It is 3 [1, 5]. And more.", tables=(table, table), careful="Mind n2."
    )
    lines = brief_text([section], "Selected: user ann.").splitlines()
    assert lines[:2] == ["It is 3.", "Selected: user ann."]
    assert "Title" not in lines
    assert sum(line.startswith("n1 ") for line in lines) == 10
    assert lines[-2] == "Careful: Mind n2."


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_answers_in_its_first_line(name: str, site: Path):
    lines = ettr(name, site).out.splitlines()
    assert re.search(r"\d|No |Not measured", lines[0])
    assert not re.search(r"\d \[", "\n".join(lines))
    careful = [line for line in lines if line.startswith("Careful: ")]
    assert len(careful) == ("Not measured" not in lines[0])
    assert len(lines) <= 20


def test_every_command_that_prints_writes_to_a_file(tmp_path: Path, site: Path):
    asked = ["sql", site, "SELECT 1 AS one", "--csv", "-o", tmp_path / "one.csv"]
    assert ettr(*asked).code == 0
    assert (tmp_path / "one.csv").read_text() == "one\n1\n"
    for words in (["sources"], ["catalog", "79"]):
        file = tmp_path / f"{words[0]}.csv"
        printed = ettr(*words, "--csv")
        assert ettr(*words, "--csv", "-o", file).out == f"Written: {file}\n"
        assert file.read_text() == printed.out
    assert ettr("simulate", "show", "small", "-o", tmp_path / "s.toml").code == 0
    assert ettr("simulate", "show", tmp_path / "s.toml").code == 0
    assert "is a folder" in ettr("sources", "-o", tmp_path).err


def test_failures_are_listed_newest_first_a_line_each(site: Path):
    lines = ettr("failures", site, "--list").out.splitlines()
    stamps = [line[:19] for line in lines if line.startswith("2026-")]
    assert stamps == sorted(stamps, reverse=True)
    assert stamps


def _options(name: str, flag: str) -> list[str]:
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", ettr(name, flag).out, re.MULTILINE)


@pytest.mark.parametrize("name", [*METRICS, "plan"])
def test_the_first_help_is_short_and_the_other_shows_all(name: str):
    first, every = _options(name, "--help"), _options(name, "--help-all")
    assert len(first) <= (25 if name == "plan" else 10)
    assert set(first) < set(every)
    assert f"ettr {name} --help-all" in ettr(name, "--help").out


def test_a_site_file_gives_defaults_that_typed_options_replace(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    usual = ettr("goodput", site, "--json").json["first_order_gpu_hours"]
    Path("ettr.toml").write_text('interval = "10min"\nprice = "2USD"\nabove-gpus = 1\n')
    own = ettr("goodput", site, "--json").json
    assert own["first_order_gpu_hours"] < usual
    assert own["first_order_gpu_hours_cost"] == 2 * own["first_order_gpu_hours"]
    typed = ettr("goodput", site, "--json", "--interval", "60min").json
    assert typed["first_order_gpu_hours"] == usual
    assert "ettr.toml: --interval 10min" in ettr("goodput", site, "--detail").out
    assumed = ettr("quality", site, "--json").json["assumptions"]
    assert "From ettr.toml: --above-gpus 1." in assumed
    for words in (("failures", site), ("plan", site, "--gpus", "16"), ("compare", site, "a=1/10")):
        done = ettr(*words)
        assert done.code == 0, done.err


def test_a_site_file_is_refused_where_it_is_not_understood(site: Path, tmp_path: Path):
    given = tmp_path / "own.toml"
    given.write_text('intervall = "10min"\n')
    done = ettr("goodput", site, "--config", given)
    assert done.code == 2
    assert "no setting is called 'intervall'; did you mean interval" in done.err
    given.write_text("interval = true\n")
    assert "interval takes text or a number" in ettr("goodput", site, "--config", given).err
    assert "cannot be read" in ettr("goodput", site, f"--config={tmp_path / 'absent'}").err
    given.write_text("classes = 3\n")
    assert "classes holds lines" in ettr("goodput", site, "--config", given).err


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ('interval = "ten"', "goodput"),
        ('price = "2"', "goodput"),
        ("confidence = 1.5", "failures"),
        ('above-gpus = "many"', "failures"),
        ("gpus-per-node = -1", "goodput"),
    ],
)
def test_a_wrong_value_in_a_site_file_is_blamed_on_the_file(
    line: str, command: str, site: Path, tmp_path: Path
):
    given = tmp_path / "own.toml"
    given.write_text(f"{line}\n")
    done = ettr(command, site, "--config", given)
    assert done.code == 2
    assert done.err.startswith(f"ettr: {given}: {line.split(maxsplit=1)[0]}")
    assert "--" not in done.err.partition(";")[0]


def test_a_class_of_nodes_in_a_site_file_means_its_nodes(site: Path, tmp_path: Path):
    given = tmp_path / "own.toml"
    given.write_text('[classes]\nold = "n[1-2]"\nodd = ["n1", "n3"]\n')
    for name, nodes in (("old", ["n1", "n2"]), ("odd", ["n1", "n3"])):
        want = ettr("failures", site, "--json", *(f"--node={one}" for one in nodes)).json
        for typed in (["--node", name], [f"--node={name}"]):
            found = ettr("failures", site, "--json", *typed, "--config", given).json
            assert found["all_jobs"] == want["all_jobs"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["chaos", "python", "t.py", "--config", "a.toml"], None),
        (["elastic", "-n", "2", "python", "t.py", "--config=a.toml"], None),
        (["chaos", "--config", "a.toml", "--", "python"], None),
        (["report", "chaos", "--config", "SITE"], ["report", "chaos"]),
        (["--config", "SITE", "report", "elastic"], ["report", "elastic"]),
        (["--config", "SITE", "chaos", "p", "--config", "x"], ["chaos", "p", "--config", "x"]),
    ],
)
def test_a_program_that_is_run_keeps_its_own_config(
    words: list[str], left: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SITE").write_text("confidence = 0.8\n")
    site, rest = site_file(words)
    assert rest == (words if left is None else left)
    assert site.name == ("" if left is None else "SITE")


def test_a_report_in_ten_lines_as_text_page_and_json(site: Path, tmp_path: Path):
    lines = ettr("report", site, "--brief").out.splitlines()
    assert 6 <= len(lines) <= 14  # ten, some of them wrapped
    document = ettr("report", site, "--brief", "--json").json
    topics = [one["topic"] for one in document["lines"]]
    assert topics[0] == "GPU time lost to failures"
    assert topics.count("Do first") == 1
    lost = document["lines"][0]["says"]
    assert lines[1] == f"GPU time lost to failures: {lost}"
    # the report says the same below its own title
    assert ettr("report", site, "-o", tmp_path / "r.html").out.splitlines()[1:9] == lines[1:9]
    page = tmp_path / "mail.html"
    assert ettr("report", site, "--brief", "--html", page).out == f"Written: {page}\n"
    assert lost in page.read_text()
    assert "<script" not in page.read_text()


def test_any_answer_goes_to_a_file_and_any_list_to_csv(site: Path, tmp_path: Path):
    file = tmp_path / "nodes.csv"
    done = ettr("nodes", site, "--csv", "--table", "worst_nodes", "-o", file)
    assert done.out == f"Written: {file}\n", done.err
    document = ettr("nodes", site, "--json").json
    assert file.read_text().splitlines()[0].startswith("cluster,node,")
    assert len(file.read_text().splitlines()) == 1 + len(document["worst_nodes"])
    assert "give by_reason or worst_nodes" in ettr("nodes", site, "--csv", "--table", "x").err
    assert "names a list for --csv" in ettr("nodes", site, "--table", "by_reason").err


def test_nodes_are_ranked_by_what_their_failures_lost(site: Path):
    # the tuning job of 8 GPUs failed after twelve hours; at most 30 min of it count
    done = ettr("nodes", site, "--by", "lost-gpu-hours", "--interval", "1h")
    assert done.out.splitlines()[0].startswith("n1 cost most, 4 GPU-hours")
    entries = ettr("nodes", site, "--by", "lost-gpu-hours", "--json").json["nodes"]
    assert [(one["node"], one["lost_gpu_hours"]) for one in entries[:2]] == [("n1", 4), ("n2", 0)]


def test_a_cost_of_nodes_that_no_log_holds_is_not_measured(tmp_path: Path):
    (tmp_path / "kernel.log").write_text(
        "2026-03-01T07:59:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, gone\n"
    )
    assert ettr("ingest", tmp_path / "s", tmp_path / "kernel.log", "--timezone", "UTC").code == 0
    for by in ("lost-gpu-hours", "failures", "hours-out"):
        assert ettr("nodes", tmp_path / "s", "--by", by).out.startswith("Not measured: ")
    document = ettr("nodes", tmp_path / "s", "--by", "lost-gpu-hours", "--json").json
    assert document["lost_gpu_hours"] is None
    assert [one["lost_gpu_hours"] for one in document["nodes"]] == [None]


def test_gpus_are_listed_by_xid(site: Path):
    done = ettr("nodes", site, "--xid", "79", "--json").json
    (one,) = done["devices"]
    assert (one["node"], one["device"], one["events"]) == ("n1", "0000:3b:00", 1)
    assert ettr("nodes", site, "--xid", "48").out.startswith("XID 48: none in the logs.")


def test_a_demo_writes_logs_of_planted_failures_and_answers_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ettr.cli.report._DAYS", 4)
    folder = tmp_path / "demo"
    done = ettr("demo", folder)
    assert done.code == 0, done.err
    planted = pq.read_table(folder / "truth" / "faults.parquet").column("attempts_ended")
    found = ettr("failures", folder / "site", "--json").json["all_jobs"]["failures"]
    assert found == sum(planted.to_pylist()) > 0
    asked = re.findall(r"^\$ ettr (\w+) .*\n(.+)$", done.out, re.MULTILINE)
    assert [name for name, _ in asked] == ["ingest", "goodput", "mttf", "lemons", "report"]
    assert asked[1][1] == ettr("goodput", folder / "site").out.splitlines()[0]
    assert (folder / "report.html").is_file()
    assert "name a new folder" in ettr("demo", folder).err
