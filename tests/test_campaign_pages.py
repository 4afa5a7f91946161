"""Pages of campaigns are of today's program: a row for each source, and for each command."""

from __future__ import annotations

from pathlib import Path

from campaigns.__main__ import RESULTS
from campaigns.options import commands, typed
from ettr.sources.registry import all_sources


def table(name: str) -> list[list[str]]:
    """The cells of the rows of a campaign's table, without its head."""
    lines = (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows[1:] if not set(row[0]) <= {"-"}]


def again(name: str) -> str:
    return f"{Path(RESULTS.name) / name}.md is of another program: `make campaign {name}`"


def test_the_page_of_damaged_logs_has_every_source_of_today():
    assert [row[0] for row in table("fuzz")] == [*all_sources(), "all"], again("fuzz")


def test_the_page_of_absurd_values_has_every_command_and_option_of_today():
    found = {row[0]: int(row[1]) for row in table("options")}
    options = {name: len(list(typed(command, ""))) for name, command in commands().items()}
    assert found == options, again("options")
