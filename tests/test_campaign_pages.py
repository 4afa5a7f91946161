"""Pages of campaigns are of today's program: a row for each source, and for each command."""

from __future__ import annotations

import csv
from pathlib import Path

import campaigns.__main__ as program
import campaigns.damage
from campaigns import NAMES, Table
from campaigns.__main__ import RESULTS, write_rows
from campaigns.options import commands, typed
from ettr.sources.registry import all_sources


def table(name: str) -> list[list[str]]:
    """The rows of a campaign's table, without its head."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def again(name: str) -> str:
    return f"{Path(RESULTS.name) / name}.csv is of another program: `make campaign {name}`"


def test_each_campaign_has_its_table_and_a_row_of_the_index():
    assert sorted([*NAMES, "index"]) == sorted(path.stem for path in RESULTS.iterdir())
    assert [row[0] for row in table("index")] == sorted(NAMES)


def test_a_campaign_run_again_replaces_its_row_and_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    write_rows(tmp_path / "index.csv", [["campaign"], ["damage", "old"], ["spares", "other"]])
    table = Table(("kind", "wrong"), (("cut, twice", "0"),), "7", "0 wrong", "holds")
    monkeypatch.setattr(campaigns.damage, "run", lambda _size: table)
    assert program.main(["damage"]) == 0
    assert (tmp_path / "damage.csv").read_text() == 'kind,wrong\n"cut, twice",0\n'
    with (tmp_path / "index.csv").open(newline="") as file:
        assert list(csv.reader(file))[1:] == [
            ["damage", "Damaged stores", "0 wrong", str(campaigns.damage.SIZE), "7", "holds"],
            ["spares", "other"],
        ]


def test_the_page_of_damaged_logs_has_every_source_of_today():
    assert [row[0] for row in table("fuzz")] == [*all_sources(), "all"], again("fuzz")


def test_the_page_of_absurd_values_has_every_command_and_option_of_today():
    found = {row[0]: int(row[1]) for row in table("options")}
    options = {name: len(list(typed(command, ""))) for name, command in commands().items()}
    assert found == options, again("options")
