"""Cards of exported tables: valid under mlcroissant; `--check` says in words what is off."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cli.program import ettr
from ettr.report.cards import CONTEXT
from ettr.tables import DERIVED, TABLES

TERMS = ("--card", "--licence", "CC-BY-4.0")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables of the bad morning, under pseudonyms, with a card."""
    work = tmp_path_factory.mktemp("cards")
    logs = Path(__file__).resolve().parents[1] / "data" / "bad_morning"
    ettr("ingest", work / "site", *sorted(logs.iterdir()), "--timezone", "UTC")
    (work / "key").write_bytes(b"k" * 32)
    to = work / "out" / "{table}.parquet"
    done = ettr("export", work / "site", "--to", to, *TERMS, "--anonymise", work / "key")
    assert done.code == 0, done.err
    assert f"Card: {work / 'out' / 'croissant.json'}" in done.out
    return work / "out"


def copy_of(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "croissant.json"
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))


def of_file(card: Mapping[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in card["distribution"] if one["@id"] == name)
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own dependency
def test_mlcroissant_reads_the_card_without_an_issue(exported: Path, caplog):
    mlc = pytest.importorskip("mlcroissant")
    with caplog.at_level(logging.WARNING):
        dataset = mlc.Dataset(jsonld=str(exported / "croissant.json"))
    assert dataset.metadata.ctx.issues.report() == ""
    assert not [one.message for one in caplog.records if "croissant" in one.message.lower()]
    names = {one.uuid for one in dataset.metadata.record_sets}
    assert names == {*TABLES, *DERIVED}
    held = pq.read_table(exported / "failures.parquet").to_pylist()
    read = list(dataset.records("failures"))
    assert [one["failures/symptom"].decode() for one in read] == [one["symptom"] for one in held]


def test_the_context_has_every_term_that_mlcroissant_expects():
    rdf = pytest.importorskip("mlcroissant._src.core.rdf")
    versions = pytest.importorskip("mlcroissant._src.core.context")
    of_1_1 = versions.Context(conforms_to=versions.CroissantVersion.V_1_1)
    expected = rdf.make_context(of_1_1)
    assert {key: CONTEXT.get(key) for key in expected} == expected


def test_the_card_says_units_nulls_counts_and_what_is_anonymised(exported: Path):
    card = json.loads((exported / "croissant.json").read_text())
    assert card["license"] == "https://spdx.org/licenses/CC-BY-4.0"
    assert "pseudonyms" in card["description"]
    fields = {one["@id"]: one for each in card["recordSet"] for one in each["field"]}
    assert fields["attempts/elapsed_s"]["unitText"] == "seconds"
    assert fields["runs/gpu_hours"]["unitText"] == "GPU-hours"
    assert fields["attempts/user"]["description"] == "Owner. Null: the log has none. Anonymised."
    assert fields["attempts/elapsed_s"]["description"].endswith("does not say.")
    assert fields["runs/job_ids"]["description"].endswith("Anonymised.")
    assert "unitText" not in fields["attempts/user"]
    for name in TABLES:
        (count,) = of_file(card, f"{name}.parquet")["additionalProperty"]
        assert count["value"] == pq.read_metadata(exported / f"{name}.parquet").num_rows


def test_a_folder_as_exported_is_as_its_card_says(exported: Path):
    done = ettr("export", "--check", exported)
    assert done.code == 0
    assert f"{len(TABLES) + len(DERIVED)} files of croissant.json: as the card says" in done.out


def flip(folder: Path) -> None:
    path = folder / "failures.parquet"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 1
    path.write_bytes(whole)


def shorten(folder: Path) -> None:
    path = folder / "failures.parquet"
    path.write_bytes(path.read_bytes()[:-9])


def away(folder: Path) -> None:
    (folder / "runs.parquet").unlink()


def outside(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    changed(folder, lambda card: of_file(card, "runs.parquet").update(contentUrl="../secret"))


def by_link(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "runs.parquet").unlink()
    (folder / "runs.parquet").symlink_to("../secret")


def more(folder: Path) -> None:
    def change(card: dict[str, Any]) -> None:
        of_file(card, "failures.parquet")["additionalProperty"][0]["value"] = 99

    changed(folder, change)


def other_column(folder: Path) -> None:
    def change(card: dict[str, Any]) -> None:
        card["recordSet"][0]["field"][0]["source"]["extract"]["column"] = "clutser"

    changed(folder, change)


def other_type(folder: Path) -> None:
    changed(folder, lambda card: card["recordSet"][0]["field"][0].update(dataType="sc:Integer"))


def no_licence(folder: Path) -> None:
    changed(folder, lambda card: card.pop("license"))


def cut(folder: Path) -> None:
    path = folder / "croissant.json"
    path.write_bytes(path.read_bytes()[:5000])


def nested(folder: Path) -> None:
    (folder / "croissant.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (flip, "failures.parquet: its bytes have changed: sha256 is "),
        (shorten, "failures.parquet: is cut off or no application/x-parquet: "),
        (away, "runs.parquet: the file 'runs.parquet' is missing"),
        (outside, "'../secret' leads out of the folder; refused, nothing read"),
        (by_link, "'runs.parquet' leads out of the folder; refused, nothing read"),
        (more, "failures.parquet: holds 2 records; the card says 99"),
        (other_column, "nodes/cluster: nodes.parquet has no column 'clutser'"),
        (other_type, "nodes/cluster: is string in nodes.parquet; the card says sc:Integer"),
        (no_licence, "croissant.json: has no `license`, which the specification asks for"),
        (cut, "croissant.json: is cut off or no JSON"),
        (nested, "croissant.json: is cut off or no JSON"),
    ],
)
def test_what_is_off_is_said_in_words(exported: Path, tmp_path: Path, harm, words: str):
    folder = copy_of(exported, tmp_path / "copy")
    harm(folder)
    done = ettr("export", "--check", folder)
    assert done.code == 1
    assert words in done.out
    assert "secret" not in done.out.replace("'../secret'", "")


def test_a_csv_with_a_repeated_key_is_refused(tmp_path: Path, exported: Path):
    table = pq.read_table(exported / "failures.parquet")
    pyarrow.csv.write_csv(table.slice(0, 1), tmp_path / "own.csv")
    with (tmp_path / "own.csv").open(newline="") as file:
        head, row = csv.reader(file)
    (tmp_path / "own.csv").write_text(f"{','.join(head)}\n{','.join(row)}\n{','.join(row)}\n")
    card = {
        "@type": "https://schema.org/Dataset",
        "dct:conformsTo": "http://mlcommons.org/croissant/1.0",
        **dict.fromkeys(("name", "description", "license", "url", "creator"), "x"),
        "datePublished": "2026-01-01",
        "distribution": {
            "@id": "own",
            "contentUrl": "own.csv",
            "encodingFormat": "text/csv",
            "md5": "0" * 31,
        },
        "recordSet": {
            "@id": "r",
            "cr:key": {"@id": "r/a"},
            "field": {
                "@id": "r/a",
                "dataType": "sc:Text",
                "source": {"fileObject": {"@id": "own"}, "extract": {"column": head[0]}},
            },
        },
    }
    (tmp_path / "card.json").write_text(json.dumps(card))
    done = ettr("export", "--check", tmp_path, "--json")
    assert done.code == 1
    assert [one["words"] for one in done.json] == [
        f"`md5` '{'0' * 31}' is not a checksum of 32 digits",
        f"{head[0]} is its key, and 1 record of own repeats it",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("site", "--to", "t.duckdb", *TERMS), "describes Parquet and CSV files"),
        (("site", "--to", "{table}.csv", "--card"), "needs --licence"),
        (("site", "--to", "{table}.csv", "--licence", "MIT"), "give --card too"),
        (("site", "--check", "."), "leave out STORE, --to and --card"),
        (("--check", "nowhere"), "is not a folder"),
        (("site",), "give a STORE and --to FILE, or --check DIR"),
    ],
)
def test_a_card_that_cannot_be_is_refused_before_the_work(words, said: str, tmp_path: Path):
    done = ettr("export", *words, folder=tmp_path)
    assert done.code == 2
    assert said in done.err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own dependency
def test_a_card_of_packed_records_is_valid_and_a_changed_shard_is_refused(tmp_path: Path):
    mlc = pytest.importorskip("mlcroissant")
    shards = []
    for number, images in enumerate((4, 3)):
        name, heads = f"shard-{number:05}.tar", [2048, 4096 + number]
        (tmp_path / name).write_bytes(b"x" * 5000)
        shards.append({"file": name, "samples": images, "head_bytes": heads, "index_crc32": 1})
    manifest = {"format": "ettr records 1", "groups": [1, 10], "shards": shards}
    (tmp_path / "records.json").write_text(json.dumps(manifest))
    done = ettr("export", tmp_path, *TERMS)
    assert done.code == 0, done.err
    dataset = mlc.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert dataset.metadata.ctx.issues.report() == ""
    read = [
        (one["shards/file"].decode(), one["shards/samples"], one["shards/head_bytes_2"])
        for one in dataset.records("shards")
    ]
    assert read == [("shard-00000.tar", 4, 4096), ("shard-00001.tar", 3, 4097)]
    card = json.loads((tmp_path / "croissant.json").read_text())
    assert "7 progressive JPEGs in 2 shards" in card["description"]
    assert ettr("export", "--check", tmp_path).code == 0
    (tmp_path / "shard-00001.tar").write_bytes(b"x" * 4999 + b"y")
    found = ettr("export", "--check", tmp_path)
    assert found.code == 1
    assert "its bytes have changed" in found.out + found.err
    assert "--licence" in ettr("export", tmp_path, "--card").err
