"""What `--engine` refuses, each in a sentence that says what to do."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ettr as front
from cli.program import ettr
from ettr.errors import StoreError, UsageError
from ettr.facts.spark import Spark

LOGS = Path(__file__).resolve().parents[1] / "data" / "bad_morning"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("engine") / "site")
    assert ettr("ingest", place, str(LOGS / "sacct.psv"), "--timezone", "UTC").code == 0
    return place


@pytest.fixture
def closed() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and never listens
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize(
    ("engine", "options", "code", "words"),
    [
        ("flink", (), 2, "--engine flink: give duckdb, spark"),
        ("spark:/host", (), 2, "give duckdb, spark"),
        ("http://host", (), 2, "sc://HOST:15002 for Spark Connect"),
        ("spark", ("--engine-option", "executor.memory=8g"), 2, "begin with spark."),
        ("spark", ("--engine-option", "spark.x"), 2, "give KEY=VALUE"),
        ("duckdb", ("--engine-option", "wings=2"), 2, "wings"),
        ("sc://", (), 1, "no server answers: no host is named; give sc://HOST:15002"),
        ("sc://CLOSED", (), 1, "no server answers: Connection refused"),
        ("sc://CLOSED/;token=SECRET", (), 1, "no server answers: Connection refused; give"),
        ("spark://CLOSED", (), 1, "no server answers: Connection refused"),
        ("sc://host:port", (), 1, "no server answers"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    folder: str, closed: str, engine: str, options: tuple[str, ...], code: int, words: str
):
    pytest.importorskip("pyspark")
    engine = engine.replace("CLOSED", closed)
    done = ettr("status", folder, "--engine", engine, *options)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert "Traceback" not in done.err
    assert "SECRET" not in done.err


def test_without_pyspark_or_java_it_says_what_to_install(
    folder: str, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("pyspark")
    with monkeypatch.context() as without:
        without.setattr("shutil.which", lambda _name: None)
        without.delenv("JAVA_HOME", raising=False)
        assert "Spark needs Java 17" in ettr("status", folder, "--engine", "spark").err
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert "pip install 'ettr[spark]'" in ettr("status", folder, "--engine", "spark").err


def test_what_runs_on_duckdb_alone_is_refused_by_name(folder: str, tmp_path: Path):
    pytest.importorskip("pyspark")
    file = str(tmp_path / "site.duckdb")
    assert ettr("ingest", file, str(LOGS / "sacct.psv"), "--timezone", "UTC").code == 0
    assert "a store that is a folder" in ettr("status", file, "--engine", "spark").err
    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    words = ("report", folder, "--json", "--anonymise", str(key), "--engine", "spark")
    assert "--anonymise: names are replaced on duckdb" in ettr(*words).err
    typed = "--failures 3 --node-days 900 --nodes 4 --days 2"
    refused = ettr("plan", *typed.split(), "--engine", "spark")
    assert "--engine: needs a STORE" in refused.err
    with pytest.raises(UsageError, match="give duckdb, spark"):
        front.open(folder, engine="flink").status  # noqa: B018


def test_rows_above_the_bound_are_refused_by_the_names_of_their_facts():
    errors = pytest.importorskip("pyspark.errors")
    pytest.importorskip("sqlglot")

    class Session:
        def sql(self, _: str) -> None:
            raise errors.PySparkException(
                "Total size of serialized results of 12 tasks (65.1 MiB) is bigger than "
                "spark.driver.maxResultSize (64.0 MiB)"
            )

    with pytest.raises(StoreError, match="about all_episodes are more than may come") as refused:
        Spark(Session(), "spark").arrow("SELECT * FROM fact_all_episodes_117", {})
    assert "--engine-option spark.driver.maxResultSize=4g" in str(refused.value)
