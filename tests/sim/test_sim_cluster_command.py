"""`ettr simulate`: scenario files, the store and the truth that it writes, and what reports say."""

from __future__ import annotations

import csv
import json
from dataclasses import MISSING, fields
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ettr
from ettr.cli.main import build_app
from ettr.errors import EttrError, StoreError, UsageError
from ettr.sim.cluster.scenario import SHIPPED, parts_of, scenario_of, scenario_text
from ettr.sim.cluster.standing import standing_of
from ettr.sim.cluster.workload import NOT_SIMULATED
from ettr.tables import DERIVED, TABLES

RUN = CliRunner()
# three days of the smallest scenario
SHORT, _ = scenario_text("small")
SHORT = SHORT.replace("days = 7", "days = 3")


def ettr_out(*words: str) -> str:
    """What a command prints; its error is raised."""
    done = RUN.invoke(build_app(words[0]), list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the command says of the run, with its store."""
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "short.toml").write_text(SHORT, "utf-8")
    words = ["run", str(folder / "short.toml"), "--store", str(folder / "site"), "--json"]
    return {"store": folder / "site", **json.loads(ettr_out("simulate", *words))}


@pytest.fixture(scope="module")
def store(summary: dict[str, object]) -> Path:
    return summary["store"]


@pytest.mark.slow
def test_the_summary_counts_what_the_tables_hold(summary: dict[str, object], store: Path):
    assert (summary["nodes"], summary["days"], summary["seed"]) == (40, 3.0, 1)
    job_ids = pq.read_table(store / "parts" / "attempts")["job_id"].to_pylist()
    assert summary["attempts"] == len(job_ids)
    assert summary["jobs"] == len(set(job_ids))
    truth = pq.read_table(f"{store}-truth/attempts.parquet").to_pylist()
    faults = [row for row in truth if row["fault"] is not None]
    assert summary["failed_attempts"] == len(faults)
    assert any(row["end"] == "FAILED" for row in faults), "or the next line shows nothing"
    # a program that fails by itself has lost no work to an interruption; every restart costs
    stopped = faults + [row for row in truth if row["end"] == "PREEMPTED"]
    lost_gpu_s = sum(row["gpus"] * row["lost_s"] for row in stopped)
    lost_gpu_s += sum(row["gpus"] * row["restart_s"] for row in truth)
    assert summary["lost_gpu_hours"] == pytest.approx(lost_gpu_s / 3600)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_of_a_shipped_scenario_has_a_source(name: str):
    scenario = scenario_of(scenario_text(name)[0])
    given = [
        one.name
        for _, part in parts_of(scenario)
        for one in fields(part)
        if one.default is MISSING or getattr(part, one.name) != one.default
    ]
    assert len(scenario.sources) >= len(given)
    assert all(scenario.sources.values())
    assert scenario.name == name


def test_a_value_without_a_source_is_refused_with_all_other_problems():
    text = SHORT.replace(
        'nodes = { value = 40, source = "assumed" }', "nodes = 40\ncolour = 7"
    ).replace('interval_s = { value = 300, source = "assumed" }', "")
    with pytest.raises(UsageError) as raised:
        scenario_of(text, "mine.toml")
    message = str(raised.value)
    assert "mine.toml" in message
    assert "machines.nodes: has no source" in message
    assert "machines.colour: no such value" in message
    assert "checks: lacks interval_s" in message


def test_a_misspelt_key_of_a_value_is_refused_with_all_other_problems():
    """A table with a source for all its values would have hidden the first."""
    text = SHORT.replace(
        'nodes = { value = 40, source = "assumed" }',
        'nodes = { value = 40, source = "assumed", unit = "x" }',
    ).replace("days = 3", 'days = { value = 3, sourec = "paper" }')
    with pytest.raises(UsageError) as raised:
        scenario_of(text, "mine.toml")
    message = str(raised.value)
    assert "machines.nodes: has no use for unit; a value has value, source, low, high" in message
    assert "period.days: has no use for sourec" in message


@pytest.mark.parametrize(
    ("days", "says"),
    [
        ("1" + "0" * 400, "period.days"),
        ("1" + "0" * 5000, "no TOML"),
        ("[" * 3000 + "]" * 3000, "no TOML"),
        ("true", "True is not a number"),
    ],
)
def test_a_number_that_no_float_holds_is_refused_in_a_sentence(days: str, says: str):
    with pytest.raises(UsageError, match=says) as raised:
        scenario_of(SHORT.replace("days = 3", f"days = {days}"))
    assert len(str(raised.value)) < 1000


def test_a_file_may_begin_with_a_byte_order_mark():
    assert scenario_of("\ufeff" + SHORT) == scenario_of(SHORT)


@pytest.mark.slow
def test_the_store_says_that_it_is_simulated_before_anything_else(store: Path):
    words = "SIMULATED, no cluster logged this: short.toml, seed 1."
    for command in (["failures"], ["nodes"], ["lemons"], ["quality"], ["causes"], ["project"]):
        assert ettr_out(command[0], str(store)).startswith(words), command
    assert ettr_out("explain", str(store), "1").startswith(words)
    document = json.loads(ettr_out("mttf", str(store), "--json"))
    assert document["selection"]["simulated"] == words
    page = store.parent / "report.html"
    printed = ettr_out("report", str(store), "--output", str(page))
    assert printed.startswith("Simulated: reliability of small")
    assert words in ettr_out("report", str(store), "--output", str(page), "--detail")
    assert words in page.read_text("utf-8")
    with ettr.open(store) as fleet:
        for result in (
            fleet.mttf,
            fleet.totals,
            fleet.node_records,
            ettr.plan_run(fleet, gpus=64),
            ettr.project(fleet, gpus=[64]),
            ettr.compare(fleet, ("old", 30, 5000.0)),
            ettr.compare(fleet, published=True),
        ):
            assert str(result).count(words) == 1, result.main


@pytest.mark.slow
def test_reports_of_the_store_list_what_is_not_validated_and_not_simulated(store: Path):
    standing = standing_of(scenario_of(SHORT))
    document = json.loads(ettr_out("report", str(store), "--json"))
    for head in (
        document["selection"],
        json.loads(ettr_out("mttf", str(store), "--json"))["selection"],
    ):
        assert head["back_test"] == "not validated"
        assert head["not_validated"] == list(standing.not_validated)
        assert head["not_simulated"] == list(NOT_SIMULATED)
    page = store.parent / "listed.html"
    printed = ettr_out("report", str(store), "--output", str(page), "--detail")
    quality = ettr_out("quality", str(store), "--detail")
    for text in (printed, page.read_text("utf-8"), quality):
        said = " ".join(text.split())
        assert f"Not simulated: {', '.join(NOT_SIMULATED)}." in said
        lists_it = "the effect of a change (whatif), since what is held back" in said
        assert lists_it == (text != quality)  # it says that nothing was, and that is all of it
    assert "Back-test of what was simulated: not validated." in " ".join(printed.split())
    assert standing.sentence in " ".join(ettr_out("quality", str(store), "--detail").split())


@pytest.mark.slow
def test_a_store_of_an_older_version_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It kept the seed only."""
    monkeypatch.setattr("ettr.sim.cluster.run._options", lambda _, seed, __: {"seed": seed})
    (tmp_path / "short.toml").write_text(SHORT.replace("days = 3", "days = 0.5"), "utf-8")
    older = str(tmp_path / "older")
    ettr_out("simulate", "run", str(tmp_path / "short.toml"), "--store", older)
    head = json.loads(ettr_out("mttf", older, "--json"))["selection"]
    assert head["simulated"]
    assert (head["back_test"], head["not_validated"], head["not_simulated"]) == ("", [], [])
    printed = ettr_out("report", older, "--output", str(tmp_path / "report.html"))
    assert "Back-test of what" not in printed


def test_every_row_names_the_simulation_as_its_source(store: Path):
    tables = {path.name for path in (store / "parts").iterdir()}
    assert {"attempts", "allocations", "events", "node_states", "nodes", "log_days"} <= tables
    for path in (store / "parts").rglob("*.parquet"):
        assert set(pq.read_table(path, columns=["source"])["source"].to_pylist()) == {"simulation"}


@pytest.mark.slow
def test_exported_rows_keep_that_they_are_simulated(store: Path, tmp_path: Path):
    words = "SIMULATED, no cluster logged this: short.toml, seed 1."
    said = ettr_out("export", str(store), "--table", "failures", "--to", str(tmp_path / "f.csv"))
    assert words in said  # on stderr
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text("utf-8").splitlines()))
    assert rows
    assert {row["simulated"] for row in rows} == {words}
    ettr_out("export", str(store), "--to", str(tmp_path / "t.duckdb"))
    ettr_out("export", str(store), "--to", str(tmp_path / "{table}.parquet"))
    with duckdb.connect(str(tmp_path / "t.duckdb"), read_only=True) as database:
        for name in (*TABLES, *DERIVED):
            column, value = ("simulated", words) if name in DERIVED else ("source", "simulation")
            asked = f'SELECT DISTINCT "{column}" FROM "{name}"'  # noqa: S608 - names of ours
            assert database.execute(asked).fetchall() in ([(value,)], [])
            read = pq.read_table(tmp_path / f"{name}.parquet")[column].unique().to_pylist()
            assert read in ([value], [])


@pytest.mark.slow
def test_a_csv_of_changes_has_its_standing_on_stderr(tmp_path: Path):
    scenario = tmp_path / "day.toml"
    scenario.write_text(SHORT.replace("days = 3", "days = 0.5"), "utf-8")
    words = ["simulate", "whatif", str(scenario), "--set", "checkpoints.interval_s=9", "--csv"]
    done = RUN.invoke(build_app("simulate"), [*words, "--runs", "3"], catch_exceptions=False)
    assert done.stdout.startswith("change,")
    for said in ("SIMULATED", "NOT VALIDATED", "CHECKPOINTS COST NOTHING", "Not simulated:"):
        assert said in done.stderr
        assert said not in done.stdout


@pytest.mark.slow
def test_answers_say_what_is_not_simulated(summary: dict[str, object], tmp_path: Path):
    assert "checkpoint stalls" in summary["not_simulated"]
    scenario = tmp_path / "day.toml"
    text = SHORT.replace("days = 3", "days = 0.5")
    scenario.write_text(text, "utf-8")
    said = "Not simulated: placement by switch, network contention, checkpoint stalls"
    for words in (
        ["run", str(scenario), "--store", str(tmp_path / "one")],
        ["whatif", str(scenario), "--set", "lemons.share=0", "--runs", "3"],
        ["sensitivity", str(scenario), "--vary", "checkpoints.interval_s", "--runs", "3"],
    ):
        printed = " ".join(ettr_out("simulate", *words).split())
        assert said in printed
        assert ("CHECKPOINTS COST NOTHING" in printed) == (words[0] == "sensitivity")
    stalls = text.replace("[checkpoints]", '[checkpoints]\nwrite_s = {value = 9, source = "us"}')
    scenario.write_text(stalls, "utf-8")
    words = ["run", str(scenario), "--store", str(tmp_path / "two")]
    assert "checkpoint stalls" not in ettr_out("simulate", *words)


@pytest.mark.slow
def test_a_second_run_gives_the_same_bytes(store: Path, tmp_path: Path):
    scenario = store.parent / "short.toml"
    printed = ettr_out("simulate", "run", str(scenario), "--store", str(tmp_path / "again"))
    assert "40 nodes, 3 days, seed 1" in printed
    for folder in ("site", "site-truth"):
        first = store.parent / folder
        second = tmp_path / folder.replace("site", "again")
        assert contents(first) == contents(second)
        assert len(contents(first)) >= 4


def contents(folder: Path) -> dict[str, bytes]:
    """The Parquet files below a folder by table; a store adds letters by chance to their names."""
    found = {}
    for path in folder.rglob("*.parquet"):
        name = path.parent.name if path.parent.parent.name == "parts" else path.name
        found[name] = path.read_bytes()
    return found


@pytest.mark.slow
def test_simulated_rows_never_join_others(store: Path, tmp_path: Path):
    scenario = str(store.parent / "short.toml")
    with pytest.raises(StoreError, match="holds logs already"):
        ettr_out("simulate", "run", scenario, "--store", str(store), "--truth", str(tmp_path / "t"))
    truth = tmp_path / "truth"
    truth.mkdir()
    (truth / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(StoreError, match="is not empty"):
        ettr_out("simulate", "run", scenario, "--store", str(tmp_path / "s"), "--truth", str(truth))
    with pytest.raises(StoreError, match="is a file"):
        ettr_out("simulate", "run", scenario, "--store", str(tmp_path / "s"), "--truth", scenario)
    log = tmp_path / "real.psv"
    log.write_text(
        "JobID|Partition|State|Submit|Start|End|NNodes|NodeList\n"
        "9|gpu|COMPLETED|2026-01-05T00:00:00|2026-01-05T01:00:00|2026-01-05T02:00:00|1|n1\n",
        "utf-8",
    )
    with pytest.raises(StoreError, match="holds a simulation; simulated rows never mix"):
        ettr_out("ingest", str(store), str(log), "--timezone", "UTC")
    assert "gpu" not in pq.read_table(store / "parts" / "attempts")["partition"].to_pylist()


@pytest.mark.slow
def test_failures_are_those_that_were_planted(store: Path):
    """Attribution finds what the truth holds, but for what no log shows."""
    truth = pq.read_table(store.parent / "site-truth" / "attempts.parquet").to_pylist()
    ended = {row["attempt_id"]: row for row in truth if row["fault"] is not None}
    document = json.loads(ettr_out("failures", str(store), "--json"))
    found = {row["attempt_id"]: row for row in document["rows"]}
    assert len(ended) >= 5
    down = {key for key, row in ended.items() if row["end"] == "NODE_FAIL"}
    assert down <= found.keys()
    named = [key for key in down if found[key]["node"] is not None]
    assert all(found[key]["node"] == ended[key]["node"] for key in named)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "small"], "--store STORE"),
        (["run", "no-such.toml", "--store", "x"], "rsc-1-like"),
        (["run", "small", "--store", "postgres://me@here/db"], "--truth FOLDER"),
    ],
)
def test_a_message_says_what_to_give(words: list[str], says: str):
    with pytest.raises(EttrError, match=says):
        ettr_out("simulate", *words)


@pytest.mark.slow
def test_show_prints_the_file_and_that_nobody_validated_it():
    text = scenario_text("small")[0]
    shown = ettr_out("simulate", "show", "small")
    assert shown.startswith(text.rstrip())
    assert scenario_of(shown) == scenario_of(text)
    assert "# NOT VALIDATED" in shown.removeprefix(text.rstrip())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["whatif", "small"], "--set lemons.share=0"),
        (["whatif", "small", "--set", "lemons.share=0", "--store", "x"], "--store"),
        (["run", "small", "--store", "x", "--set", "lemons.share=0"], "--set"),
        (["show", "small", "--runs", "5"], "--runs"),
        (["sensitivity", "small", "--backend", "dask"], "with --workers, 2 or more"),
        (["backtest", "small", "--backend", "ray", "--workers", "1"], "with --workers, 2 or more"),
    ],
)
def test_an_option_that_an_action_has_no_use_for_is_refused(words: list[str], says: str):
    with pytest.raises(UsageError, match=says):
        ettr_out("simulate", *words)


@pytest.mark.parametrize("of_nobody", [True, False], ids=["quota of nobody", "truth in the way"])
def test_a_run_that_is_refused_leaves_no_store(of_nobody: bool, tmp_path: Path):
    quota = '[[quotas]]\nsource = "assumed"\nscope = "user"\nname = "ann"\nmost_gpus = 8\n'
    (tmp_path / "given.toml").write_text(SHORT + (quota if of_nobody else ""), "utf-8")
    (tmp_path / "truth").mkdir()
    if not of_nobody:
        (tmp_path / "truth" / "notes.txt").write_text("mine", "utf-8")
    words = ["run", str(tmp_path / "given.toml"), "--store", str(tmp_path / "site")]
    with pytest.raises(EttrError, match="'ann'" if of_nobody else "truth"):
        ettr_out("simulate", *words, "--truth", str(tmp_path / "truth"))
    assert not (tmp_path / "site").exists()
